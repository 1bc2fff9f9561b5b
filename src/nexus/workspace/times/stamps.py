"""The time as document 004 prints it ("Temporal Context"), to the minute.

`(local)` is the user's zone; where none is known the time is UTC and says so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nexus.types.block import Warned
from nexus.workspace.source_context import Desk
from nexus.workspace.times.local import Local, local_time

ORIGIN = "nexus:date-time"

FRESH_MS = 5 * 60 * 1000
"""In a tool loop a stamp that is older than this is followed by a new one."""


def time_line(desk: Desk, origin: str = ORIGIN) -> tuple[str, list[Warned]]:
    """`Current date: 2026-01-13, Current time: 14:30 (local)`, and what is wrong with time or zone."""
    at, warned = local_time(desk, origin)
    return now_text(stamp(at)), warned


def session_start(desk: Desk) -> str:
    """What the first message of a session says: `[Session started: 2026-01-13 14:30 (local)]`."""
    return started_text(stamp(local_time(desk, ORIGIN)[0]))


def stamp_of(desk: Desk, at_ms: int) -> str:
    """A time in the zone of the call's user."""
    return stamp(local_time(replace(desk, at_ms=at_ms), ORIGIN)[0])


def stamp(at: Local) -> str:
    """A time of the call's user as it is shown."""
    return stamp_text(at.local or at.utc, "local" if at.local else "UTC")


def stamp_text(at: datetime, zone: str) -> str:
    """`2026-01-13 14:30 (local)`, where the zone is called so."""
    return f"{at.replace(tzinfo=None).isoformat(' ', 'minutes')} ({zone})"


def now_text(stamp: str) -> str:
    """`Current date: 2026-01-13, Current time: 14:30 (local)` for a time so shown."""
    date, _, time = stamp.partition(" ")
    return f"Current date: {date}, Current time: {time}"


def started_text(stamp: str) -> str:
    """`[Session started: 2026-01-13 14:30 (local)]` for a time so shown."""
    return f"[Session started: {stamp}]"
