"""What is known of the user, from the request's profile (document 000's [FRIENDS_INFO])."""

from __future__ import annotations

from nexus.types.block import Block, Warned
from nexus.types.user_profile import FRIEND_HEADING, known_of
from nexus.workspace.source_context import Desk, Gathered

ORIGIN = "nexus:user_profile"


def friends(desk: Desk) -> Gathered:
    """The user's profile under `About this friend:`; nothing where none is known, a warning where a field is no text."""
    text, strange = known_of(desk.request.identity.user_profile)
    warned = [Warned(ORIGIN, f"not shown: {strange} is no text, and has none as its content")] if strange else []
    if not text:
        return [], warned
    return [Block("Persona", "about the user", f"{FRIEND_HEADING}\n\n{text}", ORIGIN, trust="user")], warned
