"""Time zones, time stamps and local times of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from nexus.types.block import ContextWarning
from nexus.workspace.source_context import SourceContext

_MINUTES = re.compile("[+\u2212-]?(?:0|[1-9][0-9]{0,2})")
_OFFSET = re.compile("(?:UTC|GMT)?([+\u2212-])(?:([0-9]{1,2}):([0-9]{2})|([0-9]{2})([0-9]{2}))")
_HOURS = re.compile("(?:UTC|GMT)([+\u2212-])([0-9]{1,2})")
MAX_OFFSET_MINUTES = 15 * 60  # no place on earth is further from UTC


def parse_zone(text: str) -> tuple[str, tzinfo]:
    """Return a zone's name and the zone. Raises ValueError for an unknown one.

    `text` is an IANA name (`Asia/Shanghai`), a name of Windows (`China Standard Time`), an offset (`+08:00`, `+0800`,
    `UTC+8`), or the minutes of a browser's `getTimezoneOffset`, which are how far UTC is ahead of the zone: -480 is +08:00.
    """
    if _MINUTES.fullmatch(text):
        minutes = -int(text.replace("\u2212", "-"))
    elif offset := _OFFSET.fullmatch(text) or _HOURS.fullmatch(text):
        sign, hours, *rest = filter(None, offset.groups())
        minutes = int(hours) * 60 + int(rest[0] if rest else 0)
        minutes = minutes if sign == "+" else -minutes
    else:
        try:
            return text, ZoneInfo(text)
        except (KeyError, ValueError, OSError) as error:
            name = windows_names().get(text)
            if name is None:
                raise ValueError(f"time zone {text!r} not found") from error
            return name, ZoneInfo(name)
    if abs(minutes) > MAX_OFFSET_MINUTES:
        raise ValueError(f"time zone {text!r} not found: {minutes:+,} minutes from UTC")
    zone = timezone(timedelta(minutes=minutes))
    return zone.tzname(None), zone


@cache
def windows_names() -> Mapping[str, str]:
    """Return the IANA name for each name of Windows, as Unicode's CLDR maps them."""
    from tzlocal.windows_tz import win_tz

    return win_tz


DATE_TIME_SOURCE = "nexus:date-time"
FRESH_MS = 5 * 60 * 1000  # in a tool loop, an older stamp is followed by a new one


def time_line(context: SourceContext, source: str = DATE_TIME_SOURCE) -> tuple[str, list[ContextWarning]]:
    """Return `Current date: 2026-01-13, Current time: 14:30 (local)`, and warnings about time or zone."""
    at, warnings = local_time(context, source)
    return now_text(stamp(at)), warnings


def session_start(context: SourceContext) -> str:
    """Return a session's header, `[Session started: 2026-01-13 14:30 (local)]`."""
    return session_start_text(stamp(local_time(context, DATE_TIME_SOURCE)[0]))


def stamp_of(context: SourceContext, at_ms: int) -> str:
    """Return a time in the zone of the call's user."""
    return stamp(local_time(replace(context, at_ms=at_ms), DATE_TIME_SOURCE)[0])


def stamp(at: LocalTime) -> str:
    """Return a time of the call's user as text, in UTC if the zone is unknown."""
    return stamp_text(at.local or at.utc, "local" if at.local else "UTC")


def stamp_text(at: datetime, zone: str) -> str:
    """Return `2026-01-13 14:30 (local)` for a zone with that label."""
    return f"{at.replace(tzinfo=None).isoformat(' ', 'minutes')} ({zone})"


def now_text(stamp: str) -> str:
    """Return `Current date: 2026-01-13, Current time: 14:30 (local)` for a stamp."""
    date, _, time = stamp.partition(" ")
    return f"Current date: {date}, Current time: {time}"


def session_start_text(stamp: str) -> str:
    """Return `[Session started: 2026-01-13 14:30 (local)]` for a stamp."""
    return f"[Session started: {stamp}]"


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A time in UTC and, if a zone is known, in that zone, with the zone's name."""

    utc: datetime
    local: datetime | None
    zone: str


def local_time(context: SourceContext, source: str) -> tuple[LocalTime, list[ContextWarning]]:
    """Return the time of the call's event. An invalid time becomes 1970, an invalid zone UTC, each with a warning."""
    warnings: list[ContextWarning] = []
    # An application's time may be any number, and years beyond 9999 have no datetime.
    try:
        at = datetime.fromtimestamp(context.at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        text = f"{context.at_ms} is not a valid time in milliseconds; 1970 is shown"
        warnings.append(ContextWarning(source, text))
        at = datetime.fromtimestamp(0, UTC)
    if context.timezone:
        try:
            name, zone = parse_zone(context.timezone)
            return LocalTime(at, at.astimezone(zone), name), warnings
        except OverflowError:
            warnings.append(ContextWarning(source, f"time has no local form in {context.timezone!r}; UTC is shown"))
        except ValueError as error:
            warnings.append(ContextWarning(source, f"{error}; UTC is shown"))
    return LocalTime(at, None, "UTC"), warnings
