"""Names and ids of tool calls in a form that all providers accept."""

from __future__ import annotations

import re

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")  # OpenAI has refused longer ids
_SAFE_LONG_ID = re.compile(r"[A-Za-z0-9_-]+\Z")  # Anthropic takes ids of any length
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


def safe_id(wanted: str, *, takes_long_ids: bool = False) -> str:
    """Return a call's id, changed if providers refuse it; with `takes_long_ids` not for its length alone."""
    if (_SAFE_LONG_ID if takes_long_ids else _SAFE_ID).match(wanted):
        return wanted
    return _UNSAFE.sub("_", wanted)[:32] or "call"


def unique_id(wanted: str, used_ids: dict[str, int], *, takes_long_ids: bool = False) -> str:
    """Return a safe id that is new in the conversation, and register it; the second `x` becomes `x_2`."""
    candidate = safe = safe_id(wanted, takes_long_ids=takes_long_ids)
    while candidate in used_ids:
        used_ids[safe] += 1
        candidate = f"{safe[:32]}_{used_ids[safe]}"
    used_ids[candidate] = 1
    return candidate
