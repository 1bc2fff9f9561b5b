"""Readers of conversations as providers' requests have them, and of nanobot's session files.

The formats are OpenAI's chat completions and Responses items, Anthropic's messages and Gemini's contents. A file contains
one conversation (an object with `messages`, `input` or `contents`, or an array of messages), an array of conversations,
one conversation a line, or one message a line. Lines that name their conversation belong to it. Each message is a piece,
keyed by its conversation, position and content, so a file that grew adds the rest. Responses items of the model in a row
are one message, whose content is in the first item's piece.

nanobot's files (`sessions/*.jsonl`) have one message a line in OpenAI's format after a line with `"_type": "metadata"`.
Its `last_consolidated` messages were moved to the memory files and are not sent any more: a clear follows them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.json_lines import JsonLine, OnRead, read_json_lines
from nexus.interop.readers import FileReader
from nexus.interop.transcript import (
    FileReport,
    FileTimes,
    Problem,
    Step,
    Transcript,
    TranscriptPiece,
    group_into_turns,
    results_behind_calls,
)
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.received import CallIndex, ReadOne, items_of, mapping, meta_text, number_of, rest_of, text_of
from nexus.types.message import Message
from nexus.workspace.sources.event_blocks import with_runtime_note

_LISTS = ("contents", "history", "items", "input")
"""Fields with the messages of a conversation: of requests, and of Gemini CLI's checkpoints."""
_SYSTEM = {
    "anthropic": ("system",),
    "gemini": ("system_instruction", "systemInstruction"),
    "responses": ("instructions",),
}
"""Fields with the system text next to the messages, by format."""
_FIELDS = frozenset({"messages", "id", "title", "model"})
_GROUP_IDS = ("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "threadId")
"""Fields of a message's line with the id of its conversation."""
_IDS = ("id", *_GROUP_IDS)
_TIMES = ("timestamp", "created_at", "createdAt", "create_time", "createTime", "ts")
"""Fields of a message with its time; the first one counts."""


@dataclass(slots=True)
class _Draft:
    """A conversation while its lines are collected."""

    source_id: str
    group: str = ""
    """Id of the conversation that the lines name."""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    items: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    """Messages with their line numbers."""
    leading: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    """Messages from the conversation's other fields, before those."""
    counted: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    lines: int = 0
    message_lines: int = 0
    by_line: bool = False
    consolidated: int = 0
    """Messages before the first one that is still sent."""


def read_openai(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file in OpenAI's chat format. Raises UnreadableFile without messages."""
    return _read(path, on_read, "openai", openai.received_message)


def read_responses(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file with items of OpenAI's Responses API. Raises UnreadableFile without any."""
    return _read(path, on_read, "responses", _read_items)


def read_gemini(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file with Gemini's contents. Raises UnreadableFile without any."""
    return _read(path, on_read, "gemini", _read_content)


def read_anthropic(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file in Anthropic's format, each after its system text.

    Raises UnreadableFile without messages.
    """
    return _read(path, on_read, "anthropic", anthropic.received_message)


def read_nanobot(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the session of a file of nanobot. Raises UnreadableFile without a line of metadata or messages."""
    return _read(path, on_read, "nanobot", openai.message)


def is_nanobot(record: dict[str, Any]) -> bool:
    """Return True for the line of metadata in nanobot's session files."""
    return record.get("_type") == "metadata" and ("last_consolidated" in record or "created_at" in record)


def is_content(record: dict[str, Any]) -> bool:
    """Return True for one of Gemini's contents. Other formats have `parts` too, but with a `type`."""
    parts = record.get("parts")
    if not isinstance(parts, list):
        return record.get("role") == "model" and "content" not in record
    return not any("type" in mapping(part) for part in items_of(parts))


def is_item(record: dict[str, Any]) -> bool:
    """Return True for an item that only the Responses API has."""
    kind = text_of(record.get("type"))
    if "role" in record:
        is_message = kind == "message" and isinstance(record.get("content"), str)
        return is_message or any(mapping(part).get("type") in _ITEM_PARTS for part in items_of(record.get("content")))
    is_typed = kind.removesuffix("_output").removesuffix("_call") in _CALLS or kind in _ITEM_TYPES
    return is_typed and any(name in record for name in _ITEM_FIELDS)


_ITEM_PARTS = ("input_text", "output_text", "input_image", "input_file")
_ITEM_TYPES = ("reasoning", "compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response")
_CALLS = frozenset(
    {"function", "custom_tool", "local_shell", "shell", "apply_patch", "computer", "web_search", "file_search"}
    | {"code_interpreter", "image_generation", "mcp", "tool_search"}
)
_ITEM_FIELDS = ("id", "call_id", "summary", "encrypted_content", "action")


def _read_items(items: Any, calls: CallIndex, author: str = "") -> tuple[Message, ...]:
    """Return the message of a list of items: a reply's, or one that a program sent."""
    return openai_responses.received_messages(items, author, calls)


def _read_content(item: Any, calls: CallIndex) -> tuple[Message, ...]:
    """Return the messages of one of Gemini's contents, which may be a text or a part alone."""
    if isinstance(item, str):
        item = {"parts": [{"text": item}]}
    elif "parts" not in mapping(item) and "role" not in mapping(item):
        item = {"parts": [item]}
    return gemini.received_message(item, calls)


def _read(path: Path, on_read: OnRead | None, format_name: str, read_one: ReadOne) -> Iterator[Transcript]:
    empty = True
    for draft in _drafts(path, on_read, format_name):
        empty = False
        yield _transcript(draft, format_name, read_one, FileTimes(path, draft.problems))
    if empty:
        raise UnreadableFile(f"{path} contains no messages in the format {format_name} (name another with --format)")


def conversations_in(value: Any) -> list[dict[str, Any]]:
    """Return the conversations in a JSON value, with their `messages`; none for other values, among them one message."""
    if (conversation := _conversation(value)) is not None:
        return [conversation]
    listed = items_of(value)
    conversations = [_conversation(item) for item in listed]
    if any(conversation is not None for conversation in conversations):
        return [fields or {"messages": [item]} for fields, item in zip(conversations, listed, strict=True)]
    if any(is_message(mapping(item)) for item in listed):
        return [{"messages": listed}]
    return []


def _conversation(value: Any) -> dict[str, Any] | None:
    """Return an object with messages, under the name `messages`; None for any other value."""
    fields = mapping(value)
    if isinstance(fields.get("messages"), list):
        return fields
    if isinstance(fields.get("output"), list):
        return _exchange(fields)
    for name in _LISTS:
        items = items_of(fields.get(name))
        if any(is_message(mapping(item)) for item in items):
            others = {other: field for other, field in fields.items() if other != name}
            return {**others, "messages": items}
    return None


def _exchange(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request of the Responses API with its output as a conversation; None if the output is none."""
    output = items_of(fields.get("output"))
    if not any(is_item(mapping(item)) or "role" in mapping(item) for item in output):
        return None
    items = items_of(fields.get("input"))
    if isinstance(fields.get("input"), str):
        items = [{"role": "user", "content": fields["input"]}]
    others = {other: field for other, field in fields.items() if other not in ("input", "output")}
    return {**others, "messages": [*items, *output]}


def is_message(record: dict[str, Any]) -> bool:
    """Return True for a message of any format."""
    return "role" in record or is_content(record) or is_item(record)


def _drafts(path: Path, on_read: OnRead | None, format_name: str) -> Iterator[_Draft]:
    """Yield each conversation when the next one begins; conversations that are named by their lines come at the end.

    Other lines belong to the conversation before them.
    """
    stem = path.stem
    used = Counter[str]()
    groups: dict[str, _Draft] = {}
    early = _Draft("")  # lines before the first conversation
    draft: _Draft | None = None
    for row in read_json_lines(path, on_read):
        record = mapping(row.value)
        begun: list[_Draft] = []
        if conversations := conversations_in(row.value):
            for number, fields in enumerate(conversations):
                begun.append(_conversation_draft(fields, row, number, format_name, stem, used))
        elif is_nanobot(record):
            begun.append(_nanobot_draft(record, stem, used))
        elif is_message(record):
            group = "" if format_name == "nanobot" else _group_of(record)
            of_message = draft
            if of_message is None or not of_message.by_line or (group and group != of_message.group):
                of_message = groups.get(group) or _Draft(_unused(group or stem, used), group, by_line=True)
                begun.append(of_message)
            if group:
                groups[group] = of_message
            _add_message(of_message, row)
        else:
            _add_other(draft or early, row)
        for following in begun:
            if draft is not None and not draft.group:
                yield draft
            draft = following
            _move_lines(early, draft)
    if draft is not None and not draft.group:
        yield draft
    yield from groups.values()


def _conversation_draft(
    fields: dict[str, Any], row: JsonLine, number: int, format_name: str, stem: str, used: Counter[str]
) -> _Draft:
    """Return a whole conversation of a row, the row's `number`-th from 0, under its id or the file's name."""
    line = row.line + number
    name = f"{stem}:{line}" if line > 1 else stem
    for value in map(fields.get, _IDS):
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
            name = str(value)
            break
    draft = _Draft(_unused(name, used), fields=fields)
    draft.items = [(row.line, item) for item in items_of(fields["messages"])]
    draft.leading = [(row.line, item) for item in _system_items(fields, format_name)]
    if row.problem:
        draft.problems.append(row.problem)
    if number == 0:
        draft.lines = 1
        draft.counted["conversation"] = 1
    return draft


def _system_items(fields: dict[str, Any], format_name: str) -> Iterator[dict[str, Any]]:
    """Yield the message of the system text next to a conversation's messages."""
    value = next(filter(None, map(fields.get, _SYSTEM.get(format_name, ()))), None)
    if value is None:
        return
    if format_name == "gemini":
        listed: Any = mapping(value).get("parts", value)
        parts: list[Any] = items_of(listed) or [listed]
        yield {"role": "system", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}
    else:
        yield {"role": "system", "content": value}


def _nanobot_draft(record: dict[str, Any], stem: str, used: Counter[str]) -> _Draft:
    fields = {name: value for name, value in record.items() if name not in ("_type", "key")}
    draft = _Draft(_unused(text_of(record.get("key")) or stem, used), fields=fields, by_line=True)
    draft.fields |= {"title": text_of(mapping(record.get("metadata")).get("title"))}
    draft.lines = 1
    draft.counted["metadata"] = 1
    draft.consolidated = number_of(record.get("last_consolidated"))
    return draft


def _add_message(draft: _Draft, row: JsonLine) -> None:
    draft.items.append((row.line, row.value))
    draft.lines += 1
    draft.message_lines += 1
    if row.problem:
        draft.problems.append(row.problem)


def _add_other(draft: _Draft, row: JsonLine) -> None:
    draft.lines += 1
    draft.counted[row.kind or "(no message)"] += 1
    if row.problem:
        draft.problems.append(row.problem)
    elif not row.kind:
        draft.problems.append(Problem(row.line, "no message", "skipped: neither a message nor a conversation"))


def _move_lines(early: _Draft, draft: _Draft) -> None:
    """Count the lines before the first conversation for that conversation."""
    draft.lines += early.lines
    draft.counted += early.counted
    draft.problems = early.problems + draft.problems
    early.lines = 0
    early.counted = Counter()
    early.problems = []


def _transcript(draft: _Draft, format_name: str, read_one: ReadOne, times: FileTimes) -> Transcript:
    calls = CallIndex()
    steps: list[Step] = []
    numbered = [(f"+{index}", line, item) for index, (line, item) in enumerate(draft.leading)]
    numbered += [(str(index), line, item) for index, (line, item) in enumerate(draft.items)]
    units: Iterable[list[tuple[str, int, Any]]] = ([item] for item in numbered)
    if format_name == "responses":
        units = _units(numbered)
    for unit in units:
        place, line, item = unit[0]
        try:
            if format_name == "responses":
                new = _read_items([item for _, _, item in unit], calls, text_of(draft.fields.get("model")))
            else:
                new = read_one(item, calls)
            keys = [f"{draft.source_id}/{place}/{_digest(item)}" for place, _, item in unit]
        except (BadReply, RecursionError) as error:
            text = "nested too deeply"
            if isinstance(error, BadReply):
                text = str(error)
            draft.problems.append(Problem(line, "damaged message", f"message {place}: {text}"))
            if draft.by_line:
                draft.message_lines -= len(unit)
                draft.counted["(damaged message)"] += len(unit)
            continue
        calls.add(new)
        key = keys[0]
        at_ms = times.read(line, _time_of(mapping(item)))
        messages: list[Message] = []
        for message, key_id in zip(new, (key, f"{key}:rest"), strict=False):
            messages.append(replace(_as_data(message), id=message.id or key_id, at_ms=at_ms))
        steps.append(Step(pieces=(TranscriptPiece(key, tuple(messages)), *map(TranscriptPiece, keys[1:])), at_ms=at_ms))
        if place == str(draft.consolidated - 1):
            steps.append(Step("clear", (TranscriptPiece(f"{key}:clear"),), at_ms=at_ms))
    meta = ""
    try:
        imported_fields = _FIELDS
        if draft.leading:
            imported_fields = _FIELDS | {*_SYSTEM[format_name]}
        meta = meta_text(rest_of(draft.fields, imported_fields))
    except RecursionError:
        line = draft.items[0][0] if draft.items else 1
        draft.problems.append(Problem(line, "nested too deeply", "skipped: fields next to the messages"))
    return Transcript(
        format=format_name,
        source_id=draft.source_id,
        title=text_of(draft.fields.get("title")),
        steps=group_into_turns(results_behind_calls(steps), ended=True),
        report=FileReport(draft.lines, draft.message_lines, dict(+draft.counted), problems=tuple(draft.problems)),
        model=text_of(draft.fields.get("model")),
        meta=meta,
        undated_ms=times.undated_ms,
    )


def _group_of(message: dict[str, Any]) -> str:
    """Return the id of the conversation that a message's line names; empty without one."""
    for name in _GROUP_IDS:
        if group := text_of(message.get(name)):
            return group
    return ""


def _time_of(message: dict[str, Any]) -> Any:
    """Return the first time that a message names; None without one."""
    for value in map(message.get, _TIMES):
        if value not in (None, ""):
            return value
    return None


def _units(numbered: list[tuple[str, int, Any]]) -> Iterator[list[tuple[str, int, Any]]]:
    """Yield the items of each message: consecutive items of the model, or one item that a program sent."""
    unit: list[tuple[str, int, Any]] = []
    for numbered_item in numbered:
        is_of_model = openai_responses.is_of_model(mapping(numbered_item[2]))
        if unit and not is_of_model:
            yield unit
            unit = []
        unit.append(numbered_item)
        if not is_of_model:
            yield unit
            unit = []
    if unit:
        yield unit


def _digest(item: Any) -> str:
    """Return the part of a message's key that depends on its content."""
    # Names with a leading `_`, such as `_unknown` in exports, do not count.
    content = {name: value for name, value in mapping(item).items() if not name.startswith("_")}
    text = json.dumps(content or item, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_data(message: Message) -> Message:
    """Return the message as a file's: no instructions for a model, and a builder's runtime context is no user's text."""
    if message.role == "system":
        return replace(message, received="")
    return with_runtime_note(message, alone=True)


def _unused(name: str, used: Counter[str]) -> str:
    """Return the name, with a number if another conversation of the file has it."""
    used[name] += 1
    return name if used[name] == 1 else _unused(f"{name}#{used[name]}", used)


ANTHROPIC = FileReader(read_anthropic)
GEMINI = FileReader(read_gemini)
NANOBOT = FileReader(read_nanobot)
OPENAI = FileReader(read_openai)
RESPONSES = FileReader(read_responses)
