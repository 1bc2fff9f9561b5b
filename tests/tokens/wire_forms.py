"""The four JSON forms of a message, written from their documentation, not from Nexus' own renderers."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

Json = dict[str, Any]


def compact(value: object) -> str:
    """JSON without spaces, other scripts as they are: what is sent."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def arguments(call: ToolCall) -> Json:
    """A call's arguments as an object; text that is no JSON object goes under one key."""
    try:
        return msgspec.json.decode(call.arguments, type=Json)
    except ValueError:
        return {"raw": call.arguments}


def joined(result: ToolResult) -> str:
    """All text of a result in one piece."""
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def openai(message: Message) -> list[Json]:
    """Chat Completions: a message, and one more for each tool result."""
    sent: list[Json] = []
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls()
    ]
    for result in message.results():
        sent.append({"role": "tool", "tool_call_id": result.call_id, "content": joined(result)})
        images = [_openai_part(part) for part in result.content if isinstance(part, Image)]
        if images:
            sent.append({"role": "user", "content": images})
    rest = [part for part in message.parts if not isinstance(part, (ToolCall, ToolResult, Thinking))]
    if rest or calls:
        content = [_openai_part(part) for part in rest] or None
        if len(rest) == 1 and isinstance(rest[0], (Text, Note)):
            content = rest[0].text
        body: Json = {"role": message.role, "content": content}
        if calls:
            body["tool_calls"] = calls
        sent.append(body)
    return sent


def _openai_part(part: Part) -> Json:
    match part:
        case Text() | Note():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image_url", "image_url": {"url": part.url, "detail": "auto"}}
        case Unknown():
            return {"type": "text", "text": part.raw}
        case _:
            raise AssertionError(part)


def responses(message: Message) -> list[Json]:
    """Responses: an item for each text, call and result; a result with images is a list."""
    if message.role == "assistant":
        return [sent for part in message.parts for sent in _responses_items(part)]
    sent = [item for result in message.results() for item in _responses_items(result)]
    rest = [part for part in message.parts if not isinstance(part, (ToolCall, ToolResult, Thinking))]
    if len(rest) == 1 and isinstance(rest[0], (Text, Note)):
        sent.append({"role": message.role, "content": rest[0].text})
    elif rest:
        sent.append({"role": message.role, "content": [_responses_content(part) for part in rest]})
    return [*sent, *(item for call in message.calls() for item in _responses_items(call))]


def _responses_items(part: Part) -> list[Json]:
    match part:
        case Text() | Note():
            return [{"role": "assistant", "content": part.text}]
        case ToolCall():
            made = {"call_id": part.id, "name": part.name, "arguments": part.arguments}
            return [{"type": "function_call", **made}]
        case ToolResult():
            images = any(isinstance(item, Image) for item in part.content)
            output = [_responses_content(item) for item in _grouped(part)] if images else joined(part)
            return [{"type": "function_call_output", "call_id": part.call_id, "output": output}]
        case _:
            return []


def _grouped(result: ToolResult) -> list[Part]:
    """The result's content, texts in a row as one."""
    found: list[Part] = []
    for item in result.content:
        if isinstance(item, Text) and found and isinstance(found[-1], Text):
            found[-1] = Text(f"{found[-1].text}\n{item.text}")
        else:
            found.append(item)
    return found


def _responses_content(part: Part) -> Json:
    match part:
        case Text() | Note():
            return {"type": "input_text", "text": part.text}
        case Image():
            return {"type": "input_image", "image_url": part.url, "detail": "auto"}
        case Unknown():
            return {"type": "input_text", "text": part.raw}
        case _:
            raise AssertionError(part)


def anthropic(message: Message) -> list[Json]:
    """Messages: blocks with a type; tool arguments as an object."""
    role = "assistant" if message.role == "assistant" else "user"
    return [{"role": role, "content": [_anthropic_block(part) for part in message.parts]}]


def _anthropic_block(part: Part) -> Json:
    match part:
        case Text() | Note():
            return {"type": "text", "text": part.text}
        case Image():
            source = {"type": "url", "url": part.url} if part.url else _base64(part)
            return {"type": "image", "source": source}
        case Thinking():
            return {"type": "thinking", "thinking": part.text, "signature": ""}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments(part)}
        case ToolResult():
            blocks = [_anthropic_block(block) for block in part.content]
            content = part.content[0].text if len(blocks) == 1 and isinstance(part.content[0], Text) else blocks
            failed = {"is_error": True} if part.is_error else {}
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": content, **failed}
        case Unknown():
            return json.loads(part.raw)


def _base64(image: Image) -> Json:
    return {"type": "base64", "media_type": image.media_type, "data": ""}


def gemini(message: Message) -> list[Json]:
    """Contents: parts named by their kind; results under the tool's name."""
    role = "model" if message.role == "assistant" else "user"
    return [{"role": role, "parts": [sent for part in message.parts for sent in _gemini_parts(part)]}]


def _gemini_parts(part: Part) -> list[Json]:
    match part:
        case Text() | Note():
            return [{"text": part.text}]
        case Image():
            if part.url:
                return [{"fileData": {"mimeType": part.media_type, "fileUri": part.url}}]
            return [{"inlineData": {"mimeType": part.media_type, "data": ""}}]
        case Thinking():
            return [{"text": part.text, "thought": True}]
        case ToolCall():
            return [{"functionCall": {"id": part.id, "name": part.name, "args": arguments(part)}}]
        case ToolResult():
            response = {"error" if part.is_error else "result": joined(part)}
            named = {"functionResponse": {"id": part.call_id, "name": part.name, "response": response}}
            return [
                named,
                *(sent for block in part.content if isinstance(block, Image) for sent in _gemini_parts(block)),
            ]
        case Unknown():
            return [{"text": part.raw}]


FORMS = {"openai": openai, "responses": responses, "anthropic": anthropic, "gemini": gemini}
