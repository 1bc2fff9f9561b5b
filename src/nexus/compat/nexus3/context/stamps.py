"""Times as document 004 prints them: start of a session, current time, time of a summary.

They use an injected clock and the user's zone. Without a zone the time is UTC and labeled so: the machine's zone is the
user's only if the program runs on the user's machine, which `timezone="local"` states.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from nexus.errors import BadSetting
from nexus.types.history import SESSION_SOURCE
from nexus.types.message import Message, Note, Text
from nexus.workspace.environment.machine import HEADING as ENVIRONMENT
from nexus.workspace.times import now_text, parse_zone, session_start_text, stamp_text

MOMENT_SOURCE = "nexus:moment"


def system_clock_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def check_zone(timezone: str) -> None:
    """Check a zone: empty (UTC), `local` (the machine's), or a zone that `nexus.open` accepts. Raises BadSetting."""
    _at(0, timezone)


def stamp(at_ms: int, timezone: str) -> str:
    """Return the time to the minute, `2026-01-13 14:30 (local)`; without a zone in UTC: `2026-01-13 13:30 (UTC)`."""
    return stamp_text(*_at(at_ms, timezone))


def moment_line(at_ms: int, timezone: str) -> str:
    """Return `Current date: 2026-01-13, Current time: 14:30 (local)`."""
    return now_text(stamp(at_ms, timezone))


def session_start(at_ms: int, timezone: str) -> Message:
    """Return the first message of a session."""
    text = session_start_text(stamp(at_ms, timezone))
    return Message("user", (Text(text),), at_ms=at_ms, source=SESSION_SOURCE)


def moment(at_ms: int, timezone: str) -> Message:
    """Return a time stamp as a message, for a long tool loop."""
    return Message("user", (Note("moment", moment_line(at_ms, timezone)),), at_ms=at_ms, source=MOMENT_SOURCE)


def with_moment_line(system_prompt: str, line: str) -> str:
    """Insert the time as first line of the prompt's last `# Environment` section, which is added if it is missing."""
    lines = system_prompt.split("\n")
    heads = [at for at, text in enumerate(lines) if text.strip() == ENVIRONMENT]
    if not heads:
        return f"{system_prompt}\n\n{ENVIRONMENT}\n{line}" if system_prompt else f"{ENVIRONMENT}\n{line}"
    lines.insert(heads[-1] + 1, line)
    return "\n".join(lines)


def _at(at_ms: int, timezone: str) -> tuple[datetime, str]:
    """Return the time in the zone, without zone information, and the zone's label. Raises BadSetting."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadSetting(f"clock value {at_ms} invalid (return milliseconds since 1970)") from error
    if not timezone:
        return at.replace(tzinfo=None), "UTC"
    try:
        local = at.astimezone(None if timezone == "local" else parse_zone(timezone)[1])
    except OverflowError:  # an hour before the first day of the calendar, or after its last
        return at.replace(tzinfo=None), "UTC"
    except ValueError as error:
        text = f"{error} (give an IANA name, an offset, a browser's minutes, or 'local' for the machine's)"
        raise BadSetting(text) from error
    return local.replace(tzinfo=None), "local"
