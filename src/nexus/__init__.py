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
    from nexus.errors import BudgetTooSmall, NexusError
    from nexus.history import History
    from nexus.message import Image, Message, Text, Thinking, ToolCall, ToolResult
    from nexus.profile import Profile
    from nexus.request import AgentResult, Event, Identity, Permissions, Request, Routing, TokenUsage

__version__ = "0.1.0"

_PLACES = {
    "AgentResult": "nexus.request",
    "AssembledContext": "nexus.assembled",
    "Block": "nexus.block",
    "BudgetTooSmall": "nexus.errors",
    "Engine": "nexus.engine",
    "Event": "nexus.request",
    "History": "nexus.history",
    "Identity": "nexus.request",
    "Image": "nexus.message",
    "Message": "nexus.message",
    "NexusError": "nexus.errors",
    "Permissions": "nexus.request",
    "Profile": "nexus.profile",
    "Request": "nexus.request",
    "Routing": "nexus.request",
    "Text": "nexus.message",
    "Thinking": "nexus.message",
    "TokenBudget": "nexus.budget.tokens",
    "TokenUsage": "nexus.request",
    "ToolCall": "nexus.message",
    "ToolResult": "nexus.message",
    "open": "nexus.engine",
}

__all__ = [
    "AgentResult",
    "AssembledContext",
    "Block",
    "BudgetTooSmall",
    "Engine",
    "Event",
    "History",
    "Identity",
    "Image",
    "Message",
    "NexusError",
    "Permissions",
    "Profile",
    "Request",
    "Routing",
    "Text",
    "Thinking",
    "TokenBudget",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "open",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import nexus` costs nothing."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'nexus' has no attribute {name!r}")
    return getattr(import_module(place), "open_engine" if name == "open" else name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
