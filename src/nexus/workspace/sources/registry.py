"""Where context comes from: one module for each origin of text. A profile names them; this table resolves the names."""

from __future__ import annotations

from typing import Literal, TypeAlias

from nexus.workspace.source_context import Source, SourceContext, SourceResult, WorkspaceContext
from nexus.workspace.sources.app_blocks import constraints, mood
from nexus.workspace.sources.environment import environment
from nexus.workspace.sources.event_blocks import attachments, date_time, hook_data, metadata, moment, runtime_context
from nexus.workspace.sources.file_blocks import (
    bootstrap,
    identity,
    memory,
    memory_file,
    nexus_identity,
    permissions,
    rules,
    soul,
    tools_guide,
    user_identity,
)
from nexus.workspace.sources.instructions import configurations, instructions
from nexus.workspace.sources.session_blocks import (
    capabilities,
    friends,
    host,
    messaging,
    subagent,
    surroundings,
    turn_log,
)
from nexus.workspace.sources.skills import active_skills, skills
from nexus.workspace.sources.tagged_blocks import (
    constraints_block,
    core_identity,
    friends_block,
    mood_block,
    shared_memory,
    shared_memory_parts,
    this_moment,
    tools_block,
)

SOURCES: dict[str, Source] = {
    "active_skills": active_skills,
    "attachments": attachments,
    "bootstrap": bootstrap,
    "capabilities": capabilities,
    "configurations": configurations,
    "constraints": constraints,
    "constraints_block": constraints_block,
    "core_identity": core_identity,
    "date_time": date_time,
    "environment": environment,
    "friends": friends,
    "friends_block": friends_block,
    "hook_data": hook_data,
    "host": host,
    "identity": identity,
    "instructions": instructions,
    "memory": memory,
    "memory_file": memory_file,
    "messaging": messaging,
    "metadata": metadata,
    "moment": moment,
    "mood": mood,
    "mood_block": mood_block,
    "nexus_identity": nexus_identity,
    "permissions": permissions,
    "rules": rules,
    "runtime_context": runtime_context,
    "shared_memory": shared_memory,
    "shared_memory_parts": shared_memory_parts,
    "skills": skills,
    "soul": soul,
    "subagent": subagent,
    "surroundings": surroundings,
    "this_moment": this_moment,
    "tools_block": tools_block,
    "tools_guide": tools_guide,
    "turn_log": turn_log,
    "user_identity": user_identity,
}

Volatility: TypeAlias = Literal["never", "files", "session", "turn"]
"""When a source's text changes while a call's role, persona and skills stay: from the most stable on."""

VOLATILITY: dict[str, Volatility] = {
    "active_skills": "files",
    "attachments": "turn",
    "bootstrap": "files",
    "capabilities": "session",
    "configurations": "files",
    "constraints": "turn",
    "constraints_block": "turn",
    "core_identity": "never",
    "date_time": "turn",
    "environment": "session",
    "friends": "session",
    "friends_block": "session",
    "hook_data": "turn",
    "host": "never",
    "identity": "files",
    "instructions": "files",
    "memory": "files",
    "memory_file": "files",
    "messaging": "never",
    "metadata": "turn",
    "moment": "turn",
    "mood": "turn",
    "mood_block": "turn",
    "nexus_identity": "never",
    "permissions": "session",
    "rules": "files",
    "runtime_context": "turn",
    "shared_memory": "turn",
    "shared_memory_parts": "session",
    "skills": "files",
    "soul": "files",
    "subagent": "session",
    "surroundings": "never",
    "this_moment": "turn",
    "tools_block": "session",
    "tools_guide": "files",
    "turn_log": "never",
    "user_identity": "files",
}
"""`session` is with another session, who speaks in it, its tools and permissions, or a new look at what works here.
`shared_memory_parts` only grows within one, but for cuts of its own."""

__all__ = ["SOURCES", "VOLATILITY", "Source", "SourceContext", "SourceResult", "Volatility", "WorkspaceContext"]
