"""Messages of Microsoft agent-framework as neutral ones, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from agent_framework import ChatResponse, Content, Message
from msgspec.structs import replace

import nexus
from nexus.adapters.own_messages import fields_of, with_fields


def neutral_message(message: Message) -> nexus.Message:
    """Return a message as a neutral one, with its other fields in `meta`. One with several results stays one message."""
    results = [content for content in message.contents if content.type == "function_result"]
    if results:
        neutral = nexus.Message("tool", tuple(map(_result, results)))
    else:
        role = message.role if message.role in ("assistant", "system") else "user"
        calls = [content for content in message.contents if content.type == "function_call"]
        others = [content for content in message.contents if content.type != "function_call"]
        item: dict[str, Any] = {"role": role, "content": [*map(_block, others)], "tool_calls": [*map(_call, calls)]}
        (neutral,) = nexus.read_messages([item], "openai")
    base_fields = new_messages(neutral)[0].to_dict()
    return with_fields(
        neutral, {name: value for name, value in message.to_dict().items() if base_fields.get(name) != value}
    )


def restored_message(message: nexus.Message) -> Message:
    """Return a message as it was, without what the framework itself does not store."""
    return Message.from_dict({**new_messages(message)[0].to_dict(), **fields_of(message)})


def new_messages(message: nexus.Message) -> list[Message]:
    """Return a new message for a neutral one."""
    contents = _contents(message.parts)
    for call in message.calls():
        contents.append(Content.from_function_call(call.id, call.name, arguments=call.arguments))
    for result in message.results():
        failure = "the tool failed" if result.is_error else None
        contents.append(
            Content.from_function_result(result.call_id, result=_contents(result.content), exception=failure)
        )
    return [Message(message.role, contents)]


def _contents(parts: Iterable[Any]) -> list[Content]:
    contents: list[Content] = []
    for part in parts:
        if isinstance(part, nexus.Image):
            uri = part.url or f"data:{part.media_type};base64,{part.data}"
            contents.append(Content.from_uri(uri, media_type=part.media_type or "image/png"))
        elif isinstance(getattr(part, "text", None), str) and not isinstance(part, nexus.Thinking):
            contents.append(Content.from_text(part.text))
    return contents


def _block(content: Content) -> dict[str, Any]:
    """Return a content as a block of chat completions if it is text, thinking or an image; any other one as it is."""
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    if content.type == "text_reasoning":
        return {"type": "thinking", "thinking": content.text or ""}
    if content.type in ("data", "uri") and (content.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    return content.to_dict()


def _call(content: Content) -> dict[str, Any]:
    arguments = content.arguments or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(dict(arguments), default=str, ensure_ascii=False)
    return {
        "id": content.call_id,
        "type": "function",
        "function": {"name": content.name or "", "arguments": arguments},
    }


def _result(content: Content) -> nexus.ToolResult:
    items: Sequence[Any] = content.items or ()
    blocks = [*map(_block, items)]
    if not items and content.result is not None:
        blocks = [{"type": "text", "text": str(content.result)}]
    item = {"role": "tool", "tool_call_id": content.call_id, "content": blocks}
    (message,) = nexus.read_messages([item], "openai")
    (result,) = message.results()
    return replace(result, is_error=content.exception is not None)


def result_of(before: Sequence[nexus.Message], response: ChatResponse[Any]) -> nexus.AgentResult:
    """Return the replies of a call as they are recorded, behind the replies that its list ended with."""
    messages = [*map(neutral_message, response.messages)]
    used: dict[str, Any] = {**(response.usage_details or {})}
    read = used.get("cache_read_input_token_count") or 0
    written = used.get("cache_creation_input_token_count") or 0
    prompt = used.get("input_token_count") or 0
    if prompt < read + written:  # a provider that counts cached tokens apart
        prompt += read + written
    reasoning = used.get("reasoning_output_token_count") or 0
    usage = nexus.TokenUsage(prompt, used.get("output_token_count") or 0, read, written, reasoning)
    completion = nexus.write_messages(messages[:1], "openai")[0]
    reply = nexus.read_reply({"choices": [{"message": completion, "finish_reason": response.finish_reason or ""}]})
    model = getattr(response, "model", None) or getattr(response, "model_id", None) or ""
    return replace(reply, messages=(*before, *messages), usage=usage, model=model)
