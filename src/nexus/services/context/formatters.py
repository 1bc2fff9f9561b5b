"""Document 000's three formatters: memory, friend and current message as blocks of text.

Parameters after `*` are additions. `warned` is a list that receives warnings about invalid input; such input is replaced
(`[unknown time]`, UTC, the clock's time) with or without the list.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nexus.render.tagged import (
    LIMIT,
    UNKNOWN_TIME,
    annotation_text,
    friends_block,
    memory_block,
    memory_entries,
    merge_rows,
    moment_block,
    moment_time,
    tool_use,
)
from nexus.services.context.reading import MOMENT, read_calls, read_rows, read_text, read_time, read_zone
from nexus.types.block import ContextWarning
from nexus.types.sanitize import sanitize_text
from nexus.types.user_profile import friend_text


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
