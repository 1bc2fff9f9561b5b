"""OpenAI chat completions: request bodies, and messages and completions read back; also for compatible servers.

Requests: system first, real roles, one tool message for each result; prompts are cached automatically. Keys that vary
little come first and `messages` last, so that the serialized body of the next call extends this one. Thinking of
compatible servers (`reasoning_content`, `reasoning`, `reasoning_details`, Mistral's blocks, Google's signatures) goes back
as it came, to the model that wrote it.

Reading: reasoning first, then text, then calls, as the model produced them. Calls without an id (the older
`function_call`, some servers) get `call_<n>`, listed in `meta` under `made_ids`. Other fields (a participant's name,
annotations, log probabilities) are kept in `meta`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers.errors import error_text
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    as_sent_or_received,
    compact_json,
    content_items,
    data_or_url,
    items_of,
    list_or_one,
    mapping,
    meta_text,
    number_of,
    read_all,
    read_role_and_content,
    rest_of,
    text_of,
    text_part,
    with_author,
)
from nexus.providers.server_edits import cache_miss_reason
from nexus.providers.settings import body_settings
from nexus.providers.signatures import call_signatures, must_sign_calls
from nexus.providers.tools import chat_tools
from nexus.providers.turns import CONTINUE, ConversationParts, items, owned, with_request
from nexus.text.as_received import REASONING_FIELDS, REASONING_RENDER, received_items, with_openai_ids
from nexus.text.message_text import RENDER_VERSION, system_note, text_of_result, visible_parts
from nexus.tokens.model_names import base_model_name, same_model
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
_NAME = re.compile(r"[^\s<|\\/>]{1,64}\Z")
NAME_CHANGED = "name of a message changed"
"""The change in the repair report."""
_UNSAFE = re.compile(r"[\s<|\\/>]")
"""Characters that OpenAI refuses in a participant's name."""

_COMMON_FIELDS = frozenset({"role", "content", "id"})
_ASSISTANT_FIELDS = _COMMON_FIELDS | {"tool_calls", "function_call", "reasoning_content", "reasoning", "refusal"}
_TOOL_FIELDS = _COMMON_FIELDS | {"tool_call_id", "name"}
_MESSAGE_FIELDS = frozenset({"role", "content", "name"})
_REQUEST_FIELDS = {
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": _MESSAGE_FIELDS
    | {"tool_calls", "function_call", "refusal", "audio"}
    # Compatible servers take these too.
    | {*REASONING_FIELDS, "prefix"},
}
"""Fields that a request may have in a message of this role, `_MESSAGE_FIELDS` in one of any other."""
_CALL_FIELDS = frozenset({"id", "type", "function", "index"})
_TEXT_TYPES = ("text", "input_text", "output_text")
_IMAGE_TYPES = ("image_url", "input_image")
_PART_FIELDS = {
    **dict.fromkeys(_TEXT_TYPES, frozenset({"type", "text", "cache_control"})),
    **dict.fromkeys(_IMAGE_TYPES, frozenset({"type", "image_url", "cache_control"})),
    "refusal": frozenset({"type", "refusal"}),
}


def body(ctx: AssembledContext, *, shared: bool = False) -> dict[str, Any]:
    """Return the request body: keyword arguments of `client.chat.completions.create`.

    The caller may change it, but no message if they are `shared` with later calls.
    """
    messages = conversation_parts(ctx).fragments
    return {**body_without_messages(ctx), "messages": messages if shared else owned(messages)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the body before the messages: model, settings, tools."""
    out: dict[str, Any] = {"model": ctx.model, **body_settings(ctx, "openai")}
    if tools := chat_tools(ctx):
        out["tools"] = tools
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the system slot and the conversation, read only."""
    system: list[dict[str, Any]] = []
    if ctx.system_prompt:
        system = [*_system_messages(ctx.system_prompt, ctx.provenance.manifest.system_names)]
    render = ctx.provenance.manifest.render
    if render < REASONING_RENDER:
        return items(ctx.history, "openai", ctx.current, lambda m: fragment(m, render=render), leading=system)
    # Templates of compatible servers may refuse system messages that another format's list has further on.
    is_own = ctx.provider == "openai"
    key = f"openai:{ctx.model}:{is_own}"
    write = partial(fragment, model=ctx.model, keeps_system=is_own)
    parts = items(ctx.history, key, ctx.current, lambda m: write(with_openai_ids(m)), leading=system)
    return with_request(parts, {"role": "user", "content": CONTINUE}, render)


def _system_messages(text: str, names: Sequence[tuple[int, int, str]]) -> Iterator[dict[str, Any]]:
    """Yield the system messages in which the caller's prompt came, with their names, and the rest as one."""
    if not names:
        yield {"role": "system", "content": text}
        return
    pieces = [(text[start:end], name) for start, end, name in names]
    pieces.append((text[names[-1][1] :].removeprefix("\n\n"), ""))
    for content, name in pieces:
        if content.strip() and name:
            yield _with_valid_name({"role": "system", "content": content, "name": name})
        elif content.strip():
            yield {"role": "system", "content": content}


def participant_name(message: Message) -> str:
    """Return the name of the participant who wrote a message in this format; empty if it has none."""
    if '"name":' not in message.meta:
        return ""
    items = received_items(message, "openai", with_images=False)
    if items:
        return text_of(items[0].get("name"))
    return ""


def fragment(
    message: Message, model: str = "", *, render: int = RENDER_VERSION, keeps_system: bool = True
) -> list[dict[str, Any]]:
    """Return one message in this format, as received if it was; several for several results.

    Thinking is sent only to the model that wrote it; without a name, or if the author is unknown, to any. Without
    `keeps_system`, another format's system message is a user's.
    """
    with_thinking = not (model and message.model) or same_model(message.model, model)
    received = received_items(message, "openai", with_thinking=with_thinking, render=render)
    if received is None and message.role == "system" and keeps_system and (text := message.text()).strip():
        return [{"role": "system", "content": text}]
    if received is None:
        output = _neutral_items(message)
    else:
        output = received
    if render < REASONING_RENDER:
        return output
    output = [_with_valid_name(item) for item in output]
    if message.role != "assistant":
        return output
    if received is not None:
        output = [_with_sendable_calls(item, message) for item in output]
    return [_with_required_thinking(item, message, model) for item in output]


def _with_valid_name(item: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a participant's name that OpenAI accepts, or without it if it is empty or not text."""
    if not has_refused_name(item):
        return item
    name = item["name"]
    changed = ""
    if isinstance(name, str):
        changed = _UNSAFE.sub("_", name)[:64]
    rest = {field: value for field, value in item.items() if field != "name"}
    if changed:
        return {**rest, "name": changed}
    return rest


def has_refused_name(item: dict[str, Any]) -> bool:
    """Return True if a message has a participant's name that OpenAI refuses."""
    if "name" not in item or item.get("role") == "tool":
        return False
    return _NAME.match(text_of(item["name"])) is None


def has_changed_name(message: Message) -> bool:
    """Return True if a participant's name was received that is sent in another form."""
    if '"name":' not in message.meta or message.role == "tool":
        return False
    return any(map(has_refused_name, received_items(message, "openai", with_images=False) or []))


_MUST_HAVE_REASONING = ("deepseek", "kimi")
"""Beginnings of models that refuse calls without `reasoning_content` while they think, also calls of other models:
https://github.com/anomalyco/opencode/issues/24722, https://github.com/MoonshotAI/kimi-cli/issues/2141."""


def must_have_reasoning(model: str) -> bool:
    """Return True if the model refuses calls without `reasoning_content`."""
    return base_model_name(model).startswith(_MUST_HAVE_REASONING)


def _with_required_thinking(item: dict[str, Any], message: Message, model: str) -> dict[str, Any]:
    """Return an assistant's item with the thought, possibly empty, or the signatures that the model requires."""
    calls = list_or_one(item.get("tool_calls"))
    if not calls:
        return item
    if must_have_reasoning(model) and not REASONING_FIELDS & item.keys():
        is_author = same_model(message.model, model)
        thoughts = [part.text for part in message.parts if isinstance(part, Thinking) and not part.signature]
        return {**item, "reasoning_content": "\n".join(thoughts) if is_author else ""}
    signatures = call_signatures(message, model) if must_sign_calls(model) else []
    # Gateways keep the signatures in the details.
    if len(signatures) != len(calls) or item.get("reasoning_details"):
        return item
    signed_calls: list[Any] = []
    for call, signature in zip(calls, signatures, strict=True):
        if signature and "extra_content" not in call:
            signed_calls.append({**call, "extra_content": {"google": {"thought_signature": signature}}})
        else:
            signed_calls.append(call)
    return {**item, "tool_calls": signed_calls}


def _neutral_items(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": text_of_result(result)}
            for result in message.results()
        ]
    if message.role == "assistant":
        texts = [{"type": "text", "text": part.text} for part in message.parts if isinstance(part, Text)]
        item: dict[str, Any] = {"role": "assistant", "content": texts or None}
        if len(texts) == 1:
            item["content"] = texts[0]["text"]
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls()
        ]
        if calls:
            item["tool_calls"] = calls
        return [item]
    return [user_item(message, _content_part)]


def user_item(message: Message, content_part: Callable[[Text | Image], dict[str, Any]]) -> dict[str, Any]:
    """Return a user's message, or a system message as a user's: one text as such, other parts as a list."""
    parts = visible_parts(system_note(message) if message.role == "system" else message)
    if len(parts) == 1 and isinstance(parts[0], Text):
        return {"role": "user", "content": parts[0].text}
    return {"role": "user", "content": [content_part(part) for part in parts]}


def _content_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}}


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of a conversation. Raises BadReply for an item that is not a message, with its index."""
    return read_all(items, message)


def received_message(item: Any, calls: CallIndex, author: str = "") -> tuple[Message, ...]:
    """Return one item of a request as one message that is sent as received. Raises BadReply if it is not a message."""
    (read,) = with_author(message(item, calls), author)
    fields = mapping(item)
    allowed = _REQUEST_FIELDS.get(text_of(fields.get("role")), _MESSAGE_FIELDS)
    received = {name: value for name, value in fields.items() if name in allowed}
    if read.role == "tool":  # the role `function` has no id
        call_id = next(read.results()).call_id
        received = {"role": "tool", "tool_call_id": call_id, "content": received.get("content") or ""}
    return (as_sent_or_received(read, "openai", [received], lambda: _neutral_items(read)),)


def message(item: Any, calls: CallIndex, *, in_reply: bool = False) -> tuple[Message, ...]:
    """Return one item as one message; `calls` are the calls before it. Raises BadReply if it is not a message.

    In a reply, calls with equal ids get other ones: their results are still to come.
    """
    fields, role, content = read_role_and_content(item, _ROLES)
    notes: dict[str, Any] = {}
    if fields["role"] in ("developer", "function"):
        notes["role"] = text_of(fields["role"])
    if role == "tool":
        parts: tuple[Part, ...] = (_read_result(fields, calls),)
        known_fields = _TOOL_FIELDS
    elif role == "assistant":
        refusal = text_of(fields.get("refusal"))
        texts: list[Part] = [*_read_thinking(fields), *_read_content(content, notes)]
        if refusal:
            texts.append(Text(refusal))
            notes["refusal"] = True
        if not content and (audio := mapping(fields.get("audio"))):
            transcript = text_of(audio.get("transcript"))
            texts.append(Text(transcript) if transcript else Unknown("audio", compact_json({"audio": audio})))
        parts = (*texts, *_read_calls(fields, calls, notes, in_reply=in_reply))
        known_fields = _ASSISTANT_FIELDS
    else:
        parts = tuple(_read_content(content, notes))
        known_fields = _COMMON_FIELDS
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
    (read,) = message(item, CallIndex(), in_reply=True)
    read = as_sent_or_received(read, "openai", [_as_input(item)], lambda: _neutral_items(read))
    return AgentResult(
        messages=(replace(read, model=model),),
        usage=usage(body.get("usage")),
        stop_reason=stop_reason(reason or "stop", has_calls=any(True for _ in read.calls())),
        provider_stop_reason=reason,
        error=error_text(body.get("error") or first.get("error")) or None,
        model=model,
        cache_miss_reason=cache_miss_reason(body),
    )


def _with_sendable_calls(item: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a received message with the calls of its parts: with an id, a type, a name, and arguments as text.

    Other fields of the calls are as received. A custom tool's input is free text, which the parts may have as an object.
    """
    listed = list_or_one(item.get("tool_calls"))
    entries = [call for call in map(mapping, listed) if call]
    if len(entries) != sum(1 for _ in message.calls()):  # earlier versions read no call where the name was missing
        entries = [call for call in entries if isinstance(_function_of(call).get("name"), str)]
    calls: list[dict[str, Any]] = []
    for call, part in zip(entries, message.calls(), strict=False):
        if call.get("type") == "custom":
            kind = "custom"
            function = {**_function_of(call), "name": part.name, "input": text_of(_function_of(call).get("input"))}
        else:
            kind = "function"
            function = {**_function_of(call), "name": part.name, "arguments": part.arguments}
        fields = {name: value for name, value in call.items() if name != "index"}
        calls.append({**fields, "id": part.id, "type": kind, kind: function})
    if legacy := mapping(item.get("function_call")):
        item = {**item, "function_call": {**legacy, "arguments": arguments_text(legacy.get("arguments"))}}
    if not listed or calls == item["tool_calls"]:
        return item
    if calls:
        return {**item, "tool_calls": calls}
    return {name: value for name, value in item.items() if name != "tool_calls"}


def _function_of(call: dict[str, Any]) -> dict[str, Any]:
    return mapping(call.get("custom" if call.get("type") == "custom" else "function"))


def _as_input(item: dict[str, Any]) -> dict[str, Any]:
    """Return a reply's message with the fields that a request may have; servers reject those of an answer alone."""
    names = ("role", "content", "refusal", "reasoning_content", "reasoning", "reasoning_details")
    fields = {name: item[name] for name in names if item.get(name)}
    if calls := [_as_input_call(mapping(call)) for call in list_or_one(item.get("tool_calls"))]:
        fields.setdefault("content", None)
        if item.get("reasoning_content") == "":
            fields["reasoning_content"] = ""  # some servers refuse calls without the field
        fields["tool_calls"] = calls
    if audio_id := text_of(mapping(item.get("audio")).get("id")):
        fields["audio"] = {"id": audio_id}
    return fields


def _as_input_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its fields in the same order, whether they came in a stream or not."""
    fields = {name: call[name] for name in ("id", "type", "function") if name in call}
    if "function" in fields:
        function = mapping(call["function"])
        ordered = {name: function[name] for name in ("name", "arguments") if name in function}
        fields["function"] = {**ordered, **function}
    return {**fields, **rest_of(call, _CALL_FIELDS)}


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


def _read_thinking(fields: dict[str, Any]) -> Iterator[Thinking]:
    """Yield the thinking of an assistant's message. The text may be empty if there are calls or encrypted details."""
    text = text_of_reasoning(fields)
    has_details = bool(items_of(fields.get("reasoning_details")))
    if text or has_details or (fields.get("tool_calls") and isinstance(fields.get("reasoning_content"), str)):
        yield Thinking(text)


def text_of_reasoning(fields: dict[str, Any]) -> str:
    """Return the thinking in a message or a delta of a compatible server, under the first of its names."""
    if text := text_of(fields.get("reasoning_content")) or text_of(fields.get("reasoning")):
        return text
    details = [mapping(detail) for detail in items_of(fields.get("reasoning_details"))]
    return "".join(text_of(detail.get("text")) or text_of(detail.get("summary")) for detail in details)


def _read_content(content: Any, notes: dict[str, Any]) -> Iterator[Text | Image | Thinking | Unknown]:
    for index, item in enumerate(content_items(content)):
        fields = mapping(item)
        kind = text_of(fields.get("type"))
        image = fields.get("image_url")
        if isinstance(item, str):
            yield from text_part(item)
        elif kind in _TEXT_TYPES and isinstance(fields.get("text"), str):
            yield from text_part(fields["text"])
        elif kind == "refusal" and isinstance(fields.get("refusal"), str):
            notes["refusal"] = True
            yield from text_part(fields["refusal"])
        elif kind == "thinking" and (thought := text_of_thinking(fields)):  # Mistral's
            yield Thinking(thought)
        elif kind in _IMAGE_TYPES and (url := text_of(image) or text_of(mapping(image).get("url"))):
            yield data_or_url(url)
            fields = {**fields, **{name: value for name, value in mapping(image).items() if name != "url"}}
        else:
            yield Unknown(kind or "no type", compact_json(item))
            continue
        if more := rest_of(fields, _PART_FIELDS.get(kind, frozenset())):
            notes.setdefault("blocks", {})[str(index)] = more


def _read_calls(fields: dict[str, Any], calls: CallIndex, notes: dict[str, Any], *, in_reply: bool) -> Iterator[Part]:
    listed = list_or_one(fields.get("tool_calls"))
    if isinstance(fields.get("function_call"), dict):
        listed = [*listed, {"type": "function", "function": fields["function_call"]}]
    made_ids: list[str] = []
    used_ids: set[str] = set()
    for index, item in enumerate(listed):
        call = mapping(item)
        function = _function_of(call)
        if not call:
            yield Unknown("tool_call", compact_json(item))
            continue
        call_id = text_of(call.get("id"))
        if not call_id or (in_reply and call_id in used_ids):
            call_id = calls.made_id(index)
            made_ids.append(call_id)
        used_ids.add(call_id)
        arguments = function.get("arguments")
        if call.get("type") == "custom":
            notes.setdefault("custom_calls", []).append(call_id)
            arguments = function.get("input")
        google = mapping(mapping(call.get("extra_content")).get("google"))
        if signature := text_of(google.get("thought_signature")):
            yield Thinking("", signature=signature)
        yield ToolCall(call_id, text_of(function.get("name")), arguments_text(arguments))
    if made_ids:
        notes["made_ids"] = made_ids


def _read_result(fields: dict[str, Any], calls: CallIndex) -> ToolResult:
    name = text_of(fields.get("name"))
    call_id = text_of(fields.get("tool_call_id")) or calls.oldest_open(name)
    content: list[Text | Image] = []
    for part in _read_content(fields.get("content"), {}):
        if isinstance(part, Unknown):
            content.append(Text(part.raw))
        elif not isinstance(part, Thinking):
            content.append(part)
    return ToolResult(call_id, tuple(content), name or calls.name_of(call_id))


def text_of_thinking(fields: dict[str, Any]) -> str:
    """Return the text of a block of thinking: a text, or a list of texts."""
    thinking = fields.get("thinking")
    return text_of(thinking) or "".join(text_of(mapping(part).get("text")) for part in items_of(thinking))
