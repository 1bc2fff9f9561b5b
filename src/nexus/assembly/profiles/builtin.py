"""The built-in profiles, as values."""

from __future__ import annotations

from collections.abc import Mapping

from nexus.errors import UnknownProfile
from nexus.types.profile import Profile

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
    "identity, bootstrap files, memory and skills in the system prompt (nanobot's ContextBuilder)",
    system=("nexus_identity", "bootstrap", "memory_file", "active_skills", "skills"),
    current=("runtime_context", "metadata", "hook_data", "mood", "constraints", "attachments"),
)

BARE = Profile(
    "bare",
    "recorded messages and the new message only: no workspace files, no time",
    system=(),
    current=("attachments",),
)

TAGGED = Profile(
    "tagged",
    "identity, tools, memory, user and current time as tags, the memory rewritten each turn (five-message tagged dialogue)",
    system=("core_identity",),
    preamble=("tools_block", "shared_memory", "friends_block", "mood_block", "constraints_block"),
    current=("this_moment", "metadata", "hook_data", "attachments"),
    message_format="tagged",
)

TAGGED_STABLE = Profile(
    "tagged_stable",
    "the tagged dialogue in an order that a provider's prompt cache can keep: stable parts first, the memory only grows",
    system=("core_identity",),
    preamble=("tools_block", "friends_block", "shared_memory_parts", "mood_block", "constraints_block"),
    current=("this_moment", "metadata", "hook_data", "attachments"),
    message_format="tagged_stable",
)

TURNLOG = Profile(
    "turnlog",
    "as layered, with each message as JSON entries next to the real calls and results (turn log)",
    system=("turn_log", *LAYERED.system),
    current=LAYERED.current,
    message_format="turnlog",
)

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (BARE, LAYERED, REPL, TAGGED, TAGGED_STABLE, TURNLOG, WORKSPACE)
}


def find_profile(name: str, profiles: Mapping[str, Profile] = PROFILES) -> Profile:
    """Return the profile of that name. Raises UnknownProfile, which lists all names."""
    profile = profiles.get(name)
    if profile is None:
        raise UnknownProfile(f"profile {name!r} not found (profiles: {', '.join(sorted(profiles))})")
    return profile
