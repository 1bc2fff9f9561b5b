"""Nexus, a context engine for LLM agents: it assembles what the model sees in every call, reproducibly.

import nexus

nx = nexus.open(workspace="my-agent")
ctx = nx.assemble("What did we decide about the index?", session="main", model="claude-sonnet-5-5")
reply = client.messages.create(**ctx.to_anthropic())
nx.record(ctx, reply)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexus.assembly.fit.repair import repaired
    from nexus.async_engine import AsyncEngine, AsyncTurn, open_async
    from nexus.context import AssembledContext, RepairReport
    from nexus.engine import Engine
    from nexus.engine import open_engine as open  # noqa: A004 - the documented name
    from nexus.errors import BudgetTooSmall, ContextOverflow, NexusError
    from nexus.plugins.spec import hookimpl
    from nexus.providers.messages import read_messages, write_messages
    from nexus.providers.replies import read_reply as read_reply
    from nexus.providers.streams import StreamReader
    from nexus.recovery import acall, call
    from nexus.tokens.budget import TokenBudget
    from nexus.turn import Turn
    from nexus.types.block import Block
    from nexus.types.history import History
    from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
    from nexus.types.profile import Profile
    from nexus.types.request import AgentResult, Event, Identity, Permissions, Request, Routing, TokenUsage
    from nexus.workspace.attachments import image_from_file

__version__ = "0.1.0"

_MODULES = {
    name: module
    for module, names in {
        "nexus.assembly.fit.repair": "repaired",
        "nexus.context": "AssembledContext RepairReport",
        "nexus.engine": "Engine open",
        "nexus.errors": "BudgetTooSmall ContextOverflow NexusError",
        "nexus.plugins.spec": "hookimpl",
        "nexus.providers.messages": "read_messages write_messages",
        "nexus.providers.replies": "read_reply",
        "nexus.providers.streams": "StreamReader",
        "nexus.async_engine": "AsyncEngine AsyncTurn open_async",
        "nexus.recovery": "acall call",
        "nexus.turn": "Turn",
        "nexus.tokens.budget": "TokenBudget",
        "nexus.types.block": "Block",
        "nexus.types.history": "History",
        "nexus.types.message": "Image Message Text Thinking ToolCall ToolResult assistant tool user",
        "nexus.types.profile": "Profile",
        "nexus.types.request": "AgentResult Event Identity Permissions Request Routing TokenUsage",
        "nexus.workspace.attachments": "image_from_file",
    }.items()
    for name in names.split()
}

_ORIGINAL_NAMES = {"open": "open_engine"}

__all__ = [
    "AgentResult",
    "AssembledContext",
    "AsyncEngine",
    "AsyncTurn",
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
    "StreamReader",
    "Text",
    "Thinking",
    "TokenBudget",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "Turn",
    "acall",
    "assistant",
    "call",
    "hookimpl",
    "image_from_file",
    "open",
    "open_async",
    "read_messages",
    "read_reply",
    "repaired",
    "tool",
    "user",
    "write_messages",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import nexus` is fast."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'nexus' has no attribute {name!r}")
    return getattr(import_module(module), _ORIGINAL_NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
