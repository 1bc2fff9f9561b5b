"""Damage found in a ledger, as a value in plain words."""

from __future__ import annotations

import msgspec
from msgspec import Struct

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Errors of decoding an invalid stored value."""


class Damage(Struct, frozen=True, omit_defaults=True):
    """One fault of a ledger."""

    record: str
    """Kind of the record that shows it."""
    place: str
    what: str
    """The fault, as the rest of a sentence about `place`."""
    lost: str
    """Content that cannot be served because of it."""
    thread: int | None = None
    seq: int = 0
    number: int = 0
    """Position of the record in the dump, from 1 (the header); 0 for other sources."""

    def __str__(self) -> str:
        return f"{self.place} {self.what} (lost: {self.lost})"
