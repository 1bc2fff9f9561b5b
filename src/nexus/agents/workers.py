"""Workers: agents that another agent spawns for one task, each in a session of its own.

A worker's session is linked to the session, turn and call that spawned it. Its label follows from these, so a call that
runs again, because the manager's program stopped, finds the same worker: its answer if it has one, else its open turn.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeAlias

from msgspec import Struct

from nexus.agents.engine import Spending
from nexus.agents.tools.context import ToolContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import ToolCallFailed
from nexus.ledger.sessions import SessionMetadata
from nexus.types.ledger_entries import Commit
from nexus.types.message import Text
from nexus.types.options import CallOptions
from nexus.types.request import AgentResult, Event
from nexus.types.session_key import parse

CATEGORY = "spawning"

current_call_id: ContextVar[str] = ContextVar("current_call_id", default="")
"""Id of the call that a tool runs for."""

_LABEL_CHARS = 100


class WorkerLimits(Struct, frozen=True):
    """Limits of an agent's workers."""

    depth: int = 3
    """Workers of workers, at most. 0: no worker may be spawned."""
    at_once: int = 4
    """Workers of one depth that run at the same time; further ones wait."""


class WorkerOrder(Struct, frozen=True):
    """A worker to run: its session, its task as an event, and the arguments of its calls."""

    session: str
    manager: str
    event: Event
    options: CallOptions


RunOrder: TypeAlias = Callable[[WorkerOrder, Spending], Awaitable[AgentResult]]
"""Runs a worker to its end."""

RunLater: TypeAlias = Callable[[WorkerOrder], Awaitable[None]]
"""Runs a worker beside its manager, and gives the manager's session its result as an event."""


class Workers:
    """Spawns the workers of one agent."""

    def __init__(self, nx: AsyncEngine, run: RunOrder, limits: WorkerLimits) -> None:
        self._nx, self._run, self.limits = nx, run, limits
        self._slots: dict[int, asyncio.Semaphore] = {}
        self.run_later: RunLater | None = None

    async def spawn(
        self, context: ToolContext, spending: Spending, task: str, *, toolset: str, model: str, wait: bool
    ) -> str:
        """Run a worker for a call of `spawn_worker`, and return its answer."""
        if not task.strip():
            raise ToolCallFailed("spawn_worker needs a task: say what to do, and what to report")
        depth = await self._nx.run(_depth_of, context.engine, context.session) + 1
        if depth > self.limits.depth:
            raise ToolCallFailed(f"workers may be nested {self.limits.depth} deep: do this task yourself")
        order = worker_order(context, current_call_id.get(), task, toolset=toolset, model=model)
        if not wait:
            if self.run_later is None:
                raise ToolCallFailed(
                    "this agent cannot receive a worker's result later: call spawn_worker with wait=true"
                )
            await self._nx.run(_link, context, order)
            await self.run_later(order)
            return f"Worker {order.session} has started. Its result will come as a message."
        async with self._slots.setdefault(depth, asyncio.Semaphore(self.limits.at_once)):
            result = await self._run(order, Spending(spending.remaining_usd))
        spending.add(result.cost_usd if result.calls else 0.0)
        if result.error is not None:
            raise ToolCallFailed(f"worker {order.session} failed: {result.error}")
        return answer_of(result) or f"Worker {order.session} ended without an answer."


def answer_of(result: AgentResult) -> str:
    """Return the text of a result's last message."""
    texts = [message.text() for message in result.messages if message.role == "assistant"]
    return texts[-1] if texts else ""


def worker_order(context: ToolContext, call_id: str, task: str, *, toolset: str, model: str) -> WorkerOrder:
    """Return the order of a worker with at most what its manager has (`nexus.policy.authorization`)."""
    manager, options = context.session, context.options
    digest = hashlib.sha256(f"{manager}\0{context.turn}\0{call_id}".encode()).hexdigest()[:8]
    key = parse(manager)
    name = (key.name if key is not None else manager)[:_LABEL_CHARS].strip()
    label = f"worker:{name}.{context.turn}.{digest}"
    order: CallOptions = {**options, "role": "worker", "task": task, "manager": manager, "manager_call": call_id}
    order |= {"toolset": toolset or options.get("toolset", ""), "skills": ()}
    if model:
        order["model"] = model
    return WorkerOrder(label, manager, Event((Text(task),), id=f"{label}:task", source="agent"), order)


def _link(context: ToolContext, order: WorkerOrder) -> None:
    """Create a worker's session, linked to this turn: the worker may begin when its manager has begun a later one."""
    facts = SessionMetadata(
        parent_session=order.manager,
        parent_turn=context.turn,
        parent_call_id=order.options.get("manager_call", ""),
        task=order.options.get("task", ""),
    )
    context.engine.ledger.commit(order.session, Commit(), facts)


def _depth_of(engine: Engine, session: str) -> int:
    """Return how many sessions spawned each other above a session."""
    depth, labels = 0, {session}
    while True:
        label = engine.store.resolve(session)
        update = engine.store.session(label) if label is not None else None
        session = update.facts.parent_session if update is not None else ""
        if not session or session in labels:
            return depth
        labels.add(session)
        depth += 1
