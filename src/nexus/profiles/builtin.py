"""The ready profiles, as values."""

from __future__ import annotations

from collections.abc import Mapping

from nexus.errors import UnknownProfile
from nexus.types.profile import Profile

LAYERED = Profile(
    "layered",
    "static system slot, real conversation roles, the moment and memory with each message (document 002)",
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
    "instruction files in layers and the surroundings, for an agent in a terminal (document 004)",
    system=("configurations", "active_skills", "skills", "surroundings"),
    current=("date_time", "metadata", "hook_data", "mood", "constraints", "attachments"),
    summary="context",
    session_header=True,
    freeze_system_prompt=True,
)

WORKSPACE = Profile(
    "workspace",
    "identity, the workspace's bootstrap files, memory and skills in the system slot (document 003)",
    system=("nexus_identity", "bootstrap", "memory_file", "active_skills", "skills"),
    current=("runtime_context", "metadata", "hook_data", "mood", "constraints", "attachments"),
)

BARE = Profile(
    "bare",
    "the session alone: no workspace files, no time; what was recorded and the new message",
    system=(),
    current=("attachments",),
)

TAGGED = Profile(
    "tagged",
    "five messages with tags: identity, tools, memory, user, moment (document 000); the memory is written anew each turn",
    system=("core_identity",),
    preamble=("tools_block", "shared_memory", "friends_block", "mood_block", "constraints_block"),
    current=("this_moment", "metadata", "hook_data", "attachments"),
    message_format="tagged",
)

TAGGED_STABLE = Profile(
    "tagged_stable",
    "the tagged dialogue in an order that a provider's cache can keep: what changes stands last, the memory only grows",
    system=("core_identity",),
    preamble=("tools_block", "friends_block", "shared_memory_parts", "mood_block", "constraints_block"),
    current=("this_moment", "metadata", "hook_data", "attachments"),
    message_format="tagged_stable",
)

TURNLOG = Profile(
    "turnlog",
    "as layered, each message as entries of a turn log in JSON (document 001); calls and results real beside them",
    system=("turn_log", *LAYERED.system),
    current=LAYERED.current,
    message_format="turnlog",
)

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (BARE, LAYERED, REPL, TAGGED, TAGGED_STABLE, TURNLOG, WORKSPACE)
}


def find_profile(name: str, known: Mapping[str, Profile] = PROFILES) -> Profile:
    """The profile of that name. Raises UnknownProfile, which lists all."""
    profile = known.get(name)
    if profile is None:
        raise UnknownProfile(f"there is no profile {name!r}; there are: {', '.join(sorted(known))}")
    return profile
