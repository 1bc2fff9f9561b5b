"""Blocks of context: their layers, slots and levels of trust, and warnings about their sources."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

Layer: TypeAlias = Literal["Workspace", "Persona", "Session", "Memory", "Event"]
Slot: TypeAlias = Literal["system", "ahead", "history", "current"]
PREAMBLE: Literal["ahead"] = "ahead"
"""The slot of messages between the system slot and the conversation, by the name that is stored."""
Trust: TypeAlias = Literal["system", "workspace", "user", "tool", "web"]

LAYERS: tuple[Layer, ...] = ("Workspace", "Persona", "Session", "Memory", "Event")


@lru_cache(maxsize=512)
def text_hash(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes (lone surrogates passed through), as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def slot_name(slot: str) -> str:
    """Return the name of a slot for people."""
    if slot == PREAMBLE:
        return "preamble"
    return slot


class Block(Struct, frozen=True):
    """One labeled piece of context."""

    layer: Layer
    name: str
    text: str
    source: str = field(name="origin")
    """A path relative to the workspace, `nexus:NAME` for generated text, `hook:PLUGIN/SOURCE` for a plugin's, `fed:NAME`
    for an application's, or `attachment:PATH` for a file that came with the event."""
    slot: Slot = "system"
    trust: Trust = "workspace"
    omitted_chars: int = field(default=0, name="left_out_chars")
    """Characters over a size cap; a line in `text` reports them too."""
    files: tuple[str, ...] = ()
    """Hashes of the files in the text, so that a file of two sources is shown once."""
    continues: bool = False
    """True if it shares a message with the block before it, where blocks are messages."""

    @property
    def hash(self) -> str:
        """Hash of the text."""
        return text_hash(self.text)


def block_key(block: Block) -> str:
    """Return a block's name in a manifest."""
    return f"{block.source} ({block.name})"


class ContextWarning(Struct, frozen=True):
    """A problem with one source: a truncated text, two files for one purpose, an invalid value."""

    source: str = field(name="origin")
    message: str = field(name="text")
