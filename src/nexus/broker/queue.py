"""The queues of a ledger's sessions, as a broker reads and writes them. All methods block: the engine's thread runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nexus.broker.events import EventResult
from nexus.broker.queue_modes import DropPolicy, EventTurn, QueueRow, decode_row, next_batch
from nexus.engine import Engine
from nexus.engine.turn import turn_with_event
from nexus.errors import BadSetting, NotAccepted
from nexus.ledger.replay import entries_from_turn
from nexus.ledger.sessions import NewQueuedEvent, QueuedEvent
from nexus.types.message import Message
from nexus.types.options import CallOptions

SUMMARIZED = "queue full: left out, and summarized for the next turn"


class EventQueue:
    """The accepted events of all sessions of an engine's ledger.

    Args:
        engine: The engine.
        cap: Events of one session that wait, at most.
        drop: Which one a full queue drops.
    """

    def __init__(self, engine: Engine, cap: int, drop: DropPolicy) -> None:
        if cap < 1:
            raise BadSetting("cap is a number from 1")
        self._engine, self._store, self.cap, self.drop = engine, engine.store, cap, drop

    def accept(
        self, event_id: str, body: str, session: str | None, turn: int | None, options: CallOptions
    ) -> tuple[QueuedEvent, bool, list[str]]:
        """Store an event, and drop one if the queue is full. Returns its row, whether it is new, and dropped ids."""
        label = self._route(event_id, session, turn, options)
        with self._store.snapshot():
            label = self._store.resolve(label) or label
            waiting = [row.id for row in self._store.queued_events(label, ("queued",)) if row.id != event_id]
        is_full = len(waiting) >= self.cap
        refused = is_full and self.drop == "new"
        reason = f"queue full: {len(waiting)} events wait" if refused else ""
        new = NewQueuedEvent(event_id, label, body, "dropped" if refused else "queued", reason)
        (accepted,) = self._store.accept_events([new])
        dropped: list[str] = []
        if accepted.added and is_full and not refused:
            dropped = waiting[: len(waiting) - self.cap + 1]
            reason = SUMMARIZED if self.drop == "summarize" else f"queue full: dropped for event {event_id}"
            self._store.update_events(dropped, "dropped", expected=("queued",), reason=reason)
        return accepted.event, accepted.added, dropped

    def _route(self, event_id: str, session: str | None, turn: int | None, options: CallOptions) -> str:
        """Return the label of an event's session, which is a fork if the event belongs after an earlier turn."""
        label = self._engine.session_label(session, **options)
        if turn is None:
            return label
        label = self._store.resolve(label) or label
        fork = f"{label[:200]}@{turn}.{hashlib.sha256(event_id.encode(errors='surrogatepass')).hexdigest()[:12]}"
        if self._store.resolve(fork) is None:
            self._engine.ledger.fork(fork, label, turn=turn)
        return fork

    def result(self, event_id: str) -> EventResult:
        """Return an event, with the replies of its turn if it is done. Raises NotAccepted for an unknown id."""
        with self._store.snapshot():
            row = self._store.queued_event(event_id)
            if row is None:
                raise NotAccepted(f"event {event_id!r} was never accepted (submit it)")
            return EventResult(row, self._replies(row.session, row.turn) if row.state == "done" else ())

    def pending(self, label: str) -> list[QueueRow]:
        """Return the queued and running events of a session."""
        return [decode_row(row) for row in self._store.queued_events(label)]

    def left_out(self, label: str) -> list[QueueRow]:
        """Return the dropped events that the next turn summarizes. Those that a turn has get its number."""
        left_out: list[QueueRow] = []
        for row in self._store.queued_events(label, ("dropped",)):
            if row.reason != SUMMARIZED or row.turn:
                continue
            if turn := turn_with_event(self._engine.ledger, label, row.id):
                self._store.update_events([row.id], "dropped", expected=("dropped",), reason=SUMMARIZED, turn=turn)
            else:
                left_out.append(decode_row(row))
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
        batch = next_batch(rows)
        if batch and batch[0].body.mode == "collect" and collects and len(batch) != min_events:
            return batch, []
        if not batch:
            return [], []
        ids = [row.row.id for row in batch]
        marked_ids = {row.id for row in self._store.update_events(ids, "running", expected=("queued",))}
        batch = [row for row in batch if row.row.id in marked_ids]
        return batch, batch

    def take(self, row: QueueRow, turn: int) -> bool:
        """Mark a queued event as running in a turn under way; return False if it is not queued any more."""
        return bool(self._store.update_events([row.row.id], "running", expected=("queued",), turn=turn))

    def put_back(self, row: QueueRow) -> None:
        """Mark an event as queued whose turn did not begin."""
        self._store.update_events([row.row.id], "queued", expected=("running",))

    def settle(self, rows: Sequence[QueueRow], turn: int, reason: str) -> None:
        """Mark the events of a turn as done, or as failed for a reason: all of them or none."""
        if not rows:
            return
        ids = [row.row.id for row in rows]
        self._store.update_events(ids, "failed" if reason else "done", expected=("running",), reason=reason, turn=turn)

    def stored_turns(self, label: str, rows: Sequence[QueueRow]) -> list[tuple[QueueRow, EventTurn]]:
        """Return events with the turn that has each, as it is stored."""
        with self._store.snapshot():
            return [(row, self._stored_turn(label, row)) for row in rows]

    def running(self, label: str) -> list[tuple[QueueRow, EventTurn]]:
        """Return the running events of a session with their turns."""
        with self._store.snapshot():
            return self.stored_turns(label, [row for row in self.pending(label) if row.row.state == "running"])

    def _stored_turn(self, label: str, row: QueueRow) -> EventTurn:
        number = turn_with_event(self._engine.ledger, label, row.row.id)
        if not number:
            return EventTurn()
        turn = self._engine.ledger.turns(label, number)[0]
        replies = self._replies(label, number) if row.body.reply_to else ()
        return EventTurn(number, turn.status, turn.error, replies[-1].text() if replies else "")

    def _replies(self, session: str, turn: int) -> tuple[Message, ...]:
        """Return the assistant's messages of a turn."""
        label = self._store.resolve(session)
        thread = self._store.thread_of(label) if label is not None else None
        entries = entries_from_turn(self._store, thread, turn) if thread is not None else []
        messages = (stored.message for entry in entries if entry.turn == turn for stored in entry.rows)
        return tuple(message for message in messages if message.role == "assistant")
