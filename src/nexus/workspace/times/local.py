"""When an event happens, in its user's zone: what every source that tells a time begins with.

Times come from the event, else from the clock that was passed in; the model never sees the server's zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from nexus.types.block import Warned
from nexus.workspace.source_context import Desk
from nexus.workspace.times.zone import zone_of


@dataclass(frozen=True, slots=True)
class Local:
    """A time in UTC and, where a zone is known, in it; `zone` is what the zone is called."""

    utc: datetime
    local: datetime | None
    zone: str


def local_time(desk: Desk, origin: str) -> tuple[Local, list[Warned]]:
    """The time of the call's event. What is no time or no zone is a warning from `origin`; 1970 or UTC is shown then."""
    warned: list[Warned] = []
    try:
        at = datetime.fromtimestamp(desk.at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        warned.append(Warned(origin, f"{desk.at_ms} is no time in milliseconds: the earliest one is shown"))
        at = datetime.fromtimestamp(0, UTC)
    if desk.timezone:
        try:
            name, zone = zone_of(desk.timezone)
            return Local(at, at.astimezone(zone), name), warned
        except OverflowError:
            warned.append(Warned(origin, f"the time has no local form in {desk.timezone!r}: UTC is shown"))
        except ValueError as error:
            warned.append(Warned(origin, f"{error}: UTC is shown"))
    return Local(at, None, "UTC"), warned
