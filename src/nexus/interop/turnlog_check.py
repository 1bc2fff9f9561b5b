"""The seven requirements of document 001 ("Implementation Requirements"), held against a turn log, entry by entry.

A missing system entry (4) and missing reasoning (7) are warnings, everything else is an error. One entry is at hand at a
time, so a log of any length can be checked; what is said of it comes as it is found.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from nexus.errors import BadTurnLog, UnreadableFile
from nexus.interop.json_lines import MAX_LINE_BYTES
from nexus.render.turnlog import times
from nexus.render.turnlog.entry import EXTRA, FIELDS, LOG_ROLES, POST
from nexus.render.turnlog.texts import JsonItem, Members, items, members, string_of
from nexus.render.turnlog.write import bare_content

MOST_INDEX = (1 << 53) - 1
"""The largest index and turn: what every reader of JSON holds exactly."""

SHOWN_CHARS = 60


class Violation(Struct, frozen=True):
    """Where a turn log breaks a requirement. `requirement` is its number, 0 for the format itself.

    `position` counts the entries of the array from 0 (-1: of the file as a whole), `line` the file's lines from 1; `index` is the one that the entry
    gives itself, None if it gives none. An error makes the log invalid, a warning does not.
    """

    position: int
    index: int | None
    line: int
    requirement: int
    level: Literal["error", "warning"]
    reason: str


class ReadEntry(Struct, frozen=True):
    """An entry as it stands in a file: None and empty where a field is missing or of a wrong type. `extra` is JSON text."""

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
    wrong: tuple[Violation, ...] = ()

    @property
    def wrong_badly(self) -> bool:
        """Whether there is an error among what is wrong."""
        return any(one.level == "error" for one in self.wrong)


class _Track(Struct):
    """What stood before: the largest index, the turn, whether a user is waiting, the latest time.

    After a wrong turn there are two that the next entry may go on with: the right one and the one that stands there.
    """

    index: int = -1
    turns: tuple[int, ...] = (0,)
    asked: bool = False
    at_us: int | None = None


def read_text(path: Path) -> tuple[str, bool]:
    """A file's text, and whether bytes in it are no UTF-8 (they become lone surrogates). A byte order mark is left out.

    Raises UnreadableFile when it is no regular file, cannot be read, or is larger than 256 MiB.
    """
    try:
        if not path.is_file():
            raise UnreadableFile(f"{path} is not there or no regular file: give the path of a turn log")
        with path.open("rb") as file:
            data = file.read(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_LINE_BYTES:
        raise UnreadableFile(f"{path} is larger than {MAX_LINE_BYTES // 2**20} MiB: split it")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape"), True


def violations(text: str, *, damaged: bool = False) -> Iterator[Violation]:
    """What is wrong with a turn log's text, in its order. `damaged` says that bytes of the file were no UTF-8."""
    if damaged:
        yield Violation(-1, None, 1, 0, "error", "the file is not UTF-8")
    last, line = -1, 1
    try:
        for entry in read_entries(text):
            yield from entry.wrong
            last, line = entry.position, entry.line
    except BadTurnLog as error:
        yield Violation(last + 1 if last >= 0 else -1, None, line, 0, "error", str(error))
        return
    if last < 0:
        yield Violation(-1, None, 1, 4, "warning", "there is no entry, so no system entry")


def read_entries(text: str) -> Iterator[ReadEntry]:
    """The entries of a turn log's text with what is wrong with each. Raises BadTurnLog where the text is no JSON array."""
    track = _Track()
    for position, found in enumerate(items(text)):
        yield _entry(position, found, track)


def _entry(position: int, found: JsonItem, track: _Track) -> ReadEntry:
    told = members(found.text)
    if told is None:
        reason = f"it is no object but {_short(found.text)}"
        return ReadEntry(position, found.line, found.text, wrong=(_at(position, None, found, 2, reason),))
    named = dict(told)
    index, turn = _number(named.get("index", "")), _number(named.get("turn", ""))
    timestamp, role = string_of(named.get("timestamp", "")), string_of(named.get("role", ""))
    at_us = times.parse_time(timestamp) if timestamp is not None else None
    content = bare_content(named["content"]) if "content" in named else None
    reasons = [
        *_fields(told, index, turn, timestamp, role),
        *_order(index, turn, at_us, role, track),
        *([(6, f"`timestamp` {_short(named['timestamp'])} is no ISO 8601 date and time")]
          if timestamp is not None and at_us is None else []),
        *_content(role, named.get("content", ""), content, named.get(EXTRA, "")),
    ]  # fmt: skip
    if position == 0 and role != "system":
        reasons.append((4, "the first entry is no system entry"))
    if role != "system" and "mark" in object_of(named.get(EXTRA, "")):
        reasons.append((4, "a compaction or clear is marked here, and no system entry stands after it"))
    wrong = tuple(_at(position, index, found, number, reason) for number, reason in reasons)
    extra = named.get(EXTRA, "")
    return ReadEntry(position, found.line, found.text, index, turn, timestamp, at_us, role, content, extra, wrong)


def _at(position: int, index: int | None, found: JsonItem, requirement: int, reason: str) -> Violation:
    level = "warning" if requirement in (4, 7) else "error"
    return Violation(position, index, found.line, requirement, level, reason)


def _fields(
    told: Members, index: int | None, turn: int | None, timestamp: str | None, role: str | None
) -> Iterator[tuple[int, str]]:
    """What is wrong with the fields as such: missing, twice, of a wrong type."""
    names = [name for name, _ in told]
    named = dict(told)
    for name in sorted({name for name in names if names.count(name) > 1}) if len(named) < len(names) else ():
        yield 2, f"the field {_short(name)} stands there more than once"
    values = {"index": index, "turn": turn, "timestamp": timestamp, "role": role}
    kinds = {"index": "a whole number from 0 on", "turn": "a whole number from 0 on"}
    for name in FIELDS:
        if name not in named:
            yield 2, f"the required field `{name}` is missing"
        elif values.get(name, "") is None:
            yield 2, f"`{name}` is {_short(named[name])}, not {kinds.get(name, 'text')}"
    if role is not None and role not in LOG_ROLES:
        yield 5, f"the role is {_short(role)}; only system, user and assistant are used"


def _order(
    index: int | None, turn: int | None, at_us: int | None, role: str | None, track: _Track
) -> Iterator[tuple[int, str]]:
    """What is wrong with an entry's place after those before it: index, time, turn."""
    if index is not None and index <= track.index:
        yield 1, f"index {index} stands after index {track.index}"
    if at_us is not None and track.at_us is not None and at_us < track.at_us:
        yield (
            1,
            f"its time is {times.format_time(at_us)}, before {times.format_time(track.at_us)} of an entry before it",
        )
    known = role in LOG_ROLES
    rises = track.asked and (role == "assistant" or (not known and turn not in track.turns))
    expected = tuple(one + rises for one in track.turns)
    if turn is not None and turn not in expected:
        yield 3, f"the turn is {turn}, here it is {expected[0]}: it rises when an assistant follows a user"
    track.index = max(track.index, index if index is not None else -1)
    track.turns = expected if turn is None else (turn,) if turn in expected else (expected[0], turn)
    track.asked = role == "user" or (track.asked and not rises)
    if at_us is not None:
        track.at_us = at_us if track.at_us is None else max(track.at_us, at_us)


def _content(role: str | None, text: str, content: str | Members | None, extra: str) -> Iterator[tuple[int, str]]:
    """What is wrong with the content for a role."""
    if not text or role not in LOG_ROLES:
        return
    if role == "system":
        if not isinstance(content, str):
            yield 2, f"the `content` of a system entry is text, not {_short(text)}"
        return
    if content is None or isinstance(content, str):
        yield 2, f"the `content` of an entry of role {role} is an object, not {_short(text)}"
        return
    named = dict(content)
    if len(named) < len(content):
        yield 2, "a name stands more than once in `content`"
    tool = string_of(named.get("toolCall", "")) if role == "assistant" else None
    yield from _texts(named, _NEEDED[POST if tool == POST else role], _TEXTS[role])
    if tool == "":
        yield 2, "`toolCall` is empty"
    if role == "assistant" and named.get("reasoning", '""') == '""' and _is_call(extra):
        yield 7, f"the call of {_short(tool or '')} has no reasoning"


_NEEDED = {"user": ("userid", "text"), "assistant": ("toolCall",), POST: ("toolCall", "text")}
_TEXTS = {"user": ("userid", "text"), "assistant": ("toolCall", "text", "reasoning")}
"""What the content of a role, or of a post, has to have, and what of it is text."""


def _texts(named: dict[str, str], needed: tuple[str, ...], texts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for name in needed:
        if name not in named:
            yield 2, f"`content` has no `{name}`"
    for name in texts:
        if name in named and string_of(named[name]) is None:
            yield 2, f"`{name}` in `content` is {_short(named[name])}, not text"


def _is_call(extra: str) -> bool:
    """Whether an entry is a call for itself: no text shown as a call, no call made together with the one before."""
    told = object_of(extra)
    parts = told.get("parts")
    listed = cast("list[Any]", parts) if isinstance(parts, list) else [{"type": "tool_call"}]
    called = any(isinstance(one, dict) and cast("dict[str, Any]", one).get("type") == "tool_call" for one in listed)
    return called and told.get("more") is not True


def object_of(text: str) -> dict[str, Any]:
    """The object that a JSON text is; an empty one if it is none, or cannot be a value of Python."""
    try:
        return cast("dict[str, Any]", json.loads(text)) if text[:1] == "{" else {}
    except (ValueError, RecursionError):
        return {}


def _number(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > len(str(MOST_INDEX)):
        return None
    return int(text) if int(text) <= MOST_INDEX else None


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
