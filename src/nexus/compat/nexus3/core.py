"""The values of document 004's `nexus3.core`."""

from __future__ import annotations

from enum import StrEnum

from nexus.types.message import Message, ToolCall, ToolResult

__all__ = ["Message", "Role", "ToolCall", "ToolResult"]


class Role(StrEnum):
    """Roles of messages; each is equal to its text, as in `nexus.Message`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
