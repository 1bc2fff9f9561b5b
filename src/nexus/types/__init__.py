"""The frozen values that every room speaks: messages, blocks, requests, ledger entries, profiles, tool definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.types.block import Block, ContextWarning
    from nexus.types.compaction_plan import CompactionPlan
    from nexus.types.config import Config, FilesConfig, HooksConfig, ImagesConfig, InstructionsConfig
    from nexus.types.environment import Capability, Environment
    from nexus.types.history import History, HistoryHeader, Memory
    from nexus.types.ledger_entries import (
        Commit,
        Committed,
        Compaction,
        Cut,
        Entry,
        MessageRef,
        NewEntry,
        StoredMessage,
        TurnPosition,
    )
    from nexus.types.message import (
        Image,
        Message,
        Note,
        Text,
        Thinking,
        TokenSize,
        ToolCall,
        ToolResult,
        Unknown,
        assistant,
        tool,
        user,
        with_parts,
    )
    from nexus.types.profile import Profile, Share
    from nexus.types.request import AgentResult, Attachment, Event, Request, TokenUsage
    from nexus.types.session_key import SessionKey
    from nexus.types.settings import ModelSettings, Settings
    from nexus.types.stream_events import (
        CompactionEnd,
        CompactionStart,
        Reasoning,
        Retry,
        StreamEnd,
        StreamError,
        StreamStart,
        Token,
        ToolStatus,
    )
    from nexus.types.tool_calls import ToolCallRecord
    from nexus.types.tool_definition import ToolMetadata, ToolSpec

__all__ = [
    "AgentResult",
    "Attachment",
    "Block",
    "Capability",
    "Commit",
    "Committed",
    "Compaction",
    "CompactionEnd",
    "CompactionPlan",
    "CompactionStart",
    "Config",
    "ContextWarning",
    "Cut",
    "Entry",
    "Environment",
    "Event",
    "FilesConfig",
    "History",
    "HistoryHeader",
    "HooksConfig",
    "Image",
    "ImagesConfig",
    "InstructionsConfig",
    "Memory",
    "Message",
    "MessageRef",
    "ModelSettings",
    "NewEntry",
    "Note",
    "Profile",
    "Reasoning",
    "Request",
    "Retry",
    "SessionKey",
    "Settings",
    "Share",
    "StoredMessage",
    "StreamEnd",
    "StreamError",
    "StreamStart",
    "Text",
    "Thinking",
    "Token",
    "TokenSize",
    "TokenUsage",
    "ToolCall",
    "ToolCallRecord",
    "ToolMetadata",
    "ToolResult",
    "ToolSpec",
    "ToolStatus",
    "TurnPosition",
    "Unknown",
    "assistant",
    "tool",
    "user",
    "with_parts",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.types.block": "Block ContextWarning",
            "nexus.types.compaction_plan": "CompactionPlan",
            "nexus.types.config": "Config FilesConfig HooksConfig ImagesConfig InstructionsConfig",
            "nexus.types.environment": "Capability Environment",
            "nexus.types.history": "History HistoryHeader Memory",
            "nexus.types.ledger_entries": "Commit Committed Compaction Cut Entry MessageRef NewEntry StoredMessage TurnPosition",
            "nexus.types.message": "Image Message Note Text Thinking TokenSize ToolCall ToolResult Unknown assistant tool user with_parts",
            "nexus.types.profile": "Profile Share",
            "nexus.types.request": "AgentResult Attachment Event Request TokenUsage",
            "nexus.types.session_key": "SessionKey",
            "nexus.types.settings": "ModelSettings Settings",
            "nexus.types.stream_events": "CompactionEnd CompactionStart Reasoning Retry StreamEnd StreamError StreamStart Token ToolStatus",
            "nexus.types.tool_calls": "ToolCallRecord",
            "nexus.types.tool_definition": "ToolMetadata ToolSpec",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
