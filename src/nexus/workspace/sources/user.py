"""Who the user is: `user/IDENTITY.md`, else USER.md (document 002)."""

from __future__ import annotations

from nexus.types.block import Block
from nexus.workspace.source_context import Desk, Gathered, file_block


def user_identity(desk: Desk) -> Gathered:
    """The user's identity and preferences."""
    block = Block("Persona", "user", "", "", trust="user")
    found, warned = file_block(desk, "user/IDENTITY.md", "The user", block)
    if found:
        return found, warned
    other, more = file_block(desk, "USER.md", "The user", block)
    return other, [*warned, *more]
