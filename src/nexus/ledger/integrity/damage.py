"""What a check of a ledger finds, as a value in plain words."""

from __future__ import annotations

import msgspec
from msgspec import Struct

UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What reading a stored value raises when it is not what it should be."""


class Damage(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong: `place` says with what, `what` says how, `lost` what cannot be served because of it.

    `record` is the kind of record that shows it, and `number` that record's place in the dump, the header being 1
    (0: not from a dump).
    """

    record: str
    place: str
    what: str
    lost: str
    thread: int | None = None
    seq: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.place} {self.what} (lost: {self.lost})"
