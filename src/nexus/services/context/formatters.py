"""Document 000's three formatters: the memory, the friend and the moment as blocks of text.

The parameters after `*` are additions. `warned` is a list that gets what is wrong with the input; without one it is
shown as the text says (`[unknown time]`, UTC, the clock) and not reported.
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
    """The block [SHARED_MEMORY] of a history's rows."""

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
        """The newest `limit` entries after merging, oldest first, of rows that come newest first.

        Rows of the current run are left out. `left_out` gets how many rows are not shown, by their role or the reason.
        """
        notes: list[ContextWarning] = [] if warned is None else warned
        rows = read_rows(history, notes)[::-1]
        shown = memory_entries(rows, read_zone(timezone_offset, notes), limit=limit, current_run_id=current_run_id)
        if left_out is not None:
            left_out.update(shown.omitted)
        return sanitize_text(memory_block(shown.entries))

    @staticmethod
    def _merge_messages_by_run_id(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Humans' rows as they are, and each run of an AI as one row, all oldest first, as the messages must come.

        The merged row is the run's first with the texts and annotations of all as its content. Others are left out.
        """
        given = [message for message in messages if isinstance(message, Mapping)]
        merging: list[dict[str, Any]] = []
        for group in merge_rows(read_rows(given, []))[0]:
            first = given[group.rows[0][0]]
            if group.human:
                merging.append(first)
                continue
            lines = [part if isinstance(part, str) else annotation_text(part) for part in group.parts()]
            merging.append({**first, "content": "\n".join(lines)})
        return merging

    @staticmethod
    def _extract_tool_call_annotation(tool_calls: list[Any]) -> str:
        """`[tool_use:web_search, query:…; tool_use:…]` for calls as a row has them; "" for none."""
        return annotation_text([tool_use(call.name, call.arguments) for call in read_calls(tool_calls)])


class FriendsInfoFormatter:
    """The block [FRIENDS_INFO] of a user's profile."""

    @staticmethod
    def format_friends_info(user_profile: Mapping[str, Any] | None) -> str:
        """The text of `friends_profile`, else of `learning`, in the profile or its `prompt_overrides`; else the placeholder."""
        return sanitize_text(friends_block(friend_text(user_profile)))


class MomentFormatter:
    """The block [THIS_MOMENT] of what a user says."""

    @staticmethod
    def format_this_moment(
        current_input: str,
        timestamp_utc: str,
        timezone_offset: int | str,
        *,
        now_ms: int | None = None,
        warned: list[ContextWarning] | None = None,
    ) -> str:
        """The input with its time in the user's zone: `timestamp_utc`, or `now_ms` (else the clock) where that is none."""
        notes: list[ContextWarning] = [] if warned is None else warned
        zone = read_zone(timezone_offset, notes)
        given: object = timestamp_utc
        at = UNKNOWN_TIME
        if given not in (None, ""):
            at = moment_time(read_time(given), zone)
            if at == UNKNOWN_TIME:
                notes.append(ContextWarning(MOMENT, "the timestamp is no time that can be read: the clock's is shown"))
        if at == UNKNOWN_TIME:
            at = moment_time(time.time_ns() // 1_000_000 if now_ms is None else now_ms, zone)
        wrong: Counter[str] = Counter()
        text = read_text(current_input, wrong)
        notes.extend(ContextWarning(MOMENT, f"{what} ({number:,})") for what, number in wrong.items() if number)
        return sanitize_text(moment_block(at, text))
