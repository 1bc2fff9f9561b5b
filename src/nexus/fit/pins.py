"""Messages that stay whatever is cut or summarised: what the user pinned, the session's first task, the present request.

A pin holds a whole group, an assistant message with all its results, because nothing less is valid. Hidden pins are
shown after the summary and the marker of what is left out, in their order. Those that a user set are verbatim and never
shortened; the first task and the request that the kept messages answer are, where one is large beside the window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.ledger.entries import Entry, Place, Row
from nexus.message import ToolResult
from nexus.size import Wire

FRAME_TOKENS = 40
"""Allowance for what stands around the shortened text of a message."""

NEAR = 64
"""Entries around a pinned message among which its group is looked for."""


PinKind: TypeAlias = Literal["pin", "task", "asked"]
_KINDS: tuple[PinKind, ...] = ("pin", "task", "asked")


class Pinned(Struct, frozen=True):
    """A pinned message with its group, as stored. `place` is the first message of the group.

    `limit` is how many base tokens of text it may show; 0, of a user's own pin, is all. `kind` says why it stays.
    """

    place: Place
    rows: tuple[Row, ...]
    limit: int = 0
    kind: PinKind = "pin"

    def tokens(self, wire: Wire) -> int:
        """Base tokens of the group when it is shown among what is left out, at most."""
        stored = sum(row.size.on(wire) for row in self.rows)
        return min(stored, self.limit + FRAME_TOKENS) if self.limit else stored


def merged(*pins: Pinned) -> tuple[Pinned, ...]:
    """The pins in order, each group once: as a user's pin, else as the first task, else as the present request."""
    by_place: dict[Place, Pinned] = {}
    for pin in pins:
        known = by_place.get(pin.place)
        if known is None or _KINDS.index(pin.kind) < _KINDS.index(known.kind):
            by_place[pin.place] = pin
    return tuple(by_place[place] for place in sorted(by_place))


def groups(
    read: Callable[[int, int], Iterable[Entry]],
    pins: Collection[Place],
    first: Place,
    *,
    limit: int = 0,
    kind: PinKind = "pin",
) -> tuple[Pinned, ...]:
    """The groups of the pinned messages from `first` on, in order. `read` gives entries `after < seq <= until`."""
    found: dict[Place, Pinned] = {}
    for place in sorted(pins):
        if place < first:
            continue
        rows = [row for entry in read(max(place.seq - 1 - NEAR, 0), place.seq + NEAR) for row in entry.rows]
        group = _group(rows, place)
        if group:
            found[group[0].place] = Pinned(group[0].place, group, limit, kind)
    return tuple(found[place] for place in sorted(found))


def first_task(read: Callable[[int, int], Iterable[Entry]], after: int, head: int) -> Row | None:
    """The first message of a user's after an entry: what the session was begun for. None if there is none yet."""
    low = after
    while low < head:
        high = min(low + NEAR, head)
        for entry in read(low, high):
            for row in entry.rows:
                said = row.message.role == "user" and not row.message.source.startswith("nexus:")
                if said and row.message.text().strip():
                    return row
        low = high
    return None


def row_at(read: Callable[[int, int], Iterable[Entry]], place: Place) -> Row | None:
    """The row at a place."""
    return next((row for entry in read(place.seq - 1, place.seq) for row in entry.rows if row.place == place), None)


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
