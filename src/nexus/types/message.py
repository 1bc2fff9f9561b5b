"""Messages and their parts, and the base token counts that are taken when a message is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

ProviderFormat: TypeAlias = Literal["openai", "anthropic", "gemini"]


class TokenSize(Struct, frozen=True, gc=False):
    """Base tokens of one message in each provider's JSON form."""

    openai: int
    anthropic: int
    gemini: int
    optional: int = 0
    """Tokens of thinking and memory notes, which only some calls send; not part of the other three."""

    @property
    def tokens(self) -> int:
        """Largest of the three."""
        return max(self.openai, self.anthropic, self.gemini)

    def on(self, provider_format: ProviderFormat) -> int:
        """Return the tokens in one provider format."""
        return (
            self.openai
            if provider_format == "openai"
            else self.anthropic
            if provider_format == "anthropic"
            else self.gemini
        )

    def __add__(self, other: TokenSize) -> TokenSize:
        return TokenSize(
            self.openai + other.openai,
            self.anthropic + other.anthropic,
            self.gemini + other.gemini,
            self.optional + other.optional,
        )


ATTACHED = "attachment:"
"""Origin prefix of notes with an attached file; its path follows."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """Plain text."""

    text: str


class Image(Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image, as data or by URL."""

    media_type: str
    data: str = ""
    """Base64; the ledger stores it once, by `sha256`."""
    url: str = ""
    width: int = 0
    """Pixels, as `height`; 0 if unknown."""
    height: int = 0
    sha256: str = ""


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """A model's reasoning. `signature` proves it to its provider; `redacted` is opaque data instead of the text."""

    text: str
    signature: str = ""
    redacted: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """A tool call by the assistant. `arguments` is the text as received, usually a JSON object; never parsed on input."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True, gc=False):
    """Result of a tool call: text and images."""

    call_id: str
    content: tuple[Text | Image, ...] = ()
    name: str = ""
    is_error: bool = False


class Note(Struct, frozen=True, tag="note", omit_defaults=True, gc=False):
    """Context that was sent before a user's text: event metadata or a memory block.

    It is chosen once, for its turn, and repeated as sent. A later cut or compaction omits memory notes; notes of kind
    `moment` (time, attached files, metadata, hook data) are kept and omitted with their message.
    """

    kind: Literal["moment", "memory"]
    text: str
    origin: str = ""


class Unknown(Struct, frozen=True, tag="unknown", omit_defaults=True, gc=False):
    """A part of an unsupported kind, kept as the JSON text that was received."""

    kind: str
    raw: str


Part: TypeAlias = Text | Image | Thinking | ToolCall | ToolResult | Note | Unknown


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message."""

    role: Role
    parts: tuple[Part, ...]
    id: str = ""
    at_ms: int = 0
    """Unix time in milliseconds; 0 if unknown."""
    run_id: str = ""
    source: str = ""
    model: str = ""
    """Author of an assistant's message."""
    meta: str = ""
    """JSON text with the other fields of its source."""

    def has_content(self) -> bool:
        """Return True if there is anything but notes and blank text; a timestamp in a tool loop is a note."""
        return any(not (isinstance(p, Note) or (isinstance(p, Text) and not p.text.strip())) for p in self.parts)

    def calls(self) -> Iterator[ToolCall]:
        """Yield the tool calls among the parts, in order."""
        return (part for part in self.parts if isinstance(part, ToolCall))

    def results(self) -> Iterator[ToolResult]:
        """Yield the tool results among the parts, in order."""
        return (part for part in self.parts if isinstance(part, ToolResult))

    @property
    def context_json(self) -> dict[str, Any] | None:
        """Context of the message in `meta`: platform, number of hooks, attached files, time; None without any."""
        meta: Any = json.loads(self.meta) if "context_json" in self.meta else {}
        return meta.get("context_json")

    def text(self) -> str:
        """Return all plain text of the message without notes, parts joined by a newline."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


def user(text: str, **fields: str | int) -> Message:
    """Return a user's message of plain text."""
    return Message("user", (Text(text),), **fields)  # pyright: ignore[reportArgumentType]


def assistant(text: str = "", *calls: ToolCall, **fields: str | int) -> Message:
    """Return an assistant's message: text (none if empty) and tool calls."""
    parts: tuple[Part, ...] = (Text(text), *calls) if text else calls
    return Message("assistant", parts, **fields)  # pyright: ignore[reportArgumentType]


def tool(call_id: str, text: str, name: str = "", *, is_error: bool = False, **fields: str | int) -> Message:
    """Return a message with one tool result."""
    return Message("tool", (ToolResult(call_id, (Text(text),), name, is_error),), **fields)  # pyright: ignore[reportArgumentType]
