"""Keys of the messages of a conversation: hashes of what a client returns unchanged when it sends its whole list again.

That is a message's role, its texts without surrounding white space, its calls with their arguments as JSON values, and its
results by the place of their call, each once. Ids, thinking and metadata are not part of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from msgspec import Struct

from nexus.render.console import printable
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, Unknown, client_call_ids

LONG_CHARS = 200
"""A message with more characters identifies its session."""

_COUNTER = re.compile(r"\D*\d{1,4}")
"""Ids that only number the calls (`call_1`): other conversations have them too."""

DEFAULT_SCOPE = "mirror"

MAX_LABEL_CHARS = 100
"""Characters of a conversation's name in labels."""


class ListScope(Struct, frozen=True):
    """The lists that are compared with each other: of one scope, principal and conversation."""

    name: str = DEFAULT_SCOPE
    principal: str = ""
    conversation: str = ""
    side: str = ""
    """Who sends requests beside a conversation that begin with its list, such as a router's; empty for its own."""

    @property
    def root(self) -> bytes:
        """Hash that every key begins with. A scope alone has the one of earlier versions."""
        name, principal, conversation, side = (
            hashlib.sha256(text.encode(errors="surrogatepass")).digest()
            for text in (self.name, self.principal, self.conversation, self.side)
        )
        if self.side:
            return hashlib.sha256(name + principal + conversation + side).digest()
        if not self.principal and not self.conversation:
            return name
        return hashlib.sha256(name + principal + conversation).digest()

    @property
    def label(self) -> str:
        """Beginning of the labels of its sessions, in one line: a caller's name may have line breaks."""
        return printable(f"{self.name}/{self.conversation[:MAX_LABEL_CHARS]}" if self.conversation else self.name)


class MessageKeys(Struct, frozen=True, gc=False):
    """The keys under which the ledger has a message."""

    chain: str
    """Key of the message and of everything before it in its conversation, in its scope."""
    identity: str = ""
    """Key of a long message, or of one with ids of tool calls, whatever comes before it; empty for other messages.
    The first such message of a path is stored with it."""


class KeyChain:
    """Keys of one conversation's messages in order, for as many as were added."""

    def __init__(self, root: bytes) -> None:
        self._root = self._chain = root
        self._places: dict[str, int] = {}
        self.count = 0
        """Number of messages."""

    @property
    def key(self) -> str:
        """Key of the newest message and of everything before it."""
        return f"chain:{self._chain.hex()[:32]}"

    def copy(self) -> KeyChain:
        """Return a chain with the same messages, to continue it without changing this one."""
        other = KeyChain(self._root)
        other._chain = self._chain
        other.count = self.count
        other._places = dict(self._places)
        return other

    def add(self, message: Message) -> str:
        """Add the next message and return its key."""
        self._chain = hashlib.sha256(self._chain + content_hash(message, self._places)).digest()
        self.count += 1
        return self.key

    def keys(self, message: Message) -> MessageKeys:
        """Add the next message and return all its keys."""
        return MessageKeys(self.add(message), _identity(self._root, message))


def _identity(root: bytes, message: Message) -> str:
    results = message.results()
    ids = {(call.id, call.name) for call in message.calls()} | {(result.call_id, result.name) for result in results}
    call_ids = sorted(call_id for call_id, name in ids if call_id != name and not _COUNTER.fullmatch(call_id))
    texts = (block.text for result in results for block in result.content if isinstance(block, Text))
    if not call_ids and len(message.text()) + sum(map(len, texts)) <= LONG_CHARS:
        return ""
    content = hashlib.sha256(json.dumps(call_ids).encode()).digest() + content_hash(message, {})
    return f"identity:{hashlib.sha256(root + content).hexdigest()[:32]}"


def content_hash(message: Message, positions: dict[str, int]) -> bytes:
    """Return the hash of one message. `positions` has the position of each earlier call in its message, by id; it is updated."""
    content: list[Any] = []
    count = 0
    for stored_id, own_id in client_call_ids(message).items():
        positions[own_id] = positions.get(stored_id, -1)
    for part in message.parts:
        match part:
            case Text(text) if text := text.strip():
                content.append(text)
            case ToolCall(call_id, name, arguments):
                positions[call_id] = count
                content.append({name: _values(arguments)})
                count += 1
            case ToolResult(call_id, blocks):
                result = [positions.get(call_id, -1), *map(_block, blocks)]
                if result not in content:  # Gemini CLI repeats the results of a session that it resumed
                    content.append(result)
            case Image():
                content.append({"image": _image(part)})
            case Unknown(kind, raw):
                content.append({kind: _values(raw)})
            case _:
                pass
    text = json.dumps([message.role, content], sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def _block(block: Text | Image) -> str:
    if isinstance(block, Text):
        return block.text.strip()
    return _image(block)


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
    if number.is_integer():
        return int(number)
    return number
