"""OpenAI Responses API: request bodies, and responses read back.

Requests: a flat list of items, the system slot as `instructions`, nothing that relies on a server's storage. Each part of
an assistant's message is an item, in the order in which the model produced them. Reasoning is returned only with its
encrypted content, to the model that wrote it, and before the item that it led to; otherwise the request is rejected or
the item removed (`openai` package, `Response.InputTransformation`). Servers of open models, such as gpt-oss, encrypt nothing:
their reasoning returns with its text (`reasoning_text`). Keys that vary little come first and `input` last, so
that the serialized body of the next call extends this one.

Reading: all items of a response are one assistant's message, in their order: reasoning items as `Thinking` (the whole
item in `signature`), texts, calls; items of other kinds (searches, programs, compactions) as `Unknown`. Other fields,
such as item ids and annotations, are kept in `meta` under `items`, by the item's index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers import openai
from nexus.providers.errors import error_text
from nexus.providers.pairing import with_own_ids
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    as_sent_or_received,
    compact_json,
    items_of,
    mapping,
    meta_text,
    present_fields,
    rest_of,
    text_of,
    text_part,
    with_made_ids,
    with_nulls,
    without_nulls,
)
from nexus.providers.server_edits import cache_miss_reason, context_edits
from nexus.providers.settings import body_settings
from nexus.providers.tools import responses_tools
from nexus.providers.turns import CONTINUE, ConversationParts, items, owned, with_request
from nexus.text.as_received import received_items, with_openai_ids
from nexus.text.message_text import RENDER_VERSION, image_note
from nexus.tokens.model_names import same_model
from nexus.types.message import (
    MADE_IDS,
    PHASES,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    phases,
    returnable_reasoning,
    summary_texts,
)
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.settings import extra_settings
from nexus.types.stop_reasons import stop_reason

ENCRYPTED = "reasoning.encrypted_content"

# Settings of chat completions under other names here; the second group is nested.
_LIMITS = ("max_tokens", "max_completion_tokens")
_NESTED = {"reasoning_effort": ("reasoning", "effort"), "verbosity": ("text", "verbosity")}

_UNFINISHED = ("queued", "in_progress")
_ITEM_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content", "status", "phase"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments", "status"}),
    "custom_tool_call": frozenset({"type", "call_id", "name", "input", "status"}),
}
_CONTENT_FIELDS = frozenset({"type", "text", "refusal"})
_TEXT_TYPES = ("output_text", "refusal")


def body(ctx: AssembledContext, *, shared: bool = False) -> dict[str, Any]:
    """Return the request body: keyword arguments of `client.responses.create`. `shared` as for `openai.body`."""
    items = conversation_parts(ctx).fragments
    return {**body_without_messages(ctx), "input": items if shared else owned(items)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the body before the items: model, settings, instructions, tools."""
    out: dict[str, Any] = {"model": ctx.model, "store": False, "prompt_cache_key": cache_key(ctx.session_label)}
    if ctx.accounting.model_info.reasoning:
        # Nothing is stored there, so reasoning returns only if it came with its encrypted content.
        out["include"] = [ENCRYPTED]
    out.update(_settings(body_settings(ctx, "responses")))
    if ctx.system_prompt:
        out["instructions"] = ctx.system_prompt
    if tools := responses_tools(ctx):
        out["tools"] = tools
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the conversation as items, read only."""
    is_stored = bool(extra_settings(ctx.model_config).get("store"))
    render = ctx.provenance.manifest.render
    takes_text = render >= VALID_CALLS_RENDER and ctx.accounting.model_info.vendor != "openai"
    write = partial(fragment, model=ctx.model, is_stored=is_stored, takes_text=takes_text, render=render)
    parts = items(ctx.history, f"responses:{ctx.model}:{is_stored}", ctx.current, lambda m: write(with_openai_ids(m)))
    return with_request(parts, {"role": "user", "content": CONTINUE}, render)


def cache_key(session: str) -> str:
    """Return an opaque key for the session: requests with one key are routed to where their prefix is cached."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]


VALID_CALLS_RENDER = 7
"""Render version from which on received calls get what a request must have."""

_INPUTS = {"function_call": ("arguments", "{}"), "custom_tool_call": ("input", "")}


def _is_nameless(item: dict[str, Any]) -> bool:
    return item.get("type") in _INPUTS and not isinstance(item.get("name"), str)


def _with_text_input(item: dict[str, Any]) -> dict[str, Any]:
    """Return a received call with its input as text, which it may lack."""
    if item.get("type") not in _INPUTS:
        return item
    name, empty = _INPUTS[item["type"]]
    value = item.get(name)
    if isinstance(value, str):
        return item
    return {**item, name: empty if value is None else arguments_text(value)}


def fragment(
    message: Message, model: str, *, is_stored: bool = False, takes_text: bool = False, render: int = RENDER_VERSION
) -> list[dict[str, Any]]:
    """Return one message as items, as received if it was, with reasoning only if the same model wrote it.

    A message of a request may have no author. Its reasoning is returned to whom the request is for, without its encrypted
    content only to a server that stores it, or with `takes_text` if the item has the text of its reasoning.
    """
    with_reasoning = not message.model or same_model(message.model, model)
    received = received_items(message, "responses", with_thinking=with_reasoning)
    if received is None:
        if message.role == "system" and (text := message.text()).strip():
            return [{"role": "system", "content": text}]
        return _neutral_items(message, model)
    if render >= VALID_CALLS_RENDER:
        received = [_with_text_input(item) for item in received if not _is_nameless(item)]
    if not is_stored:
        if takes_text:
            names = ("encrypted_content", "content")
        else:
            names = ("encrypted_content",)
        received = [item for item in received if item.get("type") != "reasoning" or any(map(item.get, names))]
    return _with_followed_reasoning([*received])


def _neutral_items(message: Message, model: str) -> list[dict[str, Any]]:
    if message.role == "tool":
        kind = _output_type(message)
        return [_output(result, kind) for result in message.results()]
    if message.role == "assistant":
        return _assistant(message, with_reasoning=same_model(message.model, model))
    return [openai.user_item(message, _content_part)]


def _assistant(message: Message, *, with_reasoning: bool) -> list[dict[str, Any]]:
    assistant_items: list[dict[str, Any]] = []
    text_phases = iter(phases(message))
    for part in message.parts:
        match part:
            case Text(text):
                item = {"role": "assistant", "content": text}
                if phase := next(text_phases):
                    item["phase"] = phase
                assistant_items.append(item)
            case ToolCall(id_, name, arguments):
                assistant_items.append({"type": "function_call", "call_id": id_, "name": name, "arguments": arguments})
            case Thinking() if with_reasoning and (item := returnable_reasoning(part)):
                assistant_items.append(item)
            case _:
                pass
    return _with_followed_reasoning(assistant_items)


def _output_type(message: Message) -> str:
    if f'"{OUTPUT_TYPE}"' in message.meta:
        stored = json.loads(message.meta).get(OUTPUT_TYPE)
        if stored in _OUTPUTS:
            return stored
    return _OUTPUTS[0]


def _with_followed_reasoning(assistant_items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    while assistant_items and assistant_items[-1].get("type") == "reasoning":
        assistant_items.pop()  # the item that it led to is missing
    return assistant_items


def _output(result: ToolResult, kind: str) -> dict[str, Any]:
    """Return a result as text; with images as a list, in which consecutive texts are joined."""
    out: dict[str, Any] = {"type": kind, "call_id": result.call_id}
    content: list[dict[str, Any]] = []
    texts: list[str] = []
    for item in result.content:
        if isinstance(item, Text):
            texts.append(item.text)
        elif not (item.data or item.url):
            texts.append(image_note(item))
        else:
            content.extend([*_joined(texts), _content_part(item)])
            texts = []
    out["output"] = [*content, *_joined(texts)] if content else "\n".join(texts)
    return out


def _joined(texts: list[str]) -> list[dict[str, Any]]:
    text = "\n".join(texts)
    if text.strip():
        return [_content_part(Text(text))]
    return []


def _content_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names of this API: with chat completion names translated, others unchanged."""
    out: dict[str, Any] = {}
    for name, value in config.items():
        if name in _LIMITS:
            out["max_output_tokens"] = value
        elif name in _NESTED:
            outer, inner = _NESTED[name]
            out[outer] = {**out.get(outer, {}), inner: value}
        elif name == "response_format":
            out["text"] = {**out.get("text", {}), "format": _flat(value)}
        elif name == "tool_choice":
            out[name] = _flat(value)
        elif name in ("reasoning", "text") and isinstance(value, Mapping):
            out[name] = {**out.get(name, {}), **cast("Mapping[str, Any]", value)}
        else:
            out[name] = value
    return out


def _flat(value: Any) -> Any:
    """Return `{"type": kind, kind: {…}}` as `{"type": kind, …}`, nested tools too."""
    if not isinstance(value, Mapping):
        return value
    setting = cast("Mapping[str, Any]", value)
    inner = setting.get(setting.get("type") or "")
    if isinstance(inner, Mapping):
        flat = {"type": setting["type"], **cast("Mapping[str, Any]", inner)}
    else:
        flat = dict(setting)
    if isinstance(flat.get("tools"), list):
        flat["tools"] = [_flat(tool) for tool in flat["tools"]]
    return flat


def is_reply(body: Any) -> bool:
    """Return True if the body is a response of the Responses API, whatever its status."""
    body = mapping(body)
    return body.get("object") == "response" and isinstance(body.get("output"), list)


def reply(body: dict[str, Any]) -> AgentResult:
    """Return the response's message, usage and stop reason: its status, or the reason why it is incomplete.

    A failed response without output gives no message and an `error`. Raises BadReply if the body is not a response, or
    not finished.
    """
    if not is_reply(body):
        raise BadReply("not a response: 'object' is not 'response', or 'output' is missing")
    status = text_of(body.get("status"))
    if status in _UNFINISHED:
        raise BadReply(f"response not finished: status is '{status}' (nothing was stored)")
    model = text_of(body.get("model"))
    reason = text_of(mapping(body.get("incomplete_details")).get("reason"))
    failure = mapping(body.get("error"))
    failed = status in ("failed", "cancelled")
    output = [with_nulls(item, _REQUIRED_NULLS) for item in items_of(without_nulls(body["output"]))]
    if status == "incomplete" and reason:
        ending = reason
    else:
        ending = status
    messages = tuple(
        as_sent_or_received(m, "responses", _bare(output), lambda m=m: _bare(_neutral_items(m, model)), stored=output)
        for m in _read_output(output, text_of(body.get("id")), model)
    )
    messages = tuple(map(with_own_ids, messages))
    return AgentResult(
        messages=messages,
        usage=usage(body.get("usage")),
        stop_reason=stop_reason(ending, has_calls=any(True for m in messages for _ in m.calls())),
        provider_stop_reason=ending,
        error=error_text(failure) or (status if failed else None),
        model=model,
        cache_miss_reason=cache_miss_reason(body),
        context_edits=context_edits(body),
    )


def usage(value: Any) -> TokenUsage:
    """Return usage as reported: `input_tokens` includes cached tokens, `output_tokens` reasoning."""
    return openai.usage(value, "input", "output")


_REQUIRED_NULLS = {"code_interpreter_call": "code outputs", "image_generation_call": "result"}

_OUTPUT_ALONE = ("id", "status", "annotations", "logprobs")
"""Fields of a response's items that a request need not repeat."""


def _bare(output: list[Any]) -> list[Any]:
    """Return items in the form that they have when their parts are sent, for comparison."""
    bare_items: list[Any] = []
    for item in output:
        fields = mapping(item)
        if fields.get("type") == "reasoning":
            bare_items.append(without_nulls({k: v for k, v in fields.items() if k not in ("status", "content")}))
            continue
        fields = {k: v for k, v in fields.items() if k not in _OUTPUT_ALONE}
        if fields.get("type") == "message":
            del fields["type"]
        if not isinstance(fields.get("content"), list):
            bare_items.append(fields)
            continue
        for text in fields["content"]:
            inner = {k: v for k, v in mapping(text).items() if k not in _OUTPUT_ALONE}
            is_text = inner.keys() == {"type", "text"} and inner["type"] == "output_text"
            bare_items.append({**fields, "content": inner["text"] if is_text else inner})
    return bare_items


OUTPUT_TYPE = "output_type"
"""Key in a result's `meta` for the type of its item, which is that of its call."""

_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_OF_PROGRAM = frozenset(
    {"computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output"}
    | {"mcp_approval_response", "item_reference", "compaction_trigger", "configuration_update", "additional_tools"}
)
"""Types of items that a program sends. All others except messages and results are a model's."""


def received_messages(
    input_items: Sequence[Any], author: str, calls: CallIndex, first_index: int = 0
) -> tuple[Message, ...]:
    """Return the messages of a request's input, which are sent as received. Raises BadReply, with the index of an item.

    Items of the model in a row are one message: reasoning, text, calls.
    """
    messages = list[Message]()
    of_model = list[Any]()

    def add(new: Iterable[Message], items: list[Any]) -> None:
        new = tuple(as_sent_or_received(m, "responses", items, lambda m=m: _neutral_items(m, author)) for m in new)
        calls.add(new)
        messages.extend(new)

    for index, value in enumerate(input_items, first_index):
        item = with_nulls(value, _REQUIRED_NULLS)
        fields = mapping(item)
        if fields.get("type") in _OUTPUTS and not fields.get("output"):
            item = fields = {**fields, "output": ""}  # the API refuses null and an empty list
        if is_of_model(fields):
            if text_of(fields.get("type")) not in _INPUTS:  # Codex answers `local_shell_call` as a function's
                calls.other_ids |= {text_of(fields.get("call_id"))} - {""}
            of_model.append(item)
            continue
        if of_model:
            add(_read_output(of_model, "", author, calls), of_model)
            of_model = []
        try:
            read = _program_message(fields, calls)
        except BadReply as error:
            raise BadReply(f"message {index}: {error}") from None
        for result in read.results():
            item = {**fields, "call_id": result.call_id}  # of the call that it answers, where the item names none
        add((read,), [item])
    if of_model:
        add(_read_output(of_model, "", author, calls), of_model)
    return tuple(messages)


def are_one_message(item: Any, following: Any) -> bool:
    """Return True if both items are a model's, so that they are parts of one message."""
    return is_of_model(mapping(item)) and is_of_model(mapping(following))


def is_of_model(fields: dict[str, Any]) -> bool:
    """Return True for an item that a model wrote."""
    kind = text_of(fields.get("type"))
    if kind in ("", "message"):
        return fields.get("role") == "assistant"
    return bool(fields) and kind not in _OF_PROGRAM and kind not in _OUTPUTS


def _program_message(fields: dict[str, Any], calls: CallIndex) -> Message:
    kind = text_of(fields.get("type"))
    if kind in ("", "message"):
        (message,) = openai.message({k: v for k, v in fields.items() if k != "type"}, calls)
        if message.role == "tool":
            raise BadReply("not an item: the Responses API has no role 'tool' (use type 'function_call_output')")
        return message
    if kind not in _OUTPUTS or text_of(fields.get("call_id")) in calls.other_ids:
        return Message("user", (Unknown(kind, compact_json(fields)),), id=text_of(fields.get("id")))
    call_id = text_of(fields.get("call_id"))
    (read,) = openai.message({"role": "tool", "tool_call_id": call_id, "content": fields.get("output")}, calls)
    notes = {OUTPUT_TYPE: kind} if kind != _OUTPUTS[0] else {}
    return replace(read, meta=meta_text(notes))


def _read_output(
    output: list[Any], response_id: str, model: str, calls: CallIndex | None = None
) -> tuple[Message, ...]:
    """Return all items as one message; none without items."""
    if not output:
        return ()
    notes: dict[str, Any] = {}
    text_phases: list[str | None] = []
    parts: list[Part] = []
    for index, item in enumerate(output):
        fields = mapping(item)
        new = list(_read_item(item, fields, notes))
        parts += new
        text_phases += [text_of(fields.get("phase")) or None for part in new if isinstance(part, Text)]
        kind = text_of(fields.get("type"))
        # Items of unknown kinds are kept as JSON, so only known ones have other fields.
        if kind in _ITEM_FIELDS:
            more = rest_of(fields, _ITEM_FIELDS[kind])
            contents = (mapping(content) for content in items_of(fields.get("content")))
            texts = (content for content in contents if text_of(content.get("type")) in _TEXT_TYPES)
            rests = [rest_of(text, _CONTENT_FIELDS) for text in texts]
            if any(rests):
                more["content"] = rests
            if more:
                notes.setdefault("items", {})[str(index)] = more
    parts, ids = with_made_ids(parts, calls or CallIndex())
    if ids:
        notes[MADE_IDS] = ids
    if any(text_phases):
        notes[PHASES] = text_phases
    return (Message("assistant", tuple(parts), id=response_id, model=model, meta=meta_text(notes)),)


def _read_item(item: Any, fields: dict[str, Any], notes: dict[str, Any]) -> Iterator[Part]:
    match text_of(fields.get("type")):
        case "message" | "" if isinstance(fields.get("content"), (str, list)):
            content = fields["content"]
            if isinstance(content, str):
                yield from text_part(content)
            else:
                for piece in content:
                    yield from _read_content(piece, notes)
        case "reasoning":
            # The text that a model shows, or else its summary, with the whole item in `signature`.
            texts = summary_texts(fields.get("content")) or summary_texts(fields.get("summary"))
            entries = {"type": "reasoning"} | _sorted(present_fields(fields))
            yield Thinking("\n\n".join(texts), signature=compact_json(entries))
        case "function_call":
            yield ToolCall(
                text_of(fields.get("call_id")), text_of(fields.get("name")), arguments_text(fields.get("arguments"))
            )
        case "custom_tool_call":
            notes.setdefault("custom_calls", []).append(text_of(fields.get("call_id")))
            yield ToolCall(
                text_of(fields.get("call_id")), text_of(fields.get("name")), arguments_text(fields.get("input"))
            )
        case kind:
            yield Unknown(kind or "no type", compact_json(item))


def _read_content(content: Any, notes: dict[str, Any]) -> Iterator[Part]:
    fields = mapping(content)
    match text_of(fields.get("type")):
        case "output_text" | "input_text" | "text" if isinstance(fields.get("text"), str):
            yield from text_part(fields["text"])
        case "refusal" if isinstance(fields.get("refusal"), str):
            notes["refusal"] = True
            yield from text_part(fields["refusal"])
        case kind:
            yield Unknown(kind or "no type", compact_json(content))


def _sorted(value: Any) -> Any:
    # Keys are ordered differently in a client's object and in JSON; what is stored must not depend on that.
    if isinstance(value, dict):
        fields = mapping(value)
        return {name: _sorted(fields[name]) for name in sorted(fields)}
    if isinstance(value, list):
        return [_sorted(item) for item in items_of(value)]
    return value
