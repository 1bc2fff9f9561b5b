"""The table of sources: profiles name them, `SOURCES` resolves the names."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from nexus.types.registry import Registry
from nexus.workspace.source_context import Source
from nexus.workspace.sources import event_blocks, memory, persona, session_blocks, skills
from nexus.workspace.sources import instructions as instruction_blocks

Volatility: TypeAlias = Literal["never", "files", "session", "turn"]
"""When a source's text changes while a call's role, persona and skills stay, from most to least stable.

`session`: with another session, speaker, set of tools or permissions, or a new environment survey.
"""


class SourceSpec(NamedTuple):
    """A source: its name in profiles, its function, and when its text changes."""

    name: str
    function: Source
    changes: Volatility


_BUILT_IN = (
    SourceSpec("active_skills", skills.active_skills, "files"),
    SourceSpec("attachments", event_blocks.attachments, "turn"),
    SourceSpec("bootstrap", persona.bootstrap, "files"),
    SourceSpec("capabilities", session_blocks.capabilities, "session"),
    SourceSpec("configurations", instruction_blocks.configurations, "files"),
    SourceSpec("constraints", event_blocks.constraints, "turn"),
    SourceSpec("date_time", event_blocks.date_time, "turn"),
    SourceSpec("environment", session_blocks.environment, "session"),
    SourceSpec("friends", session_blocks.friends, "session"),
    SourceSpec("hook_data", event_blocks.hook_data, "turn"),
    SourceSpec("host", session_blocks.host, "never"),
    SourceSpec("identity", persona.identity, "files"),
    SourceSpec("instructions", instruction_blocks.instructions, "files"),
    SourceSpec("memory", memory.memory, "files"),
    SourceSpec("memory_file", memory.memory_file, "files"),
    SourceSpec("messaging", session_blocks.messaging, "never"),
    SourceSpec("metadata", event_blocks.metadata, "turn"),
    SourceSpec("moment", event_blocks.moment, "turn"),
    SourceSpec("mood", event_blocks.mood, "turn"),
    SourceSpec("nexus_identity", persona.nexus_identity, "never"),
    SourceSpec("permissions", persona.permissions, "session"),
    SourceSpec("rules", persona.rules, "files"),
    SourceSpec("runtime_context", event_blocks.runtime_context, "turn"),
    SourceSpec("skills", skills.skills, "files"),
    SourceSpec("soul", persona.soul, "files"),
    SourceSpec("subagent", session_blocks.subagent, "session"),
    SourceSpec("surroundings", session_blocks.surroundings, "never"),
    SourceSpec("tools_guide", persona.tools_guide, "files"),
    SourceSpec("user_identity", persona.user_identity, "files"),
)

SOURCES: Registry[SourceSpec] = Registry({spec.name: spec for spec in _BUILT_IN})
"""The sources by name. Rooms above the core add theirs."""


def source_functions() -> dict[str, Source]:
    """Return the function of each source by its name, as a new dict."""
    return {name: spec.function for name, spec in SOURCES.items()}


__all__ = ["SOURCES", "SourceSpec", "Volatility", "source_functions"]
