"""Agents by id: each with its own conversation, log, tools and dispatcher, over shared components.

The agents share one ledger in the log folder, each with a session of its id: a ledger for each agent would need more
open files than a process may have. An agent whose session exists continues it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nexus.agents import Limits
from nexus.compat.nexus3.context.manager import ContextConfig, ContextManager
from nexus.compat.nexus3.context.prompt_loader import PromptLoader
from nexus.compat.nexus3.rpc.dispatcher import Dispatcher
from nexus.compat.nexus3.rpc.session import Session, open_session_engine
from nexus.compat.nexus3.session import LogConfig, SessionLogger, open_log
from nexus.engine import session_label
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import AgentError, BadSetting, NotAllowed
from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.models import ModelClient
from nexus.tools import ToolRegistry
from nexus.types.config import Config
from nexus.types.settings import SettingsChanges

__all__ = ["Agent", "AgentConfig", "AgentPool", "SharedComponents"]


@dataclass(frozen=True, slots=True)
class SharedComponents:
    """Components that the agents of a pool share."""

    config: Config | None
    """Model and time zone, among others; None reads the configuration files."""
    provider: ModelClient
    """The client of the models, of `nexus.models`. The pool does not close it."""
    prompt_loader: PromptLoader = field(default_factory=PromptLoader)
    base_log_dir: str | Path = Path(".nexus3/logs")
    tools: ToolRegistry | Iterable[Callable[..., Any]] = ()
    """Functions, or a registry, that agents may call."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of one agent."""

    agent_id: str | None = None
    """By default a new one."""
    system_prompt: str | None = None
    """By default the loader's, for the mode of a server."""
    model: str = ""
    """By default the configuration's."""
    context: ContextConfig = field(default_factory=ContextConfig)
    tools: tuple[str, ...] | None = None
    """Names of its tools; by default its parent's, or all."""
    permissions: tuple[str, ...] | None = None
    """Names of its permissions; by default its parent's, or no limit."""
    parent_agent_id: str | None = None
    """Agent of the pool whose tools and permissions are the most that this one may have."""
    limits: Limits = field(default_factory=Limits)
    """Limits of a turn."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of a pool."""

    agent_id: str
    config: AgentConfig
    """Its settings, with the tools and permissions that it has."""
    context: ContextManager
    logger: SessionLogger
    registry: ToolRegistry
    session: Session
    dispatcher: Dispatcher
    created_at: datetime


class AgentPool:
    """The agents of a program. Close it, or use it in `async with`.

    Args:
        shared: The components that all agents use.
    """

    def __init__(self, shared: SharedComponents) -> None:
        self.shared = shared
        if isinstance(shared.tools, ToolRegistry):
            self._registry = shared.tools
        else:
            self._registry = ToolRegistry(shared.tools)
        self._agents: dict[str, Agent] = {}
        self._engines: dict[str, AsyncEngine] = {}
        self._store: SqliteLedger | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._agents)

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._agents

    def __iter__(self) -> Iterator[Agent]:
        return iter(tuple(self._agents.values()))

    def get(self, agent_id: str) -> Agent | None:
        """Return the agent of that id; None if there is none."""
        return self._agents.get(agent_id)

    async def create(self, agent_id: str | None = None, config: AgentConfig | None = None) -> Agent:
        """Create an agent. An id that the log has continues its session.

        Args:
            agent_id: Its id; by default the one of `config`, else a new one.
            config: Its settings.

        Raises:
            BadSetting: The id is in use, or there is no such parent or tool.
            NotAllowed: The agent would have more than its parent.
            AgentError: The pool was closed.
            BadSetting, NotFound, LedgerError: As named.
        """
        config = config or AgentConfig()
        if agent_id is not None and config.agent_id not in (None, agent_id):
            raise BadSetting(f"agent has two ids, {agent_id!r} and {config.agent_id!r} (pass one of them)")
        if agent_id is None:
            if config.agent_id is None:
                agent_id = uuid.uuid4().hex[:8]
            else:
                agent_id = config.agent_id
        async with self._lock:
            if self._is_closed:
                raise AgentError("pool is closed (make another one)")
            if not agent_id.strip():
                raise BadSetting("agent id is blank (use a name, or none for a new one)")
            if agent_id in self._agents:
                raise BadSetting(f"agent {agent_id!r} exists (destroy it first, or use another id)")
            config = self._within_parent(replace(config, agent_id=agent_id))
            agent = self._agents[agent_id] = await self._new_agent(agent_id, config)
        return agent

    async def destroy(self, agent_id: str) -> bool:
        """Remove an agent and return True; its running requests end as interrupted, and its log stays.

        Returns False if there is no such agent.
        """
        agent = self._agents.pop(agent_id, None)
        if agent is not None:
            await agent.dispatcher.shutdown()
        return agent is not None

    async def close(self) -> None:
        """Destroy all agents and close the log."""
        async with self._lock:
            self._is_closed = True
        await asyncio.gather(*(self.destroy(agent_id) for agent_id in tuple(self._agents)))
        while self._engines:
            await self._engines.popitem()[1].close()
        if self._store is not None:
            self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def _within_parent(self, config: AgentConfig) -> AgentConfig:
        """Return settings with the tools and permissions that an agent has. Raises BadSetting, NotAllowed."""
        names = {tool.name for tool in self._registry.tools()}
        if unknown := sorted(set(config.tools or ()) - names):
            raise BadSetting(f"tool {unknown[0]!r} not found (available: {', '.join(sorted(names)) or 'none'})")
        if config.parent_agent_id is None:
            return config
        parent = self._agents.get(config.parent_agent_id)
        if parent is None:
            agents = ", ".join(sorted(self._agents)) or "none"
            raise BadSetting(f"parent agent {config.parent_agent_id!r} not found (agents: {agents})")
        limits = parent.config
        return replace(
            config,
            tools=_within(config.tools, limits.tools, "tool", parent.agent_id),
            permissions=_within(config.permissions, limits.permissions, "permission", parent.agent_id),
        )

    async def _new_agent(self, agent_id: str, config: AgentConfig) -> Agent:
        shared = self.shared
        load_prompt = None
        if config.system_prompt is None:
            load_prompt = partial(_load_prompt, shared.prompt_loader)
        if self._store is None:
            self._store = await asyncio.to_thread(open_log, shared.base_log_dir)
        logger = SessionLogger(LogConfig(shared.base_log_dir, agent_id), store=self._store)
        timezone = ""
        if shared.config is not None:
            timezone = shared.config.timezone
        context = ContextManager(config.context, logger=logger, timezone=timezone)
        nx = self._engine_for(context)
        registry = self._registry_of(config)
        options: SettingsChanges = {"model": config.model} if config.model else {}
        if config.permissions is not None:
            options["permissions"] = config.permissions
        await nx.run(partial(session_label, nx.engine, agent_id, **options))  # raises for an invalid id
        prompt = config.system_prompt
        if load_prompt is not None:
            prompt = await asyncio.to_thread(load_prompt)
        await nx.run(_begin, context, prompt or "", config.parent_agent_id)
        context.set_tool_definitions(registry.get_definitions())
        session = Session(
            shared.provider,
            context,
            logger,
            registry,
            load_prompt=load_prompt,
            limits=config.limits,
            nx=nx,
            **options,
        )
        dispatcher = Dispatcher(session, context)
        return Agent(agent_id, config, context, logger, registry, session, dispatcher, datetime.now(UTC))

    def _engine_for(self, context: ContextManager) -> AsyncEngine:
        strategy = context.config.truncation_strategy
        if strategy not in self._engines:
            self._engines[strategy] = AsyncEngine(open_session_engine(context, self.shared.config))
        return self._engines[strategy]

    def _registry_of(self, config: AgentConfig) -> ToolRegistry:
        registry = ToolRegistry()
        registry.include(self._registry)
        for tool in registry.tools():
            if config.tools is not None and tool.name not in config.tools:
                registry.unregister(tool.name)
        return registry


def _load_prompt(loader: PromptLoader) -> str:
    return loader.load(is_repl=False).content


def _begin(context: ContextManager, prompt: str, parent: str | None) -> None:
    """Store an agent's parent, system prompt and start, unless its session has them."""
    ledger = context.log.ledger
    session = context.log.session
    if parent is not None and ledger.resolve(session) is None:
        ledger.sessions.create(session, SessionMetadata(parent_session=parent))
    context.set_system_prompt(prompt)
    context.begin()


def _within(
    names: tuple[str, ...] | None, limit: tuple[str, ...] | None, kind: str, parent: str
) -> tuple[str, ...] | None:
    """Return the names, by default the limit's; None for no limit. Raises NotAllowed."""
    if names is None or limit is None:
        if names is None:
            return limit
        return names
    if missing := sorted(set(names) - set(limit)):
        raise NotAllowed(f"{kind} {missing[0]!r} not allowed: parent agent {parent!r} lacks it (ask for less)")
    return names
