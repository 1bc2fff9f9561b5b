"""Replies as the three providers' own packages give them, and a client that answers with them without a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeAlias

from providers.stream_events import STREAMS
from support.validity import CHECKS

Reply: TypeAlias = Any
"""A response object of one of the packages: `ChatCompletion`, `Response`, anthropic's `Message`, `GenerateContentResponse`."""

CALL = ("read_file", {"path": "notes.md"})


def openai_reply(text: str = "Yes.", *, call: bool = False) -> Reply:
    """A chat completion: a text, and a tool call if wanted."""
    from openai.types.chat import ChatCompletion

    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call:
        function = {"name": CALL[0], "arguments": json.dumps(CALL[1])}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    return ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "gpt-5-2025-08-07",
            "choices": [{"index": 0, "finish_reason": "tool_calls" if call else "stop", "message": message}],
            "usage": {
                "prompt_tokens": 120,
                "completion_tokens": 7,
                "total_tokens": 127,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        }
    )


def responses_reply(text: str = "Yes.", *, call: bool = False) -> Reply:
    """A response with encrypted reasoning, a text, and a function call if wanted."""
    from openai.types.responses import Response

    said: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]},
    ]
    if call:
        made = {"call_id": "call_1", "name": CALL[0], "arguments": json.dumps(CALL[1])}
        output.append({"type": "function_call", "id": "fc_1", "status": "completed", **made})
    return Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_760_000_000,
            "status": "completed",
            "model": "gpt-5-2025-08-07",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 120,
                "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 4},
                "total_tokens": 127,
            },
        }
    )


def anthropic_reply(text: str = "Yes.", *, call: bool = False) -> Reply:
    """A message with signed thinking, a text, and a tool call if wanted."""
    from anthropic.types import Message

    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "An easy one.", "signature": "c2ln"},
        {"type": "text", "text": text},
    ]
    if call:
        content.append({"type": "tool_use", "id": "toolu_1", "name": CALL[0], "input": CALL[1]})
    return Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5-20250929",
            "content": content,
            "stop_reason": "tool_use" if call else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 20,
                "output_tokens": 7,
                "cache_read_input_tokens": 64,
                "cache_creation_input_tokens": 36,
            },
        }
    )


def gemini_reply(text: str = "Yes.", *, call: bool = False) -> Reply:
    """A generated content with a thought, a text, and a function call if wanted."""
    from google.genai.types import GenerateContentResponse

    parts: list[dict[str, Any]] = [{"text": "An easy one.", "thought": True}, {"text": text}]
    if call:
        parts.append({"function_call": {"id": "fc_1", "name": CALL[0], "args": CALL[1]}})
    return GenerateContentResponse.model_validate(
        {
            "response_id": "r1",
            "model_version": "gemini-2.5-pro",
            "candidates": [{"index": 0, "finish_reason": "STOP", "content": {"role": "model", "parts": parts}}],
            "usage_metadata": {
                "prompt_token_count": 120,
                "candidates_token_count": 7,
                "total_token_count": 127,
                "cached_content_token_count": 64,
            },
        }
    )


REPLIES: dict[str, Callable[..., Reply]] = {
    "openai": openai_reply,
    "responses": responses_reply,
    "anthropic": anthropic_reply,
    "gemini": gemini_reply,
}


def client() -> Any:
    """Stands in for every provider's client: each method refuses a body that its provider would refuse, then answers or streams."""

    def answering(wire: str) -> Callable[..., Reply]:
        def create(*, stream: bool = False, **body: Any) -> Reply:
            problems = CHECKS[wire](body)
            assert problems == [], f"{wire} would refuse this request: {problems}"
            return STREAMS[wire][1](REPLIES[wire](), list) if stream else REPLIES[wire]()

        return create

    return _client(answering)


def async_client() -> Any:
    """Return an asynchronous stand-in: `await` gives the reply, or a stream for `async for`."""
    methods = client()
    by_format = {
        "openai": methods.chat.completions.create,
        "responses": methods.responses.create,
        "anthropic": methods.messages.create,
        "gemini": methods.models.generate_content,
    }

    def answering(wire: str) -> Callable[..., Any]:
        async def create(*, stream: bool = False, **body: Any) -> Any:
            result: Any = by_format[wire](stream=stream, **body)
            return _events(result) if stream else result

        return create

    return _client(answering)


async def _events(events: Iterable[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event


def _client(answering: Callable[[str], Callable[..., Any]]) -> Any:
    return SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=answering("openai"))),
        responses=SimpleNamespace(create=answering("responses")),
        messages=SimpleNamespace(create=answering("anthropic")),
        models=SimpleNamespace(generate_content=answering("gemini")),
    )
