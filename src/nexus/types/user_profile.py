"""The user's profile as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

FRIEND_HEADING = "About this friend:"
NOTHING_KNOWN = "(Nothing is known about this friend yet.)"
FIELDS = ("friends_profile", "learning")
"""Fields with the text, in order of precedence; older profiles use the second."""

_MAX_DEPTH = 8
"""Limit for `{"content": …}` wrappers and nested lists."""


def friend_text(profile: object) -> str:
    """Return the user's profile as text, or the placeholder.

    `friends_profile` counts, then `learning`, each in the profile itself, then under `prompt_overrides`: a text, a number,
    a list of these (one per line), or either as `{"content": …}`. Other values are ignored.
    """
    return user_profile_text(profile)[0] or NOTHING_KNOWN


def user_profile_text(profile: object) -> tuple[str, str]:
    """Return the profile's text ("" for none), and the name of a field whose value is not text ("" for none)."""
    invalid = ""
    for field in FIELDS:
        for source in (profile, _field(profile, "prompt_overrides")):
            value = _field(source, field)
            text = _text(value, _MAX_DEPTH).strip()
            if text:
                return text, invalid
            if not _is_empty(value):
                invalid = invalid or field
    return "", invalid


def _field(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return None


def _is_empty(value: object) -> bool:
    # Profiles written by other programs have `{"content": "", …}` with settings next to it for an empty field.
    if isinstance(value, Mapping) and "content" in value:
        return not cast("Mapping[str, Any]", value)["content"]
    return value is None or value in ([], {}) or (isinstance(value, str) and not value.strip())


def _text(value: object, depth: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not depth:
        return ""
    if isinstance(value, Mapping):
        return _text(_field(cast("object", value), "content"), depth - 1)
    if isinstance(value, (list, tuple)):
        lines = (_text(item, depth - 1).strip() for item in cast("Sequence[object]", value))
        return "\n".join(line for line in lines if line)
    return ""
