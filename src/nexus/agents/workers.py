"""Workers: agents that another agent spawns for one task, each in a session of its own.

A worker's session is linked to the session, turn and call that spawned it. Its label follows from these and the reply
that has the call, so a call that runs again, because the manager's program stopped, finds the same worker: its answer if
it has one, else its open turn. Models use an id again in later replies: that is another worker.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.agents.engine import Spending
from nexus.agents.tools.context import ToolContext
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.errors import ToolCallFailed
from nexus.ledger.replay import entries_from_turn
from nexus.ledger.sessions import SessionMetadata
from nexus.types.ledger_entries import Commit
from nexus.types.message import Text
from nexus.types.request import AgentResult, Event
from nexus.types.session_key import parse
from nexus.types.settings import Settings

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
    models: tuple[str, ...] = ()
    """Models that a worker may have besides its manager's."""


class WorkerOrder(Struct, frozen=True):
    """A worker to run: its session, its task as an event, and the settings of its calls."""

    session: str
    manager: str
    event: Event
    settings: Settings
    manager_settings: Settings
    """The settings of the manager's calls, for the turn that answers the worker's report."""


class TurnHooks(Struct, frozen=True):
    """Callbacks of `Agent.run` for its turn and the turns of its workers."""

    before_step: Callable[[AsyncTurn], Awaitable[None]] | None = None
    """Called between two calls of a model, when all results are stored: it may add the user's further messages."""
    run_later: Callable[[WorkerOrder], Awaitable[None]] | None = None
    """Runs a worker beside its manager, and gives the manager's session its result as an event."""


NO_HOOKS = TurnHooks()

RunOrder: TypeAlias = Callable[[WorkerOrder, Spending, TurnHooks], Awaitable[AgentResult]]
"""Runs a worker to its end."""


class Workers:
    """Spawns the workers of one agent."""

    def __init__(self, nx: AsyncEngine, run: RunOrder, limits: WorkerLimits) -> None:
        self._nx = nx
        self._run = run
        self.limits = limits
        self._slots: dict[int, asyncio.Semaphore] = {}

    def allows(self, session: str, settings: Settings) -> bool:
        """Return True if a session may spawn workers: it is not nested as deep as the limit."""
        engine = self._nx.engine
        manager = settings.manager
        depth = _depth_of(engine, session)
        if manager and not depth:  # a worker's session is linked to its manager when its first turn is stored
            depth = _depth_of(engine, manager) + 1
        return depth < self.limits.depth

    async def spawn(
        self,
        context: ToolContext,
        spending: Spending,
        hooks: TurnHooks,
        task: str,
        *,
        toolset: str,
        model: str,
        wait: bool,
    ) -> str:
        """Run a worker for a call of `spawn_worker`, and return its answer."""
        if not task.strip():
            raise ToolCallFailed("spawn_worker needs a task: say what to do, and what to report")
        self._check_model(context, model)
        depth = await self._nx.run(_depth_of, context.engine, context.session) + 1
        if depth > self.limits.depth:
            raise ToolCallFailed(f"workers may be nested {self.limits.depth} deep: do this task yourself")
        order = await self._nx.run(
            partial(worker_order, context, current_call_id.get(), task, toolset=toolset, model=model)
        )
        if not wait:
            if hooks.run_later is None:
                raise ToolCallFailed(
                    "this agent cannot receive a worker's result later: call spawn_worker with wait=true"
                )
            await self._nx.run(_link, context, order)
            await hooks.run_later(order)
            return f"Worker {order.session} has started. Its result will come as a message."
        async with self._slots.setdefault(depth, asyncio.Semaphore(self.limits.at_once)):
            result = await self._run(order, Spending(spending.remaining_usd), hooks)
        spending.add(result.cost_usd if result.calls else 0.0)
        if result.error is not None:
            raise ToolCallFailed(f"worker {order.session} failed: {result.error}")
        return answer_of(result) or f"Worker {order.session} ended without an answer."

    def _check_model(self, context: ToolContext, model: str) -> None:
        """Raise ToolCallFailed for a model that a worker may not have: its manager may act on anybody's words."""
        manager_model = context.settings.model or context.engine.model
        allowed = dict.fromkeys((manager_model, *self.limits.models))
        if model and model not in allowed:
            raise ToolCallFailed(
                f"a worker may not have model {model[:80]!r}: leave it out, or use {', '.join(allowed)}"
            )


def answer_of(result: AgentResult) -> str:
    """Return the text of a result's last message."""
    texts = [message.text() for message in result.messages if message.role == "assistant"]
    if texts:
        return texts[-1]
    return ""


def worker_order(context: ToolContext, call_id: str, task: str, *, toolset: str, model: str) -> WorkerOrder:
    """Return the order of a worker with at most what its manager has (`nexus.policy.authorization`).

    Raises ToolCallFailed if its session exists and is not this manager's.
    """
    manager = context.session
    store = context.engine.ledger.store
    with store.snapshot():
        place = f"{manager}\0{context.turn}\0{_reply_with(context, call_id)}\0{call_id}"
    digest = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:8]
    key = parse(manager)
    name = (key.name if key is not None else manager)[:_LABEL_CHARS].strip()
    label = f"worker:{name}.{context.turn}.{digest}"
    settings = replace(
        context.settings,
        role="worker",
        task=task,
        manager=manager,
        manager_call=call_id,
        toolset=toolset or context.settings.toolset,
        skills=(),
        model=model or context.settings.model,
    )
    existing = store.session(label)
    if existing is not None and store.resolve(existing.metadata.parent_session) != store.resolve(manager):
        raise ToolCallFailed(f"session {label} exists, and this conversation did not spawn it: do this task yourself")
    return WorkerOrder(
        label, manager, Event((Text(task),), id=f"{label}:task", source="agent"), settings, context.settings
    )


def _reply_with(context: ToolContext, call_id: str) -> int:
    """Return the entry of the turn's newest reply that has a call; 0 if it is not stored."""
    store = context.engine.ledger.store
    thread = store.thread_of(context.session)
    entries = entries_from_turn(store, thread, context.turn) if thread is not None else []
    calls = ((entry.seq, call) for entry in entries for row in entry.rows for call in row.message.calls())
    return max((seq for seq, call in calls if call.id == call_id), default=0)


def _link(context: ToolContext, order: WorkerOrder) -> None:
    """Create a worker's session, linked to this turn: the worker may begin when its manager has begun a later one."""
    metadata = SessionMetadata(
        parent_session=order.manager,
        parent_turn=context.turn,
        parent_call_id=order.settings.manager_call,
        task=order.settings.task,
    )
    context.engine.ledger.commit(order.session, Commit(), metadata)


def _depth_of(engine: Engine, session: str) -> int:
    """Return how many sessions spawned each other above a session."""
    depth = 0
    labels = {session}
    while True:
        label = engine.ledger.store.resolve(session)
        update = None
        if label is not None:
            update = engine.ledger.store.session(label)
        session = ""
        if update is not None:
            session = update.metadata.parent_session
        if not session or session in labels:
            return depth
        labels.add(session)
        depth += 1
