"""The visible messages of a conversation: repaired, and in OpenAI's chat format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nexus.assembly.fit import repair
from nexus.compat.nexus3.context.truncation import identify_message_groups, is_complete
from nexus.errors import BadReply, BadTool
from nexus.ledger.text_encoding import to_json
from nexus.providers.openai import fragment
from nexus.providers.received import as_mapping
from nexus.types.message import Message, Note, Text, ToolCall, ToolResult
from nexus.types.sanitize import sanitize_text
from nexus.workspace.times import FRESH_MS


def visible_messages(messages: Iterable[Message], *, started: bool = False) -> list[Message]:
    """Return the messages as a provider accepts them; calls without a result are answered as interrupted.

    `started` means that other messages precede them.
    """
    fold = repair.Fold(started=started)
    out: list[Message] = []
    for message in messages:
        out.extend(view for view, _, _ in repair.step(fold, is_complete(message), plain=False))
    return [*out, *repair.missing_results(fold)]


def chat_messages(system_prompt: str, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the system prompt, if any, and the repaired messages as OpenAI's chat messages."""
    system = [{"role": "system", "content": sanitize_text(system_prompt)}] if system_prompt else []
    return [*system, *(item for message in visible_messages(messages) for item in fragment(message))]


def wants_stamp(messages: Sequence[Message], now_ms: int) -> bool:
    """Return whether a tool loop has all its results and its last time stamp is over five minutes old."""
    if not messages or messages[-1].role != "tool":
        return False
    group = identify_message_groups(messages)[-1]
    call_ids = {call.id for message in group for call in message.calls()}
    answered = {result.call_id for message in group for result in message.results()}
    stamped = max((message.at_ms for message in messages if _is_stamped(message)), default=0)
    return call_ids <= answered and now_ms - stamped > FRESH_MS


def calls_of(tool_calls: Iterable[object]) -> tuple[ToolCall, ...]:
    """Return tool calls in Nexus's form.

    They may be Nexus's, OpenAI's `{"id", "function": {"name", "arguments"}}` or `{"id", "name", "arguments"}`, as dicts
    or objects of a client's library. Arguments that are values become JSON text. Raises BadReply for anything else.
    """
    return tuple(call if isinstance(call, ToolCall) else _call(call, at) for at, call in enumerate(tool_calls))


def plain_definitions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tool definitions as dicts. Raises BadTool for one that is no mapping or has no JSON form."""
    definitions: list[dict[str, Any]] = []
    for at, tool in enumerate(tools):
        definition = as_mapping(tool)
        if definition is None:
            raise BadTool(f"tool definition {at} invalid: {type(tool).__name__} (give a mapping)")
        try:
            to_json(definition)
        except (TypeError, ValueError) as error:
            raise BadTool(f"tool definition {at} has no JSON form: {error}") from error
        definitions.append(definition)
    return definitions


def result_message(tool_call_id: str, name: str, result: str | ToolResult, at_ms: int) -> Message:
    """Return a tool's result as a message; a result that is neither text nor a ToolResult becomes JSON text."""
    if isinstance(result, ToolResult):
        part = replace(result, call_id=tool_call_id, name=name)
    else:
        part = ToolResult(tool_call_id, (Text(as_text(result)),), name)
    return Message("tool", (part,), at_ms=at_ms)


def as_text(value: object) -> str:
    """Return a text unchanged, None as empty text, any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value)


def text_with_notes(message: Message) -> str:
    """Return the text of a message as it is sent, including time stamps."""
    content: Sequence[dict[str, Any]] = fragment(message)
    return "\n".join(as_text(item["content"]) for item in content)


def _call(value: object, at: int) -> ToolCall:
    fields = as_mapping(value)
    inner = as_mapping(fields.get("function") or fields) if fields is not None else None
    if fields is None or inner is None:
        raise BadReply(
            f"tool call {at} invalid: {str(value)[:80]!r} (give nexus.ToolCall values, dicts with id, name and arguments, "
            "or the client's own calls)"
        )
    return ToolCall(str(fields.get("id") or ""), str(inner.get("name") or ""), as_text(inner.get("arguments")))


def _is_stamped(message: Message) -> bool:
    return any(isinstance(part, Note) and part.kind == "moment" for part in message.parts)
