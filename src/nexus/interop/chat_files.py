"""Readers of conversations in OpenAI's chat format, in Anthropic's, and of nanobot's session files.

A file contains one conversation (an object with `messages`, or an array of messages), an array of conversations, one
conversation a line, or one message a line. Each message is a piece, keyed by its conversation, position and content, so
a file that grew adds the rest. One conversation is in memory at a time. A message's `timestamp` is its time.

nanobot's files (`sessions/*.jsonl`) have one message a line in OpenAI's format after a line with `"_type": "metadata"`.
Its `last_consolidated` messages were moved to the memory files and are not sent any more: a clear follows them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.json_lines import JsonLine, OnRead, read_json_lines
from nexus.interop.readers import FileReader
from nexus.interop.transcript import Piece, Problem, Step, Transcript, group_into_turns, results_behind_calls, time_ms
from nexus.providers import anthropic, openai
from nexus.providers.received import CallIndex, ReadOne, items_of, mapping, meta_text, number_of, rest_of, text_of
from nexus.types.message import Message
from nexus.workspace.sources.event_blocks import with_runtime_note

_FIELDS = frozenset({"messages", "id", "title", "model"})
_IDS = ("id", "conversation_id", "session_id")


@dataclass(slots=True)
class _Draft:
    """A conversation while its lines are collected."""

    source_id: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    # messages with their line numbers, and those from the conversation's other fields
    items: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    leading: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    counted: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    lines: int = 0
    message_lines: int = 0
    by_line: bool = False
    consolidated: int = 0  # messages before the first one that is still sent


def read_openai(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file in OpenAI's chat format. Raises UnreadableFile without messages."""
    return _read(path, on_read, "openai", openai.received_message)


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


def _read(path: Path, on_read: OnRead | None, format_name: str, read_one: ReadOne) -> Iterator[Transcript]:
    empty = True
    for draft in _drafts(path, on_read, with_system=format_name == "anthropic"):
        empty = False
        yield _transcript(draft, format_name, read_one)
    if empty:
        raise UnreadableFile(f"{path} contains no messages in the format {format_name} (name another with --format)")


def conversations_in(value: Any) -> list[dict[str, Any]]:
    """Return the conversations in a JSON value; none for other values, among them a single message."""
    if isinstance(mapping(value).get("messages"), list):
        return [mapping(value)]
    listed = items_of(value)
    if any(isinstance(mapping(item).get("messages"), list) for item in listed):
        return [mapping(i) if isinstance(mapping(i).get("messages"), list) else {"messages": [i]} for i in listed]
    return [{"messages": listed}] if any("role" in mapping(item) for item in listed) else []


def _drafts(path: Path, on_read: OnRead | None, *, with_system: bool) -> Iterator[_Draft]:
    """Yield each conversation when the next one begins. Other lines count for the conversation before them."""
    stem, used = path.stem, Counter[str]()
    early = _Draft("")  # lines before the first conversation
    draft: _Draft | None = None
    for row in read_json_lines(path, on_read):
        conversations = conversations_in(row.value)
        if conversations:
            for number, fields in enumerate(conversations):
                if draft is not None:
                    yield draft
                fallback = f"{stem}:{row.line + number}" if row.line + number > 1 else stem
                ids = (fields.get(name) for name in _IDS)
                ids = (str(value) for value in ids if isinstance(value, (str, int)) and not isinstance(value, bool))
                draft = _Draft(_unused(next(filter(None, ids), fallback), used), fields)
                draft.items = [(row.line, item) for item in items_of(fields["messages"])]
                if with_system and fields.get("system"):
                    draft.leading = [(row.line, {"role": "system", "content": fields["system"]})]
                draft.problems += [row.problem] if row.problem else []
                draft.lines, draft.counted["conversation"] = (0, 0) if number else (1, 1)
                _move_lines(early, draft)
        elif is_nanobot(mapping(row.value)):
            if draft is not None:
                yield draft
            draft = _nanobot_draft(mapping(row.value), stem, used)
            _move_lines(early, draft)
        elif "role" in mapping(row.value):
            if draft is None or not draft.by_line:
                if draft is not None:
                    yield draft
                draft = _Draft(_unused(stem, used), by_line=True)
                _move_lines(early, draft)
            draft.items.append((row.line, row.value))
            draft.lines += 1
            draft.message_lines += 1
            draft.problems += [row.problem] if row.problem else []
        else:
            _add_other(draft or early, row)
    if draft is not None:
        yield draft


def _nanobot_draft(record: dict[str, Any], stem: str, used: Counter[str]) -> _Draft:
    fields = {name: value for name, value in record.items() if name not in ("_type", "key")}
    draft = _Draft(_unused(text_of(record.get("key")) or stem, used), fields, by_line=True)
    draft.fields |= {"title": text_of(mapping(record.get("metadata")).get("title"))}
    draft.lines, draft.counted["metadata"] = 1, 1
    draft.consolidated = number_of(record.get("last_consolidated"))
    return draft


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
    early.lines, early.counted, early.problems = 0, Counter(), []


def _transcript(draft: _Draft, format_name: str, read_one: ReadOne) -> Transcript:
    calls = CallIndex()
    steps: list[Step] = []
    numbered = [(f"+{index}", line, item) for index, (line, item) in enumerate(draft.leading)]
    numbered += [(str(index), line, item) for index, (line, item) in enumerate(draft.items)]
    for place, line, item in numbered:
        try:
            new = read_one(item, calls)
            # Names with a leading `_`, such as `_unknown` in exports, do not count.
            content = {name: value for name, value in mapping(item).items() if not name.startswith("_")}
            text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
            key = f"{draft.source_id}/{place}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        except (BadReply, RecursionError) as error:
            text = str(error) if isinstance(error, BadReply) else "nested too deeply"
            draft.problems.append(Problem(line, "damaged message", f"message {place}: {text}"))
            if draft.by_line:
                draft.message_lines -= 1
                draft.counted["(damaged message)"] += 1
            continue
        calls.add(new)
        ids, at_ms = (key, f"{key}:rest"), time_ms(mapping(item).get("timestamp"))
        new = tuple(
            replace(_as_data(message), id=message.id or key_id, at_ms=at_ms)
            for message, key_id in zip(new, ids, strict=False)
        )
        steps.append(Step(pieces=(Piece(key, new),), at_ms=at_ms))
        if place == str(draft.consolidated - 1):
            steps.append(Step("clear", (Piece(f"{key}:clear"),), at_ms=at_ms))
    meta = ""
    try:
        meta = meta_text(rest_of(draft.fields, _FIELDS | {"system"} if draft.leading else _FIELDS))
    except RecursionError:
        line = draft.items[0][0] if draft.items else 1
        draft.problems.append(Problem(line, "nested too deeply", "skipped: fields next to the messages"))
    return Transcript(
        format=format_name,
        source_id=draft.source_id,
        title=text_of(draft.fields.get("title")),
        steps=group_into_turns(results_behind_calls(steps), ended=True),
        counted=dict(+draft.counted),
        problems=tuple(draft.problems),
        lines=draft.lines,
        message_lines=draft.message_lines,
        model=text_of(draft.fields.get("model")),
        meta=meta,
    )


def _as_data(message: Message) -> Message:
    """Return the message as a file's: no instructions for a model, and a builder's runtime context is no user's text."""
    return replace(message, received="") if message.role == "system" else with_runtime_note(message, alone=True)


def _unused(name: str, used: Counter[str]) -> str:
    """Return the name, with a number if another conversation of the file has it."""
    used[name] += 1
    return name if used[name] == 1 else f"{name}#{used[name]}"


ANTHROPIC = FileReader(read_anthropic)
NANOBOT = FileReader(read_nanobot)
OPENAI = FileReader(read_openai)
