"""Document 000's three formatters: memory, friend and current message as blocks of text; and parsers of their input.

Parameters after `*` are additions. Rows of a history are dicts with `role`, `content`, `run_id`, `timestamp` and
`metadata.tool_calls`, each call as `{name, arguments}` or in OpenAI's format. Invalid input never prevents a context: it
is omitted or replaced (`[unknown time]`, UTC, the clock's time), counted, and reported in the list `warned`, if any.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

from nexus.services.tagged import (
    LIMIT,
    UNKNOWN_TIME,
    DialogueCall,
    DialogueRow,
    annotation_text,
    friends_block,
    is_shown,
    memory_block,
    memory_entries,
    merge_rows,
    moment_block,
    moment_time,
    tool_use,
)
from nexus.types.block import ContextWarning
from nexus.types.sanitize import sanitize_text
from nexus.types.user_profile import friend_text
from nexus.workspace.times import parse_zone

HISTORY = "nexus:history"
MOMENT = "nexus:moment"
"""Sources of warnings."""

_SECONDS = 1e11
"""Numeric times up to this one (the year 5138) are in seconds, larger ones in milliseconds."""


class MemoryFormatter:
    """Formatter of the block [SHARED_MEMORY]."""

    @staticmethod
    def format_shared_memory(
        history: list[dict[str, Any]],
        limit: int = LIMIT,
        *,
        timezone_offset: object = 0,
        current_run_id: str = "",
        warned: list[ContextWarning] | None = None,
        left_out: dict[str, int] | None = None,
    ) -> str:
        """Return the newest `limit` entries, oldest first, of rows that are newest first.

        Rows of the current run are omitted. `left_out` receives the number of omitted rows by role or reason.
        """
        notes: list[ContextWarning] = [] if warned is None else warned
        rows = read_rows(history, notes)[::-1]
        memory = memory_entries(rows, read_zone(timezone_offset, notes), limit=limit, current_run_id=current_run_id)
        if left_out is not None:
            left_out.update(memory.omitted)
        return sanitize_text(memory_block(memory.entries))

    @staticmethod
    def _merge_messages_by_run_id(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return humans' rows unchanged and each run of an AI as one row, oldest first like the input.

        The merged row is the run's first one with the texts and annotations of all. Other rows are omitted.
        """
        rows = [message for message in messages if isinstance(message, Mapping)]
        merging: list[dict[str, Any]] = []
        for group in merge_rows(read_rows(rows, []))[0]:
            first = rows[group.rows[0][0]]
            if group.human:
                merging.append(first)
                continue
            lines = [part if isinstance(part, str) else annotation_text(part) for part in group.parts()]
            merging.append({**first, "content": "\n".join(lines)})
        return merging

    @staticmethod
    def _extract_tool_call_annotation(tool_calls: list[Any]) -> str:
        """Return `[tool_use:web_search, query:…; tool_use:…]` for the calls of a row; empty for none."""
        return annotation_text([tool_use(call.name, call.arguments) for call in read_calls(tool_calls)])


class FriendsInfoFormatter:
    """Formatter of the block [FRIENDS_INFO]."""

    @staticmethod
    def format_friends_info(user_profile: Mapping[str, Any] | None) -> str:
        """Return the text of `friends_profile` or `learning` in the profile or its `prompt_overrides`, or a placeholder."""
        return sanitize_text(friends_block(friend_text(user_profile)))


class MomentFormatter:
    """Formatter of the block [THIS_MOMENT]."""

    @staticmethod
    def format_this_moment(
        current_input: str,
        timestamp_utc: str,
        timezone_offset: int | str,
        *,
        now_ms: int | None = None,
        warned: list[ContextWarning] | None = None,
    ) -> str:
        """Return the input with its time in the user's zone: `timestamp_utc`, else `now_ms`, else the clock's."""
        notes: list[ContextWarning] = [] if warned is None else warned
        zone = read_zone(timezone_offset, notes)
        timestamp: object = timestamp_utc
        at = UNKNOWN_TIME
        if timestamp not in (None, ""):
            at = moment_time(read_time(timestamp), zone)
            if at == UNKNOWN_TIME:
                notes.append(ContextWarning(MOMENT, "invalid timestamp: the clock's time is shown"))
        if at == UNKNOWN_TIME:
            at = moment_time(time.time_ns() // 1_000_000 if now_ms is None else now_ms, zone)
        invalid: Counter[str] = Counter()
        text = read_text(current_input, invalid)
        notes.extend(ContextWarning(MOMENT, f"{problem} ({number:,})") for problem, number in invalid.items() if number)
        return sanitize_text(moment_block(at, text))


NAMED_ROWS = 5
"""Rows that a warning about a history names."""


def read_rows(history: object, warned: list[ContextWarning]) -> list[DialogueRow]:
    """Return the rows of a history in their order; warnings count invalid rows, texts, calls and times and name the rows."""
    if not isinstance(history, Iterable) or isinstance(history, (str, bytes, Mapping)):
        if history is not None:
            kind = type(cast("object", history)).__name__
            warned.append(ContextWarning(HISTORY, f"omitted: the history is {kind}, not a list of rows"))
        return []
    rows: list[DialogueRow] = []
    counts: Counter[str] = Counter()
    places: dict[str, list[int]] = {}
    for number, value in enumerate(cast("Iterable[object]", history), 1):
        invalid: Counter[str] = Counter()
        try:
            if isinstance(value, Mapping):
                rows.append(_row(cast("Mapping[str, Any]", value), invalid))
            else:
                invalid["rows omitted: not a dict"] = 1
        except Exception as error:  # noqa: BLE001 - a store's own row may read its fields late, and fail
            invalid = Counter([f"rows omitted: not readable, {type(error).__name__}"])
        counts += invalid
        for kind in +invalid:
            places.setdefault(kind, []).append(number)
    warned.extend(
        ContextWarning(HISTORY, f"{kind} ({count:,}, {_row_numbers(places[kind])})")
        for kind, count in sorted(counts.items())
    )
    return rows


def _row_numbers(numbers: list[int]) -> str:
    """Return row numbers, counted from 1 in the order of the history, as a warning names them."""
    more = ", …" if len(numbers) > NAMED_ROWS else ""
    return f"row{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:NAMED_ROWS]))}{more}"


def read_calls(calls: object, invalid: Counter[str] | None = None) -> tuple[DialogueCall, ...]:
    """Parse calls as `{name, arguments}` or `{"function": {…}}`; calls without a name are counted in `invalid`."""
    if not isinstance(calls, (list, tuple)):
        if calls is not None and invalid is not None:
            invalid["tool_calls omitted: not a list"] += 1
        return ()
    values = cast("Sequence[object]", calls)
    parsed: list[DialogueCall] = []
    for value in values:
        call = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
        function: object = call.get("function")
        if isinstance(function, Mapping):
            call = cast("Mapping[str, Any]", function)
        name = call.get("name")
        arguments = call.get("arguments")
        if isinstance(name, str) and name.strip():
            is_valid = isinstance(arguments, (str, Mapping))
            parsed.append(DialogueCall(name, cast("str | Mapping[str, Any]", arguments) if is_valid else ""))
    if invalid is not None:
        invalid["tool calls omitted: no name"] += len(values) - len(parsed)
    return tuple(parsed)


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
    if isinstance(offset, float) and offset.is_integer():
        value = int(offset)
    else:
        value = offset
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
    if isinstance(value, (list, tuple)):
        parts = cast("Sequence[object]", value)
    else:
        parts = (value,)
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Mapping):
            text = cast("Mapping[str, Any]", part).get("text")
        else:
            text = part
        if isinstance(text, str):
            texts.append(text)
        else:
            invalid["contents omitted: not text"] += 1
    return "\n".join(filter(None, texts))


def _row(row: Mapping[str, Any], invalid: Counter[str]) -> DialogueRow:
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        invalid["metadata omitted: not a dict"] += 1
    calls = None
    if isinstance(metadata, Mapping):
        calls = cast("Mapping[str, Any]", metadata).get("tool_calls")
    at_ms = read_time(row.get("timestamp"))
    role = row.get("role")
    run_id = row.get("run_id")
    if isinstance(role, str):
        role_name = role
    else:
        role_name = str(getattr(role, "value", ""))
    if at_ms is None and is_shown(role_name):
        invalid["rows without a valid time"] += 1
    return DialogueRow(
        role_name,
        read_text(row.get("content"), invalid),
        "" if run_id is None or isinstance(run_id, (list, tuple, Mapping)) else str(cast("object", run_id)),
        at_ms,
        read_calls(calls, invalid),
    )
