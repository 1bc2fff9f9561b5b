"""What is known of the user, as text: document 000's profile, whose text stands under the frame [FRIENDS_INFO]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

FRIEND_HEADING = "About this friend:"
NOTHING_KNOWN = "(Nothing is known about this friend yet.)"
FIELDS = ("friends_profile", "learning")
"""Where the text is looked for, in this order; the second is the name that earlier profiles have."""

_DEEPEST = 8
"""So many times a text may be wrapped in `{"content": …}`."""


def friend_text(profile: object) -> str:
    """The user's profile as text, or the placeholder where there is none.

    `friends_profile` counts, then `learning`, each in the profile itself, then under `prompt_overrides`: a text, a number,
    a list of these (one a line), or either as `{"content": …}`. Anything else is as if it were not there.
    """
    return known_of(profile)[0] or NOTHING_KNOWN


def friend_info(profile: object) -> str:
    """All that stands under the frame [FRIENDS_INFO]: the heading, a blank line, and `friend_text`."""
    return f"{FRIEND_HEADING}\n\n{friend_text(profile)}"


def known_of(profile: object) -> tuple[str, str]:
    """The text that is known ("" for none), and the name of a field whose value is no text ("" if all are)."""
    strange = ""
    for field in FIELDS:
        for place in (profile, _field(profile, "prompt_overrides")):
            value = _field(place, field)
            text = _text(value, _DEEPEST).strip()
            if text:
                return text, strange
            if not _empty(value):
                strange = strange or field
    return "", strange


def _field(value: object, name: str) -> Any:
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None


def _empty(value: object) -> bool:
    """Whether a field says nothing: not there, a blank text, an empty list, `{"content": ""}` with settings beside it."""
    if isinstance(value, Mapping) and "content" in value:
        return not cast("Mapping[str, Any]", value)["content"]
    return value is None or value in ([], {}) or (isinstance(value, str) and not value.strip())


def _text(value: object, deeper: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not deeper:
        return ""
    if isinstance(value, Mapping):
        return _text(_field(cast("object", value), "content"), deeper - 1)
    if isinstance(value, (list, tuple)):
        lines = (_text(item, deeper - 1).strip() for item in cast("Sequence[object]", value))
        return "\n".join(line for line in lines if line)
    return ""
