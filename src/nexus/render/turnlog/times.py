"""Times of a turn log: ISO 8601 in all its forms of a date with a time, read to the microsecond and written in UTC.

A time without a zone is taken as UTC. A second of 60, which clocks show when a second is put in, is the second after 59;
24:00 is the beginning of the next day.
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
FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The first and the last moment that a year of four digits can name, in microseconds since 1970."""


def format_time(at_us: int) -> str:
    """The time in UTC, as the document prints it: `2023-04-04T12:33:00Z`, with a fraction of a second only if there is one.

    `at_us` is in microseconds since 1970; what no year of four digits can name becomes the first or last moment.
    """
    moment = _EPOCH + timedelta(microseconds=min(max(at_us, FIRST_US), LAST_US))
    fraction = "" if not moment.microsecond else "milliseconds" if not moment.microsecond % 1_000 else "microseconds"
    return moment.isoformat(timespec=fraction or "seconds").replace("+00:00", "Z")


def parse_time(text: str) -> int | None:
    """Microseconds since 1970 of an ISO 8601 date with time; None if the text is none. Finer fractions are cut off."""
    found = _SHAPE.fullmatch(text)
    if found is None or _mixed(found):
        return None
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if minute > 59 or second > 60 or hour > 24 or (hour == 24 and (minute or second or int(found["fraction"] or 0))):
        return None
    unit = timedelta(seconds=1) if found["second"] else timedelta(minutes=1) if found["minute"] else timedelta(hours=1)
    digits = (found["fraction"] or "0")[:18]
    part = timedelta(microseconds=(unit // _MICROSECOND) * int(digits) // 10 ** len(digits))
    try:
        day = _day(found["date"]).replace(tzinfo=_zone(found["zone"]))
        since = day - _EPOCH + timedelta(hours=hour, minutes=minute, seconds=second) + part
    except (ValueError, OverflowError):
        return None
    at_us = since // _MICROSECOND
    return at_us if FIRST_US <= at_us <= LAST_US else None


def _mixed(found: re.Match[str]) -> bool:
    """Whether colons stand in one part of the time and are left out in another, which the standard does not allow."""
    clock = found[0].partition("T")[2].removesuffix(found["zone"] or "")
    digits = re.split("[.,]", clock)[0]
    return bool(found["second"]) and digits.count(":") == 1


def _day(date: str) -> datetime:
    """The beginning of a calendar day, a day of a week, or a day of a year. Raises ValueError where there is none."""
    plain = date.replace("-", "")
    if len(plain) == 7 and "W" not in plain:
        day = datetime(int(plain[:4]), 1, 1, tzinfo=UTC) + timedelta(days=int(plain[4:]) - 1)
        if plain[4:] == "000" or day.year != int(plain[:4]):
            raise ValueError(f"no day {plain[4:]} in {plain[:4]}")
        return day
    return datetime.fromisoformat(date)


def _zone(zone: str | None) -> timezone:
    if zone in (None, "Z"):
        return UTC
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        raise ValueError(f"no zone {zone}")
    away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-away if zone[0] == "-" else away)
