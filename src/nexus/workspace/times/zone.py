"""The user's time zone, by the name that it has or by the minutes that a browser gives."""

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

_MINUTES = re.compile("[+\u2212-]?(?:0|[1-9][0-9]{0,3})")
_OFFSET = re.compile("(?:UTC|GMT)?([+\u2212-])([0-9]{1,2}):([0-9]{2})")
MOST_MINUTES = 15 * 60
"""No place on earth is further from UTC."""


def zone_of(given: str) -> tuple[str, tzinfo]:
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
