"""Recorded calls of a session, by turn, and by number where a turn has several."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from nexus.errors import BadReference
from nexus.ledger.store import HistoryStore, LedgerStore, unknown_session
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import AssemblyRow

_BACK = 128
"""Entries that are searched backwards at a time for an earlier call."""

_NEAR = 8
"""Entries at the head that usually include the newest call."""


class RecordedCall(Struct, frozen=True):
    """Call `number` of `count` of a turn on the session's thread; `row` contains its manifest."""

    session: str
    thread: int
    turn: int
    number: int
    count: int
    row: AssemblyRow

    @property
    def label(self) -> str:
        """The call by name: `call 2 of 3 of turn 7 of session 'main'`."""
        which = "the call of turn"
        if self.count > 1:
            which = f"call {self.number} of {self.count} of turn"
        return f"{which} {self.turn} of session {self.session!r}"


def recorded_call(store: LedgerStore, session: str, turn: int, number: int | None = None) -> RecordedCall:
    """Return call `number` of a turn; by default the turn's last one. Raises NoSuchSession, BadReference."""
    thread = store.thread_of(session)
    if thread is None:
        raise unknown_session(store, session)
    return recorded_call_on(store, thread, session, turn, number)


def recorded_call_on(
    store: HistoryStore, thread: int, session: str, turn: int, number: int | None = None
) -> RecordedCall:
    """Return call `number` of a turn on a thread, which `session` may have left since. Raises BadReference."""
    turns = store.thread(thread).turn
    if not 1 <= turn <= turns:
        raise BadReference(f"turn {turn} not found: session {session!r} has {count_noun(turns, 'turn')}")
    rows = _rows(store, thread, turn)
    if not rows:
        raise BadReference(
            f"turn {turn} of session {session!r} has no recorded call: it was imported or appended without a request "
            f"(see what is known of it: nexus context {session} --at {turn})"
        )
    wanted = len(rows) if number is None else number
    if not 1 <= wanted <= len(rows):
        raise BadReference(
            f"call {number} not found: turn {turn} of session {session!r} has {count_noun(len(rows), 'call')}"
        )
    return RecordedCall(session, thread, turn, wanted, len(rows), rows[wanted - 1])


def call_before(store: HistoryStore, call: RecordedCall) -> RecordedCall | None:
    """Return the previous recorded call of any model and view; None for the first."""
    row = _row_before(store, call.thread, call.row.seq - 1)
    if row is None:
        return None
    return _call_of(store, call.thread, call.session, row)


def recorded_call_at(store: HistoryStore, thread: int, session: str, seq: int) -> RecordedCall:
    """Return the newest call at or before entry `seq` of a thread. Raises BadReference if there is none."""
    row = _row_before(store, thread, seq)
    if row is None:
        raise BadReference(f"session {session!r} has no recorded call before entry {seq}")
    return _call_of(store, thread, session, row)


def last_of_view(store: HistoryStore, thread: int, view: str, until: int) -> AssemblyRow | None:
    """Return the newest manifest of a view at or before entry `until`."""
    return _row_before(store, thread, until, view)


def last_call(store: HistoryStore, thread: int) -> AssemblyRow | None:
    """Return the newest manifest of a thread, whatever its view."""
    head = store.thread(thread).head_seq
    near = store.assemblies(thread, max(head - _NEAR, 0), head)
    if near:
        return near[-1]
    return _row_before(store, thread, head - _NEAR)


def last_model(store: HistoryStore, thread: int) -> str:
    """Return the model of the newest message whose model is stored, as imported files state it; empty without one."""
    until = store.thread(thread).head_seq
    while until > 0:
        after = max(until - _BACK, 0)
        for entry in reversed(list(store.entries(thread, after, until))):
            if model := next((row.message.model for row in reversed(entry.rows) if row.message.model), ""):
                return model
        until = after
    return ""


def _call_of(store: HistoryStore, thread: int, session: str, row: AssemblyRow) -> RecordedCall:
    turn = next(iter(store.entries(thread, row.seq - 1, row.seq))).turn
    rows = _rows(store, thread, turn)
    number = next(place for place, other in enumerate(rows, 1) if other.seq == row.seq)
    return RecordedCall(session, thread, turn, number, len(rows), row)


def _row_before(store: HistoryStore, thread: int, until: int, view: str = "") -> AssemblyRow | None:
    step = _NEAR
    while until > 0:
        after = max(until - step, 0)
        rows = [row for row in store.assemblies(thread, after, until) if not view or row.view == view]
        if rows:
            return rows[-1]
        until = after
        step = min(step * 4, _BACK)
    return None


def _rows(store: HistoryStore, thread: int, turn: int) -> list[AssemblyRow]:
    """Return the manifests of a turn's calls, oldest first."""
    seqs = range(1, store.thread(thread).head_seq + 1)
    # Turns rise with the entries, so the last entry before a turn is found without reading all of them.
    after, until = (
        bisect_left(seqs, first, key=lambda seq: next(iter(store.entries(thread, seq - 1, seq))).turn)
        for first in (turn, turn + 1)
    )
    return store.assemblies(thread, after, until)
