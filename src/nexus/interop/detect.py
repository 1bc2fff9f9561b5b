"""Tells what format a session file has, by its content, and reads it.

The decision is made line by line, as far as it takes: one field that only one format has decides. Plain text messages
look the same in OpenAI's and Anthropic's form, and are read as OpenAI's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from nexus.errors import UnknownFormat, UnreadableFile
from nexus.interop import anthropic_file, claude_code, openai_file, turnlog_read
from nexus.interop.chat_file import conversations_in
from nexus.interop.json_lines import read_json_lines
from nexus.interop.transcript import Transcript
from nexus.providers.received import items_of, mapping, text_of
from nexus.render.turnlog.entry import FIELDS

READERS: dict[str, Callable[[Path], Iterator[Transcript]]] = {
    "anthropic": anthropic_file.read,
    "claude_code": claude_code.read,
    "openai": openai_file.read,
    "turnlog": turnlog_read.read,
}
"""The formats that can be read, by name."""

_LOOK_AT_LINES = 2_000
_EVENTS = {"user", "assistant", "system", "progress", "summary", "attachment"} | {
    "file-history-snapshot",
    "queue-operation",
    "custom-title",
    "ai-title",
}
_EVENT_FIELDS = ("sessionId", "parentUuid", "leafUuid", "snapshot", "isSidechain", "message")
_OPENAI_ROLES = {"developer", "tool", "function"}
_OPENAI_FIELDS = ("tool_calls", "tool_call_id", "function_call", "reasoning_content", "refusal")
_OPENAI_PARTS = {"image_url", "input_audio", "file", "refusal", "input_text", "output_text"}
_ANTHROPIC_PARTS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}


def detect(path: Path) -> str:
    """The file's format: a name in `READERS`. Raises UnknownFormat, or UnreadableFile when it cannot be read."""
    plain, values, problem = False, 0, ""
    for row in islice(read_json_lines(path), _LOOK_AT_LINES):
        values += row.value is not None or not row.kind
        problem = problem or (f"line {row.problem.line}: {row.problem.text}" if row.problem else "")
        if _is_event(mapping(row.value)):
            return "claude_code"
        conversations = conversations_in(row.value)
        if not conversations and "role" in mapping(row.value):
            conversations = [{"messages": [row.value]}]
        for conversation in conversations:
            if found := _provider(conversation):
                return found
            plain = plain or any("role" in mapping(item) for item in items_of(conversation["messages"]))
    if plain:
        return "openai"
    if not values and problem:
        raise UnreadableFile(f"{path} holds no JSON ({problem}): give a session file in JSON or JSON Lines")
    raise UnknownFormat(
        f"{path} is in none of the formats that can be read ({', '.join(READERS)}). "
        "If it is one of them, name it with --format."
    )


def read(path: Path, form: str | None = None) -> Iterator[Transcript]:
    """The file's conversations, one at a time; the format is detected when it is not given.

    Raises UnknownFormat and UnreadableFile; damage inside the file is in the transcripts' `problems`.
    """
    reader = READERS.get(detect(path) if form is None else form)
    if reader is None:
        raise UnknownFormat(f"no format {form!r}: those that can be read are {', '.join(READERS)}")
    return reader(path)


def _is_event(record: dict[str, Any]) -> bool:
    return (
        text_of(record.get("type")) in _EVENTS
        and "role" not in record
        and any(name in record for name in _EVENT_FIELDS)
    )


def _provider(conversation: dict[str, Any]) -> str:
    """The format that a conversation's fields prove; empty if it is plain."""
    if isinstance(conversation.get("system"), (str, list)):
        return "anthropic"
    for item in items_of(conversation["messages"]):
        message = mapping(item)
        if all(name in message for name in FIELDS):
            return "turnlog"
        if text_of(message.get("role")) in _OPENAI_ROLES or any(name in message for name in _OPENAI_FIELDS):
            return "openai"
        for part in map(mapping, items_of(message.get("content"))):
            kind = text_of(part.get("type"))
            if kind in _ANTHROPIC_PARTS or (kind == "image" and "source" in part):
                return "anthropic"
            if kind in _OPENAI_PARTS:
                return "openai"
    return ""
