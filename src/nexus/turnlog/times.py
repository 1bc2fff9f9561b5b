"""Times of a turn log: ISO 8601 dates with times in all forms, parsed to the microsecond and formatted in UTC.

A time without a zone is UTC. A leap second (60) is the second after 59, and 24:00 is the beginning of the next day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_DATE = r"(?P<date>\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d-[1-7]|\d{4}W\d\d[1-7]|\d{4}-\d{3}|\d{7})"
_CLOCK = r"(?P<hour>\d\d)(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d))?)?(?:[.,](?P<fraction>\d+))?"
_ZONE = r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
_SHAPE = re.compile(f"{_DATE}T{_CLOCK}{_ZONE}", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Limits of times with a four-digit year, in microseconds since 1970.
FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def format_time(at_us: int) -> str:
    """Return the time in UTC as the document prints it: `2023-04-04T12:33:00Z`, with a fraction only if not zero.

    `at_us` is in microseconds since 1970; times outside four-digit years become the first or last one.
    """
    time = _EPOCH + timedelta(microseconds=min(max(at_us, FIRST_US), LAST_US))
    fraction = "" if not time.microsecond else "milliseconds" if not time.microsecond % 1_000 else "microseconds"
    return time.isoformat(timespec=fraction or "seconds").replace("+00:00", "Z")


def parse_time(text: str) -> int | None:
    """Return microseconds since 1970 of an ISO 8601 date with time, finer fractions cut off; None if invalid."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        return None
    # The standard does not allow a colon in one part of the time only.
    clock = match[0].partition("T")[2].removesuffix(match["zone"] or "")
    if match["second"] and re.split("[.,]", clock)[0].count(":") == 1:
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if minute > 59 or second > 60 or hour > 24 or (hour == 24 and (minute or second or int(match["fraction"] or 0))):
        return None
    unit = timedelta(seconds=1) if match["second"] else timedelta(minutes=1) if match["minute"] else timedelta(hours=1)
    digits = (match["fraction"] or "0")[:18]
    fraction = timedelta(microseconds=(unit // _MICROSECOND) * int(digits) // 10 ** len(digits))
    date = match["date"].replace("-", "")
    zone = (match["zone"] or "Z").replace(":", "").ljust(5, "0")
    try:
        if len(date) == 7 and "W" not in date:  # datetime parses no ordinal dates
            day = datetime(int(date[:4]), 1, 1, tzinfo=UTC) + timedelta(days=int(date[4:]) - 1)
            if date[4:] == "000" or day.year != int(date[:4]):
                return None
        else:
            day = datetime.fromisoformat(date)
        offset = timedelta()
        if zone[0] != "Z":
            if int(zone[1:3]) > 23 or int(zone[3:]) > 59:
                return None
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:])) * (-1 if zone[0] == "-" else 1)
        day = day.replace(tzinfo=timezone(offset))
        since_epoch = day - _EPOCH + timedelta(hours=hour, minutes=minute, seconds=second) + fraction
    except (ValueError, OverflowError):
        return None
    at_us = since_epoch // _MICROSECOND
    return at_us if FIRST_US <= at_us <= LAST_US else None
