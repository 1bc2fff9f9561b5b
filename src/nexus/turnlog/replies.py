"""Replies that imitate the turn log: a model that reads JSON entries may answer with entries instead of plain text.

Such a reply is read as the message that its entries show. Only a text that consists of complete assistant entries counts:
one, several on lines of their own, or an array. Everything else stays text: other roles, more or fewer fields, repeated
names, calls of tools that were not offered, and entries that contradict the real calls next to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

from nexus.errors import UnreadableFile
from nexus.turnlog import times
from nexus.turnlog.entries import FIELDS, POST, BareEntry, LogEntry, parse_bare, parse_entry_line, reasoning_parameter
from nexus.turnlog.json_text import items, members, string_of
from nexus.types.message import Message, Part, Text, Thinking, ToolCall, with_parts
from nexus.types.sanitize import sanitize_text

RAW_REPLY = "turnlog_reply"
"""Key in a message's `meta` for the text that was received."""


def with_imitation_as_message(message: Message, is_offered: Callable[[str], bool], calls: str) -> Message:
    """Return the message that a reply's entries show; the message itself if its text is anything else.

    A call without a real one gets an id that begins with `calls`. The text that was received is kept in `meta`.
    """
    entries = reply_entries(message)
    parts = parts_of_entries(message, entries, is_offered, calls) if entries else ()
    if not parts:
        return message
    return with_parts(message, parts, meta=_meta_with(message.meta, message.text()))


def reply_entries(message: Message) -> list[LogEntry]:
    """Return the entries of which an assistant's text consists; none if it has another text, or none at all."""
    kinds = (Text, Thinking, ToolCall)
    if message.role != "assistant" or not all(isinstance(part, kinds) for part in message.parts):
        return []
    text = message.text().strip()
    if text[:1] not in ("{", "["):
        return []
    entries: list[LogEntry] = []
    for entry_text in _entry_texts(text):
        entry = _reply_entry(entry_text)
        if entry is None:
            return []
        entries.append(entry)
    return entries


def _entry_texts(text: str) -> Iterator[str]:
    if text.startswith("["):
        try:
            yield from [item.text for item in items(text)]
        except UnreadableFile:
            yield text
    elif members(text) is not None:  # a single entry may be on several lines
        yield text
    else:
        yield from text.split("\n")


def _reply_entry(text: str) -> LogEntry | None:
    """Return the entry of a text that has the documented fields of an assistant's entry alone."""
    pairs = members(text)
    if pairs is None or tuple(name for name, _ in pairs) != FIELDS:
        return None
    entry = parse_entry_line(text)
    if entry is None or entry.role != "assistant" or times.parse_time(entry.timestamp) is None:
        return None
    if isinstance(entry.content, str):
        return entry
    fields = dict(entry.content)
    texts = {name: string_of(fields[name]) for name in ("toolCall", "text", "reasoning") if name in fields}
    tool = texts.get("toolCall", POST)
    is_complete = bool(tool) and None not in texts.values() and (tool != POST or "text" in texts)
    if is_complete and len(fields) == len(entry.content):
        return entry
    return None


def parts_of_entries(
    message: Message, entries: list[LogEntry], is_offered: Callable[[str], bool], calls: str
) -> tuple[Part, ...]:
    """Return the parts that the entries show, with the real calls of the message; none if they contradict these."""
    real = [*message.calls()]
    remaining = iter(real)
    parts: list[Part] = [part for part in message.parts if isinstance(part, Thinking)]
    for number, entry in enumerate(entries):
        bare = parse_bare("assistant", entry.content)
        call = None
        if bare.tool and (bare.tool != POST or is_offered(POST)):
            if real:
                call = next(remaining, None)
            else:
                call = _new_call(bare, is_offered, f"{calls}_{number}")
            if call is None or call.name != bare.tool:
                return ()
        reasoning = bare.reasoning
        parameter = reasoning_parameter(call) if call else ""
        if parameter and reasoning.endswith(parameter):  # shown after the message's own
            reasoning = reasoning.removesuffix(parameter).removesuffix("\n")
        if reasoning:
            parts.append(Thinking(sanitize_text(reasoning)))
        parts.append(call or Text(sanitize_text(bare.text)))
    if next(remaining, None) is not None:
        return ()
    return tuple(parts)


def _new_call(bare: BareEntry, is_offered: Callable[[str], bool], call_id: str) -> ToolCall | None:
    if not is_offered(bare.tool):
        return None
    return ToolCall(call_id, bare.tool, bare.arguments)


def _meta_with(meta: str, text: str) -> str:
    previous: dict[str, Any] = {"meta": meta}
    with suppress(ValueError, RecursionError):
        fields: object = json.loads(meta or "{}")
        if isinstance(fields, dict):
            previous = cast("dict[str, Any]", fields)
    return json.dumps({**previous, RAW_REPLY: text}, ensure_ascii=False)
