"""Gemini generateContent: request bodies, and contents and replies read back, in snake case or camel case.

Requests: the system slot is in the configuration, `model` and `user` alternate, and calls are answered in their order.
`contents` comes last, so that the serialized body of the next call extends this one.

Reading: Gemini may omit call ids. Such a call gets `call_<n>`, listed in `meta` under `made_ids`, and its response is
matched by name. A thought signature on a part that is not a thought becomes an empty `Thinking` right before that part,
because the API requires it there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    as_sent_or_received,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    present_fields,
    read_all,
    rest_of,
    split_results,
    standard_base64,
    text_of,
    text_part,
    with_author,
)
from nexus.providers.settings import body_settings
from nexus.providers.signatures import SIGNED_CALLS_RENDER, call_signatures
from nexus.providers.tools import gemini_tools
from nexus.providers.turns import CONTINUE, ConversationParts, Fragment, owned, turns, with_request
from nexus.text.as_received import received_items
from nexus.text.message_text import RENDER_VERSION, system_note, text_of_result, visible_parts
from nexus.tokens.model_names import same_model
from nexus.types.message import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.sanitize import arguments_as_object
from nexus.types.stop_reasons import stop_reason

_json = msgspec.json.Decoder(dict[str, Any])
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")

_ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "tool": "user",
    "system": "system",
}
_NESTED = (
    "function_call",
    "function_response",
    "inline_data",
    "file_data",
    "video_metadata",
    "tool_call",
    "tool_response",
)
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


def has_unordered_results(ctx: AssembledContext) -> bool:
    """Return True if results are sent in another order than they were received: the order of their calls."""
    contents = conversation_parts(ctx).fragments
    return any(
        _answers_in(ordered(before["parts"], after["parts"])) != _answers_in(after["parts"])
        for before, after in pairwise(contents)
    )


def _answers_in(parts: list[dict[str, Any]]) -> list[Any]:
    responses = [part["function_response"] for part in parts if "function_response" in part]
    return [(response.get("name"), response.get("response")) for response in responses]


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request before the contents: the model, and the configuration with settings, system slot and tools."""
    config = _flat_settings(body_settings(ctx, "gemini"))
    if ctx.system_prompt:
        config["system_instruction"] = ctx.system_prompt
    if tools := gemini_tools(ctx):
        config["tools"] = tools
    return {"model": ctx.model, **({"config": config} if config else {})}


def snake_case(name: str) -> str:
    """Return the Python client's name of a field that may have its REST name."""
    return _CAPITAL.sub("_", name).lower()


def _flat_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings under the Python client's names, which has no `generationConfig` around some of them."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if snake_case(name) == "generation_config":
            flat.update((snake_case(key), inner) for key, inner in mapping(value).items())
        else:
            flat[snake_case(name)] = value
    return flat


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the conversation in turns, read only; responses are not in the order of their calls yet."""
    render = ctx.provenance.manifest.render
    parts = turns(
        ctx.history,
        f"gemini:{ctx.model}",
        ctx.current,
        lambda message: fragment(message, ctx.model, render=render),
        "parts",
    )
    return with_request(parts, {"role": "user", "parts": [{"text": CONTINUE}]}, render)


def fragment(message: Message, model: str, *, render: int = RENDER_VERSION) -> Fragment:
    """Return one message in this format, as received if it was, with thoughts and signatures only for their author.

    The parts of a message give no thoughts: other providers' are not accepted. Calls have their signatures, or the
    placeholder where the model requires one.
    """
    with_thinking = not message.model or same_model(message.model, model)
    received = received_items(message, "gemini", with_thinking=with_thinking, render=render)
    if received is None:
        item = _neutral_item(message)
    else:
        item = received[0]
    if render < SIGNED_CALLS_RENDER or message.role != "assistant":
        return item
    item = {**item, "parts": [_with_arguments(part) for part in item["parts"]]}
    return _with_signatures(item, call_signatures(message, model))


def _with_arguments(part: dict[str, Any]) -> dict[str, Any]:
    """Return a received call with arguments that are an object."""
    call = part.get("function_call")
    if not isinstance(call, dict) or isinstance(mapping(call).get("args", {}), dict):
        return part
    arguments = arguments_as_object(arguments_text(mapping(call)["args"]))
    return {**part, "function_call": {**mapping(call), "args": _json.decode(arguments)}}


def _with_signatures(item: Fragment, signatures: list[str]) -> Fragment:
    """Return a model's content in which calls without a signature have theirs."""
    calls = [part for part in item["parts"] if "function_call" in part]
    if not any(signatures) or len(signatures) != len(calls):
        return item
    parts: list[dict[str, Any]] = []
    waiting = iter(signatures)
    for part in item["parts"]:
        signature = next(waiting) if "function_call" in part else ""
        if signature and not part.get("thought_signature"):
            parts.append({**part, "thought_signature": signature})
        else:
            parts.append(part)
    return {**item, "parts": parts}


def _neutral_item(message: Message) -> Fragment:
    if message.role == "assistant":
        return {"role": "model", "parts": [_part(part) for part in message.parts if isinstance(part, (Text, ToolCall))]}
    if message.role == "tool":
        return {"role": "user", "parts": [_response(result) for result in message.results()]}
    if message.role == "system":
        user_message = system_note(message)
    else:
        user_message = message
    return {"role": "user", "parts": [_part(part) for part in visible_parts(user_message)]}


def ordered(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a content's parts with its leading responses in the order of the calls that they answer.

    Calls that were received without ids are answered without ids, by their names and order.
    """
    function_calls = [part["function_call"] for part in calls if "function_call" in part]
    ids = [call.get("id") for call in function_calls]
    if ids and not any(ids):
        unnamed = [_without_id(part) for part in answers]
        names = [call.get("name") for call in function_calls]
        places = [_place_of_call(part, names) for part in unnamed]
        return [unnamed[index] for index in sorted(range(len(unnamed)), key=places.__getitem__)]
    if len(ids) <= 1:
        return answers
    order = {call_id: index for index, call_id in enumerate(ids) if call_id}
    return sorted(answers, key=lambda part: order.get(part.get("function_response", {}).get("id", ""), len(calls)))


def _without_id(part: dict[str, Any]) -> dict[str, Any]:
    if "function_response" not in part:
        return part
    response = {name: value for name, value in part["function_response"].items() if name != "id"}
    return {**part, "function_response": response}


def _place_of_call(part: dict[str, Any], names: list[str]) -> int:
    """Return the place of the first call of a response's name, which is taken from `names`; the end for other parts."""
    name = part.get("function_response", {}).get("name", "")
    if name not in names:
        return len(names)
    place = names.index(name)
    names[place] = ""
    return place


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


def received_message(item: Any, calls: CallIndex, author: str = "") -> tuple[Message, ...]:
    """Return one content of a request as messages that are sent as received. Raises BadReply if it is not a content."""
    fields = in_snake_case(item)
    return tuple(_with_parts_as_received(m, fields) for m in with_author(message(item, calls), author))


def _with_parts_as_received(message: Message, item: dict[str, Any]) -> Message:
    if message.role == "system":
        return message  # no content has this role
    parts = [_as_input(part) for part in items_of(item.get("parts"))]
    if message.role in ("user", "tool"):
        is_tool = message.role == "tool"
        parts = [part for part in parts if ("function_response" in part) == is_tool]
    responses = [part["function_response"] for part in parts if part.get("function_response")]
    if not all(text_of(mapping(response).get("name")) for response in responses):
        return message  # the name is that of its call
    role = "model" if message.role == "assistant" else "user"
    received = {"role": role, "parts": [part for part in parts if part]}
    return as_sent_or_received(message, "gemini", [received], lambda: [_neutral_item(message)])


def _with_id(part: dict[str, Any], ids: Iterator[str]) -> dict[str, Any]:
    call = mapping(part.get("function_call"))
    if not call:
        return part
    return {**part, "function_call": {**call, "id": next(ids)}}


def _as_input(part: Any) -> dict[str, Any]:
    """Return a part with its names in snake case, as the package has them, without nulls, and with standard base64."""
    fields = present_fields(in_snake_case(part))
    for name in _NESTED:
        if isinstance(fields.get(name), dict):
            fields[name] = present_fields(in_snake_case(fields[name]))
    if isinstance(fields.get("function_response"), dict):
        response: dict[str, Any] = fields["function_response"]
        content = response.get("response")
        if not isinstance(content, dict):
            response["response"] = {} if content is None else {"output": content}
        if isinstance(response.get("parts"), list):
            response["parts"] = [_as_input(inner) for inner in response["parts"]]
    if "data" in mapping(fields.get("inline_data")):
        fields["inline_data"]["data"] = standard_base64(fields["inline_data"]["data"])
    return fields


def message(item: Any, calls: CallIndex) -> tuple[Message, ...]:
    """Return one content as messages: function responses as a `tool` message, other parts next to them as one more."""
    fields = in_snake_case(item)
    role = _ROLES.get(text_of(fields.get("role") or "user") or "?")
    listed = fields.get("parts")
    if role is None or not fields or not isinstance(listed, (list, type(None))):
        raise BadReply("not a content: 'role' is unknown, or 'parts' is not a list")
    made_ids: list[str] = []
    blocks: dict[str, Any] = {}
    parts: list[Part] = []
    answered: list[str] = []
    for index, part in enumerate(items_of(listed)):
        part_fields = in_snake_case(part)
        parts += _read_part(part_fields, calls, made_ids, answered)
        # Parts of unknown kinds are kept as JSON, so only known ones have other fields.
        if any(part_fields.get(name) is not None for name in _KNOWN_PARTS):
            inner = {
                **in_snake_case(part_fields.get("function_call")),
                **in_snake_case(part_fields.get("function_response")),
            }
            if more := rest_of(part_fields, _PART_FIELDS) | rest_of(inner, _CALL_FIELDS):
                blocks[str(index)] = more
    notes: dict[str, Any] = {}
    if made_ids:
        notes["made_ids"] = made_ids
    if blocks:
        notes["blocks"] = blocks
    return split_results(Message(role, tuple(parts), meta=meta_text(rest_of(fields, _CONTENT_FIELDS), notes)))


def is_reply(body: Any) -> bool:
    """Return True if the body is a GenerateContentResponse, blocked ones included."""
    fields = in_snake_case(body)
    return isinstance(fields.get("candidates"), list) or isinstance(fields.get("prompt_feedback"), dict)


def reply(body: dict[str, Any]) -> AgentResult:
    """Return the first candidate's message, usage and finish reason; for a blocked prompt only an `error`.

    Further candidates are kept in the message's `meta`. Ids made for calls contain the response's id (or, without one, a
    hash of the parts), so that they differ between replies. Raises BadReply if the body is not a response.
    """
    if not is_reply(body):
        raise BadReply("not a GenerateContentResponse: 'candidates' and 'prompt_feedback' missing")
    fields = in_snake_case(body)
    model = text_of(fields.get("model_version"))
    candidates = [in_snake_case(candidate) for candidate in items_of(fields.get("candidates"))]
    if not candidates:
        feedback = in_snake_case(fields.get("prompt_feedback"))
        reason = text_of(feedback.get("block_reason")) or "no candidate was returned"
        tokens = usage(fields.get("usage_metadata"))
        return AgentResult((), tokens, "content_filter", error=reason, model=model, provider_stop_reason=reason)
    first, *others = candidates
    content: dict[str, Any] = {"parts": [], **in_snake_case(first.get("content")), "role": "model"}
    if others:
        content["other_candidates"] = others
    response_id = text_of(fields.get("response_id"))
    unique = response_id or hashlib.sha256(compact_json(content).encode(errors="replace")).hexdigest()
    reason = text_of(first.get("finish_reason"))
    read = message(content, CallIndex(f"call_{unique[:16]}_"))
    # Results name their call by its id, so calls are sent with the ids that were made for them.
    ids = (call.id for m in read for call in m.calls())
    content["parts"] = [_with_id(_as_input(part), ids) for part in items_of(content["parts"])]
    messages = tuple(_with_parts_as_received(replace(m, id=response_id, model=model), content) for m in read)
    return AgentResult(
        messages=messages,
        usage=usage(fields.get("usage_metadata")),
        stop_reason=stop_reason(reason, has_calls=any(True for m in messages for _ in m.calls())),
        provider_stop_reason=reason,
        error=text_of(first.get("finish_message")) or None,
        model=model,
    )


def usage(value: Any) -> TokenUsage:
    """Return usage with thoughts added to the output, from which Gemini excludes them; the prompt includes cached tokens."""
    counts = in_snake_case(value)
    thoughts = number_of(counts.get("thoughts_token_count"))
    prompt = number_of(counts.get("prompt_token_count")) + number_of(counts.get("tool_use_prompt_token_count"))
    return TokenUsage(
        input_tokens=prompt,
        output_tokens=number_of(counts.get("candidates_token_count")) + thoughts,
        cache_read_tokens=number_of(counts.get("cached_content_token_count")),
        reasoning_tokens=thoughts,
    )


def in_snake_case(value: Any) -> dict[str, Any]:
    """Return the object with its own field names in snake case; values are unchanged."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): item
        for name, item in mapping(value).items()
    }


def _read_part(part: dict[str, Any], calls: CallIndex, made_ids: list[str], answered: list[str]) -> Iterator[Part]:
    value = part.get("thought_signature")
    if isinstance(value, (bytes, bytearray)):
        signature = standard_base64(value)
    else:
        signature = text_of(value)
    if part.get("thought") and isinstance(part.get("text"), str):
        yield Thinking(part["text"], signature=signature)
        return
    if signature:
        yield Thinking("", signature=signature)
    call = in_snake_case(part.get("function_call"))
    response = in_snake_case(part.get("function_response"))
    if isinstance(part.get("text"), str):
        yield from text_part(part["text"])
    elif call:
        call_id = text_of(call.get("id"))
        if not call_id:
            call_id = calls.made_id(len(made_ids))
            made_ids.append(call_id)
        yield ToolCall(call_id, text_of(call.get("name")), arguments_text(call.get("args")))
    elif response:
        result = _read_result(response, calls, answered)
        answered.append(result.call_id)
        yield result
    elif image := _read_image(part):
        yield image
    elif rest := {name: value for name, value in part.items() if value is not None and name != "thought_signature"}:
        yield Unknown(next(iter(rest)), compact_json(rest))


def _read_image(part: dict[str, Any]) -> Image | None:
    blob = in_snake_case(part.get("inline_data"))
    file = in_snake_case(part.get("file_data"))
    media_type = text_of(blob.get("mime_type")) or text_of(file.get("mime_type"))
    if not media_type.lower().startswith("image/"):
        return None
    if blob:
        return Image(media_type, data=standard_base64(blob.get("data")))
    return Image(media_type, url=text_of(file.get("file_uri")))


def _read_result(response: dict[str, Any], calls: CallIndex, answered: Sequence[str]) -> ToolResult:
    """Return a response as a result: a single `output`, `result` or `error` text as text, any other object as JSON."""
    call_id = text_of(response.get("id"))
    name = text_of(response.get("name")) or calls.name_of(call_id) or calls.name_of(calls.first_open(answered))
    received = response.get("response")
    if isinstance(received, (dict, type(None))):
        value = mapping(received)
    else:
        value = {"output": received}
    key = next(iter(value)) if len(value) == 1 else ""
    content: list[Text | Image] = []
    if key in ("output", "result", "error") and isinstance(value[key], str):
        content += (part for part in text_part(value[key]) if isinstance(part, Text))
    elif value:
        content.append(Text(compact_json(value)))
    for part in items_of(response.get("parts")):
        content.append(_read_image(in_snake_case(part)) or Text(compact_json(part)))
    call_id = call_id or calls.oldest_open(name, answered) or calls.oldest_open("", answered)
    return ToolResult(call_id, tuple(content), name, is_error="error" in value)
