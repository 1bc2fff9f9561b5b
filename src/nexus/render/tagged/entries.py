"""What the shared memory holds: entries, made of the rows of a history in document 000's way ("Key Behaviors").

All of an AI's rows in one run are one entry, at the place of the first. Its parts are texts and, after the text of the
row that declared them, the tools that this row used. The newest entries are kept, and each is shortened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, tzinfo
from typing import Any, TypeAlias

from msgspec import Struct

from nexus.render.tagged.shorten import TEXT_CHARS, truncate_at_grapheme, truncate_texts
from nexus.render.tagged.times import memory_time
from nexus.render.tagged.use import ToolUse, tool_use

LIMIT = 20
"""Entries at most, after merging (document 000: `limit: int = 20`)."""

HUMAN, AI = ("human", "user"), ("ai", "assistant")
"""Names of the two roles that are shown."""


class DialogueCall(Struct, frozen=True):
    """A tool call as a row declares it: arguments as an object, or as the text that was received."""

    name: str
    arguments: str | Mapping[str, Any] = ""


class DialogueRow(Struct, frozen=True):
    """One message of a history, oldest first. `run_id` is empty if there is none, `at_ms` Unix time, None if unknown.

    Shown are the roles `human` (or `user`) and `ai` (or `assistant`), in any letter case.
    """

    role: str
    text: str = ""
    run_id: str = ""
    at_ms: int | None = None
    calls: tuple[DialogueCall, ...] = ()


Parts: TypeAlias = tuple[str | tuple[ToolUse, ...], ...]
"""Texts, none empty and no two in a row, and the tools that were used between them."""


class Human(Struct, frozen=True, tag="human"):
    """What the user said. `time` is as shown: `YYYY-MM-DD HH:MM`, or `unknown time`."""

    time: str
    text: str


class Ai(Struct, frozen=True, tag="ai"):
    """What the AI answered in one run. `time` is None where the entry follows a human's and shows none."""

    time: str | None
    parts: Parts


Entry: TypeAlias = Human | Ai


class MergedEntry(Struct, frozen=True):
    """The rows of one entry: one of a human, or all of an AI's run, oldest first, as (place in the history, row)."""

    rows: tuple[tuple[int, DialogueRow], ...]
    human: bool

    def parts(self) -> Parts:
        """Texts and used tools in order, not shortened. Texts that follow each other are joined by a newline."""
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
    """The entries to show, oldest first, and how many rows were left out, by their role or the reason."""

    entries: tuple[Entry, ...]
    omitted: dict[str, int]


def is_shown(role: str) -> bool:
    """Whether rows of that role are entries of the memory."""
    return role.strip().casefold() in (*HUMAN, *AI)


def merge_rows(rows: Iterable[DialogueRow], current_run_id: str = "") -> tuple[list[MergedEntry], Counter[str]]:
    """The rows in groups that are one entry each, oldest first, and how many rows were left out, by role or reason.

    Left out are roles that are not shown, rows of the current run, and an AI's rows that neither say nor use anything.
    """
    groups: list[tuple[bool, list[tuple[int, DialogueRow]]]] = []
    runs: dict[str, list[tuple[int, DialogueRow]]] = {}
    left_out: Counter[str] = Counter()
    for place, row in enumerate(rows):
        role = row.role.strip().casefold()
        if not is_shown(role):
            left_out[role or "without a role"] += 1
        elif current_run_id and row.run_id == current_run_id:
            left_out["of the current run"] += 1
        elif role in HUMAN:
            groups.append((True, [(place, row)]))
        elif not row.text.strip() and not row.calls:
            left_out["empty"] += 1
        elif row.run_id in runs:
            runs[row.run_id].append((place, row))
        else:
            group = [(place, row)]
            groups.append((False, group))
            if row.run_id:
                runs[row.run_id] = group
    return [MergedEntry(tuple(group), human) for human, group in groups], left_out


def memory_entries(
    rows: Iterable[DialogueRow],
    zone: tzinfo = UTC,
    *,
    limit: int = LIMIT,
    current_run_id: str = "",
    most_chars: int = TEXT_CHARS,
) -> MemoryEntries:
    """The newest `limit` entries of the rows (oldest first), shortened to `most_chars`, with times in the zone.

    An AI's entry shows its time where it does not follow a human's that is shown.
    """
    groups, left_out = merge_rows(rows, current_run_id)
    shown = groups[-limit:] if limit > 0 else []
    older = sum(len(group.rows) for group in groups[: len(groups) - len(shown)])
    if older:
        left_out["older"] += older
    entries: list[Entry] = []
    for group in shown:
        first = group.rows[0][1]
        time = memory_time(first.at_ms, zone)
        if group.human:
            entries.append(Human(time, truncate_at_grapheme(first.text, most_chars)))
        else:
            follows = bool(entries) and isinstance(entries[-1], Human)
            entries.append(Ai(None if follows else time, truncate_parts(group.parts(), most_chars)))
    return MemoryEntries(tuple(entries), dict(sorted(left_out.items())))


def truncate_parts(parts: Parts, most_chars: int = TEXT_CHARS) -> Parts:
    """The parts with their texts shortened together to so many characters; the tools that were used all stay."""
    texts = iter(truncate_texts([part for part in parts if isinstance(part, str)], most_chars))
    shown = (next(texts) if isinstance(part, str) else part for part in parts)
    return tuple(part for part in shown if part is not None)
