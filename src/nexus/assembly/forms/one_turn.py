"""The window of a form that shows one turn alone: that turn's messages, and the messages before it that blocks tell of.

The blocks tell of the newest entries, each turn of a session has at least one, so no more turns than entries are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from nexus.assembly.fit.pins import Pinned, merge_pins, pending_request_ref, pinned_groups
from nexus.assembly.fit.view import LedgerView, View
from nexus.assembly.fit.window import Window, extend, is_current, start
from nexus.assembly.forms.tagged_message import framed_entry
from nexus.ledger.replay import conversation_rows, visible_start
from nexus.tokens.counter import TokenCounter
from nexus.types.history import OLDER_ENTRIES as OLDER
from nexus.types.history import PreviousTurns
from nexus.types.ledger_entries import Cut, Entry, MessageRef

ENTRIES = 256
"""Entries that are read at a time, from the newest back."""


def turn_window(
    reading: LedgerView, view: View, cut: Cut | None, counter: TokenCounter, *, opens: bool
) -> tuple[Window, PreviousTurns]:
    """The window of the turn that is open, empty where the event `opens` one; and what was said before.

    What a clear hides, a compaction summarised or a cut of this view left out is not among it.
    """
    live, head = reading.live, reading.head[0]
    if not is_current(cut, live.mark, live.changed_at):
        cut = None
    begin = visible_start(live.mark)
    if cut is not None and cut.reason == OLDER:
        begin = max(begin, cut.first)
    entries = _newest(reading, begin.seq, turns=PreviousTurns().max_entries + 1)
    turn = entries[-1].turn if entries else 0
    own = [] if opens else [entry for entry in entries if entry.turn == turn]
    first = max(MessageRef(own[0].seq, 0), begin) if own else MessageRef(head + 1, 0)
    within = cut if cut is not None and own and cut.reason != OLDER and cut.first >= first else None
    first = max(first, within.first) if within is not None else first
    shown = [framed_entry(entry, counter) for entry in own]
    asked = pending_request_ref(within, live.mark)
    pins = [
        Pinned(row.place, (row,), view.max_tool_result_tokens, "asked")
        for one in shown
        for row in one.rows
        if row.place == asked
    ]
    end = own[0].seq if own else head + 1
    pins += pinned_groups(lambda after, until: _within(shown, after, until), live.pins, MessageRef(end, 0))
    window, _ = start(
        counter,
        cut=within,
        wire=view.wire,
        model=view.model,
        pins=merge_pins(*pins),
        largest=view.max_tool_result_tokens,
        images=view.images,
    )
    window.first, window.cut = first, cut if cut is not None and (within or cut.reason == OLDER) else None
    window.fold.started = True  # blocks stand before it
    extend(window, shown, counter, first)
    (window.head, window.head_hash), window.turn = reading.head, turn
    rows = [
        (entry.turn, row)
        for entry in entries
        if entry.seq < end
        for row in conversation_rows(entry)
        if row.place >= begin
    ]
    mark = live.mark
    summary = str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else ""
    kept = pinned_groups(reading.entries, live.pins, MessageRef(live.cleared_at + 1, 0))
    pinned = [(-at, row) for at, pin in enumerate(kept, 1) for row in pin.rows if row.place.seq < end]
    return window, PreviousTurns(rows, summary, pinned)


def _within(entries: Sequence[Entry], after: int, until: int) -> Sequence[Entry]:
    return [entry for entry in entries if after < entry.seq <= until]


def _newest(reading: LedgerView, first: int, turns: int) -> Sequence[Entry]:
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
