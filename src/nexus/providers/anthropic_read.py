"""Reads Anthropic's messages and replies (Messages API) into ours.

Content blocks map one to one; a block of another kind is kept as `Unknown` with its JSON. A user message that carries
tool results becomes a `tool` message with the results and, if anything else was said, a `user` message after it.
`cache_control` marks belong to a request, not to what was said, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nexus.errors import BadReply
from nexus.providers.received import (
    Calls,
    arguments_text,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    read_all,
    rest_of,
    text_of,
    text_part,
)
from nexus.types.message import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_ITEM = frozenset({"role", "content", "id", "model", "type", "cache_control"})
_REPLY = _ITEM | {"stop_reason", "usage"}
_BLOCK: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature", "cache_control"}),
    "redacted_thinking": frozenset({"type", "data", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
}
_ORDINARY_CALLER = {"type": "direct"}


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The messages of a conversation. Raises BadReply for an item that is no message, naming its place."""
    return read_all(items, message)


def message(item: Any, calls: Calls) -> tuple[Message, ...]:
    """One item as messages: two when a user's message holds tool results and something else, else one."""
    return _read(item, calls, _ITEM)


def is_reply(body: Any) -> bool:
    """Whether the body is a complete reply of the Messages API."""
    body = mapping(body)
    return body.get("type") == "message" and body.get("role") == "assistant" and isinstance(body.get("content"), list)


def reply(body: dict[str, Any]) -> AgentResult:
    """The reply's message, usage and stop reason. Raises BadReply when it is not one."""
    if not is_reply(body):
        raise BadReply("not an Anthropic message: `type` is not `message`, or `content` is missing")
    return AgentResult(
        messages=_read(body, Calls(), _REPLY),
        usage=usage(body.get("usage")),
        stop_reason=text_of(body.get("stop_reason")),
        model=text_of(body.get("model")),
    )


def usage(value: Any) -> TokenUsage:
    """Usage with the whole prompt as input: Anthropic's `input_tokens` leaves cache reads and writes out."""
    counts = mapping(value)
    read, write = number_of(counts.get("cache_read_input_tokens")), number_of(counts.get("cache_creation_input_tokens"))
    return TokenUsage(
        input_tokens=number_of(counts.get("input_tokens")) + read + write,
        output_tokens=number_of(counts.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=number_of(mapping(counts.get("output_tokens_details")).get("thinking_tokens")),
    )


def _read(item: Any, calls: Calls, known: frozenset[str]) -> tuple[Message, ...]:
    fields = mapping(item)
    role = _ROLES.get(text_of(fields.get("role")))
    if role is None:
        raise BadReply(f"no message: `role` is {fields.get('role')!r}" if fields else "no message: not a JSON object")
    content = fields.get("content")
    if not isinstance(content, (str, list)) and content is not None:
        raise BadReply(f"no message: `content` is neither text nor a list but {type(content).__name__}")
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else items_of(content)
    extra: dict[str, Any] = {}
    parts: list[Part] = []
    for block in blocks:
        if more := _rest_of_block(block):
            extra[str(len(parts))] = more
        parts += _part(block, calls)
    meta = meta_text(rest_of(fields, known), {"blocks": extra} if extra else {})
    return _split(role, parts, text_of(fields.get("id")), text_of(fields.get("model")), meta)


def _split(role: Role, parts: Sequence[Part], message_id: str, model: str, meta: str) -> tuple[Message, ...]:
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    if not results or role != "user":
        return (Message(role, tuple(parts), id=message_id, model=model, meta=meta),)
    answer = Message("tool", results, id=message_id, meta=meta)
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    if not others:
        return (answer,)
    return answer, Message("user", others, id=f"{message_id}:rest" if message_id else "")


def _part(block: Any, calls: Calls) -> Iterator[Part]:
    if isinstance(block, str):
        yield from text_part(block)
        return
    fields = mapping(block)
    match text_of(fields.get("type")):
        case "text" if isinstance(fields.get("text"), str):
            yield from text_part(fields["text"])
        case "thinking" if isinstance(fields.get("thinking"), str):
            yield Thinking(fields["thinking"], signature=text_of(fields.get("signature")))
        case "redacted_thinking" if isinstance(fields.get("data"), str):
            yield Thinking("", redacted=fields["data"])
        case "tool_use" if text_of(fields.get("id")) and isinstance(fields.get("name"), str):
            yield ToolCall(text_of(fields["id"]), fields["name"], arguments_text(fields.get("input")))
        case "tool_result" if isinstance(fields.get("tool_use_id"), str):
            yield _result(fields, calls)
        case "image" if image := _image(fields):
            yield image
        case kind:
            yield _unknown(kind, block)


def _result(fields: dict[str, Any], calls: Calls) -> ToolResult:
    content = fields.get("content")
    blocks: list[Any] = items_of(content) if isinstance(content, list) else [content] if content else []
    shown: list[Text | Image] = []
    for block in blocks:
        shown += (
            part if isinstance(part, (Text, Image)) else Text(compact_json(block)) for part in _part(block, calls)
        )
    call_id = text_of(fields["tool_use_id"])
    return ToolResult(call_id, tuple(shown), calls.name_of(call_id), is_error=fields.get("is_error") is True)


def _image(fields: dict[str, Any]) -> Image | None:
    source = mapping(fields.get("source"))
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return Image(text_of(source.get("media_type")), data=source["data"])
        case "url" if isinstance(source.get("url"), str):
            return Image(text_of(source.get("media_type")), url=source["url"])
        case _:
            return None


def _unknown(kind: str, block: Any) -> Unknown:
    fields = mapping(block)
    kept = {name: value for name, value in fields.items() if name != "cache_control"} if fields else block
    return Unknown(kind or "no type", compact_json(kept))


def _rest_of_block(block: Any) -> dict[str, Any]:
    """Fields of a known block that no part of ours holds (citations, caller); unknown blocks are kept whole."""
    fields = mapping(block)
    known = _BLOCK.get(text_of(fields.get("type")))
    rest = rest_of(fields, known) if known else {}
    if rest.get("caller") == _ORDINARY_CALLER:
        del rest["caller"]
    return rest
