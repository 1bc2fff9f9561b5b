"""What a repair changed: kinds of change and how often each was made."""

from __future__ import annotations

from msgspec import Struct


class RepairReport(Struct, frozen=True):
    """The changes that made a history valid, by what was done; empty when it was valid as it stood."""

    changes: dict[str, int] = {}

    @property
    def total(self) -> int:
        """How many changes were made."""
        return sum(self.changes.values())

    @property
    def clean(self) -> bool:
        """Whether nothing had to be changed."""
        return not self.total

    def __str__(self) -> str:
        if self.clean:
            return "nothing to repair"
        named = "; ".join(f"{what} ({count})" for what, count in sorted(self.changes.items()))
        return f"{self.total} repaired: {named}"
