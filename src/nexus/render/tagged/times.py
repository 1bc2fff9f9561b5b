"""Times as the tagged dialogue shows them, in the user's zone (document 000, "Format" of [SHARED_MEMORY], [THIS_MOMENT])."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

UNKNOWN_TIME = "unknown time"
"""What stands for a time that is not known, or that no calendar has."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def memory_time(at_ms: int | None, zone: tzinfo) -> str:
    """`YYYY-MM-DD HH:MM` in the zone, of Unix time in milliseconds; UNKNOWN_TIME for None and what no calendar has."""
    local = _local(at_ms, zone)
    return UNKNOWN_TIME if local is None else local.replace(tzinfo=None).isoformat(" ", "minutes")


def moment_time(at_ms: int | None, zone: tzinfo) -> str:
    """`YYYY-MM-DD HH:MM:SS±HH:MM` in the zone, of Unix time in milliseconds; UNKNOWN_TIME as `memory_time` has it."""
    local = _local(at_ms, zone)
    if local is None:
        return UNKNOWN_TIME
    offset = local.strftime("%z")
    return f"{local.replace(tzinfo=None).isoformat(' ', 'seconds')}{offset[:3]}:{offset[3:5]}"


def _local(at_ms: int | None, zone: tzinfo) -> datetime | None:
    if at_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
    except OverflowError:
        return None
