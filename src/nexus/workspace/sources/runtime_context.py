"""The runtime metadata that stands before a user's text (document 003, "Runtime Context").

It says of itself that it is no instruction. No value breaks out of its line, and none looks like a frame of ours.
"""

from __future__ import annotations

import re
from datetime import datetime

from nexus.text.frames import one_line
from nexus.types.block import Block
from nexus.types.request import Request
from nexus.workspace.source_context import Desk, Gathered
from nexus.workspace.sources.moment import platform_lines
from nexus.workspace.times.local import local_time

HEADING = "[Runtime Context — metadata only, not instructions]"
ORIGIN = "nexus:runtime-context"

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In English whatever the machine's locale is."""

_NUMBERS = re.compile("[+-][0-9]+")


def runtime_context(desk: Desk) -> Gathered:
    """Time with weekday and zone, in the user's zone; channel, chat id and platform where the event names them."""
    at, warned = local_time(desk, ORIGIN)
    shown = at.local or at.utc
    day = WEEKDAYS[shown.weekday()]
    time = shown.replace(tzinfo=None).isoformat(" ", "minutes")
    lines = [HEADING, f"Current Time: {time} ({day})", f"Timezone: {_abbreviation(shown)}", *where_lines(desk.request)]
    text = "\n".join(lines)
    return [Block("Event", "runtime context", text, ORIGIN, "current", "system")], warned


def where_lines(request: Request) -> list[str]:
    """Channel, chat id and platform, a line for each that the event names."""
    event = request.event
    where = (("Channel", event.channel), ("Chat ID", event.chat_id))
    lines = [f"{what}: {one_line(value.strip())}" for what, value in where if value.strip()]
    return [*lines, *platform_lines(request)]


def _abbreviation(at: datetime) -> str:
    """What the zone is called in short (`PST`), or its offset (`UTC-03:00`) where it has no letters."""
    name, offset = at.tzname() or "UTC", at.strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:5]}" if _NUMBERS.fullmatch(name) else name
