"""Document 000's services on the bus: contexts, calls of models, and runs with their tool loop.

`ContextBuilder`, `LLMService` and `OrchestratorService` run in one process or in many (`nexus services run`).
docs/services.md has their topics, messages and guarantees. The tagged dialogue itself is here too: `tagged` writes and
parses its blocks, `message_format` shows it to a model, and `registration` adds it to the core's tables.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexus.bus import MemoryBus as NexusBus
    from nexus.services.client import RunClient
    from nexus.services.configuration import ConfigService
    from nexus.services.context import ContextBuilder
    from nexus.services.llm import LLMService
    from nexus.services.messages import Run, RunMetadata
    from nexus.services.orchestrator import OrchestratorService
    from nexus.services.persistence import PersistenceService
    from nexus.services.topics import Topics
    from nexus.tools import ToolRegistry

_MODULES = {
    "ConfigService": "services.configuration",
    "ContextBuilder": "services.context",
    "LLMService": "services.llm",
    "NexusBus": "bus",
    "OrchestratorService": "services.orchestrator",
    "PersistenceService": "services.persistence",
    "Run": "services.messages",
    "RunClient": "services.client",
    "RunMetadata": "services.messages",
    "ToolRegistry": "tools",
    "Topics": "services.topics",
}
_ORIGINAL_NAMES = {"NexusBus": "MemoryBus"}

__all__ = [
    "ConfigService",
    "ContextBuilder",
    "LLMService",
    "NexusBus",
    "OrchestratorService",
    "PersistenceService",
    "Run",
    "RunClient",
    "RunMetadata",
    "ToolRegistry",
    "Topics",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use: the services need the agents and asyncio."""
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'nexus.services' has no attribute {name!r}")
        return getattr(import_module(f"nexus.{module}"), _ORIGINAL_NAMES.get(name, name))


def __dir__() -> list[str]:
    return list(__all__)
