"""Nexus, a context engine for LLM agents: it assembles what the model sees in every call, reproducibly.

import nexus

nx = nexus.open(workspace="my-agent")
ctx = nx.assemble("What did we decide about the index?", session="main", model="claude-sonnet-5-5")
reply = client.messages.create(**ctx.to_anthropic())
nx.record(ctx, reply)

Here is what most programs need. `nexus.errors` has all errors, `nexus.types` the other values, `nexus.tools`, `nexus.agents`,
`nexus.models`, `nexus.server` and `nexus.testing` what their names say, and `nexus.extend` what plugins and other stores,
formats and buses are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import add_registrations, lazy_names

if TYPE_CHECKING:
    from nexus.assembly.fit.repair import repaired
    from nexus.assembly.token_count import count_tokens
    from nexus.context import AssembledContext, RepairReport
    from nexus.engine import Engine
    from nexus.engine import open_engine as open  # noqa: A004 - the documented name
    from nexus.engine.async_engine import AsyncEngine, AsyncTurn, open_async
    from nexus.engine.message_log import add_messages
    from nexus.engine.overflow_recovery import Answer, acall, call
    from nexus.engine.turn import Turn
    from nexus.errors import (
        BudgetTooSmall,
        ContextOverflow,
        LedgerBusy,
        LedgerError,
        NexusError,
        NoSuchSession,
        NotAllowed,
        SessionBusy,
    )
    from nexus.ledger.sessions import SearchHit
    from nexus.policy import Policy
    from nexus.providers.errors.failures import Failure, failure_of
    from nexus.providers.messages import read_messages, write_messages
    from nexus.providers.replies import read_reply
    from nexus.providers.streams import StreamReader
    from nexus.proxy.fitted_client import fitted
    from nexus.summarization import CompactionOutcome
    from nexus.tokens.budget import TokenBudget
    from nexus.tools import ToolRegistry
    from nexus.types.block import Block
    from nexus.types.config import Config
    from nexus.types.history import History
    from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
    from nexus.types.profile import Profile
    from nexus.types.request import AgentResult, Attachment, Event, Request, TokenUsage
    from nexus.types.settings import Settings
    from nexus.workspace.attachments import attach_file, image_from_file
    from nexus.workspace.plugins.spec import hookimpl

__version__ = "0.1.0"

add_registrations("nexus.services.registration", "nexus.turnlog.registration")

_MODULES = {
    "nexus.assembly.fit.repair": "repaired",
    "nexus.assembly.token_count": "count_tokens",
    "nexus.summarization": "CompactionOutcome",
    "nexus.context": "AssembledContext RepairReport",
    "nexus.engine": "Engine open_engine as open",
    "nexus.engine.async_engine": "AsyncEngine AsyncTurn open_async",
    "nexus.engine.message_log": "add_messages",
    "nexus.engine.overflow_recovery": "Answer acall call",
    "nexus.engine.turn": "Turn",
    "nexus.errors": "BudgetTooSmall ContextOverflow LedgerBusy LedgerError NexusError NoSuchSession NotAllowed SessionBusy",
    "nexus.ledger.sessions": "SearchHit",
    "nexus.workspace.plugins.spec": "hookimpl",
    "nexus.policy": "Policy",
    "nexus.providers.errors.failures": "Failure failure_of",
    "nexus.providers.messages": "read_messages write_messages",
    "nexus.providers.replies": "read_reply",
    "nexus.providers.streams": "StreamReader",
    "nexus.proxy.fitted_client": "fitted",
    "nexus.tokens.budget": "TokenBudget",
    "nexus.tools": "ToolRegistry",
    "nexus.types.block": "Block",
    "nexus.types.config": "Config",
    "nexus.types.history": "History",
    "nexus.types.message": "Image Message Text Thinking ToolCall ToolResult assistant tool user",
    "nexus.types.profile": "Profile",
    "nexus.types.request": "AgentResult Attachment Event Request TokenUsage",
    "nexus.types.settings": "Settings",
    "nexus.workspace.attachments": "attach_file image_from_file",
}

__all__ = [
    "AgentResult",
    "Answer",
    "AssembledContext",
    "AsyncEngine",
    "AsyncTurn",
    "Attachment",
    "Block",
    "BudgetTooSmall",
    "CompactionOutcome",
    "Config",
    "ContextOverflow",
    "Engine",
    "Event",
    "Failure",
    "History",
    "Image",
    "LedgerBusy",
    "LedgerError",
    "Message",
    "NexusError",
    "NoSuchSession",
    "NotAllowed",
    "Policy",
    "Profile",
    "RepairReport",
    "Request",
    "SearchHit",
    "SessionBusy",
    "Settings",
    "StreamReader",
    "Text",
    "Thinking",
    "TokenBudget",
    "TokenUsage",
    "ToolCall",
    "ToolRegistry",
    "ToolResult",
    "Turn",
    "acall",
    "add_messages",
    "assistant",
    "attach_file",
    "call",
    "count_tokens",
    "failure_of",
    "fitted",
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

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
