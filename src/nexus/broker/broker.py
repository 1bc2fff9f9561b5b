"""The running broker of document 002: event → route → queue → assemble → run → record → stream.

An accepted event is in the ledger before `submit` returns. It stays there until its turn has ended: a broker that was
killed goes on where it stopped, and an event that is delivered again adds nothing. Each session runs one turn at a time,
also across processes that share a ledger; sessions run at the same time.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import Self, Unpack

from msgspec.structs import replace

from nexus.agents import Agent
from nexus.agents.workers import WorkerOrder
from nexus.assembly.inputs import as_event
from nexus.async_engine import AsyncTurn
from nexus.broker.events import EventResult, SessionEvent, SessionState
from nexus.broker.queue_modes import (
    MODES,
    STEERING,
    DropPolicy,
    EventBody,
    EventTurn,
    QueueMode,
    QueueRow,
    call_options,
    decode_row,
    encode_body,
    joined_event,
    next_batch,
)
from nexus.errors import BadSetting, NotAccepted
from nexus.ledger.lease import async_session_lease
from nexus.ledger.replay import entries_from_turn
from nexus.ledger.sessions import PENDING, NewQueuedEvent, QueuedEvent
from nexus.turn import turn_with_event
from nexus.types.message import Image, Message, Text
from nexus.types.options import CallOptions
from nexus.types.request import Event
from nexus.types.stream_events import (
    CompactionStart,
    Reasoning,
    StreamEnd,
    StreamError,
    StreamEvent,
    StreamStart,
    Token,
)
from nexus.types.validation import check_options

WATCHED_EVENTS = 10_000
"""Events that wait for a slow watcher, at most; then it is told that it missed some."""

_POLL_S, _MAX_POLL_S = 0.2, 2.0
_RETRY_S = 2.0
"""Seconds until a queue that an error of the ledger stopped goes on."""
SUMMARIZED = "queue full: left out, and summarized for the next turn"


class _Running:
    """The turn under way in one session."""

    def __init__(self, batch: Sequence[QueueRow]) -> None:
        self.rows = list(batch)  # those that steer the turn join
        self.ids = [row.row.id for row in batch]
        self.turn = 0
        self.cancel = asyncio.Event()
        self.reason = ""  # why it was interrupted


class Broker:
    """Accepts events and runs them as turns of their sessions. Use it in `async with`.

    Args:
        agent: Runs the turns.
        mode: Queue mode of events that name none (`nexus.broker.queue_modes`).
        cap: Events of one session that wait, at most.
        drop: Which one a full queue drops: the oldest, the new one, or the oldest with a summary for the next turn.
        at_once: Sessions that run at the same time, at most.
        collect_s: Seconds for which `collect` waits for further events.
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
    ) -> None:
        if cap < 1 or at_once < 1:
            raise BadSetting("cap and at_once are numbers from 1")
        self.agent, self.nx = agent, agent.nx
        self.mode: QueueMode = _known_mode(mode)
        self.cap, self.drop, self.collect_s = cap, drop, collect_s
        self._store = agent.nx.engine.store
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self._leased: set[str] = set()
        self._running: dict[str, _Running] = {}
        self._states: dict[str, SessionState] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._watchers: set[tuple[str | None, asyncio.Queue[SessionEvent | None]]] = set()
        self._is_open = False
        agent.before_step = self._steer
        if agent.workers is not None:
            agent.workers.run_later = self._run_worker

    async def __aenter__(self) -> Self:
        """Start, and go on with the events that an earlier process accepted."""
        self._is_open = True
        for label in await self.nx.run(self._store.queued_sessions):
            self._wake(label)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, *, grace_s: float = 0.0) -> None:
        """Accept nothing more, wait for running turns up to `grace_s` seconds, and interrupt the others.

        Interrupted turns and waiting events go on at the next start.
        """
        self._is_open = False
        tasks = list(self._tasks.values())
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, queue in self._watchers:
            queue.put_nowait(None)

    async def submit(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        turn: int | None = None,
        images: Sequence[Image] = (),
        mode: QueueMode | None = None,
        reply_to: str = "",
        **options: Unpack[CallOptions],
    ) -> QueuedEvent:
        """Accept an event. It is in the ledger when this returns: queued, or dropped with a reason.

        Args:
            event: The user's text, an Event, or messages. Its `id` makes it repeatable; without one it gets one.
            session: Label or alias of its session; a new one is created. Without it the policy's for the principal.
            turn: Turn of the session after which it belongs: it then goes to a fork of the session.
            images: Images of the user's message.
            mode: What becomes of it while a turn of its session runs; by default the broker's mode.
            reply_to: Session that gets the answer as an event.
            **options: Arguments of `Engine.assemble` for its turn; JSON values.

        Raises:
            NotAccepted: The broker is stopped.
            BadEvent, BadSetting, NotAllowed, NoSuchSession, LedgerError: Nothing was accepted.
        """
        check_options("submit", options, CallOptions, "session turn images mode reply_to")
        if not self._is_open:
            raise NotAccepted("broker is not running (use it in `async with`, and submit before it stops)")
        return await self._submit(as_event(event, images), session, turn, mode or self.mode, reply_to, options)

    async def _submit(
        self, event: Event, session: str | None, turn: int | None, mode: QueueMode, reply_to: str, options: CallOptions
    ) -> QueuedEvent:
        accepted = replace(event, id=event.id or uuid.uuid4().hex, at_ms=event.at_ms or self.nx.engine.clock_ms())
        body = EventBody(accepted, _known_mode(mode), dict(options), reply_to)
        route = partial(self._route, accepted.id, session, turn, options)
        row, is_new, dropped = await self.nx.run(self._accept, route, accepted.id, encode_body(body))
        for event_id in dropped:
            self._settle(event_id)
        running = self._running.get(row.session)
        if is_new and body.mode == "interrupt" and running is not None and row.state == "queued":
            running.reason = f"interrupted by event {row.id}"
            running.cancel.set()
        if row.state in PENDING:
            self._wake(row.session)
        return row

    async def result(self, event_id: str, *, timeout_s: float | None = None) -> EventResult:
        """Wait until an accepted event is done, failed or dropped, and return what became of it.

        Raises NotAccepted for an unknown id, TimeoutError.
        """
        pause_s = _POLL_S
        async with asyncio.timeout(timeout_s):
            while True:
                settled = asyncio.get_running_loop().create_future()
                self._waiting[event_id].append(settled)
                try:
                    found = await self.nx.run(self._result_of, event_id)
                    if found.event.state not in PENDING:
                        return found
                    # Another process may run it, unless this one has the session's lease.
                    is_here = found.event.session in self._leased
                    with suppress(TimeoutError):
                        await asyncio.wait_for(settled, _MAX_POLL_S if is_here else pause_s)
                    pause_s = min(2 * pause_s, _MAX_POLL_S)
                finally:
                    self._waiting[event_id].remove(settled)
                    if not self._waiting[event_id]:
                        del self._waiting[event_id]

    def watch(self, session: str | None = None) -> AsyncGenerator[SessionEvent]:
        """Return the events of this process's turns from now on, of one session or of all, until the broker stops.

        The generator raises NotAccepted if its caller is so slow that it missed some.
        """
        queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        watcher = (session, queue)
        self._watchers.add(watcher)
        return self._watched(watcher)

    async def _watched(
        self, watcher: tuple[str | None, asyncio.Queue[SessionEvent | None]]
    ) -> AsyncGenerator[SessionEvent]:
        _, queue = watcher
        try:
            while (event := await queue.get()) is not None:
                yield event
            if self._is_open:
                raise NotAccepted(f"watcher was more than {WATCHED_EVENTS:,} events behind (watch again)")
        finally:
            self._watchers.discard(watcher)

    def state(self, session: str) -> SessionState:
        """Return what a session does now in this process."""
        return self._states.get(session, "idle")

    async def join(self) -> None:
        """Wait until no event waits or runs in this process."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # accepting ---------------------------------------------------------------------------------------------------

    def _route(self, event_id: str, session: str | None, turn: int | None, options: CallOptions) -> str:
        """Return the label of an event's session, which is a fork if the event belongs after an earlier turn."""
        engine = self.nx.engine
        label = engine.session_label(session, **options)
        label = engine.store.resolve(label) or label
        if turn is None:
            return label
        fork = f"{label[:200]}@{turn}.{hashlib.sha256(event_id.encode(errors='surrogatepass')).hexdigest()[:12]}"
        if engine.store.resolve(fork) is None:
            engine.ledger.fork(fork, label, turn=turn)
        return fork

    def _accept(self, route: Callable[[], str], event_id: str, body: str) -> tuple[QueuedEvent, bool, list[str]]:
        """Store an event, and drop one if the queue is full. Returns its row, whether it is new, and dropped ids."""
        label = route()
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

    def _result_of(self, event_id: str) -> EventResult:
        with self._store.snapshot():
            row = self._store.queued_event(event_id)
            if row is None:
                raise NotAccepted(f"event {event_id!r} was never accepted (submit it)")
            return EventResult(row, self._replies(row.session, row.turn) if row.state == "done" else ())

    def _replies(self, session: str, turn: int) -> tuple[Message, ...]:
        """Return the assistant's messages of a turn."""
        label = self._store.resolve(session)
        thread = self._store.thread_of(label) if label is not None else None
        entries = entries_from_turn(self._store, thread, turn) if thread is not None else []
        messages = (stored.message for entry in entries if entry.turn == turn for stored in entry.rows)
        return tuple(message for message in messages if message.role == "assistant")

    # running -----------------------------------------------------------------------------------------------------

    def _wake(self, label: str) -> None:
        """Run a session's queue, or have the running task look at it once more."""
        self._woken.add(label)
        if label not in self._tasks and self._is_open:
            task = asyncio.ensure_future(self._run_session(label))
            self._tasks[label] = task
            task.add_done_callback(lambda _: self._ended(label))

    def _ended(self, label: str) -> None:
        task = self._tasks.pop(label)
        self._states.pop(label, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            text = f"queue of session {label!r} stopped, and goes on in {_RETRY_S:g} s: {error}"
            self._emit(label, (), StreamError("error", text, retryable=True))
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake, label)
        if label in self._woken:
            self._wake(label)

    async def _run_session(self, label: str) -> None:
        async with self._slots, async_session_lease(self._store, label, self.nx.run, wait_s=inf):
            self._leased.add(label)
            try:
                await self._resume(label)
                self._woken.discard(label)
                while batch := await self._next_batch(label):
                    await self._run_batch(label, batch)
                    self._woken.discard(label)
            finally:
                self._leased.discard(label)

    async def _resume(self, label: str) -> None:
        """Settle what a process that stopped left running. Events of an interrupted turn stay: it goes on."""
        for row in await self.nx.run(self._queued, label):
            if row.row.state != "running":
                continue
            end = await self.nx.run(self._turn_of, label, row.row.id)
            if not end.number:
                await self._requeue(row)
            elif end.status in ("completed", "failed"):
                await self._finish(row, end, "" if end.status == "completed" else end.error or "failed")

    def _turn_of(self, label: str, event_id: str) -> EventTurn:
        """Return the turn that has an event, as it is stored."""
        ledger = self.nx.engine.ledger
        with ledger.snapshot():
            number = turn_with_event(ledger, label, event_id)
            if not number:
                return EventTurn()
            turn = ledger.turns(label, number)[0]
            replies = self._replies(label, number)
        return EventTurn(number, turn.status, turn.error, replies[-1].text() if replies else "")

    async def _requeue(self, row: QueueRow) -> None:
        await self.nx.run(partial(self._store.update_events, [row.row.id], "queued", expected=("running",)))

    async def _finish(self, row: QueueRow, end: EventTurn, reason: str) -> None:
        """Deliver an event's answer, then settle the event: a program that stops between them delivers it again."""
        await self._deliver(row, end.text, reason)
        update = partial(self._store.update_events, expected=("running",), reason=reason, turn=end.number)
        await self.nx.run(update, [row.row.id], "failed" if reason else "done")
        self._settle(row.row.id)

    async def _next_batch(self, label: str) -> list[QueueRow]:
        """Return the events of the next turn, marked as running."""
        batch, taken = await self.nx.run(self._take_batch, label)
        while batch and not taken:
            await asyncio.sleep(self.collect_s)
            batch, taken = await self.nx.run(self._take_batch, label, least=len(batch))
        return taken

    def _take_batch(self, label: str, *, least: int = 0) -> tuple[Sequence[QueueRow], list[QueueRow]]:
        """Return the next turn's events, and those of them that are marked as running now: none while more are collected.

        Collected events are taken once their number is still `least`.
        """
        rows = self._queued(label)
        running = [row for row in rows if row.row.state == "running"]
        if running:
            return running, running
        batch = next_batch(rows)
        if batch and batch[0].body.mode == "collect" and self.collect_s and len(batch) != least:
            return batch, []
        if not batch:
            return [], []
        ids = [row.row.id for row in batch]
        taken = {row.id for row in self._store.update_events(ids, "running", expected=("queued",))}
        batch = [row for row in batch if row.row.id in taken]
        return batch, batch

    def _queued(self, label: str) -> list[QueueRow]:
        return [decode_row(row) for row in self._store.queued_events(label)]

    async def _run_batch(self, label: str, batch: Sequence[QueueRow]) -> None:
        """Run one turn for a batch, and settle its events."""
        running = self._running[label] = _Running(batch)
        try:
            left_out = await self.nx.run(self._left_out, label) if self.drop == "summarize" else []
            error = ""
            try:
                result = await self.agent.run(
                    joined_event(batch, left_out),
                    session=label,
                    sink=partial(self._emit, label, running.ids),
                    cancel=running.cancel,
                    lease=False,
                    **call_options(batch),
                )
                error = result.error or ""
            except Exception as failure:  # noqa: BLE001 - an event that cannot run must not stop the queue
                error = str(failure) or type(failure).__name__
            self._states[label] = "completing"
            for row in running.rows:
                end = await self.nx.run(self._turn_of, label, row.row.id)
                if running.turn and not end.number:  # it was to steer the turn, which ended before
                    await self._requeue(row)
                else:
                    await self._finish(row, end, "" if end.status == "completed" else running.reason or error)
            for row in left_out:
                end = await self.nx.run(self._turn_of, label, row.row.id)
                update = partial(self._store.update_events, reason=SUMMARIZED, turn=end.number)
                await self.nx.run(update, [row.row.id], "dropped", expected=("dropped",))
        finally:
            self._running.pop(label, None)
            for event_id in running.ids:
                self._settle(event_id)

    def _left_out(self, label: str) -> list[QueueRow]:
        """Return the dropped events that the next turn summarizes."""
        rows = self._store.queued_events(label, ("dropped",))
        return [decode_row(row) for row in rows if row.reason == SUMMARIZED and not row.turn]

    async def _deliver(self, row: QueueRow, text: str, reason: str) -> None:
        """Give the session that waits for an answer its event. A second delivery adds nothing."""
        if not row.body.reply_to:
            return
        answer = text if not reason else f"It failed: {reason}"
        text = f"[Report of worker {row.row.session}]\n{answer}"
        event = Event((Text(text),), id=f"{row.row.id}:report", source="agent")
        await self._submit(event, row.body.reply_to, None, self.mode, "", {})

    async def _steer(self, turn: AsyncTurn) -> None:
        """Let the events join that steer the running turn of a session."""
        label = turn.turn.session
        running = self._running.get(label)
        if running is None:
            return
        for row in await self.nx.run(self._queued, label):
            if row.row.state != "queued" or row.body.mode not in STEERING:
                continue
            running.rows.append(row)  # before it is marked: a cancellation may come at any step
            running.ids.append(row.row.id)
            changed = await self.nx.run(
                partial(self._store.update_events, [row.row.id], "running", expected=("queued",), turn=running.turn)
            )
            if changed:
                await self.nx.run(turn.turn.add, row.body.event)

    async def _run_worker(self, order: WorkerOrder) -> None:
        await self.submit(order.event, session=order.session, reply_to=order.manager, mode="followup", **order.options)

    # watching ----------------------------------------------------------------------------------------------------

    def _emit(self, label: str, ids: Sequence[str], event: StreamEvent) -> None:
        match event:
            case StreamStart():
                if label in self._running:
                    self._running[label].turn = event.turn
                self._states[label] = "processing"
            case Token() | Reasoning():
                self._states[label] = "streaming"
            case CompactionStart():
                self._states[label] = "compacting"
            case StreamEnd() | StreamError():
                self._states[label] = "completing"
            case _:
                self._states[label] = "processing"
        for session, queue in list(self._watchers):
            if session is None or session == label:
                if queue.qsize() >= WATCHED_EVENTS:
                    self._watchers.discard((session, queue))
                    queue.put_nowait(None)
                else:
                    queue.put_nowait(SessionEvent(label, event, tuple(ids)))

    def _settle(self, event_id: str) -> None:
        for future in self._waiting.get(event_id, ()):
            if not future.done():
                future.set_result(None)


def _known_mode(mode: QueueMode) -> QueueMode:
    if mode not in MODES:
        raise BadSetting(f"queue mode {mode!r} unknown (use {', '.join(MODES)})")
    return mode
