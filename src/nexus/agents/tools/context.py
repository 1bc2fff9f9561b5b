"""The turn that the built-in tools are bound to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nexus.engine import Engine
from nexus.types.settings import Settings


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The turn that an agent's tools serve."""

    engine: Engine
    session: str
    turn: int = 0
    """Number of the turn; 0 for none. Its own messages are not searched."""
    settings: Settings = field(default_factory=Settings)
    """The settings of the turn's calls: principal, role, toolset, model and others."""
    request_compaction: Callable[[str], None] | None = None
    """Called with a topic when the model asks for a compaction. Without it there is no tool `compact`."""
    run: Callable[..., Awaitable[Any]] = asyncio.to_thread
    """Runs a blocking function of the engine: `AsyncEngine.run`, so that only one thread uses the engine at a time."""

    @property
    def root(self) -> Path | None:
        """The workspace's folder."""
        return self.engine.workspace
