"""Entries and messages to the columns that every backend stores, and back.

Parts of a message become JSON text; image data goes aside, to be stored once by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, cast, get_args

import msgspec
from msgspec.structs import replace

from nexus.errors import BadReference
from nexus.ledger.records import MessageRow
from nexus.ledger.search_text import search_text
from nexus.ledger.text_encoding import decode_text, encode_text, from_json, to_json
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Entry, EntryKind, MessageRef, NewEntry, StoredMessage
from nexus.types.message import Image, Message, Part, Role, Text, TokenSize, ToolCall, ToolResult, Unknown

_PART_KINDS = frozenset({"text", "image", "thinking", "tool_call", "tool_result", "note", "unknown", "received"})


class _StoredReceived(msgspec.Struct, frozen=True, tag="received"):
    """`Message.received`, stored after the parts."""

    text: str


_part_kind: Any = decodable(Part | _StoredReceived)
_parts = msgspec.json.Decoder(decodable(tuple[Part | _StoredReceived, ...]))
_KINDS = frozenset(get_args(EntryKind))
_ROLES = frozenset(get_args(Role))
_decode_parts = _parts.decode
MOST_MS = (1 << 63) - 1
"""Times reach so far on both sides of 1970."""

_body = msgspec.json.Decoder(dict[str, Any])
_payload = msgspec.msgpack.Encoder().encode


class CallRow(msgspec.Struct, frozen=True):
    """Position of a tool call or result: the message's order and the part's index."""

    ord: int
    part: int
    call_id: str
    name: str
    is_result: bool
    is_error: bool


def message_rows(entry: NewEntry, blobs: dict[str, bytes]) -> list[MessageRow]:
    """Return the columns of an entry's messages; image data is put into `blobs`.

    Raises BadReference for values that could not be read back, because structs do not check their fields.
    """
    if entry.kind not in _KINDS:
        raise BadReference(f"entry kind {entry.kind!r} is unknown (nothing was stored)", code="bad_entry")
    if not _is_time(entry.at_ms):
        raise BadReference(
            f"time {entry.at_ms!r} is invalid (nothing was stored; use milliseconds since 1970, or 0)", code="bad_entry"
        )
    rows: list[MessageRow] = []
    for order, sized in enumerate(entry.messages):
        try:
            m = sized.message
            size = sized.size
            if m.role not in _ROLES or not _is_time(m.at_ms):
                raise BadReference(
                    f"role {m.role!r} or time {m.at_ms!r} is invalid (nothing was stored)", code="bad_entry"
                )
            content = encode_parts(m.parts, blobs, m.received)
            if m.received or not _is_text(m.parts):  # what is stored must be readable
                decode_parts(content, blobs.__getitem__)
            names = (m.id, m.run_id, m.source, m.model, m.meta)
            joined = m.id + m.run_id + m.source + m.model + m.meta
            if not (joined.isascii() and joined.isprintable()):
                names = tuple(map(encode_text, names))
            counts = (size.openai, size.anthropic, size.gemini, size.optional)
            rows.append((order, m.role, names[0], names[1], names[2], names[3], m.at_ms, content, names[4], *counts))
        except (TypeError, AttributeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            if isinstance(error, BadReference):
                raise
            what = f"message {order} cannot be stored ({type(error).__name__}: {error})"
            raise BadReference(
                f"{what} (nothing was stored; use fields of their declared types)", code="bad_entry"
            ) from error
    return rows


def _is_time(at_ms: object) -> bool:
    return type(at_ms) is int and -MOST_MS <= at_ms <= MOST_MS


def _is_text(parts: tuple[Part, ...]) -> bool:
    """Return True if all parts are of the usual kinds and contain strings, so they can be read back."""
    texts: tuple[object, ...]
    for part in parts:
        if isinstance(part, Text):
            texts = (part.text,)
        elif isinstance(part, ToolCall):
            texts = (part.id, part.name, part.arguments)
        elif isinstance(part, ToolResult) and type(part.is_error) is bool and type(part.content) is tuple:
            result_texts = [item.text for item in part.content if isinstance(item, Text)]
            if len(result_texts) != len(part.content):
                return False
            texts = (part.call_id, part.name, *result_texts)
        else:
            return False
        for text in texts:
            if type(text) is not str:
                return False
    return True


def read_entry(
    head: tuple[int, str, int, int, str, bytes], messages: list[MessageRow], blob: Callable[[str], bytes]
) -> Entry:
    """Return an entry from its columns (seq, kind, turn, at_ms, body, hash) and its messages' columns."""
    seq, kind, turn, entry_ms, body, digest = head
    rows: list[StoredMessage] = []
    for order, role, id_, run_id, source, model, at_ms, content, meta, openai, anthropic, gemini, optional in messages:
        parts, received = decode_content(content, blob)
        if "\x1a" in id_ or "\x1a" in run_id or "\x1a" in source or "\x1a" in model or "\x1a" in meta:
            names = map(decode_text, (run_id, source, model, meta))
            message = Message(role, parts, decode_text(id_), at_ms, *names, received=received)  # pyright: ignore[reportArgumentType]
        else:
            message = Message(role, parts, id_, at_ms, run_id, source, model, meta, received)  # pyright: ignore[reportArgumentType]
        rows.append(StoredMessage(MessageRef(seq, order), message, TokenSize(openai, anthropic, gemini, optional)))
    return Entry(seq, kind, turn, entry_ms, decode_body(body), tuple(rows), digest)  # pyright: ignore[reportArgumentType]


def payload_hash(entry: NewEntry, rows: list[MessageRow], body: str) -> bytes:
    """Return the hash that an idempotency key is bound to; `body` is the body's JSON."""
    columns = [row[:-4] for row in rows]  # without token counts: another counter does not change the payload
    return hashlib.sha256(_payload((entry.kind, body, columns))).digest()


def indexed(parts: tuple[Part, ...], content: str) -> str:
    """Return the searchable text of a message."""
    # Two halves of a surrogate pair are read back as one character, and are found as one.
    return search_text(decode_parts(content, lambda _: b"") if "\\ud" in content else parts)


def call_rows(messages: tuple[Message, ...]) -> list[CallRow]:
    """Return all tool calls and results of the messages, in order, in storable form."""
    return [
        CallRow(order, index, encode_text(part.id), encode_text(part.name), is_result=False, is_error=False)
        if isinstance(part, ToolCall)
        else CallRow(
            order, index, encode_text(part.call_id), encode_text(part.name), is_result=True, is_error=part.is_error
        )
        for order, message in enumerate(messages)
        for index, part in enumerate(message.parts)
        if isinstance(part, (ToolCall, ToolResult))
    ]


def blobs_of(content: str) -> list[str]:
    """Return the hashes of the image data that a message's content refers to."""
    if '"sha256"' not in content:
        return []
    parts = decode_parts(content, lambda _: b"")
    images = [part for part in parts if isinstance(part, Image)]
    images += [i for p in parts if isinstance(p, ToolResult) for i in p.content if isinstance(i, Image)]
    return sorted({image.sha256 for image in images if image.sha256})


def inputs_of(manifest: str) -> list[str]:
    """Return the hashes of blobs that a stored manifest names under `inputs`."""
    if '"inputs"' not in manifest:
        return []
    inputs = decode_body(manifest).get("inputs")
    values = cast("dict[str, Any]", inputs).values() if isinstance(inputs, dict) else ()
    return sorted({value for value in values if isinstance(value, str)})


def encode_parts(parts: tuple[Part, ...], blobs: dict[str, bytes], received: str = "") -> str:
    """Return the parts as JSON text, with image data moved to `blobs` under its SHA-256."""
    last = (_StoredReceived(received),) if received else ()
    for part in parts:
        if isinstance(part, (Image, ToolResult)):
            return to_json((*_map_images(parts, lambda image: _stored(image, blobs)), *last))
    return to_json((*parts, *last))


def decode_parts(content: str, blob: Callable[[str], bytes]) -> tuple[Part, ...]:
    """Decode parts from JSON text. Kinds that only a newer version has become `Unknown`."""
    return decode_content(content, blob)[0]


def decode_content(content: str, blob: Callable[[str], bytes]) -> tuple[tuple[Part, ...], str]:
    """Decode a message's parts, and `Message.received`."""
    try:
        parts = _decode_parts(content)
    except msgspec.DecodeError:  # lone surrogates, or kinds that only a newer version has
        try:
            parts = from_json(content, _parts)
        except msgspec.ValidationError:
            items: list[dict[str, Any]] = json.loads(content)
            parts = tuple(
                msgspec.convert(item, _part_kind)
                if str(item.get("type", "")) in _PART_KINDS
                else Unknown(str(item.get("type", "")), json.dumps(item, ensure_ascii=True))
                for item in items
            )
    received = ""
    if parts and isinstance(parts[-1], _StoredReceived):  # it is stored last
        received = parts[-1].text
        parts = parts[:-1]
    if '"sha256"' in content:
        parts = _map_images(cast("tuple[Part, ...]", parts), lambda image: _filled(image, blob))
    return parts, received  # pyright: ignore[reportReturnType]


def body_json(body: dict[str, Any]) -> str:
    """Return an entry's body or a manifest as JSON text.

    Raises BadReference for values without an exact JSON form.
    """
    if body == {}:
        return "{}"
    try:
        text = to_json(body)
        if text[0] != "{" or text.count("{") + text.count("[") > MOST_NESTED:
            _check_nesting(body)
        if "null" in text:  # which is what a number that is none would become
            json.dumps(msgspec.to_builtins(body), allow_nan=False)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadReference(
            f"value cannot be stored as JSON: {error} (nothing was stored; use finite numbers of less than 4,300 digits and "
            "moderate nesting, or text)",
            code="bad_entry",
        ) from error
    return text


MOST_NESTED = 100
"""Levels of a body, at most: it has to be readable from deep inside a program too."""


def _check_nesting(body: object) -> None:
    """Raise TypeError if a body is not an object, ValueError if it is nested too deep."""
    if not isinstance(body, dict):
        raise TypeError("it is not an object")
    level: list[object] = [cast("dict[object, object]", body)]
    for _ in range(MOST_NESTED):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(cast("dict[object, object]", value).values())
            elif isinstance(value, (list, tuple)):
                inner.extend(cast("list[object]", value))
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {MOST_NESTED} deep")


def decode_body(text: str) -> dict[str, Any]:
    """Decode an entry's body."""
    if text == "{}":
        return {}
    return from_json(text, _body)


def _map_images(parts: tuple[Part, ...], change: Callable[[Image], Image]) -> tuple[Part, ...]:
    """Return parts with changed images, also inside tool results."""
    changed_parts: list[Part] = []
    for part in parts:
        if isinstance(part, Image):
            changed_parts.append(change(part))
        elif isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
            content = [change(item) if isinstance(item, Image) else item for item in part.content]
            changed_parts.append(replace(part, content=tuple(content)))
        else:
            changed_parts.append(part)
    return tuple(changed_parts)


def _stored(image: Image, blobs: dict[str, bytes]) -> Image:
    if not image.data and image.sha256:
        raise BadReference(
            "image has a hash and no data (nothing was stored; supply the data or a url)", code="bad_entry"
        )
    if not image.data:
        return image
    data = image.data.encode("utf-8", "surrogatepass")
    sha256 = hashlib.sha256(data).hexdigest()
    blobs[sha256] = data
    return replace(image, data="", sha256=sha256)


def _filled(image: Image, blob: Callable[[str], bytes]) -> Image:
    if not image.sha256 or image.data:
        return image
    data = blob(image.sha256)
    if data:
        return replace(image, data=data.decode("utf-8", "surrogatepass"), sha256="")
    return image
