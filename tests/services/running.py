"""The three services in this process, with a scripted model server and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nexus
from nexus.agents import Limits
from nexus.bus import Bus, MemoryBus, Message
from nexus.engine.async_engine import AsyncEngine
from nexus.models import RetryPolicy, open_client
from nexus.services import ContextBuilder, LLMService, OrchestratorService, RunClient, Topics
from nexus.services.bus_models import BusAssembly, BusModels
from nexus.testing.model_server import ModelServer, Step, model_server

MODEL = "gpt-4o"


@dataclass
class Services:
    """What runs, and every message that the bus has carried on the watched topics."""

    bus: Bus
    nx: AsyncEngine
    server: ModelServer
    builder: ContextBuilder
    llm: LLMService
    orchestrator: OrchestratorService
    client: RunClient
    messages: list[Message] = field(default_factory=list[Message])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def contents(self, topic: str) -> list[Any]:
        """Return the contents of the messages of a topic."""
        return [message.content for message in self.messages if message.topic == topic]

    async def seen(self, topic: str, count: int) -> list[Any]:
        """Wait until the bus has carried so many messages of a topic, and return their contents."""
        while len(self.contents(topic)) < count:
            self.arrived.clear()
            await self.arrived.wait()
        return self.contents(topic)


@asynccontextmanager
async def services(
    *steps: Step,
    ledger: str | Path = ":memory:",
    tools: Iterable[Callable[..., Any]] = (),
    limits: Limits | None = None,
    config_service: Any = None,
    builder: bool = True,
    home: Path | None = None,
    timezone: str = "",
    watches: Iterable[str] = (),
) -> AsyncGenerator[Services]:
    """Run the three services on a bus of this process; without `builder`, two. Watched topics are recorded."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(model_server(*steps))
        bus = MemoryBus()
        stack.push_async_callback(bus.close)
        nx = await stack.enter_async_context(nexus.open_async(ledger=ledger, model=MODEL, home=home, timezone=timezone))
        models = open_client(base_url=server.openai_url, api_key="test", retries=RetryPolicy(max_retries=0))
        stack.push_async_callback(models.aclose)
        context_builder = ContextBuilder(bus, config_service=config_service, nx=nx)
        llm = LLMService(bus, models, nx)
        orchestrator = OrchestratorService(
            bus,
            nx,
            tool_registry=tools,
            limits=limits,
            config_service=config_service,
            look_s=0.1,
            models=BusModels(bus, call_s=60.0, silence_s=10.0),
            assembly=BusAssembly(bus, nx, try_s=5.0, total_s=20.0),
        )
        running = Services(bus, nx, server, context_builder, llm, orchestrator, RunClient(bus))

        async def record(message: Message) -> None:
            running.messages.append(message)
            running.arrived.set()

        for topic in watches:
            await bus.subscribe(topic, record)
        if builder:
            await context_builder.start()
            stack.push_async_callback(context_builder.stop)
        await stack.enter_async_context(llm)
        await stack.enter_async_context(orchestrator)
        yield running


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine; one that hangs fails."""
    asyncio.run(asyncio.wait_for(work(), 120))  # pyright: ignore[reportArgumentType]


ALL_TOPICS = [value for name, value in vars(Topics).items() if name.isupper()]
