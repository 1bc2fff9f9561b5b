"""The queues of a ledger's sessions, as a broker reads and writes them. All methods block: the engine's thread runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from nexus.broker.events import EventResult
from nexus.broker.queue_modes import DropPolicy, EventBody, EventTurn, QueueRow, decode_row, encode_body, next_batch
from nexus.engine import Engine, session_label
from nexus.engine.events import event_digest, turn_with_event
from nexus.errors import (
    BadReference,
    BadSetting,
    IdempotencyConflict,
    NotAccepted,
    SessionBusy,
    TurnSuperseded,
    ambiguous_event,
)
from nexus.ledger.lease import LEASE_MS
from nexus.ledger.replay import entries_from_turn
from nexus.ledger.sessions import Lease, NewQueuedEvent, QueuedEvent, event_key
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import Commit
from nexus.types.message import Message
from nexus.types.settings import Settings, SettingsChanges

SUMMARIZED = "queue full: left out, and summarized for the next turn"


class EventQueue:
    """The accepted events of all sessions of an engine's ledger.

    Args:
        engine: The engine.
        cap: Events of one session that wait, at most.
        drop: Which one a full queue drops.
        settings: The agent's, which an event may change.
    """

    def __init__(self, engine: Engine, cap: int, drop: DropPolicy, settings: Settings) -> None:
        if cap < 1:
            raise BadSetting("cap is a number from 1")
        self._engine = engine
        self._store = engine.ledger.store
        self.cap = cap
        self.drop = drop
        self._settings = settings

    def accept(
        self, body: EventBody, session: str | None, turn: int | None
    ) -> tuple[QueuedEvent, bool, list[QueuedEvent]]:
        """Store an event, and drop one if the queue is full. Returns it, whether it is new, and the dropped ones.

        Raises IdempotencyConflict if its sender used its id in this session for another content.
        """
        event = body.event
        encoded = encode_body(body)
        settings = self._settings.with_changes(cast("SettingsChanges", body.options))
        principal = settings.principal
        label = self._route(event.id, session, turn, settings)
        with self._store.snapshot():
            label = self._store.resolve(label) or label
            turn_with_event(self._engine.ledger, label, event, principal)
            rows = [self._decode(row) for row in self._store.queued_events(label, ("queued",))]
        waiting = [row.row.key for row in rows if (row.row.id, row.principal) != (event.id, principal)]
        is_full = len(waiting) >= self.cap
        refused = is_full and self.drop == "new"
        reason = ""
        if refused:
            reason = f"queue full: {count_noun(len(waiting), 'event')} in it"
        state = "dropped" if refused else "queued"
        (accepted,) = self._store.accept_events([NewQueuedEvent(event.id, label, encoded, state, reason, 0, principal)])
        if event_digest(self._decode(accepted.event).body.event) != event_digest(event):
            text = (
                f"event id {event.id[:80]!r} was used in session {label!r} for another message of the same sender "
                "(give each event an id of its own; nothing was accepted)"
            )
            raise IdempotencyConflict(label, event.id, alike=False, text=text)
        dropped: list[QueuedEvent] = []
        if accepted.added and is_full and not refused:
            oldest = waiting[: len(waiting) - self.cap + 1]
            if self.drop == "summarize":
                reason = SUMMARIZED
            else:
                reason = f"queue full: dropped for event {event.id}"
            dropped = self._store.update_events(oldest, "dropped", expected=("queued",), reason=reason)
        return accepted.event, accepted.added, dropped

    def _route(self, event_id: str, session: str | None, turn: int | None, settings: Settings) -> str:
        """Return the label of an event's session, which is a fork if the event belongs after an earlier turn.

        The fork's name has no known prefix: it belongs to the owner of its source.
        """
        label = session_label(self._engine, session, settings=settings)
        if turn is None:
            return label
        label = self._store.resolve(label) or label
        key = event_key(event_id, label, settings.principal)
        fork = f"fork:{label[:200]}@{turn}.{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()[:12]}"
        if self._store.resolve(fork) is None:
            try:
                self._engine.ledger.fork(fork, label, turn=turn)
            except BadReference:
                if self._store.resolve(fork) is None:  # else another process made it meanwhile
                    raise
        return fork

    def find(self, event: QueuedEvent | str, session: str | None = None, principal: str | None = None) -> QueuedEvent:
        """Return an accepted event as it is now; see `Broker.result`. Raises NotAccepted."""
        return self.the_only(event, self.candidates(event, session, principal))

    def candidates(self, event: QueuedEvent | str, session: str | None, principal: str | None) -> list[QueueRow]:
        """Return the accepted events that an id may mean, of a session or a sender if these are given."""
        with self._store.snapshot():
            if isinstance(event, str):
                events = self._store.events_with_id(event)
            else:
                events = list(filter(None, [self._store.queued_event(event.key)]))
            label = None
            if session is not None:
                label = self._store.resolve(session) or session
        rows = map(self._decode, events)
        return [row for row in rows if label in (None, row.row.session) and principal in (None, row.principal)]

    def the_only(self, event: QueuedEvent | str, rows: Sequence[QueueRow]) -> QueuedEvent:
        """Return the event if it is one. Raises NotAccepted."""
        name = event if isinstance(event, str) else event.id
        if not rows:
            raise NotAccepted(f"event {name!r} was never accepted (submit it)")
        if len(rows) > 1:
            raise ambiguous_event(name, [(row.row.session, row.principal) for row in rows])
        return rows[0].row

    def result(self, event: QueuedEvent | str, session: str | None = None, principal: str | None = None) -> EventResult:
        """Return an event as it is now, with the replies of its turn if it is done; arguments and errors as of `find`."""
        with self._store.snapshot():
            row = self.find(event, session, principal)
            return EventResult(row, self._replies(row.session, row.turn) if row.state == "done" else ())

    def pending(self, label: str) -> list[QueueRow]:
        """Return the queued and running events of a session."""
        return [self._decode(row) for row in self._store.queued_events(label)]

    def left_out(self, label: str, settings: Settings) -> list[QueueRow]:
        """Return the dropped events that a turn with these settings summarizes. Those that a turn has get its number."""
        left_out: list[QueueRow] = []
        for row in self._store.queued_events(label, ("dropped",)):
            if row.reason != SUMMARIZED or row.turn:
                continue
            decoded = self._decode(row)
            if turn := self._stored_turn(label, decoded).number:
                self._store.update_events([row.key], "dropped", expected=("dropped",), reason=SUMMARIZED, turn=turn)
            elif decoded.settings == settings:
                left_out.append(decoded)
        return left_out

    def take_batch(
        self, label: str, *, collects: bool, min_events: int = 0
    ) -> tuple[Sequence[QueueRow], list[QueueRow]]:
        """Return the next turn's events, and the ones that are marked as running now: none while more are collected.

        Collected events are marked once their number is still `min_events`.
        """
        rows = self.pending(label)
        running = [row for row in rows if row.row.state == "running"]
        if running:
            return running, running
        batch = self._without_known(label, next_batch(rows))
        if batch and batch[0].body.mode == "collect" and collects and len(batch) != min_events:
            return batch, []
        if not batch:
            return [], []
        keys = [row.row.key for row in batch]
        marked = {row.key for row in self._store.update_events(keys, "running", expected=("queued",))}
        batch = [row for row in batch if row.row.key in marked]
        return batch, batch

    def _without_known(self, label: str, batch: list[QueueRow]) -> list[QueueRow]:
        """Return the events that one turn can answer: one that the session has already is answered by its own turn."""
        if len(batch) < 2:
            return batch
        end = next((at for at, row in enumerate(batch) if self._is_known(label, row)), len(batch))
        return batch[: max(end, 1)]

    def _is_known(self, label: str, row: QueueRow) -> bool:
        try:
            return turn_with_event(self._engine.ledger, label, row.body.event, row.principal) is not None
        except IdempotencyConflict:
            return True

    def take(self, label: str, row: QueueRow, turn: int) -> bool:
        """Mark a queued event as running in a turn under way; return False if it cannot join it."""
        if self._is_known(label, row):
            return False
        return bool(self._store.update_events([row.row.key], "running", expected=("queued",), turn=turn))

    def put_back(self, row: QueueRow) -> None:
        """Mark an event as queued whose turn did not begin."""
        self._store.update_events([row.row.key], "queued", expected=("running",))

    def drop_waiting(self, event: QueuedEvent, reason: str) -> list[QueuedEvent]:
        """Drop an event that waits. Returns it, or nothing if it does not wait."""
        return self._store.update_events([event.key], "dropped", expected=("queued",), reason=reason)

    def settle(self, rows: Sequence[QueueRow], turn: int, reason: str) -> list[QueuedEvent]:
        """Mark the events of a turn as done, or as failed for a reason: all of them or none. Returns the changed ones."""
        keys = [row.row.key for row in rows]
        state = "failed" if reason else "done"
        return self._store.update_events(keys, state, expected=("running",), reason=reason, turn=turn)

    def stored_turns(self, label: str, rows: Sequence[QueueRow]) -> list[tuple[QueueRow, EventTurn]]:
        """Return events with the turn that has each, as it is stored."""
        with self._store.snapshot():
            thread = self._store.thread_of(label)
            if thread is not None:  # as a rule it has the events: the snapshot reads its entries once
                entries_from_turn(self._store, thread, self._store.thread(thread).turn)
            return [(row, self._stored_turn(label, row)) for row in rows]

    def running(self, label: str) -> list[tuple[QueueRow, EventTurn]]:
        """Return the running events of a session with their turns."""
        with self._store.snapshot():
            return self.stored_turns(label, [row for row in self.pending(label) if row.row.state == "running"])

    def same_lease(self, label: str, lease: Lease) -> Lease:
        """Return a lease with a fencing token that may write now: a larger one if a writer without a lease came between.

        Raises SessionBusy if another program holds the session: that one goes on with the turn, and settles its events.
        """
        now = self._store.take_lease(label, lease.holder, LEASE_MS)
        if now.holder != lease.holder:
            raise SessionBusy(label, now.holder, 0)
        if self._store.thread_of(label) is None:
            return now
        try:
            self._store.commit(label, Commit(fence=lease.fence))
        except TurnSuperseded:
            return replace(now, fence=self._store.commit(label, Commit(fence=0)).fence)
        return now

    def _decode(self, row: QueuedEvent) -> QueueRow:
        return decode_row(row, self._settings)

    def _stored_turn(self, label: str, row: QueueRow) -> EventTurn:
        try:
            position = turn_with_event(self._engine.ledger, label, row.body.event, row.principal)
        except IdempotencyConflict:  # another event has its id: no turn has this one
            position = None
        if position is None:
            return EventTurn()
        number = position.turn
        turn = self._engine.ledger.turns(label, number)[0]
        replies = self._replies(label, number) if row.body.reply_to else ()
        return EventTurn(number, turn.status, turn.error, replies[-1].text() if replies else "")

    def _replies(self, session: str, turn: int) -> tuple[Message, ...]:
        """Return the assistant's messages of a turn."""
        label = self._store.resolve(session)
        thread = None
        if label is not None:
            thread = self._store.thread_of(label)
        entries = entries_from_turn(self._store, thread, turn) if thread is not None else []
        messages = (stored.message for entry in entries if entry.turn == turn for stored in entry.rows)
        return tuple(message for message in messages if message.role == "assistant")
