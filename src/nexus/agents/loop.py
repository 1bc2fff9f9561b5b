"""The default agent engine: calls the model, runs the tools that it asks for, and again until it asks for none.

Every step is in the ledger before the next one begins: the reply before its tools run, each result as it arrives. A
program that stops loses nothing that was paid for; `Agent` continues the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from nexus.agents.engine import AgentTools, Limits
from nexus.agents.tool_calls import run_calls, run_first
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.overflow_recovery import RemoteAssembly, next_reply
from nexus.errors import ContextOverflow, LateReply, LedgerError, LimitReached, ModelCallFailed
from nexus.ledger.lease import shielded
from nexus.models import ModelClient, ModelReply
from nexus.providers.errors.failures import FailureKind, failure_of
from nexus.types.message import Message, Part, ToolCall, with_parts
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.settings import CallArguments
from nexus.types.stream_events import Retry, Sink, Token

T = TypeVar("T")

CANCELED = AgentResult((), stop_reason="aborted", error="canceled")


class ToolLoop:
    """The default `AgentEngine`.

    Args:
        nx: The engine whose ledger has the turn.
        models: The clients of the models.
        limits: Limits of a turn.
        fallbacks: Models for the rest of a turn whose model fails for good, in order. The context is assembled again
            for each one's window and format.
        assemble: Gets the contexts from another process.
    """

    def __init__(
        self,
        nx: AsyncEngine,
        models: ModelClient,
        *,
        limits: Limits | None = None,
        fallbacks: Sequence[str] = (),
        assemble: RemoteAssembly | None = None,
    ) -> None:
        self.nx = nx
        self.models = models
        self.limits = limits or Limits()
        self.fallbacks = tuple(fallbacks)
        self.assemble = assemble

    async def run(
        self, ctx: AssembledContext, tools: AgentTools, sink: Sink, cancel: asyncio.Event | None = None
    ) -> AgentResult:
        """Run a turn; see `AgentEngine.run`. A canceled task leaves an interrupted turn."""
        run = _LoopRun(self, ctx, tools, sink, self.nx.turn_of(ctx))
        return await until_canceled(run.to_end(), cancel) or CANCELED


async def until_canceled(work: Coroutine[Any, Any, T], cancel: asyncio.Event | None) -> T | None:
    """Await work. Once the event is set the work is canceled, and the result is None."""
    task = asyncio.ensure_future(work)
    canceled = task
    if cancel is not None:
        canceled = asyncio.ensure_future(cancel.wait())
    try:
        await asyncio.wait((task, canceled), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
    finally:
        if canceled is not task:
            canceled.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    if task.cancelled():
        return None
    return task.result()


@dataclass(slots=True)
class _LoopRun:
    """One turn under way."""

    loop: ToolLoop
    ctx: AssembledContext
    tools: AgentTools
    sink: Sink
    turn: AsyncTurn
    messages: list[Message] = field(default_factory=list[Message])
    usage: TokenUsage = field(default_factory=TokenUsage)
    calls: int = 0
    model: str = ""
    arriving: str = ""
    """Text of the reply that is arriving, which a break would leave."""
    unrecorded: AgentResult | None = None
    """A whole reply that is not stored yet."""
    has_streamed: bool = False
    """True if a reply of this step was passed on, which a further try withdraws."""
    untried: list[str] = field(default_factory=list[str])

    async def to_end(self) -> AgentResult:
        """Run all steps. Every way out but the last reply closes the turn as failed or interrupted."""
        self.model = self.ctx.model
        self.untried = [name for name in self.loop.fallbacks if name != self.model]
        limit = asyncio.timeout(self.loop.limits.seconds)
        try:
            async with limit:
                return await self._steps()
        except asyncio.CancelledError:
            if await self._fail("aborted", "canceled"):
                raise
        except Exception as error:
            if isinstance(error, LedgerError) and error.leaves_turn_open:
                raise  # its event continues it when the ledger stores again
            # A failed turn is a result (document 002).
            failure = failure_of(self._time_limit_error() if limit.expired() else error)
            if isinstance(error, ModelCallFailed) and error.reply is not None:  # withheld, and paid
                self._add_usage(error.reply)
            if isinstance(error, LateReply) and error.stored_as:
                self.unrecorded = None  # it is stored apart
            if await self._fail(failure.kind, failure.text):
                is_timeout = limit.expired() or failure.kind == "timeout"
                return self._result("timeout" if is_timeout else "error", failure.text)
        # The last reply was being stored meanwhile, and has completed the turn.
        assert self.unrecorded is not None
        self.messages.extend(self.unrecorded.messages)
        return self._result(self.unrecorded.stop_reason)

    def _time_limit_error(self) -> LimitReached:
        seconds = f"{self.loop.limits.seconds:g} seconds"
        return LimitReached(f"the turn took {seconds} (raise Limits.seconds, or send a message to go on)")

    async def _steps(self) -> AgentResult:
        while True:
            self._check_limits()
            reply = await self._next_reply()
            answered = {answer.call_id for answer in reply.tool_results}
            calls = [call for call in reply.tool_calls if call.id not in answered]
            if calls:
                run = run_first(partial(self.tools.run, ctx=self.ctx), calls, self.loop.limits.calls_per_reply)
                results = await run_calls(calls, run, self.turn, self.sink)
                self.messages.extend(results)
                if self.tools.ends_turn(results):
                    await self.turn.complete()
                    return self._result("end_turn")
                await self.tools.before_step(self.turn)
            elif reply.stop_reason != "pause_turn":
                return self._result(reply.stop_reason)

    def _check_limits(self) -> None:
        self.tools.spending.check()
        if self.calls >= self.loop.limits.steps:
            raise LimitReached(
                f"the turn made {self.calls} call{'' if self.calls == 1 else 's'} of a model (raise Limits.steps, or send a message to go on)"
            )

    async def _next_reply(self) -> AgentResult:
        """Return the next reply, which is stored, of the model or else of a fallback."""
        self.has_streamed = False
        changes: CallArguments = {"model": self.model} if self.model != self.ctx.model else {}
        topic = self.tools.take_compaction_request()
        while True:
            try:
                answer = await next_reply(
                    self.loop.nx,
                    self.turn,
                    self._send,
                    compact_topic=topic,
                    listen=self.sink,
                    assemble=self.loop.assemble,
                    **changes,
                )
            except (ModelCallFailed, ContextOverflow) as error:
                kind = failure_of(error).kind
                if not self.untried or (isinstance(error, ModelCallFailed) and error.kind == "content"):
                    raise
                self.model = self.untried.pop(0)
                changes = {"model": self.model}
                self._withdraw(kind, f"{error}; {self.model} goes on")
            else:
                self.ctx = answer.ctx
                self.unrecorded = None
                self.messages.extend(answer.result.messages)
                return answer.result

    async def _send(self, ctx: AssembledContext) -> AgentResult:
        """Call the model, pass its tokens on, and return the reply."""
        if self.has_streamed:
            self._withdraw("context_overflow", "the prompt did not fit, and is sent again")
        self.arriving = ""
        self.unrecorded = None
        self.calls += 1
        async with aclosing(self.loop.models.stream(ctx)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    self.arriving, self.unrecorded = "", _without_repeated_calls(item.result)
                    self._add_usage(item)
                    return self.unrecorded
                if isinstance(item, Retry):
                    self.arriving = ""
                    self.has_streamed = False
                else:
                    self.has_streamed = True
                    self.arriving += item.text if isinstance(item, Token) else ""
                self.sink(item)
        raise ModelCallFailed("the stream of the client ended without a reply", "error")

    async def _fail(self, kind: FailureKind, text: str) -> bool:
        """End the turn, with what arrived and is not stored; return False if it was completed before."""
        return await shielded(self.loop.nx.run(self._fail_unless_completed, kind, text))

    def _fail_unless_completed(self, kind: FailureKind, text: str) -> bool:
        turn = self.turn.turn
        is_stored = self.unrecorded is not None and turn.last_reply is self.unrecorded
        turn.fail_if_open(kind, text, partial=None if is_stored else self.unrecorded or self.arriving)
        return not is_stored or turn.status != "completed"

    def _withdraw(self, kind: str, text: str) -> None:
        self.arriving = ""
        self.unrecorded = None
        self.has_streamed = False
        self.sink(Retry(kind, text))

    def _add_usage(self, reply: ModelReply) -> None:
        usage = reply.result.usage
        total = self.usage
        names = TokenUsage.__struct_fields__
        self.usage = TokenUsage(*(getattr(total, name) + getattr(usage, name) for name in names))
        self.tools.spending.add(reply.cost_usd)

    def _result(self, stop_reason: str, error: str | None = None) -> AgentResult:
        return AgentResult(
            tuple(self.messages),
            self.usage,
            stop_reason,
            error,
            self.model,
            cost_usd=self.tools.spending.cost_usd,
            calls=self.calls,
        )


def _without_repeated_calls(result: AgentResult) -> AgentResult:
    """Return a reply without further calls of one id: the ledger has one result for each id of a reply."""
    ids = [call.id for call in result.tool_calls]
    if len(set(ids)) == len(ids):
        return result
    call_ids: set[str] = set()
    messages: list[Message] = []
    for message in result.messages:
        parts: list[Part] = []
        for part in message.parts:
            if not isinstance(part, ToolCall) or part.id not in call_ids:
                parts.append(part)
            if isinstance(part, ToolCall):
                call_ids.add(part.id)
        messages.append(with_parts(message, parts))
    return replace(result, messages=tuple(messages))
