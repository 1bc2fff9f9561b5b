"""Check of a turn log against the seven "Implementation Requirements" of document 001, entry by entry.

A missing system entry (4) and missing reasoning (7) are warnings, everything else is an error. Entries are parsed one at
a time, so a log of any length can be checked, and violations are yielded as they occur.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.interop.json_lines import MAX_LINE_BYTES, open_as_utf8
from nexus.providers.received import items_of, mapping
from nexus.turnlog import times
from nexus.turnlog.entries import EXTRA, FIELDS, LOG_ROLES, POST, bare_content
from nexus.turnlog.json_text import JsonItem, Members, items, members, string_of

MOST_INDEX = (1 << 53) - 1
"""Largest index and turn: the largest integer that every JSON reader represents exactly."""

SHOWN_CHARS = 60


class Violation(Struct, frozen=True):
    """Violation of a requirement. An error makes the log invalid, a warning does not."""

    position: int
    """Position of the entry in the array from 0; -1 for the file."""
    index: int | None
    """The entry's `index` field."""
    line: int
    """Line of the file from 1."""
    requirement: int
    """Number in the document; 0 for the JSON format."""
    level: Literal["error", "warning"]
    reason: str


class ReadEntry(Struct, frozen=True):
    """Fields of an entry in a file: None or empty if missing or of a wrong type. `extra` is JSON text."""

    position: int
    line: int
    text: str
    index: int | None = None
    turn: int | None = None
    timestamp: str | None = None
    at_us: int | None = None
    role: str | None = None
    content: str | Members | None = None
    extra: str = ""
    violations: tuple[Violation, ...] = ()

    @property
    def has_error(self) -> bool:
        """True if a violation is an error."""
        return any(violation.level == "error" for violation in self.violations)


class _Track(Struct):
    """State of the previous entries."""

    index: int = -1
    """The largest."""
    turns: tuple[int, ...] = (0,)
    """Valid for the next entry: after a wrong one the expected and the actual turn."""
    unanswered: bool = False
    """After a user's entry."""
    at_us: int | None = None
    """The latest."""

    def add(
        self, index: int | None, turn: int | None, at_us: int | None, role: str | None
    ) -> Iterator[tuple[int, str]]:
        """Add an entry; yield violations of the order: index, time, turn."""
        if index is not None and index <= self.index:
            yield 1, f"index {index} after index {self.index}"
        if at_us is not None and self.at_us is not None and at_us < self.at_us:
            yield 1, f"time {times.format_time(at_us)} is before {times.format_time(self.at_us)} of an earlier entry"
        # A missing or invalid role counts as an assistant's if the turn says so: one error is reported once.
        rises = self.unanswered and (role == "assistant" or (role not in LOG_ROLES and turn not in self.turns))
        expected = tuple(number + rises for number in self.turns)
        if turn is not None and turn not in expected:
            yield 3, f"turn {turn} instead of {expected[0]}: it rises when an assistant follows a user"
        if index is not None:
            self.index = max(self.index, index)
        if turn is None:
            self.turns = expected
        elif turn in expected:
            self.turns = (turn,)
        else:
            self.turns = (expected[0], turn)
        self.unanswered = role == "user" or (self.unanswered and not rises)
        if at_us is not None:
            if self.at_us is None:
                self.at_us = at_us
            else:
                self.at_us = max(self.at_us, at_us)


def read_text(path: Path) -> tuple[str, bool]:
    """Return a file's text without a byte order mark, and true if bytes are not UTF-8 and became lone surrogates.

    Raises UnreadableFile if it is not a regular file, cannot be read, or is larger than 256 MiB.
    """
    try:
        if not path.is_file():
            raise UnreadableFile(f"{path} not found or not a regular file (give the path of a turn log)")
        with open_as_utf8(path) as file:
            data = file.read(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_LINE_BYTES:
        raise UnreadableFile(f"{path} larger than {MAX_LINE_BYTES // 2**20} MiB (split it)")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape"), True


def violations(text: str, *, damaged: bool = False) -> Iterator[Violation]:
    """Yield the violations in a turn log's text, in its order. `damaged`: bytes of the file were not UTF-8."""
    if damaged:
        yield Violation(-1, None, 1, 0, "error", "the file is not UTF-8")
    last = -1
    line = 1
    try:
        for entry in read_entries(text):
            yield from entry.violations
            last = entry.position
            line = entry.line
    except UnreadableFile as error:
        yield Violation(last + 1 if last >= 0 else -1, None, line, 0, "error", str(error))
        return
    if last < 0:
        yield Violation(-1, None, 1, 4, "warning", "no entry, so no system entry")


def read_entries(text: str) -> Iterator[ReadEntry]:
    """Yield the entries of a turn log's text with their violations. Raises UnreadableFile if it is not a JSON array."""
    track = _Track()
    for position, item in enumerate(items(text)):
        pairs = members(item.text)
        if pairs is None:
            violation = _violation(position, None, item, 2, f"not an object but {_short(item.text)}")
            yield ReadEntry(position, item.line, item.text, violations=(violation,))
            continue
        fields = dict(pairs)
        index = _number(fields.get("index", ""))
        turn = _number(fields.get("turn", ""))
        timestamp = string_of(fields.get("timestamp", ""))
        role = string_of(fields.get("role", ""))
        at_us = None
        if timestamp is not None:
            at_us = times.parse_time(timestamp)
        content = None
        if "content" in fields:
            content = bare_content(fields["content"])
        extra = fields.get(EXTRA, "")
        reasons = [*_fields(pairs, index, turn, timestamp, role), *track.add(index, turn, at_us, role)]
        if timestamp is not None and at_us is None:
            reasons.append((6, f"`timestamp` {_short(fields['timestamp'])} is not an ISO 8601 date and time"))
        reasons += _content(role, fields.get("content", ""), content, extra)
        if position == 0 and role != "system":
            reasons.append((4, "the first entry is not a system entry"))
        if role != "system" and "mark" in object_of(extra):
            reasons.append((4, "a compaction or clear is marked here without a system entry after it"))
        violated = tuple(_violation(position, index, item, number, reason) for number, reason in reasons)
        yield ReadEntry(position, item.line, item.text, index, turn, timestamp, at_us, role, content, extra, violated)


def _violation(position: int, index: int | None, item: JsonItem, requirement: int, reason: str) -> Violation:
    level = "warning" if requirement in (4, 7) else "error"
    return Violation(position, index, item.line, requirement, level, reason)


def _fields(
    pairs: Members, index: int | None, turn: int | None, timestamp: str | None, role: str | None
) -> Iterator[tuple[int, str]]:
    """Yield missing and repeated fields and those of a wrong type."""
    fields = dict(pairs)
    counts = Counter(name for name, _ in pairs)
    for name in sorted(counts):
        if counts[name] > 1:
            yield 2, f"field {_short(name)} repeated"
    values = {"index": index, "turn": turn, "timestamp": timestamp, "role": role}
    kinds = {"index": "a whole number from 0 on", "turn": "a whole number from 0 on"}
    for name in FIELDS:
        if name not in fields:
            yield 2, f"required field `{name}` missing"
        elif values.get(name, "") is None:
            yield 2, f"`{name}` is {_short(fields[name])}, not {kinds.get(name, 'text')}"
    if role is not None and role not in LOG_ROLES:
        yield 5, f"role {_short(role)} is not one of system, user and assistant"


def _content(role: str | None, text: str, content: str | Members | None, extra: str) -> Iterator[tuple[int, str]]:
    """Yield violations in the content for a role."""
    if not text or role not in LOG_ROLES:
        return
    if content is None or (role == "user" and isinstance(content, str)):
        kinds = "an object" if role == "user" else "text or an object"
        yield 2, f"the `content` of an entry of role {role} is {kinds}, not {_short(text)}"
    elif not isinstance(content, str):
        yield from _content_members(role, content, extra)


def _content_members(role: str, content: Members, extra: str) -> Iterator[tuple[int, str]]:
    """Yield violations in a content that is an object."""
    fields = dict(content)
    if len(fields) < len(content):
        yield 2, "name repeated in `content`"
    tool = None
    if role == "assistant":
        tool = string_of(fields.get("toolCall", ""))
    if role == "assistant" and not fields.keys() & {"toolCall", "text"}:
        yield 2, "`content` without `toolCall` or `text`"
    for name in _REQUIRED.get(POST if tool == POST else role, ()):
        if name not in fields:
            yield 2, f"`content` without `{name}`"
    for name in _TEXTS.get(role, ()):
        if name in fields and string_of(fields[name]) is None:
            yield 2, f"`{name}` in `content` is {_short(fields[name])}, not text"
    if tool == "":
        yield 2, "`toolCall` is empty"
    if tool is not None and fields.get("reasoning", '""') == '""' and _needs_reasoning(object_of(extra)):
        yield 7, f"call of {_short(tool)} without reasoning"


def _needs_reasoning(extra: dict[str, Any]) -> bool:
    """Return False for a text that is shown as a call, and for a call that was made together with the previous one."""
    if extra.get("more") is True:
        return False
    parts = extra.get("parts")
    return not isinstance(parts, list) or any(part.get("type") == "tool_call" for part in map(mapping, items_of(parts)))


_REQUIRED = {"user": ("userid", "text"), POST: ("text",)}
_TEXTS = {"user": ("userid", "text"), "assistant": ("toolCall", "text", "reasoning")}
"""Members of the content of a role or a post that are required, and those that are text."""


def object_of(text: str) -> dict[str, Any]:
    """Return the object of a JSON text; an empty one for anything else, or if Python cannot represent it."""
    if not text.startswith("{"):
        return {}
    try:
        return cast("dict[str, Any]", json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _number(text: str) -> int | None:
    # The length is checked first: Python refuses to parse integers of more than 4,300 digits.
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_INDEX)):
        return None
    number = int(text)
    if number <= MOST_INDEX:
        return number
    return None


def _short(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    return f"{text[:SHOWN_CHARS]}…"
