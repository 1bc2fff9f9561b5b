"""OpenAI chat completions: request bodies, and messages and completions read back; also for compatible servers.

Requests: system first, real roles, one tool message for each result; prompts are cached automatically. Keys that vary
little come first and `messages` last, so that the serialized body of the next call extends this one.

Reading: reasoning first, then text, then calls, as the model produced them. Calls without an id (the older
`function_call`, some servers) get `call_<n>`, listed in `meta` under `made_ids`. Other fields (a participant's name,
annotations, log probabilities) are kept in `meta`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    as_sent_or_received,
    compact_json,
    data_or_url,
    items_of,
    mapping,
    meta_text,
    number_of,
    read_all,
    read_role_and_content,
    rest_of,
    text_of,
    text_part,
)
from nexus.providers.settings import body_settings
from nexus.providers.turns import ConversationParts, items, owned
from nexus.text.as_received import received_items
from nexus.text.message_text import text_of_result, visible_parts
from nexus.types.message import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.stop_reasons import stop_reason

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_COMMON_FIELDS = frozenset({"role", "content", "id"})
_ASSISTANT_FIELDS = _COMMON_FIELDS | {"tool_calls", "function_call", "reasoning_content", "reasoning", "refusal"}
_TOOL_FIELDS = _COMMON_FIELDS | {"tool_call_id", "name"}
_MESSAGE_FIELDS = frozenset({"role", "content", "name"})
_REQUEST_FIELDS = {
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": _MESSAGE_FIELDS
    | {"tool_calls", "function_call", "refusal", "audio"}
    # Compatible servers take these too.
    | {"reasoning_content", "reasoning", "reasoning_details", "prefix"},
}
"""Fields that a request may have in a message of this role, `_MESSAGE_FIELDS` in one of any other."""
_TEXT_TYPES = ("text", "input_text", "output_text")
_IMAGE_TYPES = ("image_url", "input_image")
_PART_FIELDS = {
    **dict.fromkeys(_TEXT_TYPES, frozenset({"type", "text", "cache_control"})),
    **dict.fromkeys(_IMAGE_TYPES, frozenset({"type", "image_url", "cache_control"})),
    "refusal": frozenset({"type", "refusal"}),
}


def body(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request body: keyword arguments of `client.chat.completions.create`. The caller may change it."""
    return {**body_without_messages(ctx), "messages": owned(conversation_parts(ctx).fragments)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the body before the messages: model, settings, tools."""
    out: dict[str, Any] = {"model": ctx.model, **body_settings(ctx, "openai")}
    if ctx.tools:
        functions = [
            {"name": spec.name, "description": spec.description, "parameters": spec.fresh_schema()}
            for spec in ctx.tools
        ]
        out["tools"] = [{"type": "function", "function": function} for function in functions]
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the system slot and the conversation, read only."""
    system = [{"role": "system", "content": ctx.system_prompt}] if ctx.system_prompt else []
    return items(ctx.history, "openai", ctx.current, fragment, leading=system)


def fragment(message: Message) -> list[dict[str, Any]]:
    """Return one message in this format, as received if it was; several for several results."""
    if (received := received_items(message, "openai")) is not None:
        return received
    return _neutral_items(message)


def _neutral_items(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": text_of_result(result)}
            for result in message.results()
        ]
    if message.role == "assistant":
        texts = [{"type": "text", "text": part.text} for part in message.parts if isinstance(part, Text)]
        content = texts[0]["text"] if len(texts) == 1 else texts or None
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls()
        ]
        return [{"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]
    parts = visible_parts(message)
    if len(parts) == 1 and isinstance(parts[0], Text):
        return [{"role": "user", "content": parts[0].text}]
    return [{"role": "user", "content": [_content_part(part) for part in parts]}]


def _content_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}}


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of a conversation. Raises BadReply for an item that is not a message, with its index."""
    return read_all(items, message)


def received_message(item: Any, calls: CallIndex, author: str = "") -> tuple[Message, ...]:
    """Return one item of a request as one message that is sent as received. Raises BadReply if it is not a message."""
    read = tuple(replace(m, model=author) if author and m.role == "assistant" else m for m in message(item, calls))
    fields = mapping(item)
    allowed = _REQUEST_FIELDS.get(text_of(fields.get("role")), _MESSAGE_FIELDS)
    received = {name: value for name, value in fields.items() if name in allowed}
    return tuple(as_sent_or_received(m, "openai", [received], lambda m=m: _neutral_items(m)) for m in read)


def message(item: Any, calls: CallIndex) -> tuple[Message, ...]:
    """Return one item as one message; `calls` are the calls before it. Raises BadReply if it is not a message."""
    fields, role, content = read_role_and_content(item, _ROLES)
    written_role = text_of(fields.get("role"))
    notes: dict[str, Any] = {"role": written_role} if written_role in ("developer", "function") else {}
    if role == "tool":
        parts: tuple[Part, ...] = (_read_result(fields, calls),)
        known_fields = _TOOL_FIELDS
    elif role == "assistant":
        thought = text_of(fields.get("reasoning_content")) or text_of(fields.get("reasoning"))
        refusal = text_of(fields.get("refusal"))
        texts: list[Part] = [*([Thinking(thought)] if thought else ()), *_read_content(content, notes)]
        if refusal:
            texts.append(Text(refusal))
            notes["refusal"] = True
        if not content and (audio := mapping(fields.get("audio"))):
            transcript = text_of(audio.get("transcript"))
            texts.append(Text(transcript) if transcript else Unknown("audio", compact_json({"audio": audio})))
        parts = (*texts, *_read_calls(fields, calls, notes))
        known_fields = _ASSISTANT_FIELDS
    else:
        parts, known_fields = tuple(_read_content(content, notes)), _COMMON_FIELDS
    meta = meta_text(rest_of(fields, known_fields), notes)
    return (Message(role, parts, id=text_of(fields.get("id")), meta=meta),)


def is_reply(body: Any) -> bool:
    """Return True if the body is a complete chat completion (not a stream's chunk)."""
    choices = items_of(mapping(body).get("choices"))
    return bool(choices) and all(isinstance(mapping(choice).get("message"), dict) for choice in choices)


def reply(body: dict[str, Any]) -> AgentResult:
    """Return the first choice's message, usage and finish reason. Raises BadReply if it is not a chat completion.

    Further choices are alternatives, not history: they are kept in the message's `meta` under `other_choices`.
    """
    if not is_reply(body):
        raise BadReply("not a chat completion: 'choices' with a 'message' missing")
    first, *others = (mapping(choice) for choice in items_of(body["choices"]))
    item = {**first["message"], "other_choices": others, "logprobs": first.get("logprobs")}
    item["role"] = item.get("role") or "assistant"
    item["id"] = item.get("id") or text_of(body.get("id"))
    model = text_of(body.get("model"))
    reason = text_of(first.get("finish_reason"))
    (read,) = message(item, CallIndex())
    read = as_sent_or_received(read, "openai", [_as_input(item)], lambda: _neutral_items(read))
    return AgentResult(
        messages=(replace(read, model=model),),
        usage=usage(body.get("usage")),
        stop_reason=stop_reason(reason),
        provider_stop_reason=reason,
        error=text_of(mapping(body.get("error")).get("message")) or None,
        model=model,
    )


def _as_input(item: dict[str, Any]) -> dict[str, Any]:
    """Return a reply's message with the fields that a request may have; servers reject those of an answer alone."""
    fields = {name: item[name] for name in ("role", "content", "refusal", "tool_calls") if item.get(name)}
    if audio_id := text_of(mapping(item.get("audio")).get("id")):
        fields["audio"] = {"id": audio_id}
    return fields


def usage(value: Any, prompt: str = "prompt", completion: str = "completion") -> TokenUsage:
    """Return usage as reported: the prompt includes cached tokens, the completion reasoning.

    `prompt` and `completion` are the names of both in the keys; the Responses API has others.
    """
    counts = mapping(value)
    before, after = (mapping(counts.get(f"{side}_tokens_details")) for side in (prompt, completion))
    return TokenUsage(
        input_tokens=number_of(counts.get(f"{prompt}_tokens")),
        output_tokens=number_of(counts.get(f"{completion}_tokens")),
        # DeepSeek and others report cache hits outside the details.
        cache_read_tokens=number_of(before.get("cached_tokens")) or number_of(counts.get(f"{prompt}_cache_hit_tokens")),
        cache_write_tokens=number_of(before.get("cache_write_tokens")),
        reasoning_tokens=number_of(after.get("reasoning_tokens")),
    )


def _read_content(content: Any, notes: dict[str, Any]) -> Iterator[Text | Image | Unknown]:
    for index, item in enumerate([content] if isinstance(content, str) else items_of(content)):
        fields = mapping(item)
        kind, image = text_of(fields.get("type")), fields.get("image_url")
        if isinstance(item, str):
            yield from text_part(item)
        elif kind in _TEXT_TYPES and isinstance(fields.get("text"), str):
            yield from text_part(fields["text"])
        elif kind == "refusal" and isinstance(fields.get("refusal"), str):
            notes["refusal"] = True
            yield from text_part(fields["refusal"])
        elif kind in _IMAGE_TYPES and (url := text_of(image) or text_of(mapping(image).get("url"))):
            yield data_or_url(url)
            fields = {**fields, **{name: value for name, value in mapping(image).items() if name != "url"}}
        else:
            yield Unknown(kind or "no type", compact_json(item))
            continue
        if more := rest_of(fields, _PART_FIELDS.get(kind, frozenset())):
            notes.setdefault("blocks", {})[str(index)] = more


def _read_calls(fields: dict[str, Any], calls: CallIndex, notes: dict[str, Any]) -> Iterator[Part]:
    listed = items_of(fields.get("tool_calls"))
    if isinstance(fields.get("function_call"), dict):
        listed = [*listed, {"type": "function", "function": fields["function_call"]}]
    made_ids: list[str] = []
    for index, item in enumerate(listed):
        call = mapping(item)
        custom = call.get("type") == "custom"
        function = mapping(call.get("custom" if custom else "function"))
        if not isinstance(function.get("name"), str):
            yield Unknown("tool_call", compact_json(item))
            continue
        call_id = text_of(call.get("id"))
        if not call_id:
            call_id = calls.made_id(index)
            made_ids.append(call_id)
        if custom:
            notes.setdefault("custom_calls", []).append(call_id)
        yield ToolCall(call_id, function["name"], arguments_text(function.get("input" if custom else "arguments")))
    if made_ids:
        notes["made_ids"] = made_ids


def _read_result(fields: dict[str, Any], calls: CallIndex) -> ToolResult:
    name = text_of(fields.get("name"))
    call_id = text_of(fields.get("tool_call_id")) or calls.oldest_open(name)
    parts = _read_content(fields.get("content"), {})
    content = (Text(part.raw) if isinstance(part, Unknown) else part for part in parts)
    return ToolResult(call_id, tuple(content), name or calls.name_of(call_id))
