"""Anthropic messages: tools, system, messages; user and assistant take turns; at most four cache marks.

Marks stand at the end of the system slot, on the last block, and walking back from it at distances that the provider's
look-back bridges, so that the next call finds what this one wrote. How many and how far is data (`tokens/data`).
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from nexus.context import AssembledContext
from nexus.providers.turns import ConversationParts, Fragment, blocks_or_text, turns
from nexus.text.message_text import text_of_result, visible_parts
from nexus.tokens.model import cache_rules
from nexus.tokens.model_names import same_model
from nexus.types.history import MEMORY_ORIGIN
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult
from nexus.types.openai_reasoning import is_reasoning_item
from nexus.types.tool_definition import ToolSpec

MARK: dict[str, str] = {"type": "ephemeral"}
NO_ERROR_TEXT = "[the tool failed without a message]"
"""An error result must say something; images cannot stand in one."""

_json = msgspec.json.Decoder(dict[str, Any])


def body(ctx: AssembledContext) -> dict[str, Any]:
    """The request body: keyword arguments of `client.messages.create`."""
    conversation = conversation_parts(ctx).found
    messages = blocks_or_text(conversation)
    for index, block in add_cache_breakpoints(ctx, conversation):
        content: list[dict[str, Any]] = [*messages[index]["content"]]
        content[block] = {**content[block], "cache_control": {**MARK}}
        messages[index]["content"] = content
    return {**body_without_messages(ctx), "messages": messages}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """What stands before the messages: model, settings, tools, the system slot with its mark."""
    limit = ctx.model_config.get("max_tokens") or _max_tokens(ctx)
    out: dict[str, Any] = {"model": ctx.model, "max_tokens": limit}
    out.update({key: value for key, value in ctx.model_config.items() if key != "max_tokens"})
    if ctx.tools:
        out["tools"] = [_tool(spec) for spec in ctx.tools]
        if not ctx.system_prompt:
            out["tools"][-1]["cache_control"] = {**MARK}
    if ctx.system_prompt:
        out["system"] = [{"type": "text", "text": ctx.system_prompt, "cache_control": {**MARK}}]
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """The conversation in turns, to be read only; without marks."""
    # What Gemini signed has the same fields, and means nothing to Anthropic.
    signs = ctx.model if ctx.accounting.model_info.wire != "gemini" else ""
    return turns(
        ctx.history, f"anthropic:{ctx.model}", ctx.current, lambda message: fragment(message, signs), "content"
    )


def add_cache_breakpoints(ctx: AssembledContext, conversation: list[Fragment]) -> list[tuple[int, int]]:
    """Where marks stand: message and block, from the last block backwards, so far apart that the look-back bridges it.

    One is kept for the blocks before the conversation that the next turn repeats, where a form has some.
    """
    rules = cache_rules(ctx.accounting.model_info, "anthropic")
    repeated = _repeated(ctx, conversation)
    # One mark is for the system slot (or the tools), two blocks of distance to spare.
    left, apart = rules.max_breakpoints - 1 - len(repeated), rules.lookback_blocks - 2
    found = repeated
    distance = apart
    for message in range(len(conversation) - 1, -1, -1):
        content = conversation[message]["content"]
        for block in range(len(content) - 1, -1, -1):
            if distance >= apart and content[block]["type"] not in ("thinking", "redacted_thinking"):
                found.append((message, block))
                distance = 0
                left -= 1
                if not left:
                    return found
            distance += 1
    return found


def _repeated(ctx: AssembledContext, conversation: list[Fragment]) -> list[tuple[int, int]]:
    """The last block before what a form tells anew with the next turn: its memory, or that one's last part."""
    told = [at for at, name in enumerate(ctx.provenance.manifest.ahead) if name.startswith(MEMORY_ORIGIN)]
    last = told[-1] - 1 if told else -1
    return [(0, last)] if 0 <= last < len(conversation[0]["content"]) - 1 else []


def fragment(message: Message, model: str) -> Fragment:
    """One message in this provider's form; thinking only if this very model wrote it."""
    if message.role == "assistant":
        thinking = [part for part in message.parts if isinstance(part, Thinking)] if _own(message, model) else []
        blocks = [_thinking(part) for part in thinking if _proved(part)]
        blocks.extend(_block(part) for part in message.parts if isinstance(part, (Text, ToolCall)))
        return {"role": "assistant", "content": blocks}
    if message.role == "tool":
        return {"role": "user", "content": [_result(result) for result in message.results()]}
    return {"role": "user", "content": [_block(part) for part in visible_parts(message)]}


def _own(message: Message, model: str) -> bool:
    return same_model(message.model, model)


def _proved(part: Thinking) -> bool:
    """Whether the provider can check it; a reasoning item of OpenAI's proves nothing here."""
    return bool(part.signature or part.redacted) and not is_reasoning_item(part)


def _max_tokens(ctx: AssembledContext) -> int:
    """The response's reserve; with thinking, which counts as output, its budget on top."""
    reserve = ctx.token_budget.reserve_response or 4096
    thinking = ctx.model_config.get("thinking")
    if isinstance(thinking, dict):
        budget = cast("dict[str, Any]", thinking).get("budget_tokens")
        reserve += budget if isinstance(budget, int) else 0
    return min(reserve, ctx.accounting.model_info.max_output_tokens or reserve)


def _block(part: Text | Image | ToolCall) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": _json.decode(arguments)}
        case Image():
            return _image(part)


def _image(image: Image) -> dict[str, Any]:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _thinking(part: Thinking) -> dict[str, Any]:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.redacted}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _result(result: ToolResult) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
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


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.fresh_schema()}
