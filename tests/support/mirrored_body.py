"""What a proxy does with one request: its list through `mirror`, and the fitted list back into the request.

The readers of this module know the four formats from the providers' pages; they import nothing of Nexus' formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import nexus
from nexus.testing.scripted_replies import Format

Json = dict[str, Any]

LIST_KEYS: dict[Format, str] = {
    "openai": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents",
}  # fmt: skip
"""Key of the message list in a request."""

SYSTEM_KEYS: dict[Format, str] = {
    "responses": "instructions", "anthropic": "system", "gemini": "systemInstruction",
}  # fmt: skip
"""Key of the system prompt, where it is not in the list."""

_PYTHON_NAMES = {
    "functionCall": "function_call", "functionResponse": "function_response", "thoughtSignature": "thought_signature",
    "inlineData": "inline_data", "fileData": "file_data", "mimeType": "mime_type", "fileUri": "file_uri",
}  # fmt: skip


def format_of(path: str) -> Format | None:
    """Return the format of the requests that a path takes; None for other paths."""
    ends: dict[str, Format] = {
        "/messages": "anthropic", "/chat/completions": "openai", "/responses": "responses",
        ":generateContent": "gemini", ":streamGenerateContent": "gemini",
    }  # fmt: skip
    return next((name for end, name in ends.items() if path.endswith(end)), None)


def mirror_arguments(format_: Format, body: Json, model: str) -> tuple[list[Any], Json]:
    """Return a request's list and the keyword arguments of `mirror` for it."""
    system = text_of(body.get(SYSTEM_KEYS.get(format_, "")))
    tools = [{name: tool[name] for name in tool if name != "cache_control"} for tool in body.get("tools") or ()]
    return body[LIST_KEYS[format_]], {"provider": format_, "model": model, "system": system, "tools": tools}


def fitted_body(ctx: nexus.AssembledContext, format_: Format, body: Json) -> Json:
    """Return the request with the list that fits; all its other fields are as received."""
    fitted = ctx.to_provider("gemini_rest" if format_ == "gemini" else format_)
    key = LIST_KEYS[format_]
    return {**body, key: fitted[key]}


def python_form(value: Any) -> Any:
    """Return a request of Gemini's REST interface with the names of the Python client's contents."""
    if isinstance(value, list):
        return [python_form(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _PYTHON_NAMES.get(name, name): item if name in ("args", "response") else python_form(item)
        for name, item in value.items()
    }


def text_of(content: Any) -> str:
    """Return the text of a message's content, a system prompt or a result, in any of the four formats."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(item) for item in content)
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("parts") or content.get("content") or "")
    return ""


def results_of(format_: Format, body: Json) -> list[tuple[str, str]]:
    """Return the tool results of a request, in order: the id of the call, which may be empty, and the text."""
    return [pair for item in body.get(LIST_KEYS[format_], ()) for pair in _results_in(format_, item)]


def _results_in(format_: Format, item: Json) -> Iterator[tuple[str, str]]:
    match format_:
        case "openai" if item.get("role") == "tool":
            yield item["tool_call_id"], text_of(item["content"])
        case "responses" if str(item.get("type")).endswith("_output"):
            yield item["call_id"], text_of(item["output"])
        case "anthropic" if isinstance(item["content"], list):
            for block in item["content"]:
                if block["type"] == "tool_result":
                    yield block["tool_use_id"], text_of(block.get("content"))
        case "gemini":
            for part in item["parts"]:
                if response := part.get("functionResponse"):
                    yield response.get("id", ""), json.dumps(response["response"])
        case _:
            pass


def event_of(format_: Format, body: Json) -> list[Any]:
    """Return the messages of a request after the model's last one."""
    listed: list[Json] = body.get(LIST_KEYS[format_], [])
    ends = [
        index
        for index, item in enumerate(listed, 1)
        if item.get("role") in ("assistant", "model") or str(item.get("type")).endswith("_call")
    ]
    return listed[max(ends, default=0) :]


def instructions_of(format_: Format, body: Json) -> list[str]:
    """Return the texts that instruct the model: the system prompt, and system and developer messages in the list.

    Tools in the list are among them, as JSON.
    """
    texts = [text_of(body.get(SYSTEM_KEYS.get(format_, "")))]
    for item in body.get(LIST_KEYS[format_], ()):
        if item.get("type") == "additional_tools":
            texts.append(json.dumps(item["tools"], sort_keys=True))
        elif item.get("role") in ("system", "developer"):
            texts.append(text_of(item["content"]))
    return [text for text in texts if text]
