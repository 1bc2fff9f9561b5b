"""The running broker of document 002: event → route → queue → assemble → run → record → stream.

An accepted event is in the ledger before `submit` returns. It stays there until its turn has ended: a broker that was
killed goes on where it stopped, and an event that is delivered again adds nothing. Each session runs one turn at a time,
also across processes that share a ledger; sessions run at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from msgspec.structs import replace

from nexus.agents import Agent
from nexus.agents.workers import TurnHooks, WorkerOrder
from nexus.assembly.inputs import as_event
from nexus.broker.events import EventResult, SessionEvent, SessionState
from nexus.broker.queue import EventQueue
from nexus.broker.queue_modes import (
    STEERING,
    DropPolicy,
    EventBody,
    EventTurn,
    QueueMode,
    QueueRow,
    checked_mode,
    joined_event,
)
from nexus.broker.running import RunningTurn
from nexus.broker.session_tasks import SessionTasks
from nexus.broker.watchers import Waiters, Watchers
from nexus.engine.async_engine import AsyncTurn
from nexus.errors import (
    BadSetting,
    IdempotencyConflict,
    LedgerError,
    NexusError,
    NotAccepted,
    TurnSuperseded,
)
from nexus.ledger.lease import async_session_lease, shielded
from nexus.ledger.sessions import PENDING, Lease, QueuedEvent
from nexus.models.tracing import continued_trace, trace_parent
from nexus.types.message import Image, Message, Text
from nexus.types.request import Event
from nexus.types.settings import SettingsChanges
from nexus.types.stream_events import (
    StreamEvent,
    StreamStart,
)
from nexus.types.validation import check_options

LOG = logging.getLogger("nexus.broker")

CANCELED = "canceled"
"""Reason of an event that `Broker.cancel` ended."""

_POLL_S = 0.2
_MAX_POLL_S = 2.0
_CANCEL_POLL_S = 0.01
_TAKEOVER_S = 5.0
"""Seconds between two looks of a cancellation, and for which it waits for a session that this process takes over."""


class Broker:
    """Accepts events and runs them as turns of their sessions. Use it in `async with`.

    Args:
        agent: Runs the turns.
        mode: Queue mode of events that name none (`nexus.broker.queue_modes`).
        cap: Events of one session that wait, at most.
        drop: Which one a full queue drops: the oldest, the new one, or the oldest with a summary for the next turn.
        at_once: Sessions that run at the same time, at most.
        collect_s: Seconds for which `collect` waits for further events.
        look_s: Seconds between two looks for events that another process accepted and left; None for none.
        on_end: Called with each event that this process has settled.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        mode: QueueMode = "followup",
        cap: int = 20,
        drop: DropPolicy = "old",
        at_once: int = 200,
        collect_s: float = 1.0,
        look_s: float | None = None,
        on_end: Callable[[QueuedEvent], None] | None = None,
    ) -> None:
        if at_once < 1:
            raise BadSetting("at_once is a number from 1")
        self.agent = agent
        self.nx = agent.nx
        self.mode: QueueMode = checked_mode(mode)
        self.collect_s = collect_s
        self._look_s = look_s
        self._on_end = on_end
        self._looking: asyncio.Task[None] | None = None
        self._store = agent.nx.engine.ledger.store
        self._queue = EventQueue(agent.nx.engine, cap, drop, agent.settings)
        self._hooks = TurnHooks(self._steer, self._run_worker)
        self._slots = asyncio.Semaphore(at_once)
        self._watchers = Watchers()
        self._tasks = SessionTasks(self._run_queue, self._watchers.end)
        self._leased: set[str] = set()
        self._running: dict[str, RunningTurn] = {}
        self._waiters = Waiters()

    async def __aenter__(self) -> Self:
        """Start, and go on with the events that an earlier process accepted."""
        self._tasks.are_open = True
        for label in await self.nx.run(self._store.queued_sessions):
            self._tasks.wake(label, waits=self._look_s is None)
        if self._look_s is not None:
            read_labels = partial(self.nx.run, self._store.queued_sessions)
            self._looking = asyncio.ensure_future(self._tasks.look(read_labels, self._look_s))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, *, grace_s: float = 0.0) -> None:
        """Accept nothing more, wait for running turns up to `grace_s` seconds, and interrupt the others.

        Interrupted turns and waiting events go on at the next start.
        """
        self._tasks.are_open = False
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._tasks.stop(grace_s)
        self._watchers.close()

    async def submit(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        turn: int | None = None,
        images: Sequence[Image] = (),
        mode: QueueMode | None = None,
        reply_to: str = "",
        **changes: Unpack[SettingsChanges],
    ) -> QueuedEvent:
        """Accept an event. It is in the ledger when this returns: queued, or dropped with a reason.

        Args:
            event: The user's text, an Event, or messages. Its `id` makes it repeatable for its sender and session;
                without one it gets one.
            session: Label or alias of its session; a new one is created. Without it the policy's for the principal.
            turn: Turn of the session after which it belongs: it then goes to a fork of the session.
            images: Images of the user's message.
            mode: What becomes of it while a turn of its session runs; by default the broker's mode.
            reply_to: Session that gets the answer as an event.
            **changes: Settings of its turn to change; JSON values. Events with other settings never join it.

        Raises:
            NotAccepted: The broker is stopped.
            IdempotencyConflict: The same sender used its id in the session for another content.
            BadEvent, BadSetting, NotAllowed, NoSuchSession, LedgerError: Nothing was accepted.
        """
        check_options("submit", changes, SettingsChanges, "session turn images mode reply_to")
        body = EventBody(as_event(event, images), checked_mode(mode or self.mode), {**changes}, reply_to)
        return await self._submit(body, session, turn)

    async def _submit(self, body: EventBody, session: str | None, turn: int | None = None) -> QueuedEvent:
        if not self._tasks.are_open:
            raise NotAccepted("broker is not running (use it in `async with`, and submit before it stops)")
        # A caller that is canceled, such as a turn with a worker, must not leave an event that nothing runs.
        return await shielded(self._accept(body, session, turn))

    async def _accept(self, body: EventBody, session: str | None, turn: int | None) -> QueuedEvent:
        """Store an event, and have its session's queue run."""
        event = body.event
        event = replace(event, id=event.id or uuid.uuid4().hex, at_ms=event.at_ms or self.nx.engine.clock_ms())
        body = replace(body, event=event, trace=trace_parent())
        row, is_new, dropped = await self.nx.run(self._queue.accept, body, session, turn)
        self._report_end(dropped)
        running = self._running.get(row.session)
        if is_new and body.mode == "interrupt" and running is not None and row.state == "queued":
            running.reason = f"interrupted by event {row.id}"
            running.cancel.set()
        if row.state in PENDING:
            self._tasks.wake(row.session)
        return row

    async def result(
        self,
        event: QueuedEvent | str,
        *,
        session: str | None = None,
        principal: str | None = None,
        timeout_s: float | None = None,
    ) -> EventResult:
        """Wait until an accepted event is done, failed or dropped, and return what became of it.

        Args:
            event: What `submit` returned, or its id.
            session: The event's session, if several have events with this id.
            principal: The event's sender, if several used this id; empty for the program itself.
            timeout_s: Seconds to wait.

        Raises:
            NotAccepted: It is unknown.
            NotAccepted: Several sessions or senders used the id.
            TimeoutError: It did not end in time.
        """
        pause_s = _POLL_S
        async with asyncio.timeout(timeout_s):
            if isinstance(event, QueuedEvent) and session is None and principal is None:
                row = event
            else:
                row = await self.nx.run(self._queue.find, event, session, principal)
            while True:
                with self._waiters.wait(row.key) as settled:
                    result = await self.nx.run(self._queue.result, row)
                    if result.event.state not in PENDING:
                        return result
                    while not (await asyncio.wait([settled], timeout=pause_s))[0]:
                        pause_s = min(2 * pause_s, _MAX_POLL_S)
                        if result.event.session not in self._leased:  # another process may run it
                            break

    async def current(
        self, event: QueuedEvent | str, *, session: str | None = None, principal: str | None = None
    ) -> EventResult:
        """Return the present state of an accepted event. Arguments and errors as of `result`."""
        return await self.nx.run(self._queue.result, event, session, principal)

    async def cancel(
        self, event: QueuedEvent | str, *, session: str | None = None, principal: str | None = None
    ) -> bool:
        """End an event: a waiting one is dropped, the turn of a running one is interrupted. Both have a reason.

        Returns False for an unknown event, one that has ended, and one that another process runs. Arguments as of
        `result`. Raises NotAccepted.
        """
        takeover_until = time.monotonic() + _TAKEOVER_S
        candidates = await self.nx.run(self._queue.candidates, event, session, principal)
        row = None
        if candidates:
            row = self._queue.the_only(event, candidates)
        while row is not None and row.state in PENDING:
            if row.state == "queued" and (dropped := await self.nx.run(self._queue.drop_waiting, row, CANCELED)):
                self._report_end(dropped)
                return True
            running = self._running.get(row.session)
            if running is not None and row.key in (joined.row.key for joined in running.rows):
                running.reason = CANCELED
                running.cancel.set()
                return True
            is_waiting = row.session in self._tasks and time.monotonic() < takeover_until
            if row.session not in self._leased and not is_waiting:
                return False
            await asyncio.sleep(_CANCEL_POLL_S)  # its turn is about to begin, or has just ended
            row = await self.nx.run(self._store.queued_event, row.key)
        return False

    def watch(self, session: str | None = None) -> AsyncGenerator[SessionEvent]:
        """Return the events of this process's turns from now on, of one session or of all, until the broker stops.

        The generator raises NotAccepted if its caller is so slow that it missed some.
        """
        return self._watchers.watch(session)

    def state(self, session: str) -> SessionState:
        """Return what a session does now in this process."""
        return self._watchers.states.get(session, "idle")

    @property
    def session_count(self) -> int:
        """Number of sessions in which an event waits or runs in this process."""
        return len(self._tasks)

    async def join(self) -> None:
        """Wait until no event waits or runs in this process."""
        await self._tasks.join()

    # running -----------------------------------------------------------------------------------------------------

    async def _run_queue(self, label: str, wait_s: float) -> None:
        async with self._slots, async_session_lease(self._store, label, self.nx.run, wait_s=wait_s) as first_lease:
            self._leased.add(label)
            lease = first_lease
            try:
                batch = await self._next_batch(label)
                if any(row.row.state == "running" for row in batch):
                    await self._resume(label)
                    batch = await self._next_batch(label)
                while batch:
                    lease = await self._run_batch(label, batch, lease)
                    batch = await self._next_batch(label)
            finally:
                self._leased.discard(label)

    async def _resume(self, label: str) -> None:
        """Settle the running events of a process that stopped, except those of an interrupted turn, which continues."""
        ended: defaultdict[EventTurn, list[QueueRow]] = defaultdict(list)
        for row, turn in await self.nx.run(self._queue.running, label):
            if not turn.number:
                await self.nx.run(self._queue.put_back, row)
            elif turn.status in ("completed", "failed"):
                ended[turn].append(row)
        for end, rows in ended.items():
            await self._finish(rows, end, "" if end.status == "completed" else end.error or "failed")

    async def _finish(self, rows: Sequence[QueueRow], end: EventTurn, reason: str) -> None:
        """Deliver the answer of a turn, then settle its events: a program that stops between them delivers it again.

        All are settled at once: after a restart an interrupted turn is continued for all of its events, or for none.
        """
        for row in rows:
            await self._deliver(row, end.text, reason)
        self._report_end(await self.nx.run(self._queue.settle, rows, end.number, reason))

    def _report_end(self, events: Iterable[QueuedEvent]) -> None:
        for event in events:
            self._waiters.settle([event.key])
            if self._on_end is not None:
                self._on_end(event)

    async def _next_batch(self, label: str) -> list[QueueRow]:
        """Return the events of the next turn, marked as running."""
        self._tasks.looks_at(label)
        take_batch = partial(self._queue.take_batch, label, collects=bool(self.collect_s))
        collected, batch = await self.nx.run(take_batch)
        while collected and not batch:
            await asyncio.sleep(self.collect_s)
            collected, batch = await self.nx.run(take_batch, min_events=len(collected))
        return batch

    async def _run_batch(self, label: str, batch: Sequence[QueueRow], lease: Lease) -> Lease:
        """Run one turn for a batch, and settle its events. Returns the lease for the next one."""
        running = self._running[label] = RunningTurn(batch)
        left_out_by = partial(self._queue.left_out, label, running.settings)
        try:
            left_out = await self.nx.run(left_out_by) if self._queue.drop == "summarize" else []
            error = ""
            is_late = False
            try:
                with continued_trace(next(filter(None, (row.body.trace for row in batch)), "")):
                    result = await self.agent.run(
                        joined_event(batch, left_out),
                        session=label,
                        sink=partial(self._emit, label, running.ids),
                        cancel=running.cancel,
                        lease=lease,
                        hooks=self._hooks,
                        settings=batch[-1].settings,
                    )
                error = result.error or ""
            except Exception as failure:
                if isinstance(failure, LedgerError) and failure.leaves_turn_open:
                    raise  # the queue goes on later, with this turn; any other failure must not stop it
                error = str(failure) or type(failure).__name__
                is_late = isinstance(failure, TurnSuperseded)
            if error:
                before = lease
                lease = await self.nx.run(self._queue.same_lease, label, lease)
                is_late |= lease.fence != before.fence
            self._watchers.states[label] = "completing"
            await self._end_batch(label, running, error, is_late=is_late)
            if left_out:
                await self.nx.run(left_out_by)
        finally:
            self._running.pop(label, None)
            self._waiters.settle(row.row.key for row in running.rows)
        return lease

    async def _end_batch(self, label: str, running: RunningTurn, error: str, *, is_late: bool) -> None:
        """Settle the events of a turn that has ended, each by the turn that has it.

        `error` comes first if the turn `is_late`: another writer ended it, and the error names the session of the reply.
        """
        ended: defaultdict[EventTurn, list[QueueRow]] = defaultdict(list)
        for at, (row, turn) in enumerate(await self.nx.run(self._queue.stored_turns, label, running.rows)):
            steers = at >= running.begun_by
            if not turn.number and (steers or (is_late and not running.turn)):
                await self.nx.run(self._queue.put_back, row)  # the turn ended before, or did not begin
            else:
                ended[turn].append(row)
        for end, rows in ended.items():
            if end.status == "interrupted":
                stored = running.reason
            else:
                stored = end.error
            reason = (error if is_late else "") or stored or error or end.error
            if not end.number and running.turn:
                reason = error or f"turn {running.turn} is not in its session any more"
            await self._finish(rows, end, "" if end.status == "completed" else reason or "failed")

    async def _deliver(self, row: QueueRow, text: str, reason: str) -> None:
        """Give the session that waits for an answer its event. A second delivery adds nothing."""
        if not row.body.reply_to:
            return
        answer = text if not reason else f"It failed: {reason}"
        text = f"[Report of worker {row.row.session}]\n{answer}"
        event = Event((Text(text),), id=f"{row.row.id}:report", source="agent")
        try:
            body = EventBody(event, self.mode, row.body.reply_options)
            await shielded(self._accept(body, row.body.reply_to, None))
        except IdempotencyConflict:
            LOG.warning("session %r has another report of event %r", row.body.reply_to, row.row.id)
        except LedgerError:
            raise
        except NexusError:  # such as NotAllowed: a report that nobody may have must not stop the queue
            LOG.warning("report of event %r not delivered to %r", row.row.id, row.body.reply_to, exc_info=True)

    async def _steer(self, turn: AsyncTurn) -> None:
        """Let the events join that steer the running turn of a session."""
        label = turn.turn.session
        running = self._running.get(label)
        if running is None:
            return
        for row in await self.nx.run(self._queue.pending, label):
            if row.row.state != "queued" or row.body.mode not in STEERING or row.settings != running.settings:
                continue
            running.rows.append(row)  # before it is marked: a cancellation may come at any step
            running.ids.append(row.row.id)
            if await self.nx.run(self._queue.take, label, row, running.turn):
                await self.nx.run(turn.turn.add, row.body.event)
            else:
                running.rows.remove(row)
                running.ids.remove(row.row.id)

    async def _run_worker(self, order: WorkerOrder) -> None:
        own = self.agent.settings
        changes = {**order.settings.changes_from(own)}
        manager_changes = {**order.manager_settings.changes_from(own)}
        body = EventBody(order.event, "followup", changes, order.manager, manager_changes)
        await self._submit(body, order.session)

    def _emit(self, label: str, ids: Sequence[str], event: StreamEvent) -> None:
        if isinstance(event, StreamStart) and label in self._running:
            self._running[label].turn = event.turn
        self._watchers.emit(label, ids, event)
