"""Conversion between document 004's messages and the ledger's messages.

A shown message contains the ledger's message, so that its time, images and position in the ledger are preserved when a
program passes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from nexus.compat.nexus3 import core
from nexus.errors import BadReply
from nexus.ledger.text_encoding import to_json
from nexus.providers.openai import fragment
from nexus.providers.openai import message as read_message
from nexus.providers.received import CallIndex, as_mapping
from nexus.text.message_text import text_of_result
from nexus.types.message import Message, Note, Text, ToolCall, ToolResult, with_parts

__all__ = ["AnyMessage", "sent_messages", "shown_messages", "stored_messages"]

AnyMessage: TypeAlias = core.Message | Message | Mapping[str, Any]
"""Document 004's message, the ledger's, or a chat message of OpenAI's format."""

M = TypeVar("M", bound=AnyMessage)


def stored_messages(messages: Iterable[AnyMessage]) -> list[Message]:
    """Return each message as the ledger has it. Raises BadReply for a value that is not a message."""
    calls = CallIndex()
    stored = list[Message]()
    for value in messages:
        if isinstance(value, core.Message):
            message = value.stored
        elif isinstance(value, Message):
            message = value
        else:
            message = None
        if message is None:
            (message,) = read_message(value, calls)
        calls.add((message,))
        stored.append(message)
    return stored


def shown_messages(messages: Iterable[Message]) -> list[core.Message]:
    """Return messages of the ledger as document 004's, without time stamps; several results are several messages."""
    documented: list[core.Message] = []
    for message in _single(messages):
        parts = tuple(part for part in message.parts if not isinstance(part, Note))
        documented.append(_documented(with_parts(message, parts) if parts else message, message))
    return documented


def sent_messages(messages: Iterable[Message]) -> list[core.Message]:
    """Return repaired messages as they are sent, with their time stamps."""
    return [_documented(message, message) for message in _single(messages)]


def _single(messages: Iterable[Message]) -> Iterable[Message]:
    """Yield the messages, with one message for each tool result."""
    for message in messages:
        results = list(message.results()) if message.role == "tool" else []
        yield from (with_parts(message, (result,)) for result in results) if len(results) > 1 else (message,)


def _documented(message: Message, stored: Message) -> core.Message:
    if message.role == "system":  # a request has it as its own part
        return core.Message.of({"role": "system", "content": message.text()}, stored)
    items = fragment(message)
    if len(items) == 1:
        item = items[0]
    else:
        item = {"role": message.role, "content": message.text()}
    return core.Message.of(item, stored)


def calls_of(tool_calls: Iterable[object]) -> tuple[ToolCall, ...]:
    """Return tool calls as the ledger has them.

    They may be document 004's, Nexus's, OpenAI's `{"id", "function": {"name", "arguments"}}` or `{"id", "name",
    "arguments"}`, as dicts or objects of a client's library. Arguments that are values become JSON text. Raises BadReply
    for anything else.
    """
    return tuple(_call_of(at, value) for at, value in enumerate(tool_calls))


def _call_of(at: int, value: object) -> ToolCall:
    if isinstance(value, ToolCall):
        return value
    if isinstance(value, core.ToolCall):
        return ToolCall(value.id, value.name, as_text(value.arguments))
    fields = as_mapping(value)
    inner = None
    if fields is not None:
        inner = as_mapping(fields.get("function") or fields)
    if fields is None or inner is None:
        raise BadReply(
            f"tool call {at} invalid: {str(value)[:80]!r} (give ToolCall values, dicts with id, name and arguments, or "
            "the client's own calls)"
        )
    return ToolCall(str(fields.get("id") or ""), str(inner.get("name") or ""), as_text(inner.get("arguments")))


def documented_calls(calls: Iterable[ToolCall]) -> tuple[core.ToolCall, ...]:
    """Return tool calls of the ledger as document 004's."""
    return tuple(core.ToolCall.parse(call.id, call.name, call.arguments) for call in calls)


def documented_result(result: ToolResult) -> core.ToolResult:
    """Return a tool result of the ledger as document 004's: the text of a failed one is its error."""
    text = text_of_result(result)
    if result.is_error:
        return core.ToolResult(error=text)
    return core.ToolResult(text)


def result_message(tool_call_id: str, name: str, result: object, at_ms: int) -> Message:
    """Return a tool's result as a message of the ledger. A value that is neither text nor a result becomes JSON text."""
    if isinstance(result, core.ToolResult):
        result = result.as_tool_result()
    elif not isinstance(result, ToolResult):
        result = ToolResult("", (Text(as_text(result)),))
    return Message("tool", (replace(result, call_id=tool_call_id, name=name),), at_ms=at_ms)


def as_text(value: object) -> str:
    """Return a text unchanged, None as empty text, any other value as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return to_json(value)


def text_with_notes(message: Message) -> str:
    """Return the text of a message as it is sent, including time stamps."""
    return "\n".join(as_text(item["content"]) for item in fragment(message))
