"""What a program has, read for a tagged dialogue: rows of a history, times and zones; and what is wrong with them.

A row is a dict with `role`, `content`, `run_id`, `timestamp` and `metadata.tool_calls`, each call as `{name, arguments}`
or in OpenAI's shape. Nothing of a row can stop a context: what cannot be shown is counted and reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

from nexus.render.tagged.entries import DialogueCall, DialogueRow, is_shown
from nexus.types.block import ContextWarning
from nexus.workspace.times import parse_zone

HISTORY, MOMENT = "nexus:history", "nexus:moment"
"""Origins of warnings."""

_SECONDS = 1e11
"""A time that is a number is in seconds up to this one (the year 5138), and in milliseconds above."""


def read_rows(history: object, warned: list[ContextWarning]) -> list[DialogueRow]:
    """The rows of a history in the order given. What is no row, no text, no call or no time is counted in a warning."""
    if not isinstance(history, Iterable) or isinstance(history, (str, bytes, Mapping)):
        if history is not None:
            kind = type(cast("object", history)).__name__
            warned.append(ContextWarning(HISTORY, f"not shown: the history is {kind} and no list of rows"))
        return []
    wrong: Counter[str] = Counter()
    given = list(cast("Iterable[object]", history))
    rows = [_row(cast("Mapping[str, Any]", one), wrong) for one in given if isinstance(one, Mapping)]
    wrong["rows that are no dict: left out"] = len(given) - len(rows)
    warned.extend(ContextWarning(HISTORY, f"{what} ({number:,})") for what, number in sorted(wrong.items()) if number)
    return rows


def read_calls(calls: object, wrong: Counter[str] | None = None) -> tuple[DialogueCall, ...]:
    """Tool calls as `{name, arguments}` or `{"function": {name, arguments}}`; those without a name are counted in `wrong`."""
    if not isinstance(calls, (list, tuple)):
        if calls is not None and wrong is not None:
            wrong["tool_calls that are no list: left out"] += 1
        return ()
    given = cast("Sequence[object]", calls)
    read = [call for call in map(_call, given) if call is not None]
    if wrong is not None:
        wrong["tool calls without a name: left out"] += len(given) - len(read)
    return tuple(read)


def read_time(value: object) -> int | None:
    """Unix time in milliseconds of an ISO 8601 text, a datetime (both UTC without a zone), seconds or milliseconds."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        try:
            return math.floor((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return int(value if abs(value) > _SECONDS else value * 1000)


def read_zone(offset: object, warned: list[ContextWarning]) -> tzinfo:
    """The zone of minutes as `getTimezoneOffset` gives them, also as text, or of an IANA name; else UTC and a warning."""
    given = int(offset) if isinstance(offset, float) and offset.is_integer() else offset
    text = "" if given is None else str(given).strip()
    try:
        return parse_zone(text or "0")[1]
    except ValueError as error:
        warned.append(ContextWarning(MOMENT, f"{error}: UTC is shown"))
        return UTC


def read_text(value: object, wrong: Counter[str]) -> str:
    """A content as text: a text, or the texts of a list of parts; "" for none. What is no text is counted in `wrong`."""
    if isinstance(value, str) or value is None:
        return value or ""
    parts = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else (value,)
    texts = [_part(part) for part in parts]
    wrong["contents that are no text: not shown"] += sum(text is None for text in texts)
    return "\n".join(text for text in texts if text)


def _row(given: Mapping[str, Any], wrong: Counter[str]) -> DialogueRow:
    metadata = given.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        wrong["metadata that is no dict: not shown"] += 1
    calls = cast("Mapping[str, Any]", metadata).get("tool_calls") if isinstance(metadata, Mapping) else None
    at_ms = read_time(given.get("timestamp"))
    role, run_id = given.get("role"), given.get("run_id")
    named = role if isinstance(role, str) else str(getattr(role, "value", ""))
    if at_ms is None and is_shown(named):
        wrong["rows without a time that can be read"] += 1
    return DialogueRow(
        named,
        read_text(given.get("content"), wrong),
        "" if run_id is None or isinstance(run_id, (list, tuple, Mapping)) else str(cast("object", run_id)),
        at_ms,
        read_calls(calls, wrong),
    )


def _call(given: object) -> DialogueCall | None:
    if not isinstance(given, Mapping):
        return None
    own = cast("Mapping[str, Any]", given)
    function = own.get("function")
    if isinstance(function, Mapping):
        own = cast("Mapping[str, Any]", function)
    name, arguments = own.get("name"), own.get("arguments")
    if not isinstance(name, str) or not name.strip():
        return None
    return DialogueCall(
        name, cast("str | Mapping[str, Any]", arguments) if isinstance(arguments, (str, Mapping)) else ""
    )


def _part(part: object) -> str | None:
    """The text of one part of a content; None where it has none to show, as an image."""
    if isinstance(part, str):
        return part
    text = cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else None
