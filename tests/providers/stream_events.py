"""Complete replies, and the same as events of the packages' own types, with their texts in random pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

Json = dict[str, Any]
Split = Callable[[str], list[str]]
"""Splits a text into pieces; an empty text into none."""

_anthropic: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
_responses: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def chat_reply(said: str, thought: str, arguments: list[Json], refusal: str = "") -> Any:
    """A chat completion."""
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "look", "arguments": json.dumps(one)}}
        for n, one in enumerate(arguments)
    ]
    message = {
        "role": "assistant", "content": said or None, **({"reasoning_content": thought} if thought else {}),
        **({"tool_calls": calls} if calls else {}), **({"refusal": refusal} if refusal else {}),
    }  # fmt: skip
    details = {"prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 5}}
    return ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-x",
            "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, **details},
        }
    )  # fmt: skip


def chat_events(reply: Any, split: Split) -> Iterator[Any]:
    """Chunks: the role, texts, calls, the finish reason, and the usage without a choice."""
    body = reply.model_dump(mode="json", exclude_none=True)
    (choice,) = body["choices"]
    message = choice["message"]

    def chunk(delta: Json | None, **fields: Any) -> Any:
        choices = [] if delta is None else [{"index": 0, "delta": delta, **fields}]
        head = {"id": body["id"], "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        return ChatCompletionChunk.model_validate(
            {**head, "choices": choices, "usage": body["usage"] if delta is None else None}
        )

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content", "refusal"):
        for piece in split(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]})
        for piece in split(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, finish_reason=choice["finish_reason"])
    yield chunk(None)


def anthropic_message(said: str, thought: str, arguments: list[Json], _refusal: str = "") -> Any:
    """A message with signed and redacted thinking, a cited text, a server's search, and calls."""
    cited = {
        "type": "char_location", "cited_text": "d", "document_index": 0, "document_title": None, "start_char_index": 0,
        "end_char_index": 1, "file_id": None,
    }  # fmt: skip
    content: list[Json] = []
    if thought:
        content += [
            {"type": "thinking", "thinking": thought, "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": thought}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        ]
    if said:
        content.append({"type": "text", "text": said, "citations": [cited] if thought else None})
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "look", "input": one} for n, one in enumerate(arguments)
    ]
    return AnthropicMessage.model_validate(
        {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": content,
            "stop_reason": "tool_use" if arguments else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 28, "output_tokens": 20, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 8},
        }
    )  # fmt: skip


def anthropic_events(reply: Any, split: Split) -> Iterator[Any]:
    """The empty message with the input's usage, the blocks in deltas, and the stop reason with the output's usage."""
    body = reply.model_dump(mode="json")
    made = _anthropic.validate_python
    start = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    yield made({"type": "message_start", "message": start})
    for index, block in enumerate(body["content"]):
        empty, deltas = dict(block), list[Json]()
        if block["type"] == "text":
            empty |= {"text": "", "citations": None}
            deltas += [{"type": "citations_delta", "citation": one} for one in block["citations"] or ()]
            deltas += [{"type": "text_delta", "text": piece} for piece in split(block["text"])]
        elif block["type"] == "thinking":
            empty |= {"thinking": "", "signature": ""}
            deltas += [{"type": "thinking_delta", "thinking": piece} for piece in split(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] in ("tool_use", "server_tool_use"):
            empty |= {"input": {}}
            pieces = split(json.dumps(block["input"])) if block["input"] else [""]
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield made({"type": "content_block_start", "index": index, "content_block": empty})
        yield from (made({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas)
        yield made({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield made({"type": "message_delta", "delta": ending, "usage": {"output_tokens": body["usage"]["output_tokens"]}})
    yield made({"type": "message_stop"})


def response(said: str, thought: str, arguments: list[Json], refusal: str = "") -> Any:
    """A response with reasoning, a text or refusal, and calls."""
    output: list[Json] = []
    if thought:
        summary = [{"type": "summary_text", "text": thought}]
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2VhbGVk"})
    contents: list[Json] = [{"type": "output_text", "text": said, "annotations": []}] if said else []
    contents += [{"type": "refusal", "refusal": refusal}] if refusal else []
    if contents:
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": contents}
        )
    output += [
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "look", "arguments": json.dumps(one), "status": "completed"}
        for n, one in enumerate(arguments)
    ]  # fmt: skip
    return Response.model_validate(
        {
            "id": "resp_1", "object": "response", "created_at": 1.0, "status": "completed", "model": "gpt-x", "output": output,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "usage": {
                "input_tokens": 100, "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0}, "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120,
            },
        }
    )  # fmt: skip


def responses_events(reply: Any, split: Split) -> Iterator[Any]:
    """The response without output, each item begun, in deltas and done, and the whole response."""
    body = reply.model_dump(mode="json")
    number = iter(range(1_000_000))

    def made(kind: str, **fields: Any) -> Any:
        return _responses.validate_python({"type": f"response.{kind}", "sequence_number": next(number), **fields})

    yield made("created", response={**body, "output": [], "status": "in_progress", "usage": None})
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {**item, **{"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})}
        yield made("output_item.added", output_index=index, item=begun)
        for at, content in enumerate(item.get("content") or ()):
            kind = "refusal" if content["type"] == "refusal" else "output_text"
            more = {} if kind == "refusal" else {"logprobs": []}
            for piece in split(content.get("text") or content.get("refusal") or ""):
                yield made(f"{kind}.delta", content_index=at, delta=piece, **place, **more)
        for piece in split(item.get("arguments") or ""):
            yield made("function_call_arguments.delta", delta=piece, **place)
        yield made("output_item.done", output_index=index, item=item)
    yield made("completed", response=body)


def gemini_response(said: str, thought: str, arguments: list[Json], _refusal: str = "") -> Any:
    """A content with a thought, a signed text, and calls."""
    parts: list[Json] = [{"text": thought, "thought": True}] if thought else []
    parts += [{"text": said, **({"thought_signature": "c2ln"} if thought else {})}] if said else []
    parts += [{"function_call": {"name": "look", "args": one}} for one in arguments]
    return GenerateContentResponse.model_validate(
        {
            "response_id": "r1", "model_version": "gemini-x",
            "candidates": [{"index": 0, "finish_reason": "STOP", "content": {"role": "model", "parts": parts}}],
            "usage_metadata": {"prompt_token_count": 100, "candidates_token_count": 20, "cached_content_token_count": 64},
        }
    )  # fmt: skip


def gemini_events(reply: Any, split: Split) -> Iterator[Any]:
    """A chunk for each piece with the usage so far; a signature comes with the last piece of its text."""
    body = reply.model_dump(mode="json", exclude_none=True)
    (candidate,) = body["candidates"]
    pieces: list[Json] = []
    for part in candidate["content"].get("parts", []):
        texts = split(part["text"]) if "text" in part else []
        kept = {name: value for name, value in part.items() if name != "thought_signature"}
        pieces += [{**kept, "text": piece} for piece in texts[:-1]]
        pieces.append({**part, "text": texts[-1]} if texts else part)
    for number, piece in enumerate(pieces):
        usage = {**body["usage_metadata"], "candidates_token_count": min(number, 20)}
        chunk = {"candidates": [{"index": 0, "content": {"role": "model", "parts": [piece]}}], "usage_metadata": usage}
        yield GenerateContentResponse.model_validate({"response_id": "r1", "model_version": "gemini-x", **chunk})
    last = {
        "candidates": [{"index": 0, "finish_reason": candidate["finish_reason"]}],
        "usage_metadata": body["usage_metadata"],
    }
    yield GenerateContentResponse.model_validate({"response_id": "r1", "model_version": "gemini-x", **last})


STREAMS: dict[str, tuple[Callable[..., Any], Callable[[Any, Split], Iterator[Any]]]] = {
    "openai": (chat_reply, chat_events),
    "responses": (response, responses_events),
    "anthropic": (anthropic_message, anthropic_events),
    "gemini": (gemini_response, gemini_events),
}
"""For each format: a complete reply from text, thinking and arguments of calls, and its events."""
