"""Result of a conformance suite."""

from __future__ import annotations

from msgspec import Struct


class ConformanceReport(Struct, frozen=True):
    """Names of passed checks, and of failed ones with their messages."""

    passed: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} of {len(self.passed) + len(self.failed)} checks passed"]
        return "\n".join([*lines, *(f"FAILED {name}\n       {message}" for name, message in self.failed)])
