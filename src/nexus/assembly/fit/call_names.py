"""Names and ids of tool calls in a form that all providers accept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")  # OpenAI has refused longer ids
_SAFE_LONG_ID = re.compile(r"[A-Za-z0-9_-]+\Z")  # Anthropic documents no limit of length
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def safe_name(wanted: str) -> str:
    """Return a tool's name, changed if providers refuse it."""
    if _SAFE_NAME.match(wanted):
        return wanted
    return short_name(wanted)


def short_name(wanted: str) -> str:
    """Return a tool's name for use in a text: at most 63 characters, each one valid in a name."""
    safe = _UNSAFE.sub("_", wanted)[:63]
    if _SAFE_NAME.match(safe):
        return safe
    return f"_{safe}"[:64]


def safe_id(wanted: str, *, keeps_long: bool = False) -> str:
    """Return a call's id, changed if providers refuse it; with `keeps_long` not for its length alone."""
    form = _SAFE_LONG_ID if keeps_long else _SAFE_ID
    if form.match(wanted):
        return wanted
    return _UNSAFE.sub("_", wanted)[:32] or "call"


@dataclass(slots=True)
class CallIds:
    """The ids of calls that a conversation shows."""

    keeps_long: bool = False
    """True if ids are not shortened, because the provider takes any length."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Each id with the number of the last suffix."""

    def __contains__(self, wanted: str) -> bool:
        return safe_id(wanted, keeps_long=self.keeps_long) in self.counts

    def add(self, wanted: str) -> str:
        """Return a safe id that is new in the conversation, and register it; the second `x` becomes `x_2`."""
        candidate = safe = safe_id(wanted, keeps_long=self.keeps_long)
        while candidate in self.counts:
            self.counts[safe] += 1
            candidate = f"{safe[:32]}_{self.counts[safe]}"
        self.counts[candidate] = 1
        return candidate

    def copy(self) -> CallIds:
        """Return a copy, to which ids can be added."""
        return CallIds(self.keeps_long, {**self.counts})
