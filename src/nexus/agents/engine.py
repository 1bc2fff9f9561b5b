"""The protocol of agent engines (document 002), the tools that they call, and the limits of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from msgspec import Struct

from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncTurn
from nexus.errors import LimitReached
from nexus.types.message import Message, ToolCall, ToolResult
from nexus.types.request import AgentResult
from nexus.types.stream_events import Sink

Confirm: TypeAlias = Callable[[ToolCall], Awaitable[bool]]
"""Asks a person whether a call may run. It is canceled with the turn."""


async def confirm_all(_call: ToolCall) -> bool:
    """Let every call run: a `Confirm` for programs whose user agreed beforehand."""
    return True


class Limits(Struct, frozen=True):
    """Limits of one turn. A turn that reaches one fails with kind `limit`; everything up to there is stored."""

    steps: int = 50
    """Calls of a model."""
    seconds: float = 1_800.0
    tool_seconds: float = 600.0
    """Seconds of one tool call. One that takes longer is canceled, and its result is an error."""
    cost_usd: float | None = None
    """Cost at list prices, checked before each call of a model. None for no limit."""
    calls_per_reply: int = 128
    """Tool calls of one reply that are run; the results of further ones say that they were not."""


class Spending:
    """Cost of a turn so far, its workers' included, and its limit.

    Attributes:
        cost_usd: At list prices; None once a call was made to a model without prices.
        limit_usd: None for no limit.
    """

    def __init__(self, limit_usd: float | None = None) -> None:
        self.cost_usd: float | None = 0.0
        self.limit_usd = limit_usd

    def add(self, cost_usd: float | None) -> None:
        """Add the cost of a call or of a worker."""
        if cost_usd is None or self.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd = self.cost_usd + cost_usd

    @property
    def remaining_usd(self) -> float | None:
        """The rest of the limit; None without a limit."""
        if self.limit_usd is None:
            return None
        return max(self.limit_usd - (self.cost_usd or 0.0), 0.0)

    def check(self) -> None:
        """Raise LimitReached once nothing is left."""
        if self.limit_usd is not None and not self.remaining_usd:
            raise LimitReached(
                f"the turn cost {self.cost_usd:.4f} USD (raise Limits.cost_usd, or send a message to go on)"
            )


class AgentTools(Protocol):
    """The tools of one turn."""

    @property
    def spending(self) -> Spending:
        """The turn's cost, to which an engine adds its calls."""
        ...

    async def run(self, call: ToolCall, ctx: AssembledContext | None) -> ToolResult:
        """Check and run a call of the model that answered `ctx`. Whatever goes wrong is a result with `is_error`."""
        ...

    def ends_turn(self, results: Iterable[Message]) -> bool:
        """Return True if one of the results is of a tool that ends the turn, and no error."""
        ...

    def take_compaction_request(self) -> str | None:
        """Return the topic of a compaction before the next call, once after a tool asked for it; None without one."""
        ...

    async def before_step(self, turn: AsyncTurn) -> None:
        """Call it between two calls of a model, when all results are stored: further messages may join the turn."""
        ...


class AgentEngine(Protocol):
    """Runs the calls of one turn."""

    async def run(
        self, ctx: AssembledContext, tools: AgentTools, sink: Sink, cancel: asyncio.Event | None = None
    ) -> AgentResult:
        """Run a turn from its first context to its end, and return its result.

        Args:
            ctx: The context of an open turn (`turn.assemble()`).
            tools: The tools that the context offers.
            sink: Takes the turn's events but the first and the last, which `Agent` adds.
            cancel: Once it is set, the turn ends as interrupted.

        Returns:
            All messages of the turn behind its event, with the usage of all calls. `error` is set if the turn failed.
            An engine that stores nothing itself returns them, and `Agent` stores them.
        """
        ...
