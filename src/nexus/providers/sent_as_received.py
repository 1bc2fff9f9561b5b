"""Comparison of a received list with the items that its messages are rendered as.

Differences that do not count: cache breakpoints, null fields, defaults, item types and ids that a request may omit, how
plain text is wrapped, and which messages of one role are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.messages import ReadItems
from nexus.providers.received import items_of, mapping
from nexus.providers.turns import as_blocks
from nexus.text.as_received import ReceivedFormat
from nexus.types.message import Message
from nexus.types.validation import has_lone_surrogates

_NOT_COMPARED = frozenset({"cache_control", "id", "status", "annotations", "logprobs"})
_USER_DATA = frozenset({"args", "input", "arguments", "response"})
_CALL_FIELDS = ("arguments", "input", "args", "response", "function", "custom")
_EMPTY: tuple[Any, ...] = (None, "", [])
_DEFAULTS: dict[str, Any] = {"is_error": False, "caller": {"type": "direct"}}
"""Values that a request may omit."""


def are_sent_as_received(read: ReadItems) -> bool:
    """Return True if the list's messages, rendered without changes, equal the list in all compared fields."""
    received = [value for value in read.values if not isinstance(value, Message)]
    if len(received) != len(read.values):
        return False
    if any(map(_lacks_result, received)) or has_lone_surrogates(received):
        return False
    if read.format == "openai" and any(map(_has_refused_name, received)):
        return False
    try:
        rendered = [item for message in read.messages for item in _items(message, read.format)]
    except (ValueError, RecursionError):  # arguments that are no JSON object have no neutral item
        return False
    return _joined(rendered, read.format) == _joined(received, read.format)


def _lacks_result(item: Any) -> bool:
    """Return True for an item with a tool's result that a provider refuses, because its content is null or an empty list."""
    fields = mapping(item)
    if fields.get("role") in ("tool", "function") and "parts" not in fields:
        return fields.get("content") in (None, [])
    if fields.get("type") in ("function_call_output", "custom_tool_call_output"):
        return fields.get("output") in (None, [])
    parts = [gemini.in_snake_case(part) for part in items_of(fields.get("parts"))]
    responses = (part["function_response"] for part in parts if part.get("function_response"))
    return any(mapping(response).get("response") is None for response in responses)


def _has_refused_name(item: Any) -> bool:
    fields = mapping(item)
    return fields.get("name") is not None and openai.has_refused_name(fields)


def _items(message: Message, read_format: ReceivedFormat) -> list[dict[str, Any]]:
    match read_format:
        case "openai":
            items = openai.fragment(message)
        case "responses":
            items = openai_responses.fragment(message, message.model or "any", is_stored=True)
        case "anthropic":
            items = [anthropic.fragment(message, message.model or "any")]
        case "gemini":
            items = [gemini.fragment(message, message.model or "any")]
    if message.role != "system":
        return items
    # A system message has no form of its own among the parts.
    return [{**item, "role": "system"} for item in items]


def _joined(items: Sequence[Any], read_format: ReceivedFormat) -> list[Any]:
    """Return items in one form, with consecutive items of the same role joined."""
    key = "parts" if read_format == "gemini" else "content"
    joined: list[Any] = []
    for item in items:
        plain = _compared(item)
        fields = mapping(plain)
        if fields.get("role") == "developer":
            fields["role"] = "system"
        if fields.get("type") == "message":
            del fields["type"]
        blocks: Any = fields.get(key)
        if isinstance(blocks, (str, list)):
            blocks = [_plain_block(block) for block in as_blocks(cast("str | list[Any]", blocks))]
        last = mapping(joined[-1]) if joined else {}
        is_joined = read_format in ("anthropic", "gemini") and last.get("role") == fields.get("role")
        if is_joined and isinstance(blocks, list):
            last[key] = [*last.get(key, []), *cast("list[Any]", blocks)]
        elif key in fields:
            joined.append({**fields, key: blocks})
        else:
            joined.append(plain)
    return joined


def _plain_block(block: Any) -> Any:
    fields = mapping(block)
    is_text = fields.keys() == {"type", "text"} and fields["type"] in ("input_text", "output_text")
    if is_text:
        return {"type": "text", "text": fields["text"]}
    return block


def _compared(value: Any) -> Any:
    """Return a copy with only the compared fields, and Gemini's names in snake case."""
    if isinstance(value, list):
        return [_compared(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    is_call = any(name in fields for name in _CALL_FIELDS)
    skipped = _NOT_COMPARED - {"id"} if is_call else _NOT_COMPARED
    compared: dict[str, Any] = {}
    for name, item in fields.items():
        is_default = name in _DEFAULTS and item == _DEFAULTS[name]
        if name not in skipped and item not in _EMPTY and not is_default:
            compared[gemini.snake_case(name)] = item if name in _USER_DATA else _compared(item)
    return compared
