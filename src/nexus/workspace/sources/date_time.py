"""When a message was sent, in document 004's words, before a user's message; in a long tool loop, after its results."""

from __future__ import annotations

from nexus.types.block import Block
from nexus.workspace.source_context import Desk, Gathered
from nexus.workspace.sources.runtime_context import where_lines
from nexus.workspace.times.stamps import ORIGIN, time_line


def date_time(desk: Desk) -> Gathered:
    """`Current date: 2026-01-13, Current time: 14:30 (local)`; channel, chat and platform where the event names them.

    Where the system slot tells the time, nothing but those.
    """
    line, warned = time_line(desk) if desk.around.clock == "message" else ("", [])
    text = "\n".join(one for one in (line, *where_lines(desk.request)) if one)
    return [Block("Event", "date and time", text, ORIGIN, "current", "system")] if text else [], warned
