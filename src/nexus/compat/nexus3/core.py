"""The values of document 004's `nexus3.core`. A message is also the dict that OpenAI's chat completions take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import msgspec

from nexus.ledger.text_encoding import to_json
from nexus.types import message as engine
from nexus.types.sanitize import arguments_as_object

__all__ = ["Message", "Role", "ToolCall", "ToolResult"]


class Role(StrEnum):
    """Roles of messages; each is equal to its text, as in `nexus.Message`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the model."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def parse(cls, call_id: str, name: str, arguments: str) -> Self:
        """Return a call with arguments parsed from JSON; text that is not an object is under `_unparsed`."""
        return cls(call_id, name, msgspec.json.decode(arguments_as_object(arguments)))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result: its output, or the error with which it failed."""

    output: str = ""
    error: str = ""

    @property
    def success(self) -> bool:
        """True without an error."""
        return not self.error

    def as_tool_result(self) -> engine.ToolResult:
        """Return it as `nexus.tools` answers a call with it: the error, if any, before the output."""
        text = "\n".join(filter(None, (self.error, self.output)))
        return engine.ToolResult("", (engine.Text(text),), is_error=not self.success)


class Message(dict[str, Any]):
    """A message: attributes as documented, and the dict of OpenAI's chat completions.

    Args:
        role: A `Role`, or its text.
        content: The text.
        tool_calls: Calls of a message of the assistant.
        tool_call_id: The call that a message of a tool answers.
    """

    _stored: engine.Message | None = None
    _as_stored: dict[str, Any] | None = None

    def __init__(
        self, role: str, content: str = "", tool_calls: Iterable[ToolCall] = (), tool_call_id: str | None = None
    ) -> None:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _text(call.arguments)}}
            for call in tool_calls
        ]
        super().__init__(role=str(role), content=content or (None if calls else ""))
        if calls:
            self["tool_calls"] = calls
        if tool_call_id is not None:
            self["tool_call_id"] = tool_call_id

    @classmethod
    def of(cls, item: dict[str, Any], stored: engine.Message | None = None) -> Self:
        """Return a chat message of a request. `stored` is the message of the ledger that it shows."""
        message = cls(item["role"])
        message.update(item)
        message._stored, message._as_stored = stored, dict(message)
        return message

    @property
    def stored(self) -> engine.Message | None:
        """The ledger's message that it shows; None if a program created or changed it."""
        if self == self._as_stored:
            return self._stored
        return None

    @property
    def role(self) -> Role:
        """Role of the message's author."""
        return Role(self["role"])

    @property
    def content(self) -> str:
        """The text; empty if there is none."""
        content: str | list[dict[str, Any]] | None = self.get("content")
        if isinstance(content, list):
            return "\n".join(part["text"] for part in content if "text" in part)
        return content or ""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of a message of the assistant."""
        calls: list[Any] = self.get("tool_calls") or []
        return tuple(
            ToolCall.parse(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls
        )

    @property
    def tool_call_id(self) -> str | None:
        """The call that a message of a tool answers."""
        return self.get("tool_call_id")


def _text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return to_json(arguments)
