"""Time zones, time stamps and local times of a call."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from nexus.types.block import ContextWarning
from nexus.workspace.source_context import SourceContext

_MINUTES = re.compile("[+\u2212-]?(?:0|[1-9][0-9]{0,3})")
_OFFSET = re.compile("(?:UTC|GMT)?([+\u2212-])([0-9]{1,2}):([0-9]{2})")
MOST_MINUTES = 15 * 60
"""No place on earth is further from UTC."""


def parse_zone(given: str) -> tuple[str, tzinfo]:
    """The zone and what to call it. Raises ValueError if there is none.

    `given` is an IANA name (`Asia/Shanghai`), an offset (`+08:00`, `UTC+08:00`), or minutes as `getTimezoneOffset` of a
    browser gives them: how far UTC is ahead of the zone, so that -480 is +08:00.
    """
    if _MINUTES.fullmatch(given):
        return _fixed(-int(given.replace("\u2212", "-")), given)
    if found := _OFFSET.fullmatch(given):
        minutes = int(found[2]) * 60 + int(found[3])
        return _fixed(minutes if found[1] == "+" else -minutes, given)
    try:
        return given, ZoneInfo(given)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {given!r}") from error


def _fixed(minutes: int, given: str) -> tuple[str, tzinfo]:
    if abs(minutes) > MOST_MINUTES:
        raise ValueError(f"there is no time zone {given!r}, {minutes:+,} minutes from UTC")
    zone = timezone(timedelta(minutes=minutes))
    return zone.tzname(None), zone


DATE_TIME_SOURCE = "nexus:date-time"

FRESH_MS = 5 * 60 * 1000
"""In a tool loop a stamp that is older than this is followed by a new one."""


def time_line(desk: SourceContext, origin: str = DATE_TIME_SOURCE) -> tuple[str, list[ContextWarning]]:
    """`Current date: 2026-01-13, Current time: 14:30 (local)`, and what is wrong with time or zone."""
    at, warned = local_time(desk, origin)
    return now_text(stamp(at)), warned


def session_start(desk: SourceContext) -> str:
    """What the first message of a session says: `[Session started: 2026-01-13 14:30 (local)]`."""
    return session_start_text(stamp(local_time(desk, DATE_TIME_SOURCE)[0]))


def stamp_of(desk: SourceContext, at_ms: int) -> str:
    """A time in the zone of the call's user."""
    return stamp(local_time(replace(desk, at_ms=at_ms), DATE_TIME_SOURCE)[0])


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


def session_start_text(stamp: str) -> str:
    """`[Session started: 2026-01-13 14:30 (local)]` for a time so shown."""
    return f"[Session started: {stamp}]"


@dataclass(frozen=True, slots=True)
class Local:
    """A time in UTC and, where a zone is known, in it; `zone` is what the zone is called."""

    utc: datetime
    local: datetime | None
    zone: str


def local_time(desk: SourceContext, origin: str) -> tuple[Local, list[ContextWarning]]:
    """The time of the call's event. What is no time or no zone is a warning from `origin`; 1970 or UTC is shown then."""
    warned: list[ContextWarning] = []
    try:
        at = datetime.fromtimestamp(desk.at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        warned.append(ContextWarning(origin, f"{desk.at_ms} is no time in milliseconds: the earliest one is shown"))
        at = datetime.fromtimestamp(0, UTC)
    if desk.timezone:
        try:
            name, zone = parse_zone(desk.timezone)
            return Local(at, at.astimezone(zone), name), warned
        except OverflowError:
            warned.append(ContextWarning(origin, f"the time has no local form in {desk.timezone!r}: UTC is shown"))
        except ValueError as error:
            warned.append(ContextWarning(origin, f"{error}: UTC is shown"))
    return Local(at, None, "UTC"), warned
