"""Parts of messages of Pydantic AI, and items of their content, as neutral parts."""

import hashlib
from base64 import b64decode
from typing import Any

from pydantic_ai import messages as pa

import nexus
from nexus.types import Thinking

FILE = "[file: "
"""Beginning of the text that stands for a file in the ledger."""


def kind(item: Any) -> str:
    """Return the kind of a part of a message, or of an item of its content."""
    return getattr(item, "part_kind", "") or getattr(item, "kind", "")


def key(part: Any) -> Any:
    """Return what a neutral part or message is compared by: the ledger may have other thinking, white space and sizes."""
    match part:
        case nexus.Message(role, parts):
            return (role, *(key(item) for item in parts if not isinstance(item, Thinking)))
        case nexus.ToolResult(call_id, content):
            return (call_id, *map(key, content))
        case nexus.Image(_, data, url):
            return url or data
        case nexus.Text(text):
            return ("text", text.strip())
        case _:
            return part


def content_of(part: Any) -> Any:
    """Return a neutral text or image as an item of content."""
    if isinstance(part, nexus.Text):
        return part.text
    return pa.BinaryContent(b64decode(part.data), media_type=part.media_type) if part.data else pa.ImageUrl(part.url)


def items_of(part: Any) -> Any:
    """Return the parts of a response, or the items of the content of a request's part."""
    match kind(part):
        case "response":
            return part.parts
        case "tool-return":
            return [part.model_response_str(), *part.files]
        case "retry-prompt" | "retry-feedback":
            return [part.model_response()]
        case "user-prompt" if not isinstance(part.content, str):
            return part.content
        case "speech":
            return [part]
        case _:
            content = getattr(part, "content", None)
            return [content] if isinstance(content, str) else []


def neutral_part(item: Any) -> Any:
    """Return the neutral part of an item; None for what is no content, such as a cache point."""
    match kind(item):
        case "thinking":
            return Thinking(item.content, item.signature or "")
        case "tool-call":
            return nexus.ToolCall(item.tool_call_id, item.tool_name, item.args_as_json_str())
        case "builtin-tool-call":
            text = f"[{item.tool_name} {item.args_as_json_str()}]"
        case "builtin-tool-return":
            text = f"[{item.tool_name}: {item.model_response_str()}]"
        case "image-url" if item.url.startswith(("http://", "https://")):
            return nexus.Image("", url=item.url)
        case "binary" if item.is_image and item.data:
            return nexus.Image(item.media_type, item.base64)
        case "binary" if item.media_type.startswith("text/"):
            text = item.data.decode(errors="replace")
        case "binary":
            text = f"{FILE}{item.media_type}, {len(item.data)} bytes, SHA-256 {hashlib.sha256(item.data).hexdigest()}]"
        case "file":
            digest = hashlib.sha256(item.content.data).hexdigest()
            text = f"{FILE}{item.content.media_type}, SHA-256 {digest}]"
        case "speech":
            text = item.transcript or f"{FILE}speech]"
        case "cache-point":
            return None
        case _:
            content = getattr(item, "content", item if isinstance(item, str) else None)
            text = (
                content if isinstance(content, str) else f"{FILE}{getattr(item, 'url', getattr(item, 'file_id', ''))}]"
            )
    return nexus.Text(text) if text.strip() else None
