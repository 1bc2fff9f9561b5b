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

from nexus.types.registry import add_registrations

if TYPE_CHECKING:
    from nexus.assembly.fit.repair import repaired
    from nexus.assembly.token_count import count_tokens
    from nexus.compaction import CompactionOutcome
    from nexus.compaction.summarizer import Summarizer, SummaryReply, SummaryRequest
    from nexus.context import AssembledContext, RepairReport
    from nexus.engine import Engine, EngineOptions
    from nexus.engine import open_engine as open  # noqa: A004 - the documented name
    from nexus.engine.async_engine import AsyncEngine, AsyncTurn, open_async
    from nexus.engine.recovery import Answer, acall, call
    from nexus.engine.turn import Turn
    from nexus.errors import (
        BadArguments,
        BadBudget,
        BadConfig,
        BadContext,
        BadEntry,
        BadEvent,
        BadImage,
        BadModelEntry,
        BadPolicy,
        BadProfile,
        BadReference,
        BadReply,
        BadSessionKey,
        BadSetting,
        BadSkill,
        BadTool,
        BudgetTooSmall,
        CannotReplay,
        CompactionSuperseded,
        ContextOverflow,
        EmptyEvent,
        EmptyTask,
        ForksDepend,
        HeadMoved,
        IdempotencyConflict,
        IncompleteStream,
        LateReply,
        LedgerBusy,
        LedgerClosed,
        LedgerDamaged,
        LedgerError,
        LedgerFull,
        LedgerGone,
        LedgerNotTrusted,
        LedgerTooNew,
        LedgerUnavailable,
        NexusError,
        NoSuchSession,
        NotALedger,
        NotAllowed,
        OutcomeUnknown,
        OverCap,
        PackageMissing,
        SessionBusy,
        SessionMoved,
        SummarizerFailed,
        SummaryCallTooLarge,
        ToolCallFailed,
        ToolNotAllowed,
        TurnSuperseded,
        UnknownArgument,
        UnknownProfile,
        UnknownTool,
        UnreadableFile,
        WorkspaceMissing,
    )
    from nexus.ledger.postgres import PostgresLedger
    from nexus.ledger.sessions import SearchHit
    from nexus.ledger.sqlite import SqliteLedger
    from nexus.plugins.spec import hookimpl
    from nexus.policy import Policy
    from nexus.providers.errors.failures import Failure, failure_of
    from nexus.providers.messages import read_messages, write_messages
    from nexus.providers.replies import read_reply
    from nexus.providers.streams import StreamReader
    from nexus.tokens.budget import TokenBudget
    from nexus.tools import ToolRegistry
    from nexus.types.block import Block
    from nexus.types.config import Config
    from nexus.types.history import History
    from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
    from nexus.types.profile import Profile
    from nexus.types.request import AgentResult, Attachment, Event, Request, TokenUsage
    from nexus.types.settings import Settings
    from nexus.types.tool_calls import ToolCallRecord
    from nexus.workspace.attachments import attach_file, image_from_file
    from nexus.workspace.source_context import SourceContext

__version__ = "0.1.0"

add_registrations("nexus.services.registration", "nexus.turnlog.registration")

_MODULES = {
    name: module
    for module, names in {
        "nexus.assembly.fit.repair": "repaired",
        "nexus.assembly.token_count": "count_tokens",
        "nexus.engine.async_engine": "AsyncEngine AsyncTurn open_async",
        "nexus.compaction": "CompactionOutcome",
        "nexus.compaction.summarizer": "Summarizer SummaryReply SummaryRequest",
        "nexus.context": "AssembledContext RepairReport",
        "nexus.engine": "Engine EngineOptions open",
        "nexus.errors": "BadArguments BadBudget BadConfig BadContext BadEntry BadEvent BadImage BadModelEntry BadPolicy BadProfile BadReference BadReply BadSessionKey BadSetting BadSkill BadTool BudgetTooSmall CannotReplay CompactionSuperseded ContextOverflow EmptyEvent EmptyTask ForksDepend HeadMoved IdempotencyConflict IncompleteStream LateReply LedgerBusy LedgerClosed LedgerDamaged LedgerError LedgerFull LedgerGone LedgerNotTrusted LedgerTooNew LedgerUnavailable NexusError NoSuchSession NotALedger NotAllowed OutcomeUnknown OverCap PackageMissing SessionBusy SessionMoved SummarizerFailed SummaryCallTooLarge ToolCallFailed ToolNotAllowed TurnSuperseded UnknownArgument UnknownProfile UnknownTool UnreadableFile WorkspaceMissing",
        "nexus.ledger.sessions": "SearchHit",
        "nexus.ledger.postgres": "PostgresLedger",
        "nexus.ledger.sqlite": "SqliteLedger",
        "nexus.plugins.spec": "hookimpl",
        "nexus.policy": "Policy",
        "nexus.providers.errors.failures": "Failure failure_of",
        "nexus.providers.messages": "read_messages write_messages",
        "nexus.providers.replies": "read_reply",
        "nexus.providers.streams": "StreamReader",
        "nexus.engine.recovery": "Answer acall call",
        "nexus.tokens.budget": "TokenBudget",
        "nexus.tools": "ToolRegistry",
        "nexus.engine.turn": "Turn",
        "nexus.types.block": "Block",
        "nexus.types.config": "Config",
        "nexus.types.history": "History",
        "nexus.types.message": "Image Message Text Thinking ToolCall ToolResult assistant tool user",
        "nexus.types.profile": "Profile",
        "nexus.types.request": "AgentResult Attachment Event Request TokenUsage",
        "nexus.types.settings": "Settings",
        "nexus.types.tool_calls": "ToolCallRecord",
        "nexus.workspace.attachments": "attach_file image_from_file",
        "nexus.workspace.source_context": "SourceContext",
    }.items()
    for name in names.split()
}

_ORIGINAL_NAMES = {"open": "open_engine"}

__all__ = [
    "AgentResult",
    "Answer",
    "AssembledContext",
    "AsyncEngine",
    "AsyncTurn",
    "Attachment",
    "BadArguments",
    "BadBudget",
    "BadConfig",
    "BadContext",
    "BadEntry",
    "BadEvent",
    "BadImage",
    "BadModelEntry",
    "BadPolicy",
    "BadProfile",
    "BadReference",
    "BadReply",
    "BadSessionKey",
    "BadSetting",
    "BadSkill",
    "BadTool",
    "Block",
    "BudgetTooSmall",
    "CannotReplay",
    "CompactionOutcome",
    "CompactionSuperseded",
    "Config",
    "ContextOverflow",
    "EmptyEvent",
    "EmptyTask",
    "Engine",
    "EngineOptions",
    "Event",
    "Failure",
    "ForksDepend",
    "HeadMoved",
    "History",
    "IdempotencyConflict",
    "Image",
    "IncompleteStream",
    "LateReply",
    "LedgerBusy",
    "LedgerClosed",
    "LedgerDamaged",
    "LedgerError",
    "LedgerFull",
    "LedgerGone",
    "LedgerNotTrusted",
    "LedgerTooNew",
    "LedgerUnavailable",
    "Message",
    "NexusError",
    "NoSuchSession",
    "NotALedger",
    "NotAllowed",
    "OutcomeUnknown",
    "OverCap",
    "PackageMissing",
    "Policy",
    "PostgresLedger",
    "Profile",
    "RepairReport",
    "Request",
    "SearchHit",
    "SessionBusy",
    "SessionMoved",
    "Settings",
    "SourceContext",
    "SqliteLedger",
    "StreamReader",
    "Summarizer",
    "SummarizerFailed",
    "SummaryCallTooLarge",
    "SummaryReply",
    "SummaryRequest",
    "Text",
    "Thinking",
    "TokenBudget",
    "TokenUsage",
    "ToolCall",
    "ToolCallFailed",
    "ToolCallRecord",
    "ToolNotAllowed",
    "ToolRegistry",
    "ToolResult",
    "Turn",
    "TurnSuperseded",
    "UnknownArgument",
    "UnknownProfile",
    "UnknownTool",
    "UnreadableFile",
    "WorkspaceMissing",
    "acall",
    "assistant",
    "attach_file",
    "call",
    "count_tokens",
    "failure_of",
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

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use, so that `import nexus` is fast."""
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'nexus' has no attribute {name!r}")
        return getattr(import_module(module), _ORIGINAL_NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
