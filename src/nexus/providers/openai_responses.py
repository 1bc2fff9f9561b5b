"""OpenAI Responses: a flat list of items, the system slot as `instructions`, nothing left to what a server stored.

Each part of an assistant's message is an item of its own, in the order in which the model made them. Reasoning goes back
only with its encrypted content, to the very model that wrote it, and before the item that it led to; a request that
breaks one of these is refused, or the item removed (`openai` package, `Response.InputTransformation`).

Keys that vary little stand first and `input` last, so that the serialised body of the next call extends this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from nexus.context import AssembledContext
from nexus.providers.turns import ConversationParts, blocks_or_text, items
from nexus.text.message_text import image_note, visible_parts
from nexus.tokens.model_names import same_model
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult
from nexus.types.openai_reasoning import phases, returnable_reasoning
from nexus.types.tool_definition import ToolSpec

_LIMITS = ("max_tokens", "max_completion_tokens")
_INSIDE = {"reasoning_effort": ("reasoning", "effort"), "verbosity": ("text", "verbosity")}
"""Chat settings that stand inside another one here."""

ENCRYPTED = "reasoning.encrypted_content"


def body(ctx: AssembledContext) -> dict[str, Any]:
    """The request body: keyword arguments of `client.responses.create`."""
    return {**body_without_messages(ctx), "input": blocks_or_text(conversation_parts(ctx).found)}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """What stands before the items: model, settings, instructions, tools."""
    out: dict[str, Any] = {"model": ctx.model, "store": False, "prompt_cache_key": cache_key(ctx.session_label)}
    if ctx.accounting.model_info.reasoning:
        out["include"] = [ENCRYPTED]
    out.update(_settings(ctx.model_config))
    if ctx.system_prompt:
        out["instructions"] = ctx.system_prompt
    if ctx.tools:
        out["tools"] = [_tool(spec) for spec in ctx.tools]
    return out


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """The conversation as items, to be read only."""
    wire = f"responses:{ctx.model}"
    return items(ctx.history, wire, ctx.current, lambda message: fragment(message, ctx.model))


def cache_key(session: str) -> str:
    """A name for the session that says nothing about it: requests with one key are sent where their prefix is cached."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fragment(message: Message, model: str) -> list[dict[str, Any]]:
    """One message as items; reasoning only if this very model wrote it."""
    if message.role == "tool":
        return [_output(result) for result in message.results()]
    if message.role == "assistant":
        return _assistant(message, own=same_model(message.model, model))
    parts = visible_parts(message)
    if len(parts) == 1 and isinstance(parts[0], Text):
        return [{"role": "user", "content": parts[0].text}]
    return [{"role": "user", "content": [_part(part) for part in parts]}]


def _assistant(message: Message, *, own: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    phase = iter(phases(message))
    for part in message.parts:
        match part:
            case Text(text):
                said = next(phase)
                found.append({"role": "assistant", "content": text, **({"phase": said} if said else {})})
            case ToolCall(id_, name, arguments):
                found.append({"type": "function_call", "call_id": id_, "name": name, "arguments": arguments})
            case Thinking() if own and (item := returnable_reasoning(part)):
                found.append(item)
            case _:
                pass
    while found and found[-1].get("type") == "reasoning":
        found.pop()  # what it led to is missing
    return found


def _output(result: ToolResult) -> dict[str, Any]:
    """A result as text; with images as a list, in which texts that follow each other are one."""
    out: dict[str, Any] = {"type": "function_call_output", "call_id": result.call_id}
    content: list[dict[str, Any]] = []
    texts: list[str] = []
    for item in result.content:
        if isinstance(item, Text):
            texts.append(item.text)
        elif not (item.data or item.url):
            texts.append(image_note(item))
        else:
            content.extend([*_joined(texts), _part(item)])
            texts = []
    out["output"] = [*content, *_joined(texts)] if content else "\n".join(texts)
    return out


def _joined(texts: list[str]) -> list[dict[str, Any]]:
    text = "\n".join(texts)
    return [_part(Text(text))] if text.strip() else []


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """The flat form. Without `strict` the API takes every schema for one of its strict kind, and refuses others."""
    named = {"type": "function", "name": spec.name, "description": spec.description}
    return {**named, "parameters": spec.fresh_schema(), "strict": False}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names of this API, those of chat completions translated; all others as they are."""
    out: dict[str, Any] = {}
    for name, value in config.items():
        if name in _LIMITS:
            out["max_output_tokens"] = value
        elif name in _INSIDE:
            outer, inner = _INSIDE[name]
            _into(out, outer, {inner: value})
        elif name == "response_format":
            _into(out, "text", {"format": _flat(value)})
        elif name == "tool_choice":
            out[name] = _flat(value)
        elif name in ("reasoning", "text") and isinstance(value, Mapping):
            _into(out, name, cast("Mapping[str, Any]", value))
        else:
            out[name] = value
    return out


def _into(out: dict[str, Any], name: str, more: Mapping[str, Any]) -> None:
    out[name] = {**out.get(name, {}), **more}


def _flat(value: Any) -> Any:
    """`{"type": kind, kind: {…}}` as `{"type": kind, …}`, tools inside it too."""
    if not isinstance(value, Mapping):
        return value
    given = cast("Mapping[str, Any]", value)
    inner = given.get(given.get("type") or "")
    flat = {"type": given["type"], **cast("Mapping[str, Any]", inner)} if isinstance(inner, Mapping) else dict(given)
    if isinstance(flat.get("tools"), list):
        flat["tools"] = [_flat(tool) for tool in flat["tools"]]
    return flat
