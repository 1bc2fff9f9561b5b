"""Conversations in a provider's message form: how they lie in a file, whichever provider's form it is.

A file holds one conversation (an object with `messages`, or a list of messages), a list of conversations, one
conversation a line, or one message a line. Each message is a piece, keyed by its conversation, place and content, so
a file that grew adds the rest. One conversation is in memory at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.json_lines import JsonLine, read_json_lines
from nexus.interop.transcript import Piece, Problem, Step, Transcript, group_into_turns
from nexus.providers.received import Calls, ReadOne, items_of, mapping, meta_text, rest_of, text_of

Leading: TypeAlias = Callable[[dict[str, Any]], list[Any]]
"""The messages that a conversation's other fields hold, to stand before its `messages`."""

_KNOWN = frozenset({"messages", "id", "title", "model"})
_IDS = ("id", "conversation_id", "session_id")


@dataclass(slots=True)
class _Draft:
    """A conversation as collected from the file: its items with their line numbers, and what else was met."""

    source_id: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    items: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    leading: list[tuple[int, Any]] = field(default_factory=list[tuple[int, Any]])
    counted: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    lines: int = 0
    message_lines: int = 0
    by_line: bool = False


def read(path: Path, format_name: str, read_one: ReadOne, leading: Leading) -> Iterator[Transcript]:
    """The file's conversations in order. Lines that are none stand with the conversation before them.

    Raises UnreadableFile when nothing in the file is a message of any kind.
    """
    found = False
    for draft in _drafts(path, leading):
        found = True
        yield _transcript(draft, format_name, read_one)
    if not found:
        raise UnreadableFile(f"{path} holds no messages: is it really a file of the format {format_name}?")


def conversations_in(value: Any) -> list[dict[str, Any]]:
    """The conversations that one JSON value holds: none if it is something else, or a single message."""
    if isinstance(mapping(value).get("messages"), list):
        return [mapping(value)]
    listed = items_of(value)
    if any(isinstance(mapping(item).get("messages"), list) for item in listed):
        return [mapping(i) if isinstance(mapping(i).get("messages"), list) else {"messages": [i]} for i in listed]
    return [{"messages": listed}] if any("role" in mapping(item) for item in listed) else []


def _drafts(path: Path, leading: Leading) -> Iterator[_Draft]:
    """Collects lines into conversations; a draft is handed on when the next one begins."""
    stem, used = path.stem, Counter[str]()
    early = _Draft("")
    draft: _Draft | None = None
    for row in read_json_lines(path):
        conversations = conversations_in(row.value)
        if conversations:
            for number, fields in enumerate(conversations):
                if draft is not None:
                    yield draft
                fallback = f"{stem}:{row.line + number}" if row.line + number > 1 else stem
                draft = _conversation(fields, row, leading, _free(_id_of(fields) or fallback, used))
                draft.lines, draft.counted["conversation"] = (0, 0) if number else (1, 1)
                _take_over(early, draft)
        elif "role" in mapping(row.value):
            if draft is None or not draft.by_line:
                if draft is not None:
                    yield draft
                draft = _Draft(_free(stem, used), by_line=True)
                _take_over(early, draft)
            _add_message(draft, row)
        else:
            _add_other(draft or early, row)
    if draft is not None:
        yield draft


def _conversation(fields: dict[str, Any], row: JsonLine, leading: Leading, source_id: str) -> _Draft:
    draft = _Draft(source_id, fields)
    draft.items = [(row.line, item) for item in items_of(fields["messages"])]
    draft.leading = [(row.line, item) for item in leading(fields)]
    draft.problems += [row.problem] if row.problem else []
    return draft


def _add_message(draft: _Draft, row: JsonLine) -> None:
    draft.items.append((row.line, row.value))
    draft.lines += 1
    draft.message_lines += 1
    draft.problems += [row.problem] if row.problem else []


def _add_other(draft: _Draft, row: JsonLine) -> None:
    draft.lines += 1
    draft.counted[row.kind or "(no message)"] += 1
    if row.problem:
        draft.problems.append(row.problem)
    elif not row.kind:
        draft.problems.append(Problem(row.line, "no message", "neither a message nor a conversation: passed over"))


def _take_over(early: _Draft, draft: _Draft) -> None:
    """Gives the lines before the first conversation to it."""
    draft.lines += early.lines
    draft.counted += early.counted
    draft.problems = early.problems + draft.problems
    early.lines, early.counted, early.problems = 0, Counter(), []


def _transcript(draft: _Draft, format_name: str, read_one: ReadOne) -> Transcript:
    calls = Calls()
    steps: list[Step] = []
    numbered = [(f"+{index}", line, item) for index, (line, item) in enumerate(draft.leading)]
    numbered += [(str(index), line, item) for index, (line, item) in enumerate(draft.items)]
    for place, line, item in numbered:
        try:
            new = read_one(item, calls)
            key = f"{draft.source_id}/{place}/{_hash(item)}"
        except (BadReply, RecursionError) as error:
            text = str(error) if isinstance(error, BadReply) else "nested too deeply"
            draft.problems.append(Problem(line, "damaged message", f"message {place}: {text}"))
            if draft.by_line:
                draft.message_lines -= 1
                draft.counted["(damaged message)"] += 1
            continue
        calls.add(new)
        ids = (key, f"{key}:rest")
        new = tuple(message if message.id else replace(message, id=own) for message, own in zip(new, ids, strict=False))
        steps.append(Step(pieces=(Piece(key, new),)))
    meta = _meta(draft)
    return Transcript(
        format=format_name,
        source_id=draft.source_id,
        title=text_of(draft.fields.get("title")),
        steps=group_into_turns(steps, ended=True),
        counted=dict(+draft.counted),
        problems=tuple(draft.problems),
        lines=draft.lines,
        message_lines=draft.message_lines,
        model=text_of(draft.fields.get("model")),
        meta=meta,
    )


def _meta(draft: _Draft) -> str:
    known = _KNOWN | {"system"} if draft.leading else _KNOWN
    try:
        return meta_text(rest_of(draft.fields, known))
    except RecursionError:
        line = draft.items[0][0] if draft.items else 1
        draft.problems.append(Problem(line, "nested too deeply", "fields beside the messages were passed over"))
        return ""


def _id_of(fields: dict[str, Any]) -> str:
    for name in _IDS:
        value = fields.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
            return str(value)
    return ""


def _free(name: str, used: Counter[str]) -> str:
    """The name, or with a number when another conversation of the file has it already."""
    used[name] += 1
    return name if used[name] == 1 else f"{name}#{used[name]}"


def _hash(item: Any) -> str:
    """Sixteen hexadecimal digits of the item's content; extras (names with `_` first) are no content."""
    fields = mapping(item)
    content = {name: value for name, value in fields.items() if not name.startswith("_")}
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
