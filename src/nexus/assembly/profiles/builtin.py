"""The built-in profiles, as values: the core's, and the table to which other rooms add theirs."""

from __future__ import annotations

from collections.abc import Mapping

from nexus.errors import NotFound
from nexus.types.profile import Profile
from nexus.types.registry import Registry

LAYERED = Profile(
    "layered",
    "static system prompt, real conversation roles, event metadata and memory with each message (layered broker form)",
    system=(
        "subagent",
        "rules",
        "tools_guide",
        "user_identity",
        "soul",
        "identity",
        "permissions",
        "environment",
        "active_skills",
        "skills",
        "host",
        "messaging",
    ),
    current=("moment", "metadata", "hook_data", "mood", "constraints", "memory", "attachments"),
)

REPL = Profile(
    "repl",
    "layered instruction files and the environment, for an agent in a terminal (NEXUS3's context module)",
    system=("configurations", "active_skills", "skills", "surroundings"),
    current=("date_time", "metadata", "hook_data", "mood", "constraints", "attachments"),
    summary="context",
    session_header=True,
    freeze_system_prompt=True,
)

WORKSPACE = Profile(
    "workspace",
    "identity, bootstrap files, memory and skills in the system prompt; large tool results of earlier turns are rewritten, "
    "to 500 characters (nanobot's ContextBuilder)",
    system=("nexus_identity", "bootstrap", "memory_file", "active_skills", "skills"),
    current=("runtime_context", "metadata", "hook_data", "mood", "constraints", "attachments"),
    message_format="truncated_results",
)

BARE = Profile(
    "bare",
    "recorded messages and the new message only: no workspace files, no time",
    system=(),
    current=("attachments",),
)

PROFILES: Registry[Profile] = Registry({profile.name: profile for profile in (BARE, LAYERED, REPL, WORKSPACE)})
"""The built-in profiles by name. Rooms above the core add theirs."""


def find_profile(name: str, profiles: Mapping[str, Profile] = PROFILES) -> Profile:
    """Return the profile of that name. Raises NotFound, which lists all names."""
    profile = profiles.get(name)
    if profile is None:
        raise NotFound(f"profile {name!r} not found (profiles: {', '.join(sorted(profiles))})", code="unknown_profile")
    return profile
