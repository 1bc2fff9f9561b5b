"""The tools of one turn: checked by policy when they run, confirmed by a person where that is needed, limited in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from nexus.agents.engine import Confirm, Spending
from nexus.agents.tool_calls import error_result
from nexus.agents.tools import builtin_tools
from nexus.agents.tools.calls import run_call
from nexus.agents.tools.context import ToolContext
from nexus.agents.workers import CATEGORY, NO_HOOKS, TurnHooks, Workers, current_call_id
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.tools import ToolRegistry
from nexus.types.message import Message, ToolCall, ToolResult
from nexus.types.settings import Settings

DECLINED = "the user declined this call: do not repeat it, ask how to go on"
UNCONFIRMED = "this call needs a person's confirmation, which this program cannot ask for: do not repeat it"
INTERRUPTED = (
    "the program stopped while this call ran, and its result is lost: it may have had its effect (check before you "
    "call it again)"
)

ENGINE_USES = 16
"""Functions of a turn's tools that wait for the engine's thread at the same time, at most."""


class TurnTools:
    """The `AgentTools` of a turn: the program's and the built-in ones.

    Attributes:
        registry: All of them.
    """

    def __init__(
        self,
        nx: AsyncEngine,
        session: str,
        turn: int,
        settings: Settings,
        tools: ToolRegistry,
        *,
        builtin: bool,
        confirm: Confirm | None,
        seconds: float,
        spending: Spending,
        workers: Workers | None,
        hooks: TurnHooks = NO_HOOKS,
    ) -> None:
        self._nx = nx
        self._engine_use = asyncio.Semaphore(ENGINE_USES)
        self.context = ToolContext(nx.engine, session, turn, settings, self._request_compaction, self._run_in_engine)
        if builtin:
            self.registry = builtin_tools(self.context)
        else:
            self.registry = ToolRegistry()
        self.registry.include(tools)
        self.spending = spending
        self._workers = workers
        self._hooks = hooks
        if workers is not None:
            self.registry.register(self.spawn_worker, category=CATEGORY, repeatable=True)
        self._confirm = confirm
        self._seconds = seconds
        self._compaction_topic: str | None = None

    async def run(self, call: ToolCall, ctx: AssembledContext | None) -> ToolResult:
        """Check and run a call; see `AgentTools.run`."""
        if self._needs_confirmation(call.name):
            if self._confirm is None:
                return error_result(call, UNCONFIRMED)
            if not await self._confirm(call):
                return error_result(call, DECLINED)
        current_call_id.set(call.id)
        try:
            # A worker has the limits of its own turn.
            async with asyncio.timeout(self._seconds if call.name != self.spawn_worker.__name__ else None):
                return await run_call(self.registry, call, self.context, ctx)
        except TimeoutError:
            return error_result(call, f"{call.name} did not end within {self._seconds:g} seconds and was stopped")

    async def run_again(self, call: ToolCall) -> ToolResult:
        """Run a call whose result was lost when a program stopped, if its tool may run twice."""
        if call.name in self.registry and not self.registry.get(call.name).repeatable:
            return error_result(call, INTERRUPTED)
        return await self.run(call, None)

    async def spawn_worker(self, task: str, toolset: str = "", model: str = "", wait: bool = True) -> str:  # noqa: FBT002 - a model's argument
        """Let a worker do a task in a conversation of its own, and get its report.

        Use it for a part of the work that is well defined, or that would fill this conversation. The worker knows
        nothing of this conversation: say all that it needs. Several workers of one reply run at the same time.

        Args:
            task: What to do, and what to report.
            toolset: Name of the tools that it may use; by default yours. It never has more than you.
            model: Name of its model; by default yours. Few others are allowed, if any.
            wait: False to go on at once; its report then comes as a message.
        """
        assert self._workers is not None
        spawn = self._workers.spawn
        return await spawn(self.context, self.spending, self._hooks, task, toolset=toolset, model=model, wait=wait)

    def ends_turn(self, results: Iterable[Message]) -> bool:
        """Return True if one of the results ends the turn; see `AgentTools`."""
        ended = (result.name for message in results for result in message.results() if not result.is_error)
        return any(name in self.registry and self.registry.get(name).ends_turn for name in ended)

    def take_compaction_request(self) -> str | None:
        """Return the topic, once, after a tool asked for a compaction; see `AgentTools`."""
        topic = self._compaction_topic
        self._compaction_topic = None
        return topic

    async def before_step(self, turn: AsyncTurn) -> None:
        """Let further messages join the turn; see `AgentTools`."""
        if self._hooks.before_step is not None:
            await self._hooks.before_step(turn)

    async def _run_in_engine(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Run a blocking function of the engine, a few at a time for this turn: others wait for these alone."""
        async with self._engine_use:
            return await self._nx.run(function, *args, **options)

    def _request_compaction(self, topic: str) -> None:
        self._compaction_topic = topic

    def _needs_confirmation(self, name: str) -> bool:
        return name in self.registry and self.registry.get(name).needs_confirmation
