"""The profiles of the tagged dialogue."""

from __future__ import annotations

from nexus.types.profile import Profile

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
