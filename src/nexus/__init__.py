"""Nexus, the context engine for LLM agents: it decides what the model sees, for every call, and can prove it.

import nexus

nx = nexus.open(workspace="my-agent")
ctx = nx.assemble("What did we decide about the index?", session="main", model="claude-sonnet-4-5")
reply = client.messages.create(**ctx.to_anthropic())
nx.record(ctx, reply)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexus.assembly.fit.repair import repaired
    from nexus.context import AssembledContext, RepairReport
    from nexus.engine import Engine
    from nexus.engine import open_engine as open  # noqa: A004 - the documented name
    from nexus.errors import BudgetTooSmall, ContextOverflow, NexusError
    from nexus.plugins.spec import hookimpl
    from nexus.providers.replies import read_reply as read_reply
    from nexus.recovery import call
    from nexus.tokens.budget import TokenBudget
    from nexus.types.block import Block
    from nexus.types.history import History
    from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
    from nexus.types.profile import Profile
    from nexus.types.request import AgentResult, Event, Identity, Permissions, Request, Routing, TokenUsage
    from nexus.workspace.images.load import image_from_file

__version__ = "0.1.0"

_PLACES = {
    "AgentResult": "nexus.types.request",
    "AssembledContext": "nexus.context",
    "Block": "nexus.types.block",
    "BudgetTooSmall": "nexus.errors",
    "ContextOverflow": "nexus.errors",
    "Engine": "nexus.engine",
    "Event": "nexus.types.request",
    "History": "nexus.types.history",
    "Identity": "nexus.types.request",
    "Image": "nexus.types.message",
    "Message": "nexus.types.message",
    "NexusError": "nexus.errors",
    "Permissions": "nexus.types.request",
    "Profile": "nexus.types.profile",
    "RepairReport": "nexus.context",
    "Request": "nexus.types.request",
    "Routing": "nexus.types.request",
    "Text": "nexus.types.message",
    "Thinking": "nexus.types.message",
    "TokenBudget": "nexus.tokens.budget",
    "TokenUsage": "nexus.types.request",
    "ToolCall": "nexus.types.message",
    "ToolResult": "nexus.types.message",
    "assistant": "nexus.types.message",
    "call": "nexus.recovery",
    "hookimpl": "nexus.plugins.spec",
    "image_from_file": "nexus.workspace.images.load",
    "open": "nexus.engine",
    "read_reply": "nexus.providers.replies",
    "repaired": "nexus.assembly.fit.repair",
    "tool": "nexus.types.message",
    "user": "nexus.types.message",
}

_OTHER_NAMES = {"open": "open_engine"}

__all__ = [
    "AgentResult",
    "AssembledContext",
    "Block",
    "BudgetTooSmall",
    "ContextOverflow",
    "Engine",
    "Event",
    "History",
    "Identity",
    "Image",
    "Message",
    "NexusError",
    "Permissions",
    "Profile",
    "RepairReport",
    "Request",
    "Routing",
    "Text",
    "Thinking",
    "TokenBudget",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "assistant",
    "call",
    "hookimpl",
    "image_from_file",
    "open",
    "read_reply",
    "repaired",
    "tool",
    "user",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import nexus` costs nothing."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'nexus' has no attribute {name!r}")
    return getattr(import_module(place), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
