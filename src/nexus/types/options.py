"""Keyword arguments that several public functions share. `nexus.types.validation.check_options` checks their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nexus.types.request import AgentRole
from nexus.types.settings import ModelSettings
from nexus.types.tool_definition import ToolSource


class CallOptions(ModelSettings, total=False):
    """Arguments of `Engine.assemble` besides event, session and tools."""

    model: str
    """The model's name; by default the engine's."""
    budget: int | None
    """Available tokens; by default the model's context window less the reserves."""
    profile: str
    """Name of the profile."""
    model_config: Mapping[str, Any] | None
    """The same as `extra`; or all settings of another context (`ctx.model_config`)."""
    system: str
    """The application's own system prompt; by default the engine's."""
    role: AgentRole
    """`manager`, `worker` or `unified` (default)."""
    task: str
    """A worker's task."""
    manager: str
    """Label of the session that spawned a worker."""
    manager_call: str
    """Id of the tool call that spawned it."""
    persona: str
    """Name of the persona that answers."""
    principal: str | None
    """Name of the speaker, whose rights apply; None is the program itself."""
    user_profile: Mapping[str, Any] | None
    """Replaces the profile that is kept for the principal."""
    toolset: str
    """Name of the toolset."""
    permissions: str | Iterable[str]
    """Names of permissions, stored with the turn."""
    skills: str | Iterable[str]
    """Skills whose instructions are included."""
    blocks: Mapping[str, str] | None
    """The application's texts by name, shown where the profile places them."""


class RequestOptions(CallOptions, total=False):
    """Arguments of `Engine.assemble`, and of every function that assembles, besides event and session."""

    tools: Sequence[dict[str, Any]] | ToolSource
    """Tool definitions in any provider's format, or a tool registry."""
