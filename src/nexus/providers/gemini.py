"""Gemini contents: the system slot in the configuration, `model` and `user` take turns, calls answered in their order.

`contents` stands last, so that the serialised body of the next call extends this one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from nexus.context import AssembledContext
from nexus.providers.turns import ConversationParts, Fragment, blocks_or_text, turns
from nexus.text.message_text import text_of_result, visible_parts
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult
from nexus.types.tool_definition import ToolSpec

_json = msgspec.json.Decoder(dict[str, Any])


def body(ctx: AssembledContext) -> dict[str, Any]:
    """The request: keyword arguments of `client.models.generate_content`."""
    contents: list[dict[str, Any]] = blocks_or_text(conversation_parts(ctx).found)
    for before, after in pairwise(contents):
        after["parts"] = ordered(before["parts"], after["parts"])
    return {**body_without_messages(ctx), "contents": contents}


def body_without_messages(ctx: AssembledContext) -> dict[str, Any]:
    """What stands before the contents: the model, and the configuration with settings, system slot and tools."""
    config: dict[str, Any] = {**ctx.model_config}
    if ctx.system_prompt:
        config["system_instruction"] = ctx.system_prompt
    if ctx.tools:
        config["tools"] = [{"function_declarations": [_tool(spec) for spec in ctx.tools]}]
    return {"model": ctx.model, **({"config": config} if config else {})}


def conversation_parts(ctx: AssembledContext) -> ConversationParts:
    """The conversation in turns, to be read only; responses are not in the order of their calls yet."""
    return turns(ctx.history, "gemini", ctx.current, fragment, "parts")


def fragment(message: Message) -> Fragment:
    """One message in this provider's form. Thinking is left out: other providers' has no place here."""
    if message.role == "assistant":
        spoken = [_part(part) for part in message.parts if isinstance(part, (Text, ToolCall))]
        return {"role": "model", "parts": spoken}
    if message.role == "tool":
        return {"role": "user", "parts": [_response(result) for result in message.results()]}
    return {"role": "user", "parts": [_part(part) for part in visible_parts(message)]}


def ordered(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The responses, which come first in their content, in the order of the calls that they answer."""
    order = {part["function_call"]["id"]: place for place, part in enumerate(calls) if "function_call" in part}
    if len(order) <= 1:
        return answers
    return sorted(answers, key=lambda part: order.get(part.get("function_response", {}).get("id", ""), len(calls)))


def _response(result: ToolResult) -> dict[str, Any]:
    said = {"error" if result.is_error else "output": text_of_result(result)}
    return {"function_response": {"id": result.call_id, "name": result.name or "tool", "response": said}}


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


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters_json_schema": spec.fresh_schema()}
