"""Messages and their parts, the base token counts that are taken when a message is written, and OpenAI's reasoning items.

A reasoning item of the Responses API is a `Thinking` with the whole item (id, summary, encrypted content) in `signature`,
as JSON text. Its JSON begins in a fixed way that distinguishes it from other providers' signatures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.types.decoding import decodable
from nexus.types.sanitize import sanitize_text
from nexus.types.validation import check_options

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
        return getattr(self, provider_format)

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
    received: str = ""
    """The message as a provider's format had it, where its parts do not say all of that (`nexus.text.as_received`)."""

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


def with_parts(message: Message, parts: Iterable[Part], **fields: str) -> Message:
    """Return the message with other content, which every provider is sent from now on instead of what was received."""
    return replace(message, parts=tuple(parts), received="", **fields)


def with_neutral_parts(message: Message, parts: Iterable[Part], **fields: str) -> Message:
    """Return the message with its content in another neutral form; its own format is still sent what was received."""
    return replace(message, parts=tuple(parts), **fields)


class MessageFields(TypedDict, total=False):
    """Arguments of `user`, `assistant` and `tool`: fields of `Message`."""

    id: str
    at_ms: int
    run_id: str
    source: str
    model: str
    meta: str
    received: str


def user(text: str, **fields: Unpack[MessageFields]) -> Message:
    """Return a user's message of plain text."""
    check_options("user", fields, MessageFields, "text")
    return Message("user", (Text(text),), **fields)


def assistant(text: str = "", *calls: ToolCall, **fields: Unpack[MessageFields]) -> Message:
    """Return an assistant's message: text (none if empty) and tool calls."""
    check_options("assistant", fields, MessageFields, "text")
    parts: tuple[Part, ...] = (Text(text), *calls) if text else calls
    return Message("assistant", parts, **fields)


def tool(
    call_id: str, text: str, name: str = "", *, is_error: bool = False, **fields: Unpack[MessageFields]
) -> Message:
    """Return a message with one tool result."""
    check_options("tool", fields, MessageFields, "call_id text name is_error")
    return Message("tool", (ToolResult(call_id, (Text(text),), name, is_error),), **fields)


_REASONING_OPENING = '{"type":"reasoning"'

_KNOWN_PHASES = ("commentary", "final_answer")
PHASES = "phases"
"""Key in a message's `meta` for the phase of each of its texts; `null` for a text without one."""


CUSTOM_CALLS = "custom_calls"
"""Key in a message's `meta` for the ids of calls whose arguments are free text: OpenAI's custom tools."""


MADE_IDS = "made_ids"
"""Key in a message's `meta` for the ids of calls that were received without one."""


CALL_IDS = "call_ids"
"""Key in a result's `meta` for the ids that a client has for the calls of the message before it, by their stored ids."""


class _Meta(Struct):
    phases: list[str | None] = []
    custom_calls: list[str] = []
    made_ids: list[str] = []
    call_ids: dict[str, str] = {}


_item = msgspec.json.Decoder(dict[str, Any])
_meta = msgspec.json.Decoder(decodable(_Meta))


def is_program_output(message: Message) -> bool:
    """Return True for the output of a call that is no function's, such as OpenAI's `shell_call`.

    Neither it nor its call has a form in other formats. It belongs to the reply with the call, as a result does.
    """
    return message.role == "user" and any(
        isinstance(part, Unknown) and part.kind.endswith(("_call_output", "_approval_response"))
        for part in message.parts
    )


def is_reasoning_item(part: Thinking) -> bool:
    """Return True if this thinking is a reasoning item of the Responses API, and not another provider's."""
    return part.signature.startswith(_REASONING_OPENING)


def returnable_reasoning(part: Thinking) -> dict[str, Any] | None:
    """Return the item for a later request; None if it cannot be sent again.

    Without its encrypted content an item is valid only on a server that stored it (`openai` package,
    `ResponseReasoningItemParam`).
    """
    if not is_reasoning_item(part):
        return None
    try:
        item = _item.decode(sanitize_text(part.signature))
    except msgspec.MsgspecError:
        return None
    item_id = item.get("id")
    sealed = item.get("encrypted_content")
    summary = item.get("summary")
    if not (isinstance(item_id, str) and item_id and isinstance(sealed, str) and sealed):
        return None
    texts = [{"type": "summary_text", "text": text} for text in summary_texts(summary)]
    return {"type": "reasoning", "id": item_id, "summary": texts, "encrypted_content": sealed}


def summary_texts(summary: object) -> list[str]:
    """Return the texts of an item's summary or content; entries of another form are skipped."""
    entries = cast("list[object]", summary) if isinstance(summary, list) else []
    texts = [cast("dict[str, object]", entry).get("text") for entry in entries if isinstance(entry, dict)]
    return [text for text in texts if isinstance(text, str)]


def custom_calls(message: Message) -> frozenset[str]:
    """Return the ids of the message's calls of custom tools."""
    return frozenset(_read_meta(message, CUSTOM_CALLS).custom_calls)


def made_ids(message: Message) -> list[str]:
    """Return the ids of the message's calls that were received without one."""
    return _read_meta(message, MADE_IDS).made_ids


def client_call_ids(message: Message) -> dict[str, str]:
    """Return the ids that a client has for the calls before its results, by the stored ids; none if they are the same."""
    return _read_meta(message, CALL_IDS).call_ids


def _read_meta(message: Message, key: str) -> _Meta:
    if f'"{key}"' not in message.meta:
        return _Meta()
    try:
        return _meta.decode(message.meta)
    except msgspec.MsgspecError:
        return _Meta()


def phases(message: Message) -> list[str]:
    """Return the phase of each text of an assistant's message (`commentary`, `final_answer`), empty if unknown.

    All are empty if the message no longer has the texts that were read.
    """
    texts = sum(isinstance(part, Text) for part in message.parts)
    if f'"{PHASES}"' in message.meta:
        try:
            stored = _meta.decode(message.meta).phases
        except msgspec.MsgspecError:
            stored = []
        if len(stored) == texts:
            return [phase if phase in _KNOWN_PHASES else "" for phase in stored]
    return [""] * texts
