"""Services in one process: started on a bus, and stopped so that nothing that was accepted is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, TypeAlias, cast, get_args

from nexus.agents import Limits
from nexus.bus import Bus
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadSetting
from nexus.models import ModelClient
from nexus.services.configuration import ConfigService
from nexus.services.context.builder import ContextBuilder
from nexus.services.ledger_check import shared_ledger
from nexus.services.llm import LLMService
from nexus.services.orchestrator import LOOK_S, OrchestratorService
from nexus.services.persistence import PersistenceService
from nexus.tools import ToolRegistry

__all__ = ["GRACE_S", "SERVICES", "ServiceName", "parse_services", "serve"]

ServiceName: TypeAlias = Literal["context", "llm", "orchestrator"]
SERVICES: tuple[ServiceName, ...] = get_args(ServiceName)

GRACE_S = 10.0
"""Seconds that running turns get when their process stops. Another process continues those that take longer."""


def parse_services(names: str) -> tuple[ServiceName, ...]:
    """Return the services of a text such as `context,llm`; all of them for an empty one. Raises BadSetting."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := next((name for name in chosen if name not in SERVICES), ""):
        raise BadSetting(f"service {unknown!r} unknown (use {', '.join(SERVICES)})")
    return cast("tuple[ServiceName, ...]", tuple(name for name in SERVICES if not chosen or name in chosen))


@asynccontextmanager
async def serve(
    bus: Bus,
    nx: AsyncEngine,
    models: ModelClient,
    *,
    only: Sequence[ServiceName] = SERVICES,
    tool_registry: ToolRegistry | Iterable[Callable[..., Any]] = (),
    builtin: bool = False,
    limits: Limits | None = None,
    look_s: float = LOOK_S,
    grace_s: float = GRACE_S,
) -> AsyncGenerator[None]:
    """Run services while the block runs; arguments as of their classes. Histories and configuration are in the ledger.

    At the end the orchestrator stops first: its running turns still need the other services. Raises NotAllowed if
    services of another ledger run on the bus.
    """
    if isinstance(tool_registry, ToolRegistry):
        registry = tool_registry
    else:
        registry = ToolRegistry(tool_registry)
    config_service = ConfigService(nx)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(shared_ledger(bus, nx))
        if "context" in only:
            await config_service.load()
            builder = ContextBuilder(bus, registry, config_service, PersistenceService(nx), nx=nx)
            await builder.start()
            stack.push_async_callback(builder.stop)
        if "llm" in only:
            await stack.enter_async_context(LLMService(bus, models, nx))
        if "orchestrator" in only:
            orchestrator = OrchestratorService(
                bus,
                nx,
                tool_registry=registry,
                config_service=config_service,
                builtin=builtin,
                limits=limits,
                look_s=look_s,
            )
            await orchestrator.start()
            stack.push_async_callback(orchestrator.stop, grace_s=grace_s)
        yield
