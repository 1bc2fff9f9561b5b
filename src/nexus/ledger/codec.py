"""Parts of a message to JSON text and back. Image data goes aside, to be stored once by its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.ledger.text_rule import from_json, to_json
from nexus.message import Image, Part, ToolResult, Unknown

_KNOWN = frozenset({"text", "image", "thinking", "tool_call", "tool_result", "note", "unknown"})
_parts = msgspec.json.Decoder(tuple[Part, ...])
_body = msgspec.json.Decoder(dict[str, Any])


def encode_parts(parts: tuple[Part, ...], blobs: dict[str, bytes]) -> str:
    """The parts as JSON text; image data is put into `blobs` by its SHA-256 and replaced by that hash."""
    if any(isinstance(part, (Image, ToolResult)) for part in parts):
        parts = tuple(_without_data(part, blobs) for part in parts)
    return to_json(parts)


def decode_parts(content: str, blob: Callable[[str], bytes]) -> tuple[Part, ...]:
    """Reads what `encode_parts` wrote. Parts of a kind that a newer version wrote become `Unknown`, not an error."""
    try:
        parts = from_json(content, _parts)
    except msgspec.ValidationError:
        items: list[dict[str, Any]] = json.loads(content)
        parts = tuple(_lenient(item) for item in items)
    if '"sha256"' in content:
        parts = tuple(_with_data(part, blob) for part in parts)
    return parts


def decode_body(text: str) -> dict[str, Any]:
    """An entry's body."""
    return from_json(text, _body)


def _lenient(item: Mapping[str, Any]) -> Part:
    kind = str(item.get("type", ""))
    if kind in _KNOWN:
        return msgspec.convert(item, Part)
    return Unknown(kind, json.dumps(item, ensure_ascii=True))


def _without_data(part: Part, blobs: dict[str, bytes]) -> Part:
    if isinstance(part, Image):
        return _stored(part, blobs)
    if isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
        return replace(part, content=tuple(_stored(i, blobs) if isinstance(i, Image) else i for i in part.content))
    return part


def _stored(image: Image, blobs: dict[str, bytes]) -> Image:
    if not image.data:
        return image
    data = image.data.encode("utf-8", "surrogatepass")
    sha256 = hashlib.sha256(data).hexdigest()
    blobs[sha256] = data
    return replace(image, data="", sha256=sha256)


def _with_data(part: Part, blob: Callable[[str], bytes]) -> Part:
    if isinstance(part, Image):
        return _filled(part, blob)
    if isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
        return replace(part, content=tuple(_filled(i, blob) if isinstance(i, Image) else i for i in part.content))
    return part


def _filled(image: Image, blob: Callable[[str], bytes]) -> Image:
    if not image.sha256 or image.data:
        return image
    return replace(image, data=blob(image.sha256).decode("utf-8", "surrogatepass"), sha256="")
