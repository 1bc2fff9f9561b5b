"""The five conceptual layers, the physical slots and the levels of trust (document 002).

`ahead` is where messages stand that a form puts between the system slot and the conversation (document 000).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

Layer: TypeAlias = Literal["Workspace", "Persona", "Session", "Memory", "Event"]
Slot: TypeAlias = Literal["system", "ahead", "history", "current"]
Trust: TypeAlias = Literal["system", "workspace", "user", "tool", "web"]

LAYERS: tuple[Layer, ...] = ("Workspace", "Persona", "Session", "Memory", "Event")


@lru_cache(maxsize=512)
def text_hash(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes (lone surrogates passed through), as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Block(Struct, frozen=True):
    """One labelled piece of context.

    `source` is a path relative to the workspace, `nexus:NAME` for text that Nexus makes, `hook:PLUGIN/SOURCE` for a
    plugin's, `fed:NAME` for an application's, `attachment:PATH` for a file that came with the event.
    `omitted_chars` counts characters that a size cap kept out; a line in `text` says so too. `files` are the hashes of
    the files whose text stands in it, by which a text that two sources reach is shown once. `continues` says that it
    stands in one message with the block before it, where blocks are messages.
    """

    layer: Layer
    name: str
    text: str
    source: str = field(name="origin")
    slot: Slot = "system"
    trust: Trust = "workspace"
    omitted_chars: int = field(default=0, name="left_out_chars")
    files: tuple[str, ...] = ()
    continues: bool = False

    @property
    def hash(self) -> str:
        """Content hash of the text."""
        return text_hash(self.text)


class ContextWarning(Struct, frozen=True):
    """Something the user should know about one source: a cap that bit, two files for one purpose, a bad value."""

    source: str = field(name="origin")
    message: str = field(name="text")
