"""Keys of the messages of a conversation: hashes of what a client returns unchanged when it sends its whole list again.

That is a message's role, its texts without surrounding white space, its calls with their arguments as JSON values, and its
results by the place of their call. Ids, thinking and metadata are not part of it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct

from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, Unknown


class MessageKeys(Struct, frozen=True, gc=False):
    """The keys under which the ledger has a message."""

    chain: str
    """Key of the message and of everything before it, in its scope."""
    pair: str = ""
    """Key of an assistant's message and the one before it, whatever comes before these; empty for other messages. A
    session may have the same pair several times, so the key is stored with a number."""


class KeyChain:
    """Keys of one conversation's messages in order, for as many as were added."""

    def __init__(self, scope: str) -> None:
        self._scope = self._chain = hashlib.sha256(scope.encode(errors="surrogatepass")).digest()
        self._before = b""
        self._places: dict[str, int] = {}

    def copy(self) -> KeyChain:
        """Return a chain with the same messages, to continue it without changing this one."""
        other = KeyChain("")
        other._scope, other._chain, other._before = self._scope, self._chain, self._before
        other._places = dict(self._places)
        return other

    def add(self, message: Message) -> MessageKeys:
        """Return the keys of the next message."""
        content = content_hash(message, self._places)
        self._chain = hashlib.sha256(self._chain + content).digest()
        pair = ""
        if message.role == "assistant" and self._before:
            pair = f"pair:{hashlib.sha256(self._scope + self._before + content).hexdigest()[:32]}"
        self._before = content
        return MessageKeys(f"chain:{self._chain.hex()[:32]}", pair)


def content_hash(message: Message, places: dict[str, int]) -> bytes:
    """Return the hash of one message. `places` has the place of each earlier call in its message, by id; it is updated."""
    content: list[Any] = []
    count = 0
    for part in message.parts:
        match part:
            case Text(text) if text := text.strip():
                content.append(text)
            case ToolCall(call_id, name, arguments):
                places[call_id] = count
                content.append({name: _values(arguments)})
                count += 1
            case ToolResult(call_id, blocks):
                content.append([places.get(call_id, -1), *map(_block, blocks)])
            case Image():
                content.append({"image": _image(part)})
            case Unknown(kind, raw):
                content.append({kind: _values(raw)})
            case _:
                pass
    text = json.dumps([message.role, content], sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def _block(block: Text | Image) -> str:
    return block.text.strip() if isinstance(block, Text) else _image(block)


def _image(image: Image) -> str:
    return image.url or image.sha256 or hashlib.sha256(image.data.encode(errors="surrogatepass")).hexdigest()


def _values(text: str) -> Any:
    try:
        return json.loads(text or "{}", parse_float=_number)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | int:
    """Return a number as other languages write it: 1.0 is 1."""
    number = float(text)
    return int(number) if number.is_integer() else number
