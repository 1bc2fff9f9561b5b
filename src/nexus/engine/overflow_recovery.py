"""Sending with overflow recovery: compact proactively, then shrink and retry when the provider rejects a call.

A request takes at most three calls. Each retry is smaller than the call before it by our own count. Once a retry
succeeds, the limit that the provider reported is remembered for the model. If nothing more can be omitted,
ContextOverflow lists the tokens of each part.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.inputs import as_event
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.overflow import (
    LESS_THAN_SENT,
    SMALLER,
    classify_error,
    has_content,
    parts_of_prompt,
    prompt_limit,
    recovery_target,
    reported_overflow,
)
from nexus.engine.turn import CANCELED, Turn, begin_turn, request_of
from nexus.errors import (
    BadReply,
    BudgetTooSmall,
    CompactionSuperseded,
    ContextOverflow,
    HeadMoved,
    LedgerError,
    NexusError,
)
from nexus.ledger.lease import WAIT_S, SessionLease, async_session_of_process, session_of_process, shielded
from nexus.ledger.replay import ABORTED
from nexus.ledger.unrecorded_replies import is_of_storage
from nexus.providers.errors import OverflowVerdict
from nexus.providers.errors.failures import failure_of
from nexus.providers.replies import read_reply
from nexus.summarization import CompactionOutcome
from nexus.types.compaction_plan import RECOVER_TO, Trigger
from nexus.types.ledger_entries import Committed
from nexus.types.message import Image, Message
from nexus.types.request import AgentResult, Event, Request
from nexus.types.settings import CallArguments, output_limit, with_output_limit
from nexus.types.stream_events import CompactionEnd, CompactionStart, Sink, StreamEvent, ignore_event
from nexus.types.validation import check_options

T = TypeVar("T")
MOST_CALLS = 3
"""Calls of one request: the first, one after compaction to 40 %, one after cutting to 40 % of the failed size."""

BUDGETS_TO_TRY = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4)
"""Parts of the limit after an overflow, from the largest: the first that leaves 40 % is sent."""

# Smallest limit of a reply, in tokens; below it the prompt is shrunk instead.
_LEAST_OUTPUT = 256
_CALL_ARGUMENTS = "session images compact wait"


class Attempt(Struct, frozen=True):
    """One call."""

    tokens: int
    """Tokens of the prompt by our count."""
    available: int
    after: str = ""
    """The step that preceded the call."""
    verdict: OverflowVerdict | None = None
    """How the provider's refusal was classified; None for a call that fit."""


class Answer(Struct, frozen=True):
    """The result of a request."""

    ctx: AssembledContext
    """The context that fit."""
    reply: Any
    """The provider's response, unchanged."""
    result: AgentResult
    committed: Committed
    attempts: tuple[Attempt, ...]
    compaction: tuple[CompactionOutcome, ...] = ()

    @property
    def was_recovered(self) -> bool:
        """Return True if the first call did not fit."""
        return len(self.attempts) > 1


class _Outcome(Struct, frozen=True):
    """Result of a step: a reply or a compaction's outcome, or the error that was raised."""

    reply: Any = None
    error: Exception | None = None


RemoteAssembly: TypeAlias = Callable[[AsyncTurn, CallArguments], Awaitable[AssembledContext]]
"""Returns the context of a turn's next call, with inputs that come from another process. Takes changes of the options."""

Compact: TypeAlias = Callable[[threading.Event], CompactionOutcome]
"""Compacts the session, which a model may take minutes for; canceled by the event."""

_Steps: TypeAlias = Generator[AssembledContext | Compact | SessionLease, _Outcome, T]
"""Contexts to send, compactions to run and leases to take, one after the other. It calls no model itself, so that a caller may await one."""


def call(
    nx: Engine,
    event: str | Event | Iterable[Message],
    send: Callable[[AssembledContext], Any],
    *,
    session: str | None = None,
    images: Sequence[Image] = (),
    compact: bool = True,
    wait: float = WAIT_S,
    **options: Unpack[CallArguments],
) -> Answer:
    """Store an event, send its context and record the reply, with overflow recovery. Calls of a session wait in line.

    Args:
        nx: The engine.
        event: The user's text, an Event, or the results of tool calls. It is stored before `send` is called. The same
            `Event.id` again continues its turn. If that is completed or waits for results of tool calls, its newest reply
            is returned, without a call: a program that runs twice at once may run a tool twice.
        send: Takes the context and returns the provider's response, for example
            `lambda ctx: client.messages.create(**ctx.to_anthropic())`.
        session: The session's label; without one as `Engine.assemble` chooses.
        images: Images of the user's message.
        compact: Compact before the call if the context exceeds the profile's `compact_at`: by default, if it is full.
            Without it the history is only cut.
        wait: Seconds to wait for another call of the session.
        **options: The other arguments of `Engine.assemble`.

    Raises:
        SessionBusy: Another call of the session did not end in time. Nothing was stored.
        BudgetTooSmall: The parts that are never cut exceed the budget. Nothing was stored, or, if a compaction
            came before it, a failed turn.
        ContextOverflow: Three calls did not fit, or nothing more can be omitted. The turn is stored as failed.
        BadReply: The reply is empty or unreadable. The turn is stored as failed.
        Exception: Any error of `send` that is not an overflow, unchanged; `nexus.failure_of` returns its kind and whether
            to try again. The turn is stored as failed, and the same `Event.id` continues it.
    """
    check_options("call", options, CallArguments, _CALL_ARGUMENTS)
    recovery = _new_recovery(nx, event, session, images, options, compact=compact)
    with session_of_process(nx.ledger.store, recovery.request.session, wait_s=wait) as lease:
        return _send_all(recovery.turn_steps(lease), send)


async def acall(
    nx: AsyncEngine,
    event: str | Event | Iterable[Message],
    send: Callable[[AssembledContext], Awaitable[Any]],
    *,
    session: str | None = None,
    images: Sequence[Image] = (),
    compact: bool = True,
    wait: float = WAIT_S,
    **options: Unpack[CallArguments],
) -> Answer:
    """Do as `call` with an asynchronous `send`; a cancelled task leaves an interrupted turn."""
    check_options("acall", options, CallArguments, _CALL_ARGUMENTS)
    recovery = await nx.run(partial(_new_recovery, nx.engine, event, session, images, options, compact=compact))
    store = nx.engine.ledger.store
    session = recovery.request.session
    async with async_session_of_process(store, session, nx.run, wait_s=wait) as lease:
        return await _await_all(nx, recovery.turn_steps(lease), send)


async def next_reply(
    nx: AsyncEngine,
    turn: AsyncTurn,
    send: Callable[[AssembledContext], Awaitable[Any]],
    *,
    compact_topic: str | None = None,
    listen: Sink = ignore_event,
    assemble: RemoteAssembly | None = None,
    **changes: Unpack[CallArguments],
) -> Answer:
    """Assemble the context of a turn's next call, send it with overflow recovery, and record its reply.

    Unlike `acall` it begins no turn and closes none: if it raises, the caller ends the turn with `turn.fail`.

    Args:
        nx: The engine.
        turn: The open turn.
        send: As for `acall`.
        compact_topic: Compact the session even if the context has room; the summary keeps this above all.
        listen: Called on the event loop when a compaction starts and when it ends.
        assemble: Assembles the first context with inputs from another process, which the turn's options then have.
        **changes: As for `Turn.assemble`.

    Raises:
        BudgetTooSmall, ContextOverflow, BadReply, Exception: As for `call`.
    """
    loop = asyncio.get_running_loop()

    def pass_on(event: StreamEvent) -> None:
        loop.call_soon_threadsafe(listen, event)

    ctx = await assemble(turn, changes) if assemble is not None else None
    request = turn.turn.request.with_arguments(changes)
    recovery = _Recovery(nx.engine, request, turn=turn.turn, listen=pass_on)
    return await _await_all(nx, recovery.reply_steps(compact_topic, ctx, **changes), send)


async def _await_all(
    nx: AsyncEngine, steps: _Steps[Answer], send: Callable[[AssembledContext], Awaitable[Any]]
) -> Answer:
    outcome: _Outcome | None = None
    try:
        while not isinstance(step := await nx.run(_next_step, steps, outcome), Answer):
            try:
                outcome = _Outcome(await _await_step(nx, step, send))
            except Exception as error:  # noqa: BLE001 - the steps decide what it means, and raise it again
                outcome = _Outcome(error=error)
    except Exception:
        raise  # by the steps, which have ended
    except BaseException as error:
        # A canceled step goes on in the engine's thread; its end waits there for its turn.
        await shielded(nx.run(_stop, steps, error))
        raise
    return step


async def await_compaction(compact: Compact) -> CompactionOutcome:
    """Run a compaction in a thread of its own: other sessions have the engine's threads meanwhile.

    If it is canceled, nothing is stored. `compact` calls `Engine.compact` with a plan and the event.
    """
    cancel = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(compact, cancel))
    try:
        return await shielded(work)
    finally:
        cancel.set()
        await asyncio.wait([work])


async def _await_step(
    nx: AsyncEngine,
    step: AssembledContext | Compact | SessionLease,
    send: Callable[[AssembledContext], Awaitable[Any]],
) -> Any:
    if isinstance(step, AssembledContext):
        return await send(step)
    if isinstance(step, SessionLease):
        return await step.take_async(nx.run)
    return await await_compaction(step)


def _run_step(step: AssembledContext | Compact | SessionLease, send: Callable[[AssembledContext], Any]) -> Any:
    if isinstance(step, AssembledContext):
        return send(step)
    if isinstance(step, SessionLease):
        return step.take()
    return step(threading.Event())


def _send_all(steps: _Steps[Answer], send: Callable[[AssembledContext], Any]) -> Answer:
    step = _next_step(steps, None)
    while not isinstance(step, Answer):
        try:
            outcome = _Outcome(_run_step(step, send))
        except Exception as error:  # noqa: BLE001 - the steps decide what it means, and raise it again
            outcome = _Outcome(error=error)
        except BaseException as error:
            _stop(steps, error)
            raise
        step = _next_step(steps, outcome)
    return step


def _next_step(steps: _Steps[Answer], outcome: _Outcome | None) -> AssembledContext | Compact | SessionLease | Answer:
    """Return the next context to send, compaction to run or lease to take, or the answer."""
    try:
        return next(steps) if outcome is None else steps.send(outcome)
    except StopIteration as end:
        return end.value


def _stop(steps: _Steps[Answer], error: BaseException) -> None:
    """End the steps with an interruption of the program."""
    with suppress(BaseException):
        steps.throw(error)


def despite_learned_limit(nx: Engine, model: str, assemble: Callable[[], T]) -> T:
    """Assemble, and again without the model's learned limit if the parts that are never cut exceed it."""
    with suppress(BudgetTooSmall):
        return assemble()
    # Another turn of the model may forget or learn a limit at any time.
    with nx.limits.ignore():
        result = assemble()
    nx.limits.forget(model or nx.model)
    return result


def _new_recovery(
    nx: Engine,
    event: str | Event | Iterable[Message],
    session: str | None,
    images: Sequence[Image],
    options: CallArguments,
    *,
    compact: bool,
) -> _Recovery:
    request = nx.request(as_event(event, images), session, options)
    return _Recovery(nx, replace(request, session=nx.preparation.session_of(request), chooses_session=False), compact)


def recover(
    nx: Engine,
    ctx: AssembledContext,
    error: object,
    send: Callable[[AssembledContext], Any],
    **options: Unpack[CallArguments],
) -> Answer:
    """Continue after a call of your own failed with an overflow; see `call`.

    Args:
        nx: The engine.
        ctx: The context that did not fit. Its arguments, tools and settings included, apply to the smaller ones.
        error: The provider's error.
        send: As for `call`.
        **options: Arguments of `Engine.assemble` to replace.

    Raises:
        ContextOverflow: As for `call`, or `error` is neither an overflow nor an exception.
        BaseException: `error` itself, if it is an exception other than an overflow.
    """
    check_options("recover", options, CallArguments)
    recovery = _Recovery(nx, request_of(ctx).with_arguments(options))
    verdict = classify_error(ctx, error)
    if verdict.kind != "overflow":
        if isinstance(error, BaseException):
            raise error
        raise ContextOverflow((), f"the error is {verdict.kind}, not an overflow: {verdict.text}")
    recovery.attempts.append(Attempt(ctx.token_budget.used.total, ctx.token_budget.available, "", verdict))
    recovery.error = error if isinstance(error, BaseException) else None
    return _send_all(recovery.recovery_steps(ctx, verdict), send)


@dataclass(slots=True)
class _Recovery:
    """One request: its attempts so far, and the steps that make it smaller."""

    nx: Engine
    request: Request
    may_compact: bool = True
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    outcomes: list[CompactionOutcome] = field(default_factory=list[CompactionOutcome])
    error: BaseException | None = None
    step: str = ""
    limit_to_learn: int = 0
    least_budget: int = 1
    """Tokens of the parts that are never cut, once a budget was too small for them."""
    turn: Turn | None = None
    """The open turn, if the event is stored."""
    lease: SessionLease | None = None
    """The session's lease, which ends with the reply."""
    listen: Sink = ignore_event
    """Called when a compaction starts and ends."""

    def assemble(self) -> AssembledContext:
        """Return the context."""
        if self.turn is not None:
            return self.turn.assemble_request(self.request)
        return self.nx.assemble_request(self.request)

    def assemble_within(self, budget: int, failed: AssembledContext) -> AssembledContext:
        """Return a failed context within a budget of this call alone: later calls of the turn keep the turn's own."""
        request = replace(self.request, settings=replace(self.request.settings, budget=max(budget, 1)))
        stored = failed.provenance.stored_event
        if self.turn is None or stored is None:
            return self.nx.assemble_request(request)
        return self.nx.assemble_stored(replace(request, event=self.turn.request.event), stored)

    def turn_steps(self, lease: SessionLease) -> _Steps[Answer]:
        """Store the event, then yield contexts until one fits. Every way out but the answer closes the turn as failed.

        The lease is taken with the event, or before it where another call has the session, or anything else is wrong.
        Then the event is assembled twice; hooks of the moment run once, so with them it is taken first.
        """
        self.lease = lease
        model = self.request.settings.model
        turn: Turn | None = None
        if lease.is_takable and not self.nx.preparation.hooks.plugins:
            try:
                turn = despite_learned_limit(self.nx, model, partial(begin_turn, self.nx, self.request, lease=lease))
            except NexusError as error:
                if not lease.is_takable or (isinstance(error, LedgerError) and is_of_storage(error)):
                    raise
        if turn is None:
            outcome = yield lease
            if outcome.error is not None:
                raise outcome.error
            turn = despite_learned_limit(self.nx, model, partial(begin_turn, self.nx, self.request, lease.fence))
        self.turn = turn
        if not turn.is_new and (turn.status == "completed" or turn.calls):
            return self._stored_answer(turn)
        try:
            return (yield from self.reply_steps())
        except Exception as error:
            # A turn whose reply could not be stored stays open: the same event gets the reply, without another call.
            if not isinstance(error, LedgerError) or not error.leaves_turn_open:
                failure = failure_of(error)
                turn.fail_if_open(failure.kind, failure.text, partial=partial_reply(error))
            raise
        except BaseException as error:
            turn.fail_if_open(ABORTED, CANCELED, partial=partial_reply(error))
            raise

    def recovery_steps(self, ctx: AssembledContext, verdict: OverflowVerdict) -> _Steps[Answer]:
        """Yield smaller contexts than one that did not fit, until one fits."""
        smaller = yield from self.smaller_context(ctx, verdict)
        return (yield from self.send_until_it_fits(smaller))

    def reply_steps(
        self,
        compact_topic: str | None = None,
        ctx: AssembledContext | None = None,
        **changes: Unpack[CallArguments],
    ) -> _Steps[Answer]:
        """Yield contexts of the turn's next call until one fits, the first one maybe `ctx`, and record its reply."""
        assemble = self.assemble
        if self.turn is not None:
            assemble = partial(self.turn.assemble, **changes)
        ctx = ctx or despite_learned_limit(self.nx, self.request.settings.model, assemble)
        trigger: Trigger | None = None
        if compact_topic is not None:
            trigger = "manual"
        elif ctx.compaction_due:
            trigger = "context_limit"
        if self.may_compact and trigger is not None:
            is_shorter = yield from self.compact_history(ctx, None, trigger, compact_topic or "")
            ctx = self.assemble() if is_shorter else ctx
        return (yield from self.send_until_it_fits(ctx))

    def _stored_answer(self, turn: Turn) -> Answer:
        """Return the newest reply of a turn that was completed before, or that waits for results, without a call."""
        thread = self.nx.ledger.thread_info(turn.session)
        committed = Committed(thread.id, thread.head_seq, 0, turn.number)
        ctx = self.nx.replay(turn.session, turn.number, unverified=True)
        return Answer(ctx, None, AgentResult(turn.newest_reply), committed, ())

    def send_until_it_fits(self, ctx: AssembledContext) -> _Steps[Answer]:
        """Send at most three times. A doubtful reply is accepted if no smaller context can be sent."""
        while True:
            used = ctx.token_budget.used.total
            available = ctx.token_budget.available
            outcome = yield ctx
            reply, self.error, result = outcome.reply, outcome.error, AgentResult(())
            if self.error is None:
                try:
                    result = read_reply(reply)
                except BadReply as error:  # may be the provider's error, in place of a reply
                    self.error = error
            if self.error is not None:
                verdict = classify_error(ctx, self.error)
                if verdict.kind != "overflow":
                    raise self.error
            else:
                verdict = reported_overflow(ctx, result)
            self.attempts.append(Attempt(used, available, self.step, verdict))
            if verdict is not None:
                try:
                    ctx = yield from self.smaller_context(ctx, verdict)
                    continue
                except ContextOverflow:
                    if not has_content(result):
                        raise
            # Only a success proves a limit: a learned limit under which nothing fits would block the next call.
            elif self.limit_to_learn:
                self.nx.limits.learn(ctx.model, max(self.limit_to_learn, used))
            turn = self.turn
            if turn:
                committed = turn.record_result(result, ctx, reply, self.lease)
            else:
                committed = self.nx.recorder.record(ctx, result)
            return Answer(ctx, reply, result, committed, tuple(self.attempts), tuple(self.outcomes))

    def smaller_context(self, ctx: AssembledContext, verdict: OverflowVerdict) -> _Steps[AssembledContext]:
        """Return a context that is smaller than the failed one by our count. Raises ContextOverflow if none is."""
        self.nx.limits.recoveries[ctx.model] += 1
        if len(self.attempts) >= MOST_CALLS:
            raise ContextOverflow(
                self.attempts, f"{MOST_CALLS} calls did not fit. {parts_of_prompt(ctx)}"
            ) from self.error
        budget = ctx.token_budget
        if verdict.part == "output" and self._lower_output_limit(ctx, verdict):
            self.step = "a shorter answer was asked for"
            # A lower output limit leaves more tokens to the prompt, and other programs may have added messages: the
            # prompt must not grow.
            if (refitted := self._refit(ctx, budget.available, share=1.0)) is not None:
                return refitted
        limit = prompt_limit(ctx, verdict)
        smaller: AssembledContext | None = None
        share = RECOVER_TO * limit / budget.available
        may_compact = self.may_compact and len(self.attempts) == 1
        if may_compact and (yield from self.compact_history(ctx, share, "overflow_recovery")):
            self.step = "compacted to 40 %"
            smaller = self._refit(ctx, limit)
        if smaller is None:
            self.step = "cut to 40 % of what did not fit"
            smaller = self._cut_to(ctx, limit, recovery_target(ctx, verdict, limit))
        if smaller is None:
            self.step = "cut to what is never cut"
            smaller = self._refit(ctx, self.least_budget) or self._refit(ctx, int(SMALLER * budget.used.total))
        if smaller is None:
            raise ContextOverflow(self.attempts, f"nothing more can be omitted. {parts_of_prompt(ctx)}") from self.error
        # Limits in bytes, and usage without cached tokens, are no token limits.
        if verdict.part != "bytes" and verdict.source != LESS_THAN_SENT:
            self.limit_to_learn = limit
        return smaller

    def compact_history(
        self, ctx: AssembledContext, share: float | None, trigger: Trigger, topic: str = ""
    ) -> _Steps[bool]:
        """Compact to a share, by default the profile's; return whether the history became shorter."""
        plan = ctx.plan(trigger, share)
        if plan is None:
            return False
        self.listen(CompactionStart(trigger))
        outcome = CompactionOutcome()
        try:
            result = yield lambda cancel: self.nx.compact(ctx.session_label, focus=topic, plan=plan, cancel=cancel)
            if isinstance(result.error, (CompactionSuperseded, HeadMoved)):
                return True  # another program's compaction landed first
            if result.error is not None:
                raise result.error
            outcome = result.reply
        finally:
            problem = outcome.attempts[-1].reason if outcome.attempts else ""
            self.listen(CompactionEnd(outcome.tokens_before, outcome.tokens_after, outcome.method, problem))
        self.outcomes.append(outcome)
        return bool(outcome)

    def _cut_to(self, failed: AssembledContext, limit: int, target: int) -> AssembledContext | None:
        """Return the context within the largest part of the limit that leaves at most `target` tokens.

        A cut leaves less than its budget, so that messages may follow: a budget of `target` would leave much less.
        """
        for part in BUDGETS_TO_TRY:
            refitted = self._refit(failed, max(int(part * limit), 1))
            if refitted is not None and refitted.token_budget.used.total <= target:
                return refitted
        return self._refit(failed, target)

    def _refit(self, failed: AssembledContext, budget: int, share: float = SMALLER) -> AssembledContext | None:
        """Return the context within a budget, if its size is at most a share of the failed one's."""
        try:
            ctx = self.assemble_within(budget, failed)
        except BudgetTooSmall as error:
            self.least_budget = error.needed_tokens
            if error.is_lower_bound:
                self._refit(failed, error.needed_tokens)  # counts all parts
            return None
        return ctx if ctx.token_budget.used.total <= share * failed.token_budget.used.total else None

    def _lower_output_limit(self, ctx: AssembledContext, verdict: OverflowVerdict) -> bool:
        """Lower the limit of the reply to the tokens that the provider leaves; return False if those are too few."""
        config = self.request.settings.model_settings()
        current = output_limit(config) or 0
        # Without an exact limit, half of the reply is tried.
        is_exact = verdict.limit and not verdict.at_least
        if is_exact:
            remaining = verdict.limit - (verdict.input_tokens or ctx.token_budget.used.total)
        else:
            remaining = current // 2
        if remaining < _LEAST_OUTPUT or (current and remaining >= current):
            return False
        settings = self.request.settings.with_model_settings(with_output_limit(config, remaining))
        self.request = replace(self.request, settings=settings)
        return True


def partial_reply(error: BaseException) -> str:
    """Return the text that had arrived of a streamed reply when an error or a cancellation ended it.

    Clients leave it in the attribute `partial` of what they raise; `nexus.models` does.
    """
    partial = getattr(error, "partial", "")
    return partial if isinstance(partial, str) else ""
