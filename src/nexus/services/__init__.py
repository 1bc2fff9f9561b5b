"""Document 000's services on the bus: contexts, calls of models, and runs with their tool loop.

`ContextBuilder`, `LLMService` and `OrchestratorService` run in one process or in many (`nexus services run`).
docs/services.md has their topics, messages and guarantees. The tagged dialogue itself is here too: `tagged` writes and
parses its blocks, `message_format` shows it to a model, and `registration` adds it to the core's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.bus import MemoryBus as NexusBus
    from nexus.services.client import RunClient
    from nexus.services.configuration import ConfigService
    from nexus.services.context import ContextBuilder
    from nexus.services.context.mood import MOODS, ModelMoodDetector, Mood, MoodDetector, RuleMoodDetector
    from nexus.services.llm import LLMService
    from nexus.services.messages import Run, RunMetadata
    from nexus.services.orchestrator import OrchestratorService
    from nexus.services.persistence import PersistenceService, owner_session
    from nexus.services.tagged import (
        Ai,
        Human,
        ToolUse,
        constraints_block,
        memory_block,
        mood_block,
        parse_memory,
        parse_moment,
    )
    from nexus.services.topics import Topics
    from nexus.tools import ToolRegistry

__all__ = [
    "MOODS",
    "Ai",
    "ConfigService",
    "ContextBuilder",
    "Human",
    "LLMService",
    "ModelMoodDetector",
    "Mood",
    "MoodDetector",
    "NexusBus",
    "OrchestratorService",
    "PersistenceService",
    "RuleMoodDetector",
    "Run",
    "RunClient",
    "RunMetadata",
    "ToolRegistry",
    "ToolUse",
    "Topics",
    "constraints_block",
    "memory_block",
    "mood_block",
    "owner_session",
    "parse_memory",
    "parse_moment",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist; the services need the agents and asyncio
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.bus": "MemoryBus as NexusBus",
            "nexus.services.client": "RunClient",
            "nexus.services.configuration": "ConfigService",
            "nexus.services.context": "ContextBuilder",
            "nexus.services.context.mood": "MOODS ModelMoodDetector Mood MoodDetector RuleMoodDetector",
            "nexus.services.llm": "LLMService",
            "nexus.services.messages": "Run RunMetadata",
            "nexus.services.orchestrator": "OrchestratorService",
            "nexus.services.persistence": "PersistenceService owner_session",
            "nexus.services.tagged": "Ai Human ToolUse constraints_block memory_block mood_block parse_memory parse_moment",
            "nexus.services.topics": "Topics",
            "nexus.tools": "ToolRegistry",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
