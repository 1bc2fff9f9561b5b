"""Detection of a session file's format by its content.

Lines are read until a field occurs that only one format has. Plain text messages are the same in OpenAI's and
Anthropic's format and are read as OpenAI's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from nexus.errors import UnreadableFile
from nexus.interop.chat_files import conversations_in, is_content, is_item, is_message, is_nanobot
from nexus.interop.json_lines import OnRead, read_json_lines
from nexus.interop.readers import READERS, FileReader, find_reader
from nexus.interop.transcript import Transcript
from nexus.providers.received import items_of, mapping, text_of

_LOOK_AT_LINES = 2_000
_MESSAGE_EVENTS = {"user", "assistant", "system", "progress", "summary", "attachment"}
_EVENTS = {*_MESSAGE_EVENTS, "file-history-snapshot", "queue-operation", "custom-title", "ai-title"}
_EVENT_FIELDS = ("sessionId", "parentUuid", "leafUuid", "snapshot", "isSidechain", "message")
_OPENAI_ROLES = {"developer", "tool", "function"}
_OPENAI_FIELDS = ("tool_calls", "tool_call_id", "function_call", "reasoning_content", "refusal")
_OPENAI_PARTS = {"image_url", "input_audio", "file", "refusal"}
_ANTHROPIC_PARTS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}


def detect(path: Path) -> str:
    """Return the file's format, a name in `READERS`. Raises UnreadableFile."""
    # Plain messages prove nothing, so the next lines are read too: the first field of one format decides.
    plain = False
    has_values = False
    problem = ""
    for row in islice(read_json_lines(path), _LOOK_AT_LINES):
        has_values = has_values or row.value is not None or not row.kind
        if row.problem and not problem:
            problem = f"line {row.problem.line}: {row.problem.text}"
        record = mapping(row.value)
        if _is_event(record):
            return "claude_code"
        if is_nanobot(record):
            return "nanobot"
        if name := _owner(lambda reader, value=row.value: reader.owns_value(value)):
            return name
        conversations = conversations_in(row.value)
        if not conversations and is_message(record):
            conversations = [{"messages": [row.value]}]
        for conversation in conversations:
            if format_name := _provider(conversation):
                return format_name
            plain = plain or any(_is_plain(mapping(item)) for item in items_of(conversation["messages"]))
    if plain:
        return "openai"
    if problem and (name := _owner(lambda reader: reader.owns_damaged(path))):
        return name
    if problem and not has_values:
        raise UnreadableFile(f"{path} contains no JSON: {problem} (give a session file in JSON or JSON Lines)")
    raise UnreadableFile(
        f"format of {path} not recognized (name it with --format: {', '.join(READERS)})", code="unknown_format"
    )


def read(path: Path, form: str | None = None, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the file's conversations; the format is detected by default.

    Raises UnreadableFile. Damage inside the file is in the transcripts' `problems`.
    """
    return find_reader(detect(path) if form is None else form).read(path, on_read)


def first_time(path: Path) -> str:
    """Return the first time in a JSON Lines file, as text that sorts; empty without one."""
    if path.suffix != ".jsonl":
        return ""
    with suppress(UnreadableFile):
        for row in islice(read_json_lines(path), _LOOK_AT_LINES):
            if time := text_of(mapping(row.value).get("timestamp")):
                return time
    return ""


def _owner(owns: Callable[[FileReader], bool]) -> str:
    """Return the first format that owns something, by name; empty if none does."""
    return next((name for name, reader in READERS.items() if owns(reader)), "")


def _is_event(record: dict[str, Any]) -> bool:
    """Return True for a line of Claude Code's session files."""
    if text_of(record.get("type")) not in _EVENTS or "role" in record:
        return False
    return any(name in record for name in _EVENT_FIELDS)


def _is_plain(message: dict[str, Any]) -> bool:
    """Return True for a message of text, in which several formats are the same."""
    return "role" in message and ("content" in message or "parts" not in message)


def _provider(conversation: dict[str, Any]) -> str:
    """Return the format that a conversation's fields prove; empty if it is plain."""
    if isinstance(conversation.get("system"), (str, list)):
        return "anthropic"
    for item in items_of(conversation["messages"]):
        message = mapping(item)
        if name := _owner(lambda reader, message=message: reader.owns_message(message)):
            return name
        if is_content(message):
            return "gemini"
        if is_item(message):
            return "responses"
        if text_of(message.get("role")) in _OPENAI_ROLES or any(name in message for name in _OPENAI_FIELDS):
            return "openai"
        for part in map(mapping, items_of(message.get("content"))):
            kind = text_of(part.get("type"))
            if kind in _ANTHROPIC_PARTS or (kind == "image" and "source" in part):
                return "anthropic"
            if kind in _OPENAI_PARTS:
                return "openai"
    return ""
