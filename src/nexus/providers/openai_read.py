"""Reads OpenAI's chat messages and completions into ours, and those of the many servers that speak the same form.

Reasoning stands first, then text, then calls, as the model produced them. Calls without an id (the older
`function_call`, some servers) get `call_<n>`, said in `meta` under `made_ids`. What has no field of ours (a
participant's name, annotations, log probabilities) is kept in `meta`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nexus.errors import BadReply
from nexus.providers.received import (
    Calls,
    arguments_text,
    compact_json,
    data_or_url,
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

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_COMMON = frozenset({"role", "content", "id"})
_ASSISTANT = _COMMON | {"tool_calls", "function_call", "reasoning_content", "reasoning", "refusal"}
_TOOL = _COMMON | {"tool_call_id", "name"}
_TEXT_TYPES = ("text", "input_text", "output_text")


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The messages of a conversation. Raises BadReply for an item that is no message, naming its place."""
    return read_all(items, message)


def message(item: Any, calls: Calls) -> tuple[Message, ...]:
    """One item as one message; `calls` are the calls before it. Raises BadReply when it is no message."""
    fields = mapping(item)
    written = text_of(fields.get("role"))
    role = _ROLES.get(written)
    if role is None:
        raise BadReply(f"no message: `role` is {fields.get('role')!r}" if fields else "no message: not a JSON object")
    content = fields.get("content")
    if not isinstance(content, (str, list)) and content is not None:
        raise BadReply(f"no message: `content` is neither text nor a list but {type(content).__name__}")
    notes: dict[str, Any] = {"role": written} if written in ("developer", "function") else {}
    if role == "tool":
        parts: tuple[Part, ...] = (_result(fields, calls),)
        known = _TOOL
    elif role == "assistant":
        parts = (*_reasoning(fields), *_said(content, notes), *_refusal(fields, notes), *_calls(fields, calls, notes))
        known = _ASSISTANT
    else:
        parts, known = tuple(_said(content, notes)), _COMMON
    meta = meta_text(rest_of(fields, known), notes)
    return (Message(role, parts, id=text_of(fields.get("id")), meta=meta),)


def is_reply(body: Any) -> bool:
    """Whether the body is a complete chat completion (not a stream's chunk)."""
    choices = items_of(mapping(body).get("choices"))
    return bool(choices) and all(isinstance(mapping(choice).get("message"), dict) for choice in choices)


def reply(body: dict[str, Any]) -> AgentResult:
    """The first choice's message, usage and finish reason. Raises BadReply when the body is no chat completion.

    Further choices are alternatives, not history: they are kept in the message's `meta` under `other_choices`.
    """
    if not is_reply(body):
        raise BadReply("not a chat completion: no `choices` with a `message`")
    first, *others = (mapping(choice) for choice in items_of(body["choices"]))
    item = {**first["message"], "other_choices": others, "logprobs": first.get("logprobs")}
    item["role"] = item.get("role") or "assistant"
    item["id"] = item.get("id") or text_of(body.get("id"))
    model = text_of(body.get("model"))
    found = message(item, Calls())
    return AgentResult(
        messages=tuple(Message(m.role, m.parts, id=m.id, model=model, meta=m.meta) for m in found),
        usage=usage(body.get("usage")),
        stop_reason=text_of(first.get("finish_reason")),
        error=text_of(mapping(body.get("error")).get("message")) or None,
        model=model,
    )


def usage(value: Any) -> TokenUsage:
    """Usage as reported: `prompt_tokens` counts cached tokens already, `completion_tokens` reasoning.

    Servers that report cache hits beside the details (`prompt_cache_hit_tokens`) are understood too.
    """
    counts = mapping(value)
    prompt, completion = (mapping(counts.get(f"{side}_tokens_details")) for side in ("prompt", "completion"))
    return TokenUsage(
        input_tokens=number_of(counts.get("prompt_tokens")),
        output_tokens=number_of(counts.get("completion_tokens")),
        cache_read_tokens=number_of(prompt.get("cached_tokens")) or number_of(counts.get("prompt_cache_hit_tokens")),
        cache_write_tokens=number_of(prompt.get("cache_write_tokens")),
        reasoning_tokens=number_of(completion.get("reasoning_tokens")),
    )


def _reasoning(fields: dict[str, Any]) -> Iterator[Part]:
    if thought := text_of(fields.get("reasoning_content")) or text_of(fields.get("reasoning")):
        yield Thinking(thought)


def _refusal(fields: dict[str, Any], notes: dict[str, Any]) -> Iterator[Part]:
    if refusal := text_of(fields.get("refusal")):
        notes["refusal"] = True
        yield Text(refusal)


def _said(content: Any, notes: dict[str, Any]) -> Iterator[Part]:
    if isinstance(content, str):
        yield from text_part(content)
        return
    for index, item in enumerate(items_of(content)):
        yield from _part(item, index, notes)


def _part(item: Any, index: int, notes: dict[str, Any]) -> Iterator[Part]:
    if isinstance(item, str):
        yield from text_part(item)
        return
    fields = mapping(item)
    kind = text_of(fields.get("type"))
    if kind in _TEXT_TYPES and isinstance(fields.get("text"), str):
        yield from text_part(fields["text"])
        known = frozenset({"type", "text", "cache_control"})
    elif kind == "refusal" and isinstance(fields.get("refusal"), str):
        notes["refusal"] = True
        yield from text_part(fields["refusal"])
        known = frozenset({"type", "refusal"})
    elif kind in ("image_url", "input_image") and (url := _url(fields.get("image_url"))):
        yield data_or_url(url)
        known = frozenset({"type", "image_url", "cache_control"})
        fields = {**fields, **{name: v for name, v in mapping(fields["image_url"]).items() if name != "url"}}
    else:
        yield Unknown(kind or "no type", compact_json(item))
        return
    if more := rest_of(fields, known):
        notes.setdefault("blocks", {})[str(index)] = more


def _url(value: Any) -> str:
    return text_of(value) or text_of(mapping(value).get("url"))


def _calls(fields: dict[str, Any], calls: Calls, notes: dict[str, Any]) -> Iterator[Part]:
    listed = items_of(fields.get("tool_calls"))
    if isinstance(fields.get("function_call"), dict):
        listed = [*listed, {"type": "function", "function": fields["function_call"]}]
    made: list[str] = []
    for ahead, item in enumerate(listed):
        call = mapping(item)
        custom = call.get("type") == "custom"
        called = mapping(call.get("custom" if custom else "function"))
        if not isinstance(called.get("name"), str):
            yield Unknown("tool_call", compact_json(item))
            continue
        call_id = text_of(call.get("id"))
        if not call_id:
            call_id = calls.made_id(ahead)
            made.append(call_id)
        if custom:
            notes.setdefault("custom_calls", []).append(call_id)
        yield ToolCall(call_id, called["name"], arguments_text(called.get("input" if custom else "arguments")))
    if made:
        notes["made_ids"] = made


def _result(fields: dict[str, Any], calls: Calls) -> ToolResult:
    name = text_of(fields.get("name"))
    call_id = text_of(fields.get("tool_call_id")) or calls.oldest_open(name)
    notes: dict[str, Any] = {}
    shown: list[Text | Image] = []
    for part in _said(fields.get("content"), notes):
        if isinstance(part, (Text, Image)):
            shown.append(part)
        elif isinstance(part, Unknown):
            shown.append(Text(part.raw))
    return ToolResult(call_id, tuple(shown), name or calls.name_of(call_id))
