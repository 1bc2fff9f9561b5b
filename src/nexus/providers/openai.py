"""OpenAI chat completions: system first, real roles, one tool message for each result. The prefix is cached by itself.

Whoever gets a body may change it; see `turns.own`.

Keys that vary little stand first and `messages` last, so that the serialised body of the next call extends this one.
"""

from __future__ import annotations

from typing import Any

from nexus.context import AssembledContext
from nexus.providers.turns import ConversationParts, blocks_or_text, items
from nexus.text.message_text import text_of_result, visible_parts
from nexus.types.message import Image, Message, Text
from nexus.types.tool_definition import ToolSpec


def body(ctx: AssembledContext) -> dict[str, Any]:
    """The request body: keyword arguments of `client.chat.completions.create`."""
    return {**body_without_messages(ctx), "messages": blocks_or_text(conversation_parts(ctx).found)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """What stands before the messages: model, settings, tools."""
    out: dict[str, Any] = {"model": ctx.model, **ctx.model_config}
    if ctx.tools:
        out["tools"] = [_tool(spec) for spec in ctx.tools]
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """The system slot and the conversation, to be read only."""
    system = [{"role": "system", "content": ctx.system_prompt}] if ctx.system_prompt else []
    return items(ctx.history, "openai", ctx.current, fragment, leading=system)


def fragment(message: Message) -> list[dict[str, Any]]:
    """One message in this provider's form; several for several results."""
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
    return [{"role": "user", "content": [_part(part) for part in parts]}]


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.fresh_schema()}
    return {"type": "function", "function": function}
