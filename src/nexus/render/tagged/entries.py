"""Entries of the shared memory from rows of a history, as in document 000 ("Key Behaviors"), and what they consist of.

All of an AI's rows in one run are one entry at the position of the first row. Its parts are texts and, after the text of
the row that declared them, tool calls. The newest entries are kept, and each is truncated, never within a grapheme.
Times are those of the user's zone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

if TYPE_CHECKING:
    from regex import Pattern

LIMIT = 20
"""Limit of entries after merging (document 000: `limit: int = 20`)."""

HUMAN, AI = ("human", "user"), ("ai", "assistant")
"""Names of the two roles in the memory."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


UNKNOWN_TIME = "unknown time"
"""Text for a missing time or one outside the calendar."""


def memory_time(at_ms: int | None, zone: tzinfo) -> str:
    """Return Unix time in milliseconds as `YYYY-MM-DD HH:MM` in the zone, or UNKNOWN_TIME."""
    local = _local(at_ms, zone)
    return UNKNOWN_TIME if local is None else local.replace(tzinfo=None).isoformat(" ", "minutes")


def moment_time(at_ms: int | None, zone: tzinfo) -> str:
    """Return Unix time in milliseconds as `YYYY-MM-DD HH:MM:SS±HH:MM` in the zone, or UNKNOWN_TIME."""
    local = _local(at_ms, zone)
    if local is None:
        return UNKNOWN_TIME
    offset = local.strftime("%z")
    return f"{local.replace(tzinfo=None).isoformat(' ', 'seconds')}{offset[:3]}:{offset[3:5]}"


def _local(at_ms: int | None, zone: tzinfo) -> datetime | None:
    if at_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
    except OverflowError:
        return None


TEXT_CHARS = 500
"""Limit of an entry in code points. Document 000, "Key Behaviors": longer messages end with `...`."""

DOTS = "..."


def truncate_at_grapheme(text: str, most_chars: int = TEXT_CHARS) -> str:
    """Return at most so many characters (more than three) of a text, three dots included."""
    if len(text) <= most_chars:
        return text
    return text[: _boundary(text, most_chars - len(DOTS))] + DOTS


def truncate_texts(texts: list[str], most_chars: int = TEXT_CHARS) -> list[str | None]:
    """Truncate the texts of consecutive lines together; None for each that is cut off completely."""
    joined = "\n".join(texts)
    if len(joined) <= most_chars:
        return list(texts)
    cut = _boundary(joined, most_chars - len(DOTS))
    truncated: list[str | None] = []
    at = 0
    for text in texts:
        if at > cut:
            truncated.append(None)
        elif at + len(text) < cut:
            truncated.append(text)
        else:
            truncated.append(text[: cut - at] + DOTS)
            cut = -1
        at += len(text) + 1
    return truncated


def _boundary(text: str, limit: int) -> int:
    """Return the last grapheme boundary (Unicode Standard Annex 29) up to `limit`; `limit` if there is none."""
    if text.isascii() and text[limit - 1 : limit + 1] != "\r\n":
        return limit
    ends = (match.end() for match in _grapheme().finditer(text[: limit + 1]))
    return max((end for end in ends if end <= limit), default=limit)


@cache
def _grapheme() -> Pattern[str]:
    import regex

    return regex.compile(r"\X")


NAME_CHARS, VALUE_CHARS = 128, 100
"""Limits of a tool's name, and of an argument's name or value."""

PREFERRED = "query"
"""Name of the argument to show; by default a call's first one."""


class ToolUse(Struct, frozen=True):
    """A tool call: the tool's name, and one argument with its value as text. `key` is None without arguments."""

    name: str
    key: str | None = None
    value: str = ""


def tool_use(name: str, arguments: str | Mapping[str, Any]) -> ToolUse:
    """Return a truncated tool call. Arguments that are not a JSON object count as none."""
    values = _object(arguments)
    name = truncate_at_grapheme(name, NAME_CHARS)
    if not values:
        return ToolUse(name)
    key = PREFERRED if PREFERRED in values else next(iter(values))
    value = truncate_at_grapheme(_text(values[key]), VALUE_CHARS)
    return ToolUse(name, truncate_at_grapheme(str(key), VALUE_CHARS), value)


def _object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return arguments


def _text(value: object) -> str:
    """Return a text unchanged, any other value as JSON, or the name of its type if it has no JSON form."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


class DialogueCall(Struct, frozen=True):
    """A tool call of a row: arguments as an object or as received text."""

    name: str
    arguments: str | Mapping[str, Any] = ""


class DialogueRow(Struct, frozen=True):
    """One message of a history. Roles `human` (`user`) and `ai` (`assistant`) are shown, in any letter case."""

    role: str
    text: str = ""
    run_id: str = ""
    at_ms: int | None = None
    """Unix time; None if unknown."""
    calls: tuple[DialogueCall, ...] = ()


Parts: TypeAlias = tuple[str | tuple[ToolUse, ...], ...]
"""Texts, none empty and no two in a row, with the tool calls between them."""


class Human(Struct, frozen=True, tag="human"):
    """A user's message. `time` is `YYYY-MM-DD HH:MM` or `unknown time`."""

    time: str
    text: str


class Ai(Struct, frozen=True, tag="ai"):
    """The AI's answer in one run. `time` is None after a human's entry."""

    time: str | None
    parts: Parts


Entry: TypeAlias = Human | Ai


class MergedEntry(Struct, frozen=True):
    """Rows of one entry, as (index in the history, row): one of a human, or all of an AI's run, oldest first."""

    rows: tuple[tuple[int, DialogueRow], ...]
    human: bool

    def parts(self) -> Parts:
        """Return texts and tool calls in order, not truncated. Consecutive texts are joined by a newline."""
        parts: list[str | tuple[ToolUse, ...]] = []
        texts: list[str] = []
        for _, row in self.rows:
            if row.text.strip():
                texts.append(row.text)
            if row.calls:
                parts += ["\n".join(texts)] if texts else []
                parts.append(tuple(tool_use(call.name, call.arguments) for call in row.calls))
                texts = []
        return (*parts, "\n".join(texts)) if texts else tuple(parts)


class MemoryEntries(Struct, frozen=True):
    """Entries of the memory, oldest first, and the number of omitted rows by role or reason."""

    entries: tuple[Entry, ...]
    omitted: dict[str, int]


def is_shown(role: str) -> bool:
    """Return true if rows of the role are entries of the memory."""
    return role.strip().casefold() in (*HUMAN, *AI)


def merge_rows(rows: Iterable[DialogueRow], current_run_id: str = "") -> tuple[list[MergedEntry], Counter[str]]:
    """Group the rows into entries, oldest first, and count omitted rows by role or reason.

    Other roles, rows of the current run, and an AI's rows without text and calls are omitted.
    """
    groups: list[tuple[bool, list[tuple[int, DialogueRow]]]] = []
    runs: dict[str, list[tuple[int, DialogueRow]]] = {}
    omitted: Counter[str] = Counter()
    for place, row in enumerate(rows):
        role = row.role.strip().casefold()
        if not is_shown(role):
            omitted[role or "without a role"] += 1
        elif current_run_id and row.run_id == current_run_id:
            omitted["of the current run"] += 1
        elif role in HUMAN:
            groups.append((True, [(place, row)]))
        elif not row.text.strip() and not row.calls:
            omitted["empty"] += 1
        elif row.run_id in runs:
            runs[row.run_id].append((place, row))
        else:
            group = [(place, row)]
            groups.append((False, group))
            if row.run_id:
                runs[row.run_id] = group
    return [MergedEntry(tuple(group), human) for human, group in groups], omitted


def memory_entries(
    rows: Iterable[DialogueRow],
    zone: tzinfo = UTC,
    *,
    limit: int = LIMIT,
    current_run_id: str = "",
    most_chars: int = TEXT_CHARS,
) -> MemoryEntries:
    """Return the newest `limit` entries of the rows (oldest first), truncated to `most_chars`, with times in the zone.

    An AI's entry has a time unless it follows a human's entry.
    """
    groups, omitted = merge_rows(rows, current_run_id)
    newest = groups[-limit:] if limit > 0 else []
    older = sum(len(group.rows) for group in groups[: len(groups) - len(newest)])
    if older:
        omitted["older"] += older
    entries: list[Entry] = []
    for group in newest:
        first = group.rows[0][1]
        time = memory_time(first.at_ms, zone)
        if group.human:
            entries.append(Human(time, truncate_at_grapheme(first.text, most_chars)))
        else:
            follows = bool(entries) and isinstance(entries[-1], Human)
            entries.append(Ai(None if follows else time, truncate_parts(group.parts(), most_chars)))
    return MemoryEntries(tuple(entries), dict(sorted(omitted.items())))


def truncate_parts(parts: Parts, most_chars: int = TEXT_CHARS) -> Parts:
    """Truncate the texts of the parts together to so many characters; all tool calls stay."""
    texts = iter(truncate_texts([part for part in parts if isinstance(part, str)], most_chars))
    truncated = (next(texts) if isinstance(part, str) else part for part in parts)
    return tuple(part for part in truncated if part is not None)
