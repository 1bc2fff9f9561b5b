"""Segments of a request body for the simulated cache: tools, system, then each content block or message.

A block is counted and named once, by its bytes. Images count by the provider's formula. Tokens are the model's own,
rounded up for each block.

Only Anthropic's cache compares blocks. The other providers compare prompts from their beginning, token by token, so a
block becomes several segments there: a system text that changes near its end is read up to the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from nexus.assembly.token_report import to_provider_tokens
from nexus.providers.prompt_cache import CacheCall, CacheSegment
from nexus.tokens.counter import TokenCounter
from nexus.tokens.image_price import image_price
from nexus.tokens.model import Model
from nexus.types.message import Image, Message, ProviderFormat, ToolResult

CACHE_BREAKPOINT = "cache_control"

_IMAGE_KEYS = ("source", "image_url", "inline_data", "file_data")
"""Keys of an image in the provider formats."""

_THINKING_TYPES = ("thinking", "redacted_thinking")

SEGMENT_CHARS = 512
"""Length of a segment where prompts are compared token by token: about the 128 tokens by which OpenAI's cache grows."""


class Segmenter:
    """Splits the bodies of one model's calls into segments, with a cache of blocks."""

    def __init__(self, model: Model, counter: TokenCounter) -> None:
        self._model, self._counter = model, counter
        self._price = image_price(model, model.token_factor)
        self._segments: dict[bytes, tuple[CacheSegment, ...]] = {}
        self._names: dict[bytes, str] = {}
        self._image_tokens: dict[str, int] = {}

    def add_images(self, messages: Iterable[Message]) -> None:
        """Store the tokens of the images in messages; a body contains their data but not always their size."""
        for message in messages:
            for part in message.parts:
                for item in part.content if isinstance(part, ToolResult) else (part,):
                    if isinstance(item, Image):
                        self._image_tokens[item.data or item.url] = self._price.tokens(item)

    def call(self, body: dict[str, Any], at_ms: int, output_tokens: int) -> CacheCall:
        """Return the simulated call of a body."""
        segments: list[CacheSegment] = []
        breakpoints: list[int] = []
        for frame, block in _blocks(body, self._model.provider_format):
            content = _without_breakpoint(block)
            segments.extend(self._segments_of(frame, content))
            if content is not block:
                breakpoints.append(len(segments))
        return CacheCall(at_ms, tuple(segments), tuple(breakpoints), output_tokens)

    def _segments_of(self, frame: str, block: Any) -> tuple[CacheSegment, ...]:
        key = frame.encode() + msgspec.json.encode(block)
        if key not in self._segments:
            images: list[str] = []
            text = frame + msgspec.json.encode(_text_only(block, images)).decode() + ","
            base = self._counter.count(text) + sum(self._tokens_of_image(data) for data in images)
            tokens = to_provider_tokens(base, self._model.token_factor)
            parts = [text[at : at + SEGMENT_CHARS].encode() for at in range(0, len(text), SEGMENT_CHARS)]
            if self._model.provider_format == "anthropic" or images:
                parts = [key]  # blocks with different images may have the same text, so such a block stays one segment
            self._segments[key] = tuple(self._divided(parts, tokens))
        return self._segments[key]

    def _divided(self, parts: Sequence[bytes], tokens: int) -> Iterator[CacheSegment]:
        """Yield the parts of a block as segments, its tokens divided by their lengths."""
        total, length, counted = sum(map(len, parts)), 0, 0
        for part in parts:
            length += len(part)
            upto = tokens * length // total
            yield CacheSegment(self._names.setdefault(part, str(len(self._names))), upto - counted)
            counted = upto

    def _tokens_of_image(self, data: str) -> int:
        tokens = self._image_tokens.get(data) or self._image_tokens.get(data.partition(";base64,")[2])
        return self._price.tokens(Image("image/png")) if tokens is None else tokens


def _blocks(body: dict[str, Any], wire: ProviderFormat) -> Iterator[tuple[str, Any]]:
    """Yield the body's blocks in the order in which the provider reads them, each with the text that frames it."""
    if wire == "gemini":
        config: dict[str, Any] = body.get("config", {})
        tools, system = config.get("tools", ()), config.get("system_instruction")
    else:
        tools, system = body.get("tools", ()), body.get("system")
    yield from (("", tool) for tool in tools)
    if system is not None:
        blocks = cast("list[Any]", system) if isinstance(system, list) else [system]
        yield from (("", block) for block in blocks)
    if wire == "openai":
        yield from (("", message) for message in body["messages"])
        return
    inner = "parts" if wire == "gemini" else "content"
    for message in body["contents" if wire == "gemini" else "messages"]:
        frame = f'{{"role":"{message["role"]}","{inner}":[]}},'
        for block in message[inner]:
            yield frame, block
            frame = ""


def _without_breakpoint(block: Any) -> Any:
    """Return the block itself, or a copy without its cache breakpoint."""
    if not isinstance(block, dict) or CACHE_BREAKPOINT not in block:
        return cast("Any", block)
    return {key: value for key, value in cast("dict[str, Any]", block).items() if key != CACHE_BREAKPOINT}


def _text_only(value: Any, images: list[str]) -> Any:
    """Return the value without parts that are no text to a model: signatures, hidden thinking, images.

    The images' data or addresses are appended to `images`.
    """
    if isinstance(value, list):
        return [_text_only(item, images) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    block = cast("dict[str, Any]", value)
    if block.get("type") in _THINKING_TYPES:
        return {key: "" if key in ("signature", "data") else item for key, item in block.items()}
    text: dict[str, Any] = {}
    for key, item in block.items():
        source = cast("dict[str, Any]", item) if key in _IMAGE_KEYS and isinstance(item, dict) else {}
        address = next((source[name] for name in ("data", "url", "file_uri") if isinstance(source.get(name), str)), "")
        if address:
            images.append(address)
        text[key] = "" if address else _text_only(item, images)
    return text
