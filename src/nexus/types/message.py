"""The base count of a message, taken once, when it is written: its tokens in each wire form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

ProviderFormat: TypeAlias = Literal["openai", "anthropic", "gemini"]


class TokenSize(Struct, frozen=True, gc=False):
    """Base tokens of one message in each provider's JSON form, and `aside` of its thinking and memory notes.

    What is aside is sent only in some calls; it is not part of the three.
    """

    openai: int
    anthropic: int
    gemini: int
    optional: int = 0

    @property
    def tokens(self) -> int:
        """The largest of the three."""
        return max(self.openai, self.anthropic, self.gemini)

    def on(self, wire: ProviderFormat) -> int:
        """The tokens in one wire form."""
        return self.openai if wire == "openai" else self.anthropic if wire == "anthropic" else self.gemini

    def __add__(self, other: TokenSize) -> TokenSize:
        return TokenSize(
            self.openai + other.openai,
            self.anthropic + other.anthropic,
            self.gemini + other.gemini,
            self.optional + other.optional,
        )


ATTACHED = "attachment:"
"""How the origin of a note begins that holds a file which a user attached; its path follows."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """Plain text."""

    text: str


class Image(Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image: base64 `data` (the ledger keeps it once, by `sha256`) or a `url`. Width and height in pixels, 0 if unknown."""

    media_type: str
    data: str = ""
    url: str = ""
    width: int = 0
    height: int = 0
    sha256: str = ""


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """A model's reasoning. `signature` proves it to its provider; `redacted` is opaque data in place of the text."""

    text: str
    signature: str = ""
    redacted: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """A call that the assistant asks for. `arguments` is the text as received: usually a JSON object, never parsed at the door."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True, gc=False):
    """What a call returned: text and images."""

    call_id: str
    content: tuple[Text | Image, ...] = ()
    name: str = ""
    is_error: bool = False


class Note(Struct, frozen=True, tag="note", omit_defaults=True, gc=False):
    """Context that assembly placed before a user's text and that was sent with it: the moment, or a memory block.

    It is chosen once, for its turn, and repeated as sent; a later cut or compaction leaves memory notes out. Attached
    files, metadata and hook data are notes of the moment: they stay and go with their message.
    """

    kind: Literal["moment", "memory"]
    text: str
    origin: str = ""


class Unknown(Struct, frozen=True, tag="unknown", omit_defaults=True, gc=False):
    """A part of a kind that this version does not know, kept as the JSON text that was received."""

    kind: str
    raw: str


Part: TypeAlias = Text | Image | Thinking | ToolCall | ToolResult | Note | Unknown


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message. `at_ms` is Unix time in milliseconds, 0 if unknown; `model` names who wrote an assistant's message.

    `meta` is JSON text with whatever else its source knew; `context_json` is what document 002 keeps there.
    """

    role: Role
    parts: tuple[Part, ...]
    id: str = ""
    at_ms: int = 0
    run_id: str = ""
    source: str = ""
    model: str = ""
    meta: str = ""

    def has_content(self) -> bool:
        """Whether it holds anything but notes and blanks: a stamp of time in a tool loop does not."""
        return any(not (isinstance(p, Note) or (isinstance(p, Text) and not p.text.strip())) for p in self.parts)

    def calls(self) -> Iterator[ToolCall]:
        """The tool calls among the parts, in order."""
        return (part for part in self.parts if isinstance(part, ToolCall))

    def results(self) -> Iterator[ToolResult]:
        """The tool results among the parts, in order."""
        return (part for part in self.parts if isinstance(part, ToolResult))

    @property
    def context_json(self) -> dict[str, Any] | None:
        """What context came with the message: platform, number of hooks, attached files, when. None without any."""
        noted: Any = json.loads(self.meta) if "context_json" in self.meta else {}
        return noted.get("context_json")

    def text(self) -> str:
        """All plain text of the message, notes left out, parts joined by a newline."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


def user(text: str, **fields: str | int) -> Message:
    """A user's message of plain text."""
    return Message("user", (Text(text),), **fields)  # pyright: ignore[reportArgumentType]


def assistant(text: str = "", *calls: ToolCall, **fields: str | int) -> Message:
    """An assistant's message: text (none if empty) and tool calls."""
    parts: tuple[Part, ...] = (Text(text), *calls) if text else calls
    return Message("assistant", parts, **fields)  # pyright: ignore[reportArgumentType]


def tool(call_id: str, text: str, name: str = "", *, is_error: bool = False, **fields: str | int) -> Message:
    """A tool's result as a message of its own."""
    return Message("tool", (ToolResult(call_id, (Text(text),), name, is_error),), **fields)  # pyright: ignore[reportArgumentType]
