"""Parsers of an application's data for a tagged dialogue: rows of a history, times and zones.

A row is a dict with `role`, `content`, `run_id`, `timestamp` and `metadata.tool_calls`, each call as `{name, arguments}`
or in OpenAI's format. Invalid data never prevents a context: it is omitted, counted and reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

from nexus.render.tagged import DialogueCall, DialogueRow, is_shown
from nexus.types.block import ContextWarning
from nexus.workspace.times import parse_zone

HISTORY, MOMENT = "nexus:history", "nexus:moment"
"""Sources of warnings."""

_SECONDS = 1e11
"""Numeric times up to this one (the year 5138) are in seconds, larger ones in milliseconds."""


def read_rows(history: object, warned: list[ContextWarning]) -> list[DialogueRow]:
    """Return the rows of a history in their order; invalid rows, texts, calls and times are counted in warnings."""
    if not isinstance(history, Iterable) or isinstance(history, (str, bytes, Mapping)):
        if history is not None:
            kind = type(cast("object", history)).__name__
            warned.append(ContextWarning(HISTORY, f"omitted: the history is {kind}, not a list of rows"))
        return []
    invalid: Counter[str] = Counter()
    values = list(cast("Iterable[object]", history))
    rows = [_row(cast("Mapping[str, Any]", value), invalid) for value in values if isinstance(value, Mapping)]
    invalid["rows omitted: not a dict"] = len(values) - len(rows)
    warned.extend(ContextWarning(HISTORY, f"{kind} ({number:,})") for kind, number in sorted(invalid.items()) if number)
    return rows


def read_calls(calls: object, invalid: Counter[str] | None = None) -> tuple[DialogueCall, ...]:
    """Parse calls as `{name, arguments}` or `{"function": {…}}`; calls without a name are counted in `invalid`."""
    if not isinstance(calls, (list, tuple)):
        if calls is not None and invalid is not None:
            invalid["tool_calls omitted: not a list"] += 1
        return ()
    values = cast("Sequence[object]", calls)
    parsed = tuple(call for call in map(_call, values) if call is not None)
    if invalid is not None:
        invalid["tool calls omitted: no name"] += len(values) - len(parsed)
    return parsed


def read_time(value: object) -> int | None:
    """Return Unix time in milliseconds of an ISO 8601 text or datetime (UTC without a zone), seconds or milliseconds."""
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
    """Return the zone of minutes as in `getTimezoneOffset` or of an IANA name; UTC with a warning for anything else."""
    value = int(offset) if isinstance(offset, float) and offset.is_integer() else offset
    text = "" if value is None else str(value).strip()
    try:
        return parse_zone(text or "0")[1]
    except ValueError as error:
        warned.append(ContextWarning(MOMENT, f"{error}: UTC is shown"))
        return UTC


def read_text(value: object, invalid: Counter[str]) -> str:
    """Return a content as text: a text or the texts of a list of parts. Other content is counted in `invalid`."""
    if isinstance(value, str) or value is None:
        return value or ""
    parts = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else (value,)
    texts = [_part(part) for part in parts]
    invalid["contents omitted: not text"] += sum(text is None for text in texts)
    return "\n".join(text for text in texts if text)


def _row(row: Mapping[str, Any], invalid: Counter[str]) -> DialogueRow:
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        invalid["metadata omitted: not a dict"] += 1
    calls = cast("Mapping[str, Any]", metadata).get("tool_calls") if isinstance(metadata, Mapping) else None
    at_ms = read_time(row.get("timestamp"))
    role, run_id = row.get("role"), row.get("run_id")
    role_name = role if isinstance(role, str) else str(getattr(role, "value", ""))
    if at_ms is None and is_shown(role_name):
        invalid["rows without a valid time"] += 1
    return DialogueRow(
        role_name,
        read_text(row.get("content"), invalid),
        "" if run_id is None or isinstance(run_id, (list, tuple, Mapping)) else str(cast("object", run_id)),
        at_ms,
        read_calls(calls, invalid),
    )


def _call(value: object) -> DialogueCall | None:
    if not isinstance(value, Mapping):
        return None
    call = cast("Mapping[str, Any]", value)
    function = call.get("function")
    if isinstance(function, Mapping):
        call = cast("Mapping[str, Any]", function)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name.strip():
        return None
    return DialogueCall(
        name, cast("str | Mapping[str, Any]", arguments) if isinstance(arguments, (str, Mapping)) else ""
    )


def _part(part: object) -> str | None:
    """Return the text of one part of a content; None if it has none, as an image."""
    if isinstance(part, str):
        return part
    text = cast("Mapping[str, Any]", part).get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else None
