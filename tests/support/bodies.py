"""One good and rich body per provider, and ways to break a copy of it at one place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from support.strict import Json

Step: TypeAlias = str | int | slice
Edit: TypeAlias = Callable[[Json], None]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # one pixel
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def _openai_call(call_id: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def openai_body() -> Json:
    """A good OpenAI body: system, image, two parallel calls and their results, an assistant without calls, a user."""
    function: Json = {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA}
    return {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "You are brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which city?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [_openai_call("call_1", '{"city":"Köln"}'), _openai_call("call_2", "{}")],
            },
            {"role": "tool", "tool_call_id": "call_2", "content": ""},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "12 °C"}]},
            {"role": "assistant", "content": "Twelve degrees."},
            {"role": "user", "content": "Thanks. And tomorrow?"},
        ],
        "tools": [{"type": "function", "function": function}],
        "max_completion_tokens": 1000,
    }


def responses_body() -> Json:
    """A good Responses body: instructions, image, reasoning, two parallel calls, results as text and with an image."""
    picture: Json = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
    call: Json = {"type": "function_call", "name": "weather"}
    tool: Json = {"type": "function", "name": "weather", "description": "Weather of a city", "parameters": SCHEMA}
    return {
        "model": "gpt-5",
        "store": False,
        "prompt_cache_key": "a1b2c3d4e5f60718",
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 1000,
        "instructions": "You are brief.",
        "tools": [{**tool, "strict": False}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Which city?"}, {**picture}]},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Two calls."}],
                "encrypted_content": "c2VhbGVk",
            },
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {**call, "call_id": "call_1", "arguments": '{"city":"Köln"}'},
            {**call, "call_id": "call_2", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_2", "output": ""},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_text", "text": "12 °C"}, picture],
            },
            {"role": "assistant", "content": "Twelve degrees."},
            {"role": "user", "content": "Thanks. And tomorrow?"},
        ],
    }


def anthropic_body() -> Json:
    """A good Anthropic body: marks on tools, system and history, image, thinking, parallel calls."""
    source: Json = {"type": "base64", "media_type": "image/png", "data": PNG}
    result: Json = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "12 °C"}, {"type": "image", "source": source}],
    }
    failed: Json = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no such city", "is_error": True}
    return {
        "model": "claude-opus-4-5",
        "max_tokens": 1024,
        "system": [{"type": "text", "text": "You are brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Which city?"}, {"type": "image", "source": source}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Two calls.", "signature": "c2lnbmVk"},
                    {"type": "redacted_thinking", "data": "b3BhcXVl"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [result, failed, {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "assistant", "content": "Twelve degrees."},
            {"role": "user", "content": "Thanks. And tomorrow?"},
        ],
        "tools": [
            {
                "name": "weather",
                "description": "Weather of a city",
                "input_schema": SCHEMA,
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            }
        ],
    }


def gemini_body() -> Json:
    """A good Gemini body: system instruction, image, thought, signature, parallel calls (one with an id)."""
    declared: Json = {"name": "weather", "description": "Weather of a city", "parameters_json_schema": SCHEMA}
    return {
        "model": "gemini-2.5-pro",
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "Which city?"}, {"inline_data": {"mime_type": "image/png", "data": PNG}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Two calls.", "thought": True},
                    {"function_call": {"name": "weather", "args": {"city": "Köln"}}, "thought_signature": "c2lnbmVk"},
                    {"function_call": {"name": "weather.of", "args": {}, "id": "c2"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"function_response": {"name": "weather", "response": {"output": "12 °C"}}},
                    {"function_response": {"name": "weather.of", "response": {"error": "no city"}, "id": "c2"}},
                ],
            },
            {"role": "model", "parts": [{"text": "Twelve degrees."}]},
            {"role": "user", "parts": [{"text": "Thanks. And tomorrow?"}]},
        ],
        "config": {
            "system_instruction": "You are brief.",
            "max_output_tokens": 1000,
            "tools": [{"function_declarations": [declared]}],
        },
    }


GOOD: dict[str, Callable[[], Json]] = {
    "openai": openai_body,
    "responses": responses_body,
    "anthropic": anthropic_body,
    "gemini": gemini_body,
}
"""A maker of a good body for each form: every call makes a new one."""


def put(value: Any, *path: Step) -> Edit:
    """An edit that sets the value at this path."""

    def edit(body: Json) -> None:
        _at(body, path[:-1])[path[-1]] = copy.deepcopy(value)

    return edit


def insert(value: Any, *path: Step) -> Edit:
    """An edit that puts the value into a list, before the place at this path."""

    def edit(body: Json) -> None:
        _at(body, path[:-1]).insert(path[-1], copy.deepcopy(value))

    return edit


def drop(*path: Step) -> Edit:
    """An edit that removes what stands at this path."""

    def edit(body: Json) -> None:
        del _at(body, path[:-1])[path[-1]]

    return edit


def both(first: Edit, second: Edit) -> Edit:
    """An edit that makes two edits, one after the other."""

    def edit(body: Json) -> None:
        first(body)
        second(body)

    return edit


def edited(body: Json, edit: Edit) -> Json:
    """The body after the edit; the edit is made in a copy."""
    changed = copy.deepcopy(body)
    edit(changed)
    return changed


def _at(body: Any, path: tuple[Step, ...]) -> Any:
    for step in path:
        body = body[step]
    return body
