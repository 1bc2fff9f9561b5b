"""Scripted replies in the formats of four APIs: the body, and the same reply as a stream of server-sent events.

Texts are streamed by word, arguments in two pieces where the format allows it, in the order in which each API sends them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.providers.errors.bodies import error_body
from nexus.types.message import ToolCall
from nexus.types.request import TokenUsage

Format: TypeAlias = Literal["openai", "responses", "anthropic", "gemini"]
StopReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]
Fields: TypeAlias = dict[str, Any]

_ANTHROPIC_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_GEMINI_STOPS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "content_filter": "SAFETY"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ScriptedReply(Struct, frozen=True):
    """A reply in no format."""

    text: str | None
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    stop: StopReason = "stop"
    model: str = ""
    usage: TokenUsage = TokenUsage()
    """`input_tokens` is the whole prompt, cache reads and writes included."""
    message: Fields = {}
    """Further fields of a chat completion's message."""
    id: str = "1"
    """End of the reply's id. Some clients join replies of one id."""
    custom_tools: frozenset[str] = frozenset()
    """Names of tools that take a text instead of JSON arguments (Responses alone)."""


def reply_body(format_: Format, reply: ScriptedReply) -> Fields:
    """Return the body of a complete reply."""
    return _BODIES[format_](reply)


def reply_events(format_: Format, body: Fields, *, usage: bool = True) -> Iterator[str]:
    """Yield a complete reply as its stream; `usage` is needed for chat completions, which have it only on request."""
    if format_ == "openai":
        return _chat_events(body, usage=usage)
    if format_ == "responses":
        return _responses_events(body)
    if format_ == "anthropic":
        return _anthropic_events(body)
    return _gemini_events(body)


def error_event(format_: Format, status: int, message: str) -> str:
    """Return the event that reports an error within a stream."""
    if format_ == "responses":
        fields = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": 99}
        return _event("error", fields)
    body = error_body(format_, status, message)
    if format_ == "anthropic":
        return _event("error", body)
    return _data(body)


def _chat_body(reply: ScriptedReply) -> Fields:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    message: Fields = {"role": "assistant", "content": reply.text, **reply.message}
    message |= {"reasoning_content": reply.thinking} if reply.thinking else {}
    message |= {"tool_calls": calls} if calls else {}
    usage = reply.usage
    details: Fields = {"prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens}}
    if usage.cache_write_tokens:
        details["prompt_tokens_details"]["cache_write_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        details["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return {
        "id": f"chatcmpl-{reply.id}",
        "object": "chat.completion",
        "created": 1,
        "model": reply.model,
        "choices": [{"index": 0, "finish_reason": reply.stop, "message": message}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            **details,
        },
    }


def _chat_events(body: Fields, *, usage: bool) -> Iterator[str]:
    message = dict(body["choices"][0]["message"])
    text = message.pop("content") or ""
    calls = message.pop("tool_calls", [])
    thinking = message.pop("reasoning_content", "")
    deltas: list[Fields] = [{**message, "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _words(thinking)]
    deltas += [{"content": piece} for piece in _words(text)]
    for index, call in enumerate(calls):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in _halves(function["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    ends = [None] * len(deltas) + [body["choices"][0]["finish_reason"]]
    chunk = {name: body[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta, end in zip([*deltas, {}], ends, strict=True):
        yield _data({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
    if usage:
        yield _data({**chunk, "choices": [], "usage": body["usage"]})
    yield "data: [DONE]\n\n"


def _responses_body(reply: ScriptedReply) -> Fields:
    output: list[Fields] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        output.append({"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary, "encrypted_content": "sealed"})
    if reply.text:
        content: list[Fields] = [{"type": "output_text", "text": reply.text, "annotations": []}]
        fields: Fields = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        output.append({"id": f"msg_{reply.id}", **fields})
    for index, call in enumerate(reply.calls):
        fields = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        if call.name in reply.custom_tools:
            fields = {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
        output.append({**fields, "id": f"fc_{reply.id}_{index}", "status": "completed"})
    reason = _INCOMPLETE.get(reply.stop)
    usage = reply.usage
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": 1,
        "model": reply.model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": cached,
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _responses_events(body: Fields) -> Iterator[str]:
    started: Fields = {**body, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[Fields] = [{"type": f"response.{name}", "response": started} for name in ("created", "in_progress")]
    for index, item in enumerate(body["output"]):
        place: Fields = {"output_index": index, "item_id": item["id"]}
        added: Fields = {**item, **_EMPTY_ITEMS[item["type"]]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        events += [{**place, **event} for event in _item_events(item)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{body['status']}", "response": body})
    for number, event in enumerate(events):
        yield _event(event["type"], {**event, "sequence_number": number})


_EMPTY_ITEMS: dict[str, Fields] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
"""Fields of an item that are empty when a stream begins it."""


def _item_events(item: Fields) -> Iterator[Fields]:
    match item["type"]:
        case "reasoning":
            part: Fields = {"summary_index": 0}
            text = item["summary"][0]["text"]
            empty: Fields = {"type": "summary_text", "text": ""}
            yield {"type": "response.reasoning_summary_part.added", **part, "part": empty}
            for piece in _words(text):
                yield {"type": "response.reasoning_summary_text.delta", **part, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **part, "text": text}
        case "message":
            part = {"content_index": 0}
            text = item["content"][0]["text"]
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **part, "part": empty}
            for piece in _words(text):
                yield {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **part, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **part, "part": item["content"][0]}
        case "custom_tool_call":
            for piece in _halves(item["input"]):
                yield {"type": "response.custom_tool_call_input.delta", "delta": piece}
            yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
        case _:
            for piece in _halves(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
            yield {
                "type": "response.function_call_arguments.done",
                "name": item["name"],
                "arguments": item["arguments"],
            }


def _anthropic_body(reply: ScriptedReply) -> Fields:
    content: list[Fields] = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": "c2lnbmVk"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in reply.calls
    ]
    usage = reply.usage
    counts: Fields = {"input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens}
    counts["output_tokens"] = usage.output_tokens
    if usage.cache_read_tokens or usage.cache_write_tokens:
        counts["cache_read_input_tokens"] = usage.cache_read_tokens
        counts["cache_creation_input_tokens"] = usage.cache_write_tokens
        hour = usage.cache_write_1h_tokens
        counts["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - hour,
            "ephemeral_1h_input_tokens": hour,
        }
    details = {"output_tokens_details": {"thinking_tokens": usage.reasoning_tokens}} if usage.reasoning_tokens else {}
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": _ANTHROPIC_STOPS[reply.stop],
        "stop_sequence": None,
        "usage": {**counts, **details},
    }


def _anthropic_events(body: Fields) -> Iterator[str]:
    usage = {**body["usage"], "output_tokens": 1}
    usage.pop("output_tokens_details", None)
    message: Fields = {**body, "content": [], "stop_reason": None, "usage": usage}
    events: list[Fields] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(body["content"]):
        deltas: list[Fields]
        match block["type"]:
            case "thinking":
                empty: Fields = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _words(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                empty = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _words(block["text"])]
            case _:
                empty = {**block, "input": {}}
                pieces = _halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ends = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    details = {name: body["usage"][name] for name in ("output_tokens_details",) if name in body["usage"]}
    counts = {"output_tokens": body["usage"]["output_tokens"], **details}
    events += [{"type": "message_delta", "delta": ends, "usage": counts}, {"type": "message_stop"}]
    return (_event(event["type"], event) for event in events)


def _gemini_body(reply: ScriptedReply) -> Fields:
    parts: list[Fields] = [{"text": reply.thinking, "thought": True}] if reply.thinking else []
    parts += [{"text": reply.text}] if reply.text else []
    for call in reply.calls:
        fields = {"name": call.name, "args": json.loads(call.arguments)}
        parts.append({"functionCall": {"id": call.id, **fields} if call.id else fields})
    usage = reply.usage
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    counts |= {"cachedContentTokenCount": usage.cache_read_tokens} if usage.cache_read_tokens else {}
    counts |= {"thoughtsTokenCount": usage.reasoning_tokens} if usage.reasoning_tokens else {}
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": _GEMINI_STOPS[reply.stop]}
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": reply.model,
        "responseId": f"response-{reply.id}",
    }


def _gemini_events(body: Fields) -> Iterator[str]:
    candidate = body["candidates"][0]
    pieces: list[list[Fields]] = []
    for part in candidate["content"]["parts"]:
        if "text" in part:
            texts = [{**part, "text": piece} for piece in _words(part["text"])]
        else:
            texts = [part]
        pieces += [[piece] for piece in texts]
    rest = {name: body[name] for name in ("modelVersion", "responseId")}
    counts = {name: count for name, count in body["usageMetadata"].items() if name.startswith(("prompt", "cached"))}
    for parts in pieces:
        chunk = {"index": 0, "content": {"role": "model", "parts": parts}}
        yield _data({"candidates": [chunk], "usageMetadata": counts, **rest})
    end = {**candidate, "content": {"role": "model"}}
    yield _data({"candidates": [end], "usageMetadata": body["usageMetadata"], **rest})


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _halves(text: str) -> tuple[str, str]:
    half = len(text) // 2
    return text[:half], text[half:]


def _data(value: Fields) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _event(name: str, value: Fields) -> str:
    return f"event: {name}\n{_data(value)}"


_BODIES = {
    "openai": _chat_body,
    "responses": _responses_body,
    "anthropic": _anthropic_body,
    "gemini": _gemini_body,
}
