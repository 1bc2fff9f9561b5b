"""A clock and a token counter whose results a test decides."""

from __future__ import annotations


class FixedClock:
    """Clock that changes only when it is set or advanced. Pass it as `clock_ms`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the current time in milliseconds since 1970."""
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Move the clock forward."""
        self.now_ms += ms


class WordCounter:
    """Token counter that counts words separated by white space. Pass it as `counter`."""

    name = "words"

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(text.split())
