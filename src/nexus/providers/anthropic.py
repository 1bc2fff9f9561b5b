"""Anthropic Messages API: request bodies, and messages and replies read back.

Requests: tools, system, messages; user and assistant alternate; at most four cache breakpoints. They are at the end of
the system slot, on the last block, and before it at distances that the provider's look-back bridges, so that the next
call finds what this one cached. Their number and distance are data (`tokens/data`).

Reading: content blocks map one to one; a block of another kind is kept as `Unknown` with its JSON. A user message with
tool results becomes a `tool` message, and a `user` message after it if it has other content. `cache_control` belongs to a
request, not to the conversation, and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from nexus.context import AssembledContext
from nexus.errors import BadReply
from nexus.providers.anthropic_system import takes_system_messages, with_placed_system
from nexus.providers.pairing import with_own_ids
from nexus.providers.received import (
    CallIndex,
    arguments_text,
    as_sent_or_received,
    compact_json,
    content_items,
    items_of,
    mapping,
    meta_text,
    number_of,
    present_fields,
    read_all,
    read_role_and_content,
    rest_of,
    split_results,
    text_of,
    text_part,
    with_author,
    with_made_ids,
    with_nulls,
)
from nexus.providers.server_edits import COMPACTION, SERVER_CALLS, cache_miss_reason, context_edits
from nexus.providers.settings import body_settings
from nexus.providers.tools import anthropic_tools
from nexus.providers.turns import (
    CONTINUE,
    ConversationParts,
    Fragment,
    SeparateFragment,
    as_blocks,
    owned,
    turns,
    with_request,
)
from nexus.text.as_received import is_apart, received_items
from nexus.text.message_text import RENDER_VERSION, system_note, text_of_result, visible_parts
from nexus.tokens.model import cache_rules
from nexus.tokens.model_names import same_model
from nexus.types.message import (
    MADE_IDS,
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    is_reasoning_item,
)
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.sanitize import arguments_as_object
from nexus.types.stop_reasons import stop_reason

CACHE_CONTROL: dict[str, str] = {"type": "ephemeral"}
NO_ERROR_TEXT = "[the tool failed without a message]"
"""An error result must have text; images are not allowed in one."""

_json = msgspec.json.Decoder(dict[str, Any])

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MESSAGE_FIELDS = frozenset({"role", "content", "id", "model", "type", "cache_control"})
_SYSTEM_FIELDS = ("clear_at", "output_config")
_REPLY_FIELDS = _MESSAGE_FIELDS | {"stop_reason", "usage"}
_BLOCK_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature", "cache_control"}),
    "redacted_thinking": frozenset({"type", "data", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
}


def body(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request body: keyword arguments of `client.messages.create`."""
    conversation = conversation_parts(ctx).fragments
    messages = owned(conversation)
    for index, block in cache_breakpoints(ctx, conversation):
        content = [*as_blocks(messages[index]["content"])]
        content[block] = {**content[block], "cache_control": {**CACHE_CONTROL}}
        messages[index]["content"] = content
    return {**body_without_messages(ctx), "messages": messages}


def uncached_body(ctx: AssembledContext) -> dict[str, Any]:
    """Return the request body without breakpoints in the messages, for a prompt that is sent once: a write costs more."""
    return {**body_without_messages(ctx), "messages": owned(conversation_parts(ctx).fragments)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """Return the body before the messages: model, settings, tools, the system slot with its breakpoint."""
    settings = body_settings(ctx, "anthropic")
    limit = settings.get("max_tokens")
    if not limit:
        # Thinking counts as output, so its budget is added to the reserve for the reply.
        budget = mapping(settings.get("thinking")).get("budget_tokens")
        reserve = ctx.token_budget.reserve_response or 4096
        if isinstance(budget, int):
            reserve += budget
        limit = min(reserve, ctx.accounting.model_info.max_output_tokens or reserve)
    out: dict[str, Any] = {"model": ctx.model, "max_tokens": limit}
    out.update({key: value for key, value in settings.items() if key != "max_tokens"})
    if tools := anthropic_tools(ctx):
        out["tools"] = tools
        # Tools precede the system slot in the prompt, so its breakpoint covers them too.
        last = next((tool for tool in reversed(tools) if not tool.get("defer_loading")), None)
        if not ctx.system_prompt and last is not None:
            last["cache_control"] = {**CACHE_CONTROL}  # the API rejects it on a deferred tool
    if ctx.system_prompt:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in _system_texts(ctx)]
        blocks[-1]["cache_control"] = {**CACHE_CONTROL}
        out["system"] = blocks
    return out


def _system_texts(ctx: AssembledContext) -> list[str]:
    """Return the system prompt in the blocks in which the caller's own came, and the rest as one block."""
    text = ctx.system_prompt
    parts = ctx.provenance.manifest.system_parts
    if not parts:
        return [text]
    texts = [text[start:end] for start, end in parts]
    rest = text[parts[-1][1] :].removeprefix("\n\n")
    return [block for block in (*texts, rest) if block.strip()]


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """Return the conversation in turns, read only and without breakpoints."""
    parts = _unpaired_parts(ctx)
    render = ctx.provenance.manifest.render
    if render >= VALID_BLOCKS_RENDER and _SERVER_TOOLS in ctx.history.fragments:
        parts = ConversationParts(with_paired_server_tools(parts.fragments), parts.settled)
    last = as_blocks(parts.fragments[-1]["content"]) if parts.fragments else []
    if not any(map(_use_of, last)):  # the provider continues its own tools' calls
        parts = with_request(parts, {"role": "user", "content": [{"type": "text", "text": CONTINUE}]}, render)
    if takes_system_messages(ctx.model):
        return with_placed_system(parts)
    return parts


def has_unpaired_server_tools(ctx: AssembledContext) -> bool:
    """Return True if the conversation has a server tool's call or result that is not sent, because the other is missing."""
    fragments = _unpaired_parts(ctx).fragments
    return _SERVER_TOOLS in ctx.history.fragments and with_paired_server_tools(fragments) != fragments


def _unpaired_parts(ctx: AssembledContext) -> ConversationParts:
    # Gemini's signatures have the same fields, and mean nothing to Anthropic.
    signer = ""
    if ctx.accounting.model_info.provider_format != "gemini":
        signer = ctx.model
    render = ctx.provenance.manifest.render
    cached = ctx.history.fragments

    keeps_system = takes_system_messages(ctx.model)

    def blocks(message: Message) -> Fragment:
        item = fragment(message, signer, render=render, keeps_system=keeps_system)
        if _has_server_tools(as_blocks(item["content"])):
            cached[_SERVER_TOOLS] = [True]
        return item

    return turns(ctx.history, f"anthropic:{ctx.model}", ctx.current, blocks, "content")


VALID_BLOCKS_RENDER = 7
"""Render version from which on received blocks get what a request must have."""

_SERVER_TOOLS = "anthropic:server-tools"
"""Key of the history's cache, set if a message has blocks of server tools."""

_NO_SERVER_RESULT = "[server tool: no result recorded]"


def _use_of(block: dict[str, Any]) -> str:
    """Return the id of a call of a server's tool; empty text for any other block."""
    kind = text_of(block.get("type"))
    if kind in SERVER_CALLS:
        return text_of(block.get("id"))
    return ""


def _answered_by(block: dict[str, Any]) -> str:
    """Return the id of the call that a server tool's result answers; empty text for any other block."""
    kind = text_of(block.get("type"))
    if kind.endswith("_tool_result"):
        return text_of(block.get("tool_use_id"))
    return ""


def _has_server_tools(content: list[dict[str, Any]]) -> bool:
    return any(_use_of(block) or _answered_by(block) for block in content)


def with_paired_server_tools(fragments: list[Fragment]) -> list[Fragment]:
    """Return the turns without server tools' calls that have no result, and without results that have no call.

    A call may lack its result at the end, where the provider continues it, and while its program calls client tools.
    """
    paired: list[Fragment] = []
    open_uses: set[str] = set()
    for index, fragment in enumerate(fragments):
        content = as_blocks(fragment["content"])
        if fragment["role"] != "assistant" or not _has_server_tools(content):
            paired.append(fragment)
            continue
        # A system message may be between a call and its result.
        after = next((later for later in fragments[index + 1 :] if later["role"] != "system"), None)
        blocks = _paired_blocks(content, after, open_uses)
        if all(block["type"] in ("thinking", "redacted_thinking") for block in blocks):
            blocks.append({"type": "text", "text": _NO_SERVER_RESULT})
        paired.append(fragment if blocks == content else {**fragment, "content": blocks})
    return paired


def _paired_blocks(content: list[dict[str, Any]], after: Fragment | None, open_uses: set[str]) -> list[dict[str, Any]]:
    """Return a model's blocks without unpaired ones; `open_uses` are the calls without a result so far, and is updated."""
    answer_places = {_answered_by(block): place for place, block in enumerate(content)}
    blocks_after = as_blocks(after["content"]) if after is not None else []
    answered_after = set(map(_answered_by, blocks_after))
    callers = {text_of(mapping(block.get("caller")).get("tool_id")) for block in content}
    blocks: list[dict[str, Any]] = []
    for place, block in enumerate(content):
        if use := _use_of(block):
            is_answered = use in answered_after or answer_places.get(use, -1) > place
            if after is not None and use not in callers and not is_answered:
                continue
            open_uses.add(use)
        elif answer := _answered_by(block):
            if answer not in open_uses:
                continue
            open_uses.remove(answer)
        blocks.append(block)
    return blocks


def cache_breakpoints(ctx: AssembledContext, conversation: list[Fragment]) -> list[tuple[int, int]]:
    """Return the positions of breakpoints as (message, block), from the last block backwards.

    One is kept for the preamble that the next turn repeats, where a context format has one.
    """
    rules = cache_rules(ctx.accounting.model_info, "anthropic")
    breakpoints: list[tuple[int, int]] = []
    memory = ctx.provenance.memory
    if memory is not None and memory.source:
        # The next turn rewrites the preamble from its memory on, so one breakpoint is right before it.
        names = ctx.provenance.manifest.preamble_blocks
        last = max((index for index, name in enumerate(names) if name.startswith(memory.source)), default=0) - 1
        if 0 <= last < len(as_blocks(conversation[0]["content"])) - 1:
            breakpoints.append((0, last))
    # One breakpoint is for the system slot (or the tools); two blocks of the look-back are spare.
    remaining = rules.max_breakpoints - 1 - len(breakpoints)
    spacing = rules.lookback_blocks - 2
    distance = spacing
    for message in range(len(conversation) - 1, -1, -1):
        content = as_blocks(conversation[message]["content"])
        for block in range(len(content) - 1, -1, -1):
            # The API rejects breakpoints on thinking.
            if distance >= spacing and content[block]["type"] not in ("thinking", "redacted_thinking"):
                breakpoints.append((message, block))
                distance = 0
                remaining -= 1
                if not remaining:
                    return breakpoints
            distance += 1
    return breakpoints


def fragment(message: Message, model: str, *, render: int = RENDER_VERSION, keeps_system: bool = True) -> Fragment:
    """Return one message in this format, as received if it was, with thinking only if the same model wrote it.

    A message of a request may have no author. Its thinking is returned to whom the request is for. Without
    `keeps_system`, a system message is a user's.
    """
    if message.role == "system" and not (keeps_system and message.received):
        return _neutral_item(message, model)
    with_thinking = bool(model) and (not message.model or same_model(message.model, model))
    received = received_items(message, "anthropic", with_thinking=with_thinking)
    if received is None and message.role == "system" and (text := message.text()).strip():
        return {"role": "system", "content": [{"type": "text", "text": text}]}
    if received is not None:
        item = received[0]
    else:
        item = _neutral_item(message, model)
    is_reply = received is not None and render >= VALID_BLOCKS_RENDER and message.role == "assistant"
    if is_reply and not isinstance(item["content"], str):
        blocks = [_with_input(block) for block in item["content"] if not _is_nameless(block)]
        item = {**item, "content": blocks}
    if is_apart(message, "anthropic"):
        return SeparateFragment(item)
    return item


_CALLS = ("tool_use", *SERVER_CALLS)


def _is_nameless(block: dict[str, Any]) -> bool:
    return block.get("type") in _CALLS and not (text_of(block.get("id")) and text_of(block.get("name")))


def _with_input(block: dict[str, Any]) -> dict[str, Any]:
    """Return a received call with an input that is an object: some servers give none, or its JSON text."""
    if block.get("type") not in _CALLS or isinstance(block.get("input"), dict):
        return block
    return {**block, "input": _json.decode(arguments_as_object(arguments_text(block.get("input"))))}


def _neutral_item(message: Message, model: str) -> Fragment:
    if message.role == "assistant":
        blocks: list[dict[str, Any]] = []
        if same_model(message.model, model):
            blocks += (_block(part) for part in message.parts if isinstance(part, Thinking) and _is_proven(part))
        blocks += (_block(part) for part in message.parts if isinstance(part, (Text, ToolCall)))
        return {"role": "assistant", "content": blocks}
    if message.role == "tool":
        return {"role": "user", "content": [_result_block(result) for result in message.results()]}
    if message.role == "system":
        return user_fragment(system_note(message))
    return user_fragment(message)


def _is_proven(thinking: Thinking) -> bool:
    """Return True for thinking with Anthropic's signature; reasoning items of OpenAI have one of another kind."""
    return bool(thinking.signature or thinking.redacted) and not is_reasoning_item(thinking)


def user_fragment(message: Message) -> Fragment:
    """Return a user's message from its parts."""
    return {"role": "user", "content": [_block(part) for part in visible_parts(message)]}


def _block(part: Text | Image | ToolCall | Thinking) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": _json.decode(arguments)}
        case Image(url=url) if url:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case Thinking(redacted=redacted) if redacted:
            return {"type": "redacted_thinking", "data": redacted}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}


def _result_block(result: ToolResult) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
    # The API rejects empty text blocks.
    content = [item for item in result.content if not isinstance(item, Text) or item.text.strip()]
    if result.is_error:
        text = text_of_result(result)
        out["content"] = text if text.strip() else NO_ERROR_TEXT
        out["is_error"] = True
    elif len(content) == 1 and isinstance(content[0], Text):
        out["content"] = content[0].text
    elif content:
        out["content"] = [_block(item) for item in content]
    return out


def messages(items: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of a conversation. Raises BadReply for an item that is not a message, with its index."""
    return read_all(items, message)


def received_message(item: Any, calls: CallIndex, author: str = "") -> tuple[Message, ...]:
    """Return one item of a request as messages that are sent as received. Raises BadReply if it is not a message."""
    return tuple(_with_blocks(m, mapping(item)) for m in with_author(message(item, calls), author))


def _with_blocks(message: Message, item: dict[str, Any]) -> Message:
    blocks = [_as_input(block) for block in content_items(item.get("content"))]
    blocks = [block for block in blocks if block and not _is_rejected(block)]
    if message.role in ("user", "tool"):
        is_tool = message.role == "tool"
        blocks = [block for block in blocks if (block.get("type") == "tool_result") == is_tool]
    if any(map(_is_refused_result, blocks)):
        return message
    received = {"role": text_of(item.get("role")), "content": blocks}
    if message.role == "system":
        received |= {name: item[name] for name in _SYSTEM_FIELDS if item.get(name) is not None}
    return as_sent_or_received(message, "anthropic", [received], lambda: [_neutral_item(message, message.model)])


def _is_rejected(block: dict[str, Any]) -> bool:
    """Return True for blocks that the API never accepts: blank texts, and thinking without a signature."""
    match block.get("type"):
        case "text":
            return not text_of(block.get("text")).strip()
        case "thinking":
            return not block.get("signature")
        case "redacted_thinking":
            return not block.get("data")
        case _:
            return False


def _is_refused_result(block: dict[str, Any]) -> bool:
    """Return True for a result whose content the API refuses: neither text nor a list, or none of an error."""
    content = block.get("content")
    is_missing = not content and bool(block.get("is_error"))
    return block.get("type") == "tool_result" and (is_missing or not isinstance(content, (str, list, type(None))))


# A request must have these fields of a citation, which a client's object leaves out if they are null.
_REQUIRED_NULLS = {
    "char_location": "document_title",
    "page_location": "document_title",
    "content_block_location": "document_title",
    "web_search_result_location": "title",
    "search_result_location": "title",
}


def _as_input(block: Any) -> dict[str, Any]:
    """Return a block without the fields that only a reply or one request has: breakpoints, a parsed output, nulls, defaults."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    fields = present_fields(block)
    fields.pop("cache_control", None)
    fields.pop("parsed_output", None)
    for name, default in (("caller", {"type": "direct"}), ("is_error", False)):
        if fields.get(name) == default:
            del fields[name]
    if fields.get("type") == "text" and not fields.get("citations"):
        fields.pop("citations", None)
    if isinstance(fields.get("citations"), list):
        fields["citations"] = [with_nulls(citation, _REQUIRED_NULLS) for citation in fields["citations"]]
    if fields.get("type") == "tool_result" and isinstance(fields.get("content"), list):
        fields["content"] = [_as_input(inner) for inner in fields["content"]]
    # A stream has the fields in another order than a whole reply.
    return {name: fields[name] for name in sorted(fields, key=lambda name: (name != "type", name))}


def message(item: Any, calls: CallIndex, known_fields: frozenset[str] = _MESSAGE_FIELDS) -> tuple[Message, ...]:
    """Return one item as messages: two if a user's message has tool results and other content, else one."""
    fields, role, content = read_role_and_content(item, _ROLES)
    extra: dict[str, Any] = {}
    parts: list[Part] = []
    for block in content_items(content):
        block_fields = mapping(block)
        # Blocks of unknown kinds are kept as they are, so only known ones have other fields (citations, caller).
        known_block_fields = _BLOCK_FIELDS.get(text_of(block_fields.get("type")))
        rest = rest_of(block_fields, known_block_fields) if known_block_fields else {}
        if rest.get("caller") == {"type": "direct"}:
            del rest["caller"]
        if rest:
            extra[str(len(parts))] = rest
        parts += _read_part(block, calls)
    parts, ids = with_made_ids(parts, calls)
    notes: dict[str, Any] = {"blocks": extra} if extra else {}
    if ids:
        notes[MADE_IDS] = ids
    meta = meta_text(rest_of(fields, known_fields), notes)
    return split_results(
        Message(role, tuple(parts), id=text_of(fields.get("id")), model=text_of(fields.get("model")), meta=meta)
    )


def is_reply(body: Any) -> bool:
    """Return True if the body is a complete reply of the Messages API."""
    body = mapping(body)
    return body.get("type") == "message" and body.get("role") == "assistant" and isinstance(body.get("content"), list)


def reply(body: dict[str, Any]) -> AgentResult:
    """Return the reply's message, usage and stop reason. Raises BadReply if it is not a reply."""
    if not is_reply(body):
        raise BadReply("not an Anthropic message: 'type' is not 'message', or 'content' is missing")
    reason = text_of(body.get("stop_reason"))
    return AgentResult(
        messages=tuple(with_own_ids(_with_blocks(read, body)) for read in message(body, CallIndex(), _REPLY_FIELDS)),
        usage=usage(body.get("usage")),
        stop_reason=stop_reason(reason),
        provider_stop_reason=reason,
        model=text_of(body.get("model")),
        cache_miss_reason=cache_miss_reason(body),
        context_edits=context_edits(body),
    )


def usage(value: Any) -> TokenUsage:
    """Return usage with the whole prompt as input: Anthropic's `input_tokens` excludes cache reads and writes."""
    counts = mapping(value)
    read = number_of(counts.get("cache_read_input_tokens"))
    write = number_of(counts.get("cache_creation_input_tokens"))
    return TokenUsage(
        input_tokens=number_of(counts.get("input_tokens")) + read + write,
        output_tokens=number_of(counts.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=number_of(mapping(counts.get("output_tokens_details")).get("thinking_tokens")),
        cache_write_1h_tokens=min(
            number_of(mapping(counts.get("cache_creation")).get("ephemeral_1h_input_tokens")), write
        ),
    )


def _read_part(block: Any, calls: CallIndex) -> Iterator[Part]:
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
        case "tool_use":
            yield ToolCall(text_of(fields.get("id")), text_of(fields.get("name")), arguments_text(fields.get("input")))
        case "tool_result":
            yield _read_result(fields, calls)
        case "image" if image := _read_image(fields):
            yield image
        case kind:
            rest = {name: value for name, value in fields.items() if name != "cache_control"} if fields else block
            yield Unknown(kind or "no type", compact_json(rest))
            if kind == COMPACTION:  # other providers get its text
                yield from text_part(text_of(fields.get("content")))


def _read_result(fields: dict[str, Any], calls: CallIndex) -> ToolResult:
    content: Any = fields.get("content") or []
    items: list[Text | Image] = []
    for block in items_of(content) if isinstance(content, list) else [content]:
        parts = _read_part(block, calls)
        items += (part if isinstance(part, (Text, Image)) else Text(compact_json(block)) for part in parts)
    call_id = text_of(fields.get("tool_use_id"))
    return ToolResult(call_id, tuple(items), calls.name_of(call_id), is_error=fields.get("is_error") is True)


def _read_image(fields: dict[str, Any]) -> Image | None:
    source = mapping(fields.get("source"))
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            return Image(text_of(source.get("media_type")), data=source["data"])
        case "url" if isinstance(source.get("url"), str):
            return Image(text_of(source.get("media_type")), url=source["url"])
        case _:
            return None
