"""A request body as the segments of a prompt: tools, system, then each content block or message, with its cache marks.

The bodies are those that are sent, in the provider's form. A block is counted and named once, by its bytes; image data
counts by the provider's formula. Tokens are the model's own, rounded up for each block.

Only Anthropic's cache knows blocks. The others compare prompts from their beginning, token by token, so there a block is
several segments: a system text that changes near its end is read up to there.
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

MARK = "cache_control"

_IMAGES = ("source", "image_url", "inline_data", "file_data")
"""The keys under which the providers' forms hold an image."""

_SEALED = ("thinking", "redacted_thinking")

SLICE = 512
"""Characters of one segment where prompts are compared from their beginning: about the 128 tokens in which OpenAI counts."""


class Cutter:
    """Cuts the bodies of one model's calls into segments; what was seen before is looked up."""

    def __init__(self, model: Model, counter: TokenCounter) -> None:
        self._model, self._counter = model, counter
        self._price = image_price(model, model.token_factor)
        self._known: dict[bytes, tuple[CacheSegment, ...]] = {}
        self._keys: dict[bytes, str] = {}
        self._images: dict[str, int] = {}

    def learn_images(self, messages: Iterable[Message]) -> None:
        """Takes note of what the images in these messages cost, before a body with them is cut."""
        for message in messages:
            for part in message.parts:
                for item in part.content if isinstance(part, ToolResult) else (part,):
                    if isinstance(item, Image):
                        self._images[item.data or item.url] = self._price.tokens(item)

    def call(self, body: dict[str, Any], at_ms: int, output_tokens: int) -> CacheCall:
        """The call that a body makes."""
        segments: list[CacheSegment] = []
        marks: list[int] = []
        for frame, block in _blocks(body, self._model.wire):
            bare = _unmarked(block)
            segments.extend(self._segments(frame, bare))
            if bare is not block:
                marks.append(len(segments))
        return CacheCall(at_ms, tuple(segments), tuple(marks), output_tokens)

    def _segments(self, frame: str, block: Any) -> tuple[CacheSegment, ...]:
        name = frame.encode() + msgspec.json.encode(block)
        found = self._known.get(name)
        if found is None:
            images: list[str] = []
            bare = _countable(block, images)
            text = frame + msgspec.json.encode(bare).decode() + ","
            base = self._counter.count(text) + sum(self._image(data) for data in images)
            tokens = to_provider_tokens(base, self._model.token_factor)
            # Blocks with different images may have the same text, so such a block stays whole.
            whole = self._model.wire == "anthropic" or bool(images)
            parts = [name] if whole else [text[at : at + SLICE].encode() for at in range(0, len(text), SLICE)]
            found = self._known[name] = tuple(self._shared(parts, tokens))
        return found

    def _shared(self, parts: Sequence[bytes], tokens: int) -> Iterator[CacheSegment]:
        """The parts of a block, which share its tokens by their lengths."""
        length, until, told = sum(map(len, parts)), 0, 0
        for part in parts:
            until += len(part)
            upto = tokens * until // length
            yield CacheSegment(self._keys.setdefault(part, str(len(self._keys))), upto - told)
            told = upto

    def _image(self, data: str) -> int:
        known = self._images.get(data) or self._images.get(data.partition(";base64,")[2])
        return self._price.tokens(Image("image/png")) if known is None else known


def _blocks(body: dict[str, Any], wire: ProviderFormat) -> Iterator[tuple[str, Any]]:
    """The body's blocks in the order in which the provider reads them, each with the text that frames it."""
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


def _unmarked(block: Any) -> Any:
    """The block itself, or a copy without its cache mark."""
    if not isinstance(block, dict) or MARK not in block:
        return cast("Any", block)
    return {key: value for key, value in cast("dict[str, Any]", block).items() if key != MARK}


def _countable(value: Any, images: list[str]) -> Any:
    """The value without what is no text to a model: signatures, hidden thinking, and images, which go into `images`."""
    if isinstance(value, list):
        return [_countable(item, images) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    block = cast("dict[str, Any]", value)
    if block.get("type") in _SEALED:
        return {key: "" if key in ("signature", "data") else item for key, item in block.items()}
    found: dict[str, Any] = {}
    for key, item in block.items():
        source = cast("dict[str, Any]", item) if key in _IMAGES and isinstance(item, dict) else {}
        address = next((source[name] for name in ("data", "url", "file_uri") if isinstance(source.get(name), str)), "")
        if address:
            images.append(address)
        found[key] = "" if address else _countable(item, images)
    return found
