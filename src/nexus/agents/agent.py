"""An agent: an event in, its turn in the ledger and a stream of events out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from nexus.agents.engine import AgentEngine, Confirm, Limits, Spending
from nexus.agents.event_order import TurnStream
from nexus.agents.loop import CANCELED, ToolLoop, until_canceled
from nexus.agents.tool_calls import run_calls, run_first
from nexus.agents.turn_tools import TurnTools
from nexus.agents.workers import NO_HOOKS, TurnHooks, WorkerLimits, WorkerOrder, Workers
from nexus.assembly.inputs import as_event
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.events import turn_with_event
from nexus.engine.overflow_recovery import RemoteAssembly, despite_learned_limit
from nexus.engine.turn import Turn, begin_turn
from nexus.errors import BadSetting, LedgerError
from nexus.ledger.lease import WAIT_S, async_session_lease
from nexus.ledger.replay import RecordedTurn as StoredTurn
from nexus.ledger.sessions import Lease
from nexus.models import ModelClient
from nexus.models.tracing import turn_span
from nexus.providers.errors.failures import FailureKind, failure_of
from nexus.tools import ToolRegistry
from nexus.types.message import Image, Message, ToolCall
from nexus.types.request import AgentResult, Event, Request
from nexus.types.settings import Settings, SettingsChanges
from nexus.types.stream_events import (
    Sink,
    StreamEnd,
    StreamError,
    StreamEvent,
    StreamStart,
    Token,
    ignore_event,
)
from nexus.types.validation import check_options


class Agent:
    """Runs events as turns of sessions: one turn of a session at a time, sessions at the same time.

    Args:
        nx: The engine, of `nexus.open_async`.
        models: The clients of the models, of `nexus.models.open_models`.
        tools: Functions, or a registry, that the model may call.
        builtin: Offer the built-in tools too (files, skills, memory and history).
        engine: Another agent engine in place of the tool loop, which then needs no `models`.
        limits: Limits of one turn.
        fallbacks: Models for turns whose model fails for good, in order.
        confirm: Asks a person about calls of tools that need confirmation. Without it they are declined.
        workers: Limits of the workers that the model may spawn. Without them it is offered no `spawn_worker`.
        assemble: Gets the contexts of the tool loop's calls from another process (`nexus.services`).
        settings: Settings of every turn; by default the engine's.
        **changes: Settings to change.

    Attributes:
        settings: These settings, changed.
    """

    def __init__(
        self,
        nx: AsyncEngine,
        models: ModelClient | None = None,
        *,
        tools: ToolRegistry | Iterable[Callable[..., Any]] = (),
        builtin: bool = True,
        engine: AgentEngine | None = None,
        limits: Limits | None = None,
        fallbacks: Sequence[str] = (),
        confirm: Confirm | None = None,
        workers: WorkerLimits | None = None,
        assemble: RemoteAssembly | None = None,
        settings: Settings | None = None,
        **changes: Unpack[SettingsChanges],
    ) -> None:
        check_options(
            "Agent",
            changes,
            SettingsChanges,
            "models builtin engine limits fallbacks confirm workers assemble settings",
        )
        self.nx = nx
        self.limits = limits or Limits()
        self.confirm = confirm
        if isinstance(tools, ToolRegistry):
            self._registry = tools
        else:
            self._registry = ToolRegistry(tools)
        self._builtin = builtin
        self.settings = (nx.engine.settings if settings is None else settings).with_changes(changes)
        if workers is not None:
            self.workers = Workers(nx, self._run_order, workers)
        else:
            self.workers = None
        if engine is None:
            if models is None:
                raise BadSetting("agent has no models (pass models=nexus.models.open_models(), or an engine=)")
            engine = ToolLoop(
                nx,
                models,
                limits=self.limits,
                fallbacks=fallbacks,
                assemble=assemble,
            )
        self.engine = engine

    async def run(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        sink: Sink = ignore_event,
        cancel: asyncio.Event | None = None,
        wait: float = WAIT_S,
        spending: Spending | None = None,
        lease: Lease | None = None,
        hooks: TurnHooks = NO_HOOKS,
        settings: Settings | None = None,
        **changes: Unpack[SettingsChanges],
    ) -> AgentResult:
        """Run an event's turn to its end. The event is stored first; the same `Event.id` continues its turn.

        Args:
            event: The user's text, an Event, or messages.
            session: The session's label; without one as `Engine.assemble` chooses.
            images: Images of the user's message.
            sink: Takes the turn's events (`nexus.types.stream_events`), on the event loop.
            cancel: Once it is set, the turn ends as interrupted.
            wait: Seconds to wait for another turn of the session.
            spending: Takes the turn's cost and limits it; by default to `Limits.cost_usd`.
            lease: The lease of `session` that the caller holds; `session` then is its label.
            hooks: What the caller does while the turn runs.
            settings: Settings in place of the agent's.
            **changes: Settings of this turn to change.

        Returns:
            All messages of the turn. A model's failure is `error` in the result, and the turn is stored as failed.

        Raises:
            SessionBusy: Another turn of the session did not end in time. Nothing was stored.
            LedgerError: With `reply`, or as LedgerUnavailable, it leaves the turn open: the same `Event.id` continues it,
                and a reply that was paid for is not paid again.
            BudgetTooSmall, BadSetting, LedgerError: As for `Engine.begin`. Nothing was stored.
        """
        check_options("run", changes, SettingsChanges, "session images sink cancel wait spending lease hooks settings")
        settings = (self.settings if settings is None else settings).with_changes(changes)
        request = Request(as_event(event, images), session or "main", settings, chooses_session=session is None)
        if session is not None and lease is not None:
            label = session
            holding = nullcontext(lease)
        else:
            label = await self.nx.run(self.nx.engine.preparation.session_of, request)
            holding = async_session_lease(self.nx.engine.ledger.store, label, self.nx.run, wait_s=wait)
        request = replace(request, session=label, chooses_session=False)
        model = settings.model
        async with holding as current_lease:
            with turn_span(label, model, self.nx.engine.resolve(model).provider) as traced:
                tools_of = partial(self._tools_of, hooks=hooks, spending=spending or Spending(self.limits.cost_usd))
                result = await self._run_turn(request, current_lease, TurnStream(sink), cancel, tools_of)
                traced.reply(result)
                if result.error is not None:
                    traced.fail(result.stop_reason or "error")
                return result

    async def stream(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        cancel: asyncio.Event | None = None,
        wait: float = WAIT_S,
        **changes: Unpack[SettingsChanges],
    ) -> AsyncGenerator[StreamEvent]:
        """Run an event's turn and yield its events. Closing the generator interrupts the turn. Arguments as of `run`."""
        events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
        sink = events.put_nowait
        run = self.run(event, session=session, images=images, sink=sink, cancel=cancel, wait=wait, **changes)
        task = asyncio.ensure_future(run)
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (item := await events.get()) is not None:
                yield item
            await task  # raises what kept the turn from running
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _run_turn(
        self,
        request: Request,
        lease: Lease,
        stream: TurnStream,
        cancel: asyncio.Event | None,
        tools_of: Callable[[Request], TurnTools],
    ) -> AgentResult:
        tools, turn_or_error = await self.nx.run(self._begin, request, lease.fence, tools_of)
        label = request.session
        model = request.settings.model
        provider = self.nx.engine.resolve(model).provider
        if isinstance(turn_or_error, Exception):
            failure = failure_of(turn_or_error)
            stream.emit(StreamStart(label, 0, model, provider))
            stream.emit(StreamError(failure.kind, failure.text, failure.retryable))
            raise turn_or_error
        turn = AsyncTurn(self.nx, turn_or_error)
        stream.emit(StreamStart(label, turn.turn.number, model, provider))
        try:
            result = await self._result_of(turn, tools, stream, cancel)
            if result.error is None:
                stream.emit(StreamEnd(result.stop_reason, result.usage, result.cost_usd, result.calls))
            else:
                kind = "aborted" if result.stop_reason == "aborted" else "error"
                ended = await self.nx.run(_end_turn, turn.turn, kind, result.error)
                if ended is not None and ended.error:
                    stream.emit(StreamError(ended.failure_kind, ended.error))
                else:  # the session went back behind the turn
                    stream.emit(StreamError(kind, result.error))
        except BaseException as error:
            failure = failure_of(error)
            if isinstance(error, LedgerError) and error.leaves_turn_open:
                stream.emit(StreamError(failure.kind, failure.text, retryable=True))
                raise
            text = "canceled" if failure.kind == "aborted" else failure.text
            ending = asyncio.ensure_future(self.nx.run(_end_turn, turn.turn, failure.kind, text))
            raised = await _finish(ending, error)
            ended = ending.result()
            if ended is not None and ended.status == "completed":  # a cancellation came behind its last step
                stream.emit(StreamEnd("end_turn"))
            else:
                stream.emit(StreamError(ended.failure_kind if ended else failure.kind, text, failure.retryable))
            if raised is not error:
                raise raised from error
            raise
        return result

    async def _result_of(
        self,
        turn: AsyncTurn,
        tools: TurnTools,
        stream: TurnStream,
        cancel: asyncio.Event | None,
    ) -> AgentResult:
        if turn.turn.is_new:
            ctx = turn.turn.assemble()  # by `_begin`
        else:
            state = await self.nx.run(_state_of, turn.turn)
            if state.is_completed:
                for message in state.replies:
                    stream.emit(Token(message.text()))
                return AgentResult(state.replies, stop_reason="end_turn")
            results = state.results
            if state.unanswered:
                run = run_first(tools.run_again, state.calls, self.limits.calls_per_reply)
                running = run_calls(state.unanswered, run, turn, stream.emit)
                added = await until_canceled(running, cancel)
                if added is None:
                    return CANCELED  # `_run_turn` ends the turn
                results = (*results, *added)
            if tools.ends_turn(results):
                await turn.complete()
                return AgentResult(state.replies, stop_reason="end_turn")
            ctx = await self.nx.run(
                despite_learned_limit, self.nx.engine, turn.turn.request.settings.model, turn.turn.assemble
            )
        result = await self.engine.run(ctx, tools, stream.emit, cancel)
        stores_replies = isinstance(self.engine, ToolLoop)  # another engine may leave that to the agent
        if result.error is None and not stores_replies and await self.nx.run(lambda: turn.turn.is_open):
            await turn.record(result)
        return result

    async def _run_order(self, order: WorkerOrder, spending: Spending, hooks: TurnHooks) -> AgentResult:
        return await self.run(
            order.event, session=order.session, spending=spending, hooks=hooks, settings=order.settings
        )

    def _begin(
        self,
        request: Request,
        fence: int,
        tools_of: Callable[[Request], TurnTools],
    ) -> tuple[TurnTools, Turn | Exception]:
        """Store an event; return its tools, and its turn or the reason why it has none."""
        tools: TurnTools | None = None

        def add_tools(request: Request) -> Request:
            nonlocal tools
            if tools is None:
                tools = tools_of(request)
            return request.with_arguments({"tools": tools.registry})

        begin = partial(begin_turn, self.nx.engine, request, fence, add_tools=add_tools)
        try:
            turn = despite_learned_limit(self.nx.engine, request.settings.model, begin)
        except Exception as error:  # noqa: BLE001 - raised where the turn's events are emitted
            turn = error
        return tools or tools_of(request), turn

    def _tools_of(self, request: Request, *, spending: Spending, hooks: TurnHooks) -> TurnTools:
        engine = self.nx.engine
        label = request.session
        settings = request.settings
        thread = engine.ledger.store.thread_of(label)
        position = turn_with_event(engine.ledger, label, request.event, settings.principal)
        next_number = 1
        if thread is not None:
            next_number = engine.ledger.store.thread(thread).turn + 1
        number = position.turn if position is not None else next_number
        return TurnTools(
            self.nx,
            label,
            number,
            settings,
            self._registry,
            builtin=self._builtin,
            confirm=self.confirm,
            seconds=self.limits.tool_seconds,
            spending=spending,
            workers=self.workers if self.workers and self.workers.allows(label, settings) else None,
            hooks=hooks,
        )


class _TurnState(Struct, frozen=True):
    """A turn that was begun, maybe before."""

    is_completed: bool
    replies: tuple[Message, ...]
    calls: tuple[ToolCall, ...]
    """All calls of the newest reply."""
    unanswered: tuple[ToolCall, ...]
    """Those of a turn that was interrupted while its tools ran."""
    results: tuple[Message, ...]


async def _finish(work: asyncio.Future[Any], error: BaseException) -> BaseException:
    """Wait for the end of work, also while canceled; return the error to raise then: a cancellation before another."""
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as canceled:
            error = canceled
    return error


def _end_turn(turn: Turn, kind: FailureKind, text: str) -> StoredTurn | None:
    """End a turn as failed unless it has ended, and return it as stored; None if the session has it no more."""
    stored = turn.stored
    if stored is not None and stored.status not in ("completed", "failed"):
        turn.fail_if_open(kind, text)
        stored = turn.stored
    return stored


def _state_of(turn: Turn) -> _TurnState:
    with turn.engine.ledger.snapshot():
        records = turn.tool_calls
        calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in records if call.result is None)
        results = tuple(Message("tool", (call.result,)) for call in records if call.result is not None)
        newest = tuple(call for message in turn.newest_reply for call in message.calls())
        return _TurnState(turn.status == "completed", turn.replies, newest, calls, results)
