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
    from nexus.assembled import AssembledContext
    from nexus.block import Block
    from nexus.budget.tokens import TokenBudget
    from nexus.engine import Engine
    from nexus.engine import open_engine as open  # noqa: A004 - the documented name
    from nexus.errors import BudgetTooSmall, ContextOverflow, NexusError
    from nexus.fit.repair import repaired
    from nexus.history import History
    from nexus.hooks.spec import hookimpl
    from nexus.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
    from nexus.profile import Profile
    from nexus.recovery import call
    from nexus.render.wire.replies import to_result as read_reply
    from nexus.repairs import RepairReport
    from nexus.request import AgentResult, Event, Identity, Permissions, Request, Routing, TokenUsage
    from nexus.sources.media import image_from_file

__version__ = "0.1.0"

_PLACES = {
    "AgentResult": "nexus.request",
    "AssembledContext": "nexus.assembled",
    "Block": "nexus.block",
    "BudgetTooSmall": "nexus.errors",
    "ContextOverflow": "nexus.errors",
    "Engine": "nexus.engine",
    "Event": "nexus.request",
    "History": "nexus.history",
    "Identity": "nexus.request",
    "Image": "nexus.message",
    "Message": "nexus.message",
    "NexusError": "nexus.errors",
    "Permissions": "nexus.request",
    "Profile": "nexus.profile",
    "RepairReport": "nexus.repairs",
    "Request": "nexus.request",
    "Routing": "nexus.request",
    "Text": "nexus.message",
    "Thinking": "nexus.message",
    "TokenBudget": "nexus.budget.tokens",
    "TokenUsage": "nexus.request",
    "ToolCall": "nexus.message",
    "ToolResult": "nexus.message",
    "assistant": "nexus.message",
    "call": "nexus.recovery",
    "hookimpl": "nexus.hooks.spec",
    "image_from_file": "nexus.sources.media",
    "open": "nexus.engine",
    "read_reply": "nexus.render.wire.replies",
    "repaired": "nexus.fit.repair",
    "tool": "nexus.message",
    "user": "nexus.message",
}

_OTHER_NAMES = {"open": "open_engine", "read_reply": "to_result"}

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
