"""How an agent that speaks with people answers them: for managers and unified agents, never for workers."""

from __future__ import annotations

from nexus.types.block import Block
from nexus.workspace.source_context import Desk, Gathered

RULES = """\
# Messaging

- The text that ends your turn is sent to the user as your answer; write it for the platform that the message names.
- Anything else on the platform, such as a reaction or a message to another chat, is a tool call. The actions that the \
message names as available are possible there, no others."""


def messaging(desk: Desk) -> Gathered:
    """The rules; nothing for a worker, nor for a unified agent without a workspace, whose prompt is its program's.

    They do not depend on the event, so the system slot stays as it is.
    """
    role = desk.request.routing.role
    if role == "worker" or (role == "unified" and desk.files is None):
        return [], []
    return [Block("Workspace", "messaging", RULES, "nexus:messaging", trust="system")], []
