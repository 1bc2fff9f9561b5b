"""Times as document 004 prints them: when a session began, what time it is, when a summary was made.

They come from a clock that is passed in, in the user's zone. Where no zone is given the time is UTC and says so: the
zone of the machine is the user's only where the program runs on the user's machine, which `timezone="local"` says.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from nexus.errors import BadSetting
from nexus.message import Message, Note, Text
from nexus.sources.surroundings import HEADING as ENVIRONMENT

SESSION_SOURCE = "nexus:session-start"
"""What marks the first message of a session as one of ours: no text that a user writes can."""

MOMENT_SOURCE = "nexus:moment"


def system_clock_ms() -> int:
    """Now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def check_zone(timezone: str) -> None:
    """Raises BadSetting if that is no zone: empty (UTC), `local` (the machine's), or an IANA name."""
    try:
        _at(0, timezone)
    except (KeyError, ValueError, OSError) as error:
        raise BadSetting(
            f"there is no time zone {timezone!r}: give an IANA name, or 'local' for the machine's"
        ) from error


def stamp(at_ms: int, timezone: str) -> str:
    """The time to the minute, `2026-01-13 14:30 (local)`; without a zone in UTC: `2026-01-13 13:30 (UTC)`."""
    return f"{_at(at_ms, timezone):%Y-%m-%d %H:%M} ({_kind(timezone)})"


def moment_line(at_ms: int, timezone: str) -> str:
    """`Current date: 2026-01-13, Current time: 14:30 (local)`."""
    return f"Current date: {_at(at_ms, timezone):%Y-%m-%d, Current time: %H:%M} ({_kind(timezone)})"


def session_start(at_ms: int, timezone: str) -> Message:
    """The first message of a session."""
    text = f"[Session started: {stamp(at_ms, timezone)}]"
    return Message("user", (Text(text),), at_ms=at_ms, source=SESSION_SOURCE)


def moment(at_ms: int, timezone: str) -> Message:
    """A stamp as a message of its own, for a tool loop that goes on for long."""
    return Message("user", (Note("moment", moment_line(at_ms, timezone)),), at_ms=at_ms, source=MOMENT_SOURCE)


def with_moment_line(system_prompt: str, line: str) -> str:
    """The system prompt with the time as the first line of its last `# Environment` section, made if there is none."""
    lines = system_prompt.split("\n")
    heads = [at for at, text in enumerate(lines) if text.strip() == ENVIRONMENT]
    if not heads:
        return f"{system_prompt}\n\n{ENVIRONMENT}\n{line}" if system_prompt else f"{ENVIRONMENT}\n{line}"
    lines.insert(heads[-1] + 1, line)
    return "\n".join(lines)


def _at(at_ms: int, timezone: str) -> datetime:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if timezone == "local":
        return at.astimezone()
    return at.astimezone(ZoneInfo(timezone)) if timezone else at


def _kind(timezone: str) -> str:
    return "local" if timezone else "UTC"
