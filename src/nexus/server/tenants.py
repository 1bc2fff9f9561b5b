"""Engine, broker and events of each tenant: opened when they are first used, closed when others need the room.

A tenant is a name that the token has, never the body. Its ledger is the part of the store with that name, so agents and
sessions of other tenants do not exist for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from msgspec import Struct

from nexus.agents import Agent, Limits
from nexus.agents.engine import Confirm
from nexus.agents.tools import ToolContext, builtin_tools
from nexus.broker import Broker
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import NexusError, NoCredential, NotAccepted
from nexus.models import EndpointClient, ModelClient, Models
from nexus.server.agents import StoredAgent, StoredAgents
from nexus.server.contexts import TenantContexts, WaitingContexts
from nexus.server.logs import describe_failure
from nexus.server.streams import EventBuffer
from nexus.server.usage import CountedModels, ModelCounts
from nexus.text.redact import redact
from nexus.tools import ToolRegistry

LOG = logging.getLogger("nexus.server")

MAX_OPEN_TENANTS = 64
OWN_LOOP = "begin, assemble, record, fail and mirror"
"""Names of the methods that call no model, for messages."""
_BUSY_S = 0.05
_BUSY_TRIES = 200
"""Seconds between two tries to open a tenant while all others are busy, and their number."""


class TenantsBusy(NotAccepted):
    """As many tenants are open as may be, and each has a request or a turn."""


class ServeOptions(Struct, frozen=True):
    """Settings of the agents of all tenants."""

    builtin: bool = True
    """Offer the built-in tools. Tenants share the workspace, so they are for a server of one tenant."""
    limits: Limits = Limits()
    """Limits of a turn."""
    confirm: Confirm | None = None
    """Decides about calls of tools that need confirmation; without it they are declined."""
    at_once: int = 100
    """Sessions of a tenant that run at the same time."""
    grace_s: float = 30.0
    """Seconds that running turns have when the server stops."""


class Tenant:
    """One open tenant.

    Attributes:
        name: The tenant's name.
        nx: Its engine.
        broker: Runs the turns of its agents.
        agents: Its agents.
        events: Events of the running turns.
        contexts: Contexts that programs with their own loop may record a reply to, by id.
        counts: Counts of model calls, of all tenants.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        models: ModelClient,
        tools: ToolRegistry,
        options: ServeOptions,
        contexts: TenantContexts,
        counts: ModelCounts,
    ) -> None:
        self.name = name
        self.nx = AsyncEngine(engine)
        self.counts = counts
        self.agents = StoredAgents(engine)
        self.events = EventBuffer(partial(counts.add_event, name))
        counts.listen_to(name, engine)
        self.contexts = contexts
        self._tools = tools
        self._builtin = options.builtin
        agent = Agent(
            self.nx,
            CountedModels(models, counts, name),
            tools=tools,
            builtin=options.builtin,
            limits=options.limits,
            confirm=options.confirm,
        )
        self.broker = Broker(agent, drop="new", at_once=options.at_once)
        self._filling: asyncio.Task[None] | None = None
        self.users = 0  # requests and streams under way

    async def start(self) -> None:
        """Run the events that an earlier process accepted, and accept more."""
        self._filling = asyncio.ensure_future(self.events.fill(self.broker))
        await asyncio.sleep(0)  # it watches from the first event on
        await self.broker.__aenter__()

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more, and let running turns end. Interrupted turns continue at the next start."""
        await self.broker.stop(grace_s=grace_s)
        self.events.close()
        if self._filling is not None:
            self._filling.cancel()
            with suppress(asyncio.CancelledError):
                await self._filling
        await self.nx.close()

    @property
    def is_idle(self) -> bool:
        """True if no request uses it and no turn runs."""
        return not self.users and not self.broker.session_count

    def registry(self, agent: StoredAgent) -> ToolRegistry:
        """Return the tools that the agent's turns are offered."""
        registry = ToolRegistry()
        if self._builtin:
            settings = self.nx.engine.settings.with_changes(agent.options)
            context = ToolContext(self.nx.engine, agent.agent_id, 0, settings, lambda _: None, self.nx.run)
            registry = builtin_tools(context)
        registry.include(self._tools)
        return registry


class Tenants:
    """The tenants of a server.

    Args:
        open_engine: Opens the engine of a tenant by its name, with the tenant's part of the ledger.
        models: The clients of the models. They are not closed.
        tools: Functions, or a registry, for all agents.
        options: Settings of the agents.
        max_open: Tenants that are open at the same time, at most.

    Attributes:
        options: Settings of the agents.
        counts: Counts of model calls since the start, by tenant.
    """

    def __init__(
        self,
        open_engine: Callable[[str], Engine],
        models: ModelClient,
        *,
        tools: ToolRegistry | Iterable[Callable[..., Any]] = (),
        options: ServeOptions | None = None,
        max_open: int = MAX_OPEN_TENANTS,
    ) -> None:
        self._open_engine = open_engine
        self._models = models
        self.options = options or ServeOptions()
        if isinstance(tools, ToolRegistry):
            self._tools = tools
        else:
            self._tools = ToolRegistry(tools)
        self._open: OrderedDict[str, Tenant] = OrderedDict()
        self._contexts = WaitingContexts()
        self.counts = ModelCounts()
        self._lock = asyncio.Lock()
        self._max_open = max_open
        self.stopping = asyncio.Event()
        """Set when the server begins to stop: nothing more is accepted."""
        self.stopped = asyncio.Event()
        """Set when no turn runs any more."""

    async def start(self, names: Iterable[str]) -> None:
        """Open tenants once, so that the events that an earlier process accepted go on. Raises the last error."""
        failure: NexusError | None = None
        waiting = deque(names)
        while waiting and not self.stopping.is_set():
            try:
                async with self.use(waiting[0]):
                    pass
            except TenantsBusy:
                continue
            except NexusError as error:
                LOG.error("tenant %r not opened: %s", waiting[0], redact(str(error)).text)  # noqa: TRY400 - no traceback
                failure = error
            waiting.popleft()
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def use(self, name: str) -> AsyncGenerator[Tenant]:
        """Open a tenant for the block. Raises NotAccepted if the server stops, or too many tenants are busy."""
        tenant = await self._take(name)
        try:
            yield tenant
        finally:
            tenant.users -= 1

    async def prepare_model(self) -> None:
        """Import the package of the default model's provider, which takes a second or two. A missing one is left to `send`."""
        client = self._models
        if isinstance(client, Models):
            engine = next((tenant.nx.engine for tenant in self._open.values()), None)
            if engine is None:
                return
            try:
                client = client.client_of(engine.model, engine.resolve(engine.model).provider)
            except NexusError:
                return
        if isinstance(client, EndpointClient):
            try:
                await client.prepare()
            except Exception as error:  # noqa: BLE001 - a broken package: the calls that need it report it
                LOG.warning("package of the model's provider not imported: %s", describe_failure(error))

    async def check_model(self, tenant: Tenant, model: str, event_id: str) -> None:
        """Raise what keeps turns of a model from running, unless an event was accepted before.

        Nothing is stored then, and the same request may be sent again once the key is there.

        Args:
            tenant: The tenant, whose engine knows its models.
            model: Name of the model; empty for the engine's.
            event_id: Id of the request's event.

        Raises NoCredential, PackageMissing, BadSetting.
        """
        engine = tenant.nx.engine
        name = model or engine.model
        try:
            if isinstance(self._models, Models):
                self._models.client_of(name, engine.resolve(name).provider)
        except NexusError as error:
            if await tenant.nx.run(engine.ledger.store.events_with_id, event_id):
                return  # its answer is in the ledger, or its turn reports the error
            if not isinstance(error, NoCredential):
                raise
            text = f"no key for {name} (set {error.variable} and start the server again; {OWN_LOOP} need no key)"
            raise NoCredential(text, variable=error.variable) from error

    def tenants(self) -> tuple[Tenant, ...]:
        """Return the open tenants."""
        return tuple(self._open.values())

    def check_accepting(self) -> None:
        """Raise NotAccepted if the server stops."""
        if self.stopping.is_set():
            raise NotAccepted("server is stopping (send the request again after its next start)")

    def begin_stop(self) -> None:
        """Accept nothing more; readers of events are ended."""
        self.stopping.set()
        for tenant in self._open.values():
            tenant.events.close()

    async def stop_turns(self) -> None:
        """Let running turns end within the grace, then interrupt them: they go on at the next start."""
        self.begin_stop()
        async with self._lock:
            await asyncio.gather(*(tenant.broker.stop(grace_s=self.options.grace_s) for tenant in self._open.values()))
        self.stopped.set()

    async def close(self) -> None:
        """Stop turns and close all engines."""
        await self.stop_turns()
        async with self._lock:
            while self._open:
                await self._open.popitem()[1].stop(0.0)

    async def _take(self, name: str) -> Tenant:
        """Return an open tenant with one more user; wait a while for one that can be closed."""
        for _ in range(_BUSY_TRIES):
            self.check_accepting()  # also before the lock, which `stop_turns` holds until turns have ended
            async with self._lock:
                self.check_accepting()
                if name in self._open or await self._make_room():
                    tenant = self._open.get(name) or await self._start(name)
                    self._open.move_to_end(name)
                    tenant.users += 1
                    return tenant
            await asyncio.sleep(_BUSY_S)
        raise TenantsBusy(f"{self._max_open} tenants are busy (try again later)")

    def _open_warm(self, name: str) -> Engine:
        """Open an engine whose first call is as quick as any other."""
        engine = self._open_engine(name)
        try:
            engine.warm()
        except Exception as error:  # noqa: BLE001 - such as a plugin's: the calls that need it report it
            LOG.warning("engine of tenant %r not warm: %s", name, describe_failure(error))
        return engine

    async def _start(self, name: str) -> Tenant:
        engine = await asyncio.to_thread(self._open_warm, name)
        tenant = Tenant(name, engine, self._models, self._tools, self.options, self._contexts.of(name), self.counts)
        try:
            await tenant.start()
        except BaseException:
            await tenant.stop(0.0)
            raise
        self._open[name] = tenant
        return tenant

    async def _make_room(self) -> bool:
        """Close the idle tenant that was not used for longest, if there are too many; return whether there is room."""
        if len(self._open) < self._max_open:
            return True
        idle = next((tenant for tenant in self._open.values() if tenant.is_idle), None)
        if idle is not None:
            del self._open[idle.name]
            self._contexts.forget(idle.name)
            await idle.stop(0.0)
        return idle is not None
