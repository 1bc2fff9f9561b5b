"""Messages that stay verbatim whatever is cut or summarised: the session's first task, and what the user pinned.

A pin holds a whole group, an assistant message with all its results, because nothing less is valid. Hidden pins are
shown after the summary and the marker of what is left out, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from nexus.ledger.entries import Entry, Place, Row
from nexus.message import ToolResult
from nexus.size import Wire

NEAR = 64
"""Entries around a pinned message among which its group is looked for."""

LARGEST_TASK = 0.125
"""The first task is kept by itself while it takes at most this share of the view's size class."""


class Pinned(Struct, frozen=True):
    """A pinned message with its group, as stored. `place` is the first message of the group."""

    place: Place
    rows: tuple[Row, ...]

    def tokens(self, wire: Wire) -> int:
        """Base tokens of the group as stored, without thinking and memory notes."""
        return sum(row.size.on(wire) for row in self.rows)


def groups(read: Callable[[int, int], Iterable[Entry]], pins: Collection[Place], first: Place) -> tuple[Pinned, ...]:
    """The groups of the pinned messages from `first` on, in order. `read` gives entries `after < seq <= until`."""
    found: dict[Place, Pinned] = {}
    for place in sorted(pins):
        if place < first:
            continue
        rows = [row for entry in read(max(place.seq - 1 - NEAR, 0), place.seq + NEAR) for row in entry.rows]
        group = _group(rows, place)
        if group:
            found[group[0].place] = Pinned(group[0].place, group)
    return tuple(found[place] for place in sorted(found))


def first_task(read: Callable[[int, int], Iterable[Entry]], after: int, head: int) -> Place | None:
    """The first message of a user's after an entry: what the session was begun for. None if there is none yet."""
    low = after
    while low < head:
        high = min(low + NEAR, head)
        for entry in read(low, high):
            for row in entry.rows:
                if row.message.role == "user" and row.message.text().strip():
                    return row.place
        low = high
    return None


def _group(rows: Sequence[Row], place: Place) -> tuple[Row, ...]:
    """The message at a place with the rest of its group."""
    at = next((index for index, row in enumerate(rows) if row.place == place), None)
    if at is None:
        return ()
    begin = at
    while begin and _answers(rows[begin]):
        begin -= 1
    end = at + 1
    while end < len(rows) and _answers(rows[end]):
        end += 1
    return tuple(rows[begin:end])


def _answers(row: Row) -> bool:
    return any(isinstance(part, ToolResult) for part in row.message.parts)
