"""Requests of models as clients send them: their format, model, conversation and list, and the fitted list back in its body."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import msgspec

from nexus.context import AssembledContext
from nexus.errors import BadEvent
from nexus.providers.received import items_of, mapping, text_of
from nexus.text.as_received import ReceivedFormat
from nexus.types.decoding import decodable

Fields: TypeAlias = dict[str, Any]

LIST_KEYS: dict[ReceivedFormat, str] = {
    "anthropic": "messages", "openai": "messages", "responses": "input", "gemini": "contents",
}  # fmt: skip
"""Key of the message list in a request's body."""

SYSTEM_KEYS: dict[ReceivedFormat, tuple[str, ...]] = {
    "anthropic": ("system",), "openai": (), "responses": ("instructions",),
    "gemini": ("systemInstruction", "system_instruction"),
}  # fmt: skip
"""Keys of the system prompt, where it is not in the list."""

INSTRUCTION_ROLES = ("system", "developer")

_PATH_ENDS: dict[str, ReceivedFormat] = {
    "/messages": "anthropic",
    "/chat/completions": "openai",
    "/responses": "responses",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}

_GEMINI_MODEL = re.compile(r"/models/([^/:]+):")

_NO_SETTINGS = ("model", "stream", "stream_options", "tools")
"""Fields beside list and system prompt that are no settings of the model."""

_TOOL_MARKS = ("cache_control", "defer_loading")


MAX_TEXT_BYTES = 64 * 2**20
"""Bytes of a compressed body that is read: a few kilobytes may become gigabytes."""


def format_of(method: str, path: str) -> ReceivedFormat | None:
    """Return the format of a request to a model; None for every other request."""
    if method != "POST":
        return None
    return next((name for end, name in _PATH_ENDS.items() if path.endswith(end)), None)


class _Head(msgspec.Struct, frozen=True):
    """Fields that are needed before the whole body is read."""

    model: Any = ""
    prompt_cache_key: Any = ""


class ClientRequest:
    """One request to a model. Its body is read when it is needed: a large one takes a while.

    Args:
        format: Its format.
        path: The path that it was sent to.
        data: The body as received.
        encoding: Its `Content-Encoding`.
    """

    def __init__(self, format: ReceivedFormat, path: str, data: bytes, encoding: str = "") -> None:  # noqa: A002 - as elsewhere
        self.format: ReceivedFormat = format
        self.path = path
        self.data = data
        self._encoding = encoding.strip().lower()

    def with_body(self, body: Fields) -> ClientRequest:
        """Return the request with another body, whose bytes are still those that were received."""
        changed = ClientRequest(self.format, self.path, self.data, self._encoding)
        changed.__dict__["body"] = body
        return changed

    @cached_property
    def text(self) -> bytes:
        """The body, decompressed. Raises BadEvent."""
        if self._encoding in ("", "identity"):
            return self.data
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise BadEvent(f"body is compressed with {self._encoding[:40]!r} (send it plain, or with gzip)")
        unpacking = zlib.decompressobj(47 if "gzip" in self._encoding else 15)
        try:
            text = unpacking.decompress(self.data, MAX_TEXT_BYTES)
        except zlib.error as error:
            raise BadEvent(f"body is no {self._encoding}: {error}") from error
        if not unpacking.eof:
            raise BadEvent(f"body is cut off, or has more than {MAX_TEXT_BYTES:,} bytes")
        return text

    @cached_property
    def body(self) -> Fields:
        """The fields of the body. Raises BadEvent if it is no JSON object."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise BadEvent(f"body is no JSON: {str(error)[:200]}") from error
        if not isinstance(body, dict):
            raise BadEvent(f"body is {type(body).__name__}, not a JSON object")
        return cast("Fields", body)

    @property
    def model(self) -> str:
        """Name of the model; empty if the body has none or cannot be read."""
        if self.format == "gemini":
            match = _GEMINI_MODEL.search(self.path)
            return unquote(match[1]) if match else ""
        return text_of(self._head.model)

    @property
    def conversation(self) -> str:
        """The conversation that the body names by OpenAI's `prompt_cache_key`; empty if it names none."""
        if self.format in ("openai", "responses"):
            return text_of(self._head.prompt_cache_key)
        return ""

    @cached_property
    def _head(self) -> _Head:
        try:
            return msgspec.json.decode(self.text, type=decodable(_Head))
        except (msgspec.DecodeError, RecursionError, BadEvent):
            return _Head()

    @property
    def items(self) -> list[Any]:
        """The message list. Raises BadEvent."""
        items = self.body.get(LIST_KEYS[self.format])
        if isinstance(items, str) and self.format == "responses":
            return [{"role": "user", "content": items}]
        if not isinstance(items, list):
            raise BadEvent(f"body has no list {LIST_KEYS[self.format]!r}")
        return cast("list[Any]", items)

    @property
    def system_text(self) -> str:
        """Text of the system prompt beside the list."""
        return next(filter(None, (_text_in(self.body.get(key)) for key in SYSTEM_KEYS[self.format])), "")

    @property
    def tools(self) -> list[Fields]:
        """Definitions of the tools, without what says how to cache and load them."""
        tools = map(mapping, items_of(self.body.get("tools")))
        return [{name: value for name, value in tool.items() if name not in _TOOL_MARKS} for tool in tools]

    @property
    def settings(self) -> Fields:
        """The other fields of the body, under the provider's names."""
        others = (LIST_KEYS[self.format], *SYSTEM_KEYS[self.format], *_NO_SETTINGS)
        return {name: value for name, value in self.body.items() if name not in others}

    @property
    def continues_stored_response(self) -> bool:
        """True if the provider has the earlier messages, so that the list is not the whole conversation."""
        return self.format == "responses" and bool(
            self.body.get("previous_response_id") or self.body.get("conversation")
        )

    @property
    def leading_instructions(self) -> list[Fields]:
        """The system and developer messages that a list of OpenAI's begins with."""
        leading: list[Fields] = []
        if self.format not in ("openai", "responses"):
            return leading
        for item in self.items:
            if mapping(item).get("role") not in INSTRUCTION_ROLES:
                break
            leading.append(item)
        return leading

    def with_list(self, ctx: AssembledContext) -> Fields:
        """Return the body with the list of a context; all other fields are as received."""
        fitted = ctx.to_provider("gemini_rest" if self.format == "gemini" else self.format)
        key = LIST_KEYS[self.format]
        body = {**self.body, key: fitted[key]}
        system_keys = SYSTEM_KEYS[self.format]
        if self.leading_instructions and self._has_these_instructions(ctx):
            # Another role or place would be another prompt, so that nothing of it is read from the cache.
            first = 1 if self.format == "openai" else 0
            body[key] = [*self.leading_instructions, *fitted[key][first:]]
        elif system_keys and ctx.system_prompt != self.system_text:
            # System messages that the list began with are a part of the system prompt now.
            for name in system_keys:
                body.pop(name, None)
            body.update({name: fitted[name] for name in system_keys if name in fitted})
        return body

    def _has_these_instructions(self, ctx: AssembledContext) -> bool:
        """Return True if a context's system prompt is the client's, and the messages that its list begins with."""
        texts = [self.system_text]
        for message in self.leading_instructions:
            if set(message) - {"type", "role", "content"} or not _is_plain_text(message.get("content")):
                return False
            texts.append(_text_in(message.get("content")))
        return ctx.system_prompt == "\n\n".join(text for text in texts if text)


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON. Lone surrogates are escapes, as they were received."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _is_plain_text(content: Any) -> bool:
    """Return True for a text that is not empty, or a list of such text blocks."""
    if isinstance(content, str):
        return bool(content)
    blocks = [mapping(block) for block in items_of(content)]
    return bool(blocks) and all(
        block.get("type") in ("text", "input_text") and bool(text_of(block.get("text"))) for block in blocks
    )


def _text_in(content: Any) -> str:
    """Return the text of a system prompt: a text, blocks, or Gemini's parts."""
    if isinstance(content, str):
        return content
    blocks: Iterable[Any] = items_of(content) or items_of(mapping(content).get("parts"))
    return "\n".join(text_of(mapping(block).get("text")) for block in blocks)
