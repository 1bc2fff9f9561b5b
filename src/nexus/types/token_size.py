"""The base count of a message, taken once, when it is written: its tokens in each wire form."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Wire: TypeAlias = Literal["openai", "anthropic", "gemini"]


class Size(Struct, frozen=True, gc=False):
    """Base tokens of one message in each provider's JSON form, and `aside` of its thinking and memory notes.

    What is aside is sent only in some calls; it is not part of the three.
    """

    openai: int
    anthropic: int
    gemini: int
    aside: int = 0

    @property
    def tokens(self) -> int:
        """The largest of the three."""
        return max(self.openai, self.anthropic, self.gemini)

    def on(self, wire: Wire) -> int:
        """The tokens in one wire form."""
        return self.openai if wire == "openai" else self.anthropic if wire == "anthropic" else self.gemini

    def __add__(self, other: Size) -> Size:
        return Size(
            self.openai + other.openai,
            self.anthropic + other.anthropic,
            self.gemini + other.gemini,
            self.aside + other.aside,
        )
