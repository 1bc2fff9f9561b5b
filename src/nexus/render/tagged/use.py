"""What an annotation says of a tool call: its name, and one of its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from nexus.render.tagged.shorten import truncate_at_grapheme

NAME_CHARS, VALUE_CHARS = 128, 100
"""Characters of a tool's name, and of an argument's name or value, at most."""

PREFERRED = "query"
"""The argument that is shown where a call has it; otherwise its first."""


class ToolUse(Struct, frozen=True):
    """A tool that was used: its name, and an argument with its value as text. `key` is None where it was given none."""

    name: str
    key: str | None = None
    value: str = ""


def tool_use(name: str, arguments: str | Mapping[str, Any]) -> ToolUse:
    """The call as it is shown, shortened. Arguments that are no JSON object are as if there were none."""
    given = _object(arguments)
    named = truncate_at_grapheme(name, NAME_CHARS)
    if not given:
        return ToolUse(named)
    key = PREFERRED if PREFERRED in given else next(iter(given))
    return ToolUse(
        named, truncate_at_grapheme(str(key), VALUE_CHARS), truncate_at_grapheme(_text(given[key]), VALUE_CHARS)
    )


def _object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    return arguments


def _text(value: object) -> str:
    """A text as it is; anything else as JSON, or the name of its kind where it has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
