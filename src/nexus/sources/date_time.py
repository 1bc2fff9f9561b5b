"""The time as document 004 prints it ("Temporal Context"): before a user's message, and when a session or summary was begun.

`(local)` is the user's zone; where none is known the time is UTC and says so.
"""

from __future__ import annotations

from dataclasses import replace

from nexus.block import Block
from nexus.sources.desk import Desk, Gathered
from nexus.sources.local import Local, local_time
from nexus.sources.runtime_context import where_lines

ORIGIN = "nexus:date-time"


def date_time(desk: Desk) -> Gathered:
    """`Current date: 2026-01-13, Current time: 14:30 (local)`; channel, chat and platform where the event names them."""
    at, warned = local_time(desk, ORIGIN)
    date, _, time = stamp(at).partition(" ")
    text = "\n".join([f"Current date: {date}, Current time: {time}", *where_lines(desk.request)])
    return [Block("Event", "date and time", text, ORIGIN, "current", "system")], warned


def session_start(desk: Desk) -> str:
    """What the first message of a session says: `[Session started: 2026-01-13 14:30 (local)]`."""
    return f"[Session started: {stamp(local_time(desk, ORIGIN)[0])}]"


def stamp_of(desk: Desk, at_ms: int) -> str:
    """A time to the minute in the zone of the call's user."""
    return stamp(local_time(replace(desk, at_ms=at_ms), ORIGIN)[0])


def stamp(at: Local) -> str:
    """The time to the minute, `2026-01-13 14:30 (local)`."""
    shown = (at.local or at.utc).replace(tzinfo=None).isoformat(" ", "minutes")
    return f"{shown} ({'local' if at.local else 'UTC'})"
