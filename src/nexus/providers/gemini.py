"""Gemini generateContent: request bodies, and contents and replies read back, in snake case or camel case.

Requests: the system slot is in the configuration, `model` and `user` alternate, and calls are answered in their order.
`contents` comes last, so that the serialized body of the next call extends this one.

Reading: Gemini may omit call ids. Such a call gets `call_<n>`, listed in `meta` under `made_ids`, and its response is
matched by name. A thought signature on a part that is not a thought becomes an empty `Thinking` right before that part,
because the API requires it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    read_all,
    rest_of,
    split_results,
    standard_base64,
    text_of,
    text_part,
)
from nexus.providers.turns import ConversationParts, Fragment, owned, turns
from nexus.text.message_text import text_of_result, visible_parts
from nexus.types.message import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage

_json = msgspec.json.Decoder(dict[str, Any])

_ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "tool": "user",
    "system": "system",
}
_CONTENT_FIELDS = frozenset({"role", "parts"})
_CALL_FIELDS = frozenset({"id", "name", "args", "response", "parts"})
_KNOWN_PARTS = frozenset({"text", "function_call", "function_response", "inline_data"})
_PART_FIELDS = _KNOWN_PARTS | {"thought", "thought_signature"}


def body(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request: keyword arguments of `client.models.generate_content`."""
    contents: list[dict[str, Any]] = owned(conversation_parts(ctx).fragments)
    for before, after in pairwise(contents):
        after["parts"] = ordered(before["parts"], after["parts"])
    return {**body_without_messages(ctx), "contents": contents}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request before the contents: the model, and the configuration with settings, system slot and tools."""
    config: dict[str, Any] = {**ctx.model_config}
    if ctx.system_prompt:
        config["system_instruction"] = ctx.system_prompt
    if ctx.tools:
        declarations = [
            {"name": spec.name, "description": spec.description, "parameters_json_schema": spec.fresh_schema()}
            for spec in ctx.tools
        ]
        config["tools"] = [{"function_declarations": declarations}]
    return {"model": ctx.model, **({"config": config} if config else {})}


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the conversation in turns, read only; responses are not in the order of their calls yet."""
    return turns(ctx.history, "gemini", ctx.current, fragment, "parts")


def fragment(message: Message) -> Fragment:
    """Return one message in this format, without thinking: other providers' is not accepted."""
    if message.role == "assistant":
        return {"role": "model", "parts": [_part(part) for part in message.parts if isinstance(part, (Text, ToolCall))]}
    if message.role == "tool":
        return {"role": "user", "parts": [_response(result) for result in message.results()]}
    return {"role": "user", "parts": [_part(part) for part in visible_parts(message)]}


def ordered(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a content's parts with its leading responses in the order of the calls that they answer."""
    order = {part["function_call"]["id"]: index for index, part in enumerate(calls) if "function_call" in part}
    if len(order) <= 1:
        return answers
    return sorted(answers, key=lambda part: order.get(part.get("function_response", {}).get("id", ""), len(calls)))


def _response(result: ToolResult) -> dict[str, Any]:
    response = {"error" if result.is_error else "output": text_of_result(result)}
    # The API requires a name, which results of other providers may lack.
    return {"function_response": {"id": result.call_id, "name": result.name or "tool", "response": response}}


def _part(part: Text | Image | ToolCall) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case ToolCall(id_, name, arguments):
            return {"function_call": {"id": id_, "name": name, "args": _json.decode(arguments)}}
        case Image(media_type, data, url):
            if url:
                return {"file_data": {"file_uri": url, "mime_type": media_type}}
            return {"inline_data": {"mime_type": media_type, "data": data}}


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of a list of contents. Raises BadReply for an item that is not a content, with its index."""
    return read_all(items, message)


def message(item: Any, calls: CallIndex) -> tuple[Message, ...]:
    """Return one content as messages: function responses as a `tool` message, other parts next to them as one more."""
    fields = _snake(item)
    role = _ROLES.get(text_of(fields.get("role") or "user") or "?")
    listed = fields.get("parts")
    if role is None or not fields or not isinstance(listed, (list, type(None))):
        raise BadReply("not a content: 'role' is unknown, or 'parts' is not a list")
    made_ids: list[str] = []
    blocks: dict[str, Any] = {}
    parts: list[Part] = []
    answered: list[str] = []
    for index, part in enumerate(items_of(listed)):
        part_fields = _snake(part)
        parts += _read_part(part_fields, calls, made_ids, answered)
        # Parts of unknown kinds are kept as JSON, so only known ones have other fields.
        if any(part_fields.get(name) is not None for name in _KNOWN_PARTS):
            inner = {**_snake(part_fields.get("function_call")), **_snake(part_fields.get("function_response"))}
            if more := rest_of(part_fields, _PART_FIELDS) | rest_of(inner, _CALL_FIELDS):
                blocks[str(index)] = more
    notes = {name: value for name, value in (("made_ids", made_ids), ("blocks", blocks)) if value}
    return split_results(Message(role, tuple(parts), meta=meta_text(rest_of(fields, _CONTENT_FIELDS), notes)))


def is_reply(body: Any) -> bool:
    """Return True if the body is a GenerateContentResponse, blocked ones included."""
    fields = _snake(body)
    return isinstance(fields.get("candidates"), list) or isinstance(fields.get("prompt_feedback"), dict)


def reply(body: dict[str, Any]) -> AgentResult:
    """Return the first candidate's message, usage and finish reason; for a blocked prompt only an `error`.

    Further candidates are kept in the message's `meta`. Ids made for calls contain the response's id (or, without one, a
    hash of the parts), so that they differ between replies. Raises BadReply if the body is not a response.
    """
    if not is_reply(body):
        raise BadReply("not a GenerateContentResponse: 'candidates' and 'prompt_feedback' missing")
    fields = _snake(body)
    model = text_of(fields.get("model_version"))
    candidates = [_snake(candidate) for candidate in items_of(fields.get("candidates"))]
    if not candidates:
        reason = text_of(_snake(fields.get("prompt_feedback")).get("block_reason")) or "no candidate was returned"
        return AgentResult((), usage(fields.get("usage_metadata")), stop_reason=reason, error=reason, model=model)
    first, *others = candidates
    content: dict[str, Any] = {"parts": [], **_snake(first.get("content")), "role": "model"}
    if others:
        content["other_candidates"] = others
    response_id = text_of(fields.get("response_id"))
    unique = response_id or hashlib.sha256(compact_json(content).encode(errors="replace")).hexdigest()
    return AgentResult(
        messages=tuple(
            Message(m.role, m.parts, id=response_id, model=model, meta=m.meta)
            for m in message(content, CallIndex(f"call_{unique[:16]}_"))
        ),
        usage=usage(fields.get("usage_metadata")),
        stop_reason=text_of(first.get("finish_reason")),
        error=text_of(first.get("finish_message")) or None,
        model=model,
    )


def usage(value: Any) -> TokenUsage:
    """Return usage with thoughts added to the output, from which Gemini excludes them; the prompt includes cached tokens."""
    counts = _snake(value)
    thoughts = number_of(counts.get("thoughts_token_count"))
    prompt = number_of(counts.get("prompt_token_count")) + number_of(counts.get("tool_use_prompt_token_count"))
    return TokenUsage(
        input_tokens=prompt,
        output_tokens=number_of(counts.get("candidates_token_count")) + thoughts,
        cache_read_tokens=number_of(counts.get("cached_content_token_count")),
        reasoning_tokens=thoughts,
    )


def _snake(value: Any) -> dict[str, Any]:
    """Return the object with its own field names in snake case; values are unchanged."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): item
        for name, item in mapping(value).items()
    }


def _read_part(part: dict[str, Any], calls: CallIndex, made_ids: list[str], answered: list[str]) -> Iterator[Part]:
    value = part.get("thought_signature")
    signature = standard_base64(value) if isinstance(value, (bytes, bytearray)) else text_of(value)
    if part.get("thought") and isinstance(part.get("text"), str):
        yield Thinking(part["text"], signature=signature)
        return
    if signature:
        yield Thinking("", signature=signature)
    call, response = _snake(part.get("function_call")), _snake(part.get("function_response"))
    if isinstance(part.get("text"), str):
        yield from text_part(part["text"])
    elif isinstance(call.get("name"), str):
        call_id = text_of(call.get("id"))
        if not call_id:
            call_id = calls.made_id(len(made_ids))
            made_ids.append(call_id)
        yield ToolCall(call_id, call["name"], arguments_text(call.get("args")))
    elif isinstance(response.get("name"), str):
        result = _read_result(response, calls, answered)
        answered.append(result.call_id)
        yield result
    elif image := _read_image(part):
        yield image
    elif rest := {name: value for name, value in part.items() if value is not None and name != "thought_signature"}:
        yield Unknown(next(iter(rest)), compact_json(rest))


def _read_image(part: dict[str, Any]) -> Image | None:
    blob, file = _snake(part.get("inline_data")), _snake(part.get("file_data"))
    media_type = text_of(blob.get("mime_type")) or text_of(file.get("mime_type"))
    if not media_type.startswith("image/"):
        return None
    if blob:
        return Image(media_type, data=standard_base64(blob.get("data")))
    return Image(media_type, url=text_of(file.get("file_uri")))


def _read_result(response: dict[str, Any], calls: CallIndex, answered: Sequence[str]) -> ToolResult:
    """Return a response as a result: a single `output`, `result` or `error` text as text, any other object as JSON."""
    name = text_of(response.get("name"))
    value = mapping(response.get("response"))
    key = next(iter(value)) if len(value) == 1 else ""
    content: list[Text | Image] = []
    if key in ("output", "result", "error") and isinstance(value[key], str):
        content += (part for part in text_part(value[key]) if isinstance(part, Text))
    elif value:
        content.append(Text(compact_json(value)))
    for part in items_of(response.get("parts")):
        content.append(_read_image(_snake(part)) or Text(compact_json(part)))
    call_id = text_of(response.get("id")) or calls.oldest_open(name, answered)
    return ToolResult(call_id, tuple(content), name, is_error="error" in value)
