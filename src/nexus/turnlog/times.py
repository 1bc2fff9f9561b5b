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
    if not time.microsecond:
        precision = "seconds"
    elif time.microsecond % 1_000:
        precision = "microseconds"
    else:
        precision = "milliseconds"
    return time.isoformat(timespec=precision).replace("+00:00", "Z")


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
    if minute > 59 or second > 60 or hour > 24:
        return None
    digits = match["fraction"] or "0"
    if hour == 24 and (minute or second or int(digits)):
        return None
    if match["second"]:
        unit = timedelta(seconds=1)
    elif match["minute"]:
        unit = timedelta(minutes=1)
    else:
        unit = timedelta(hours=1)
    digits = digits[:18]
    fraction = timedelta(microseconds=(unit // _MICROSECOND) * int(digits) // 10 ** len(digits))
    try:
        day = _parse_date(match["date"].replace("-", "")).replace(tzinfo=_parse_zone(match["zone"] or "Z"))
        since_epoch = day - _EPOCH + timedelta(hours=hour, minutes=minute, seconds=second) + fraction
    except (ValueError, OverflowError):
        return None
    at_us = since_epoch // _MICROSECOND
    if FIRST_US <= at_us <= LAST_US:
        return at_us
    return None


def _parse_date(date: str) -> datetime:
    """Return the beginning of a day, of a date without dashes. Raises ValueError or OverflowError."""
    if len(date) != 7 or "W" in date:
        return datetime.fromisoformat(date)
    # datetime parses no ordinal dates.
    year = int(date[:4])
    number = int(date[4:])
    day = datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)
    if number == 0 or day.year != year:
        raise ValueError(f"year {year} has no day {number}")
    return day


def _parse_zone(zone: str) -> timezone:
    """Return the time zone of `Z` or an offset. Raises ValueError."""
    if zone == "Z":
        return UTC
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours = int(digits[:2])
    minutes = int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"{zone} is no time zone")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if zone[0] == "-" else offset)
