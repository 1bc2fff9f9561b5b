"""The window of a form that shows one turn alone: that turn's messages, and the messages before it that blocks tell of.

The blocks tell of the newest entries, each turn of a session has at least one, so no more turns than entries are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from nexus.assembly.fit.pins import Pinned, asked_at, groups, merged
from nexus.assembly.fit.view import Reading, View
from nexus.assembly.fit.window import Window, extend, holds, start
from nexus.assembly.forms.tagged_message import framed_entry
from nexus.ledger.replay import shown_from, spoken
from nexus.tokens.counter import TokenCounter
from nexus.types.history import OLDER_ENTRIES as OLDER
from nexus.types.history import Earlier
from nexus.types.ledger_entries import Cut, Entry, Place

ENTRIES = 256
"""Entries that are read at a time, from the newest back."""


def turn_window(
    reading: Reading, view: View, cut: Cut | None, counter: TokenCounter, *, opens: bool
) -> tuple[Window, Earlier]:
    """The window of the turn that is open, empty where the event `opens` one; and what was said before.

    What a clear hides, a compaction summarised or a cut of this view left out is not among it.
    """
    live, head = reading.live, reading.head[0]
    if not holds(cut, live.mark, live.changed_at):
        cut = None
    begin = shown_from(live.mark)
    if cut is not None and cut.reason == OLDER:
        begin = max(begin, cut.first)
    entries = _newest(reading, begin.seq, turns=Earlier().most + 1)
    turn = entries[-1].turn if entries else 0
    own = [] if opens else [entry for entry in entries if entry.turn == turn]
    first = max(Place(own[0].seq, 0), begin) if own else Place(head + 1, 0)
    within = cut if cut is not None and own and cut.reason != OLDER and cut.first >= first else None
    first = max(first, within.first) if within is not None else first
    shown = [framed_entry(entry, counter) for entry in own]
    asked = asked_at(within, live.mark)
    pins = [Pinned(row.place, (row,), view.largest, "asked") for one in shown for row in one.rows if row.place == asked]
    end = own[0].seq if own else head + 1
    pins += groups(lambda after, until: _within(shown, after, until), live.pins, Place(end, 0))
    window, _ = start(
        counter,
        cut=within,
        wire=view.wire,
        model=view.model,
        pins=merged(*pins),
        largest=view.largest,
        images=view.images,
    )
    window.first, window.cut = first, cut if cut is not None and (within or cut.reason == OLDER) else None
    window.fold.started = True  # blocks stand before it
    extend(window, shown, counter, first)
    (window.head, window.head_hash), window.turn = reading.head, turn
    rows = [(entry.turn, row) for entry in entries if entry.seq < end for row in spoken(entry) if row.place >= begin]
    mark = live.mark
    summary = str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else ""
    kept = groups(reading.entries, live.pins, Place(live.cleared_at + 1, 0))
    pinned = [(-at, row) for at, pin in enumerate(kept, 1) for row in pin.rows if row.place.seq < end]
    return window, Earlier(rows, summary, pinned)


def _within(entries: Sequence[Entry], after: int, until: int) -> Sequence[Entry]:
    return [entry for entry in entries if after < entry.seq <= until]


def _newest(reading: Reading, first: int, turns: int) -> Sequence[Entry]:
    """The newest entries from seq `first` on, oldest first: those of at least so many turns, where there are so many."""
    found: list[Entry] = []
    end = reading.head[0]
    while end >= first:
        after = max(end - ENTRIES, first - 1)
        found = [*reading.entries(after, end), *found]
        if found and len({entry.turn for entry in found}) > turns:
            break
        end = after
    return found
