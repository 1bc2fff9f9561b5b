"""The present moment, first in the current message: time, zone, channel, platform (document 002)."""

from __future__ import annotations

from datetime import datetime

from nexus.types.block import Block
from nexus.types.request import Request
from nexus.workspace.files.one_line import one_line
from nexus.workspace.source_context import Desk, Gathered
from nexus.workspace.times.local import local_time

ORIGIN = "nexus:moment"


def moment(desk: Desk) -> Gathered:
    """`Current time:` in UTC, `Local time:` where the zone is known, zone, channel, platform and its actions."""
    at, warned = local_time(desk, ORIGIN)
    lines = [f"Current time: {_stamp(at.utc)}Z"]
    if at.local is not None:
        offset = at.local.strftime("%z")
        lines.append(f"Local time: {_stamp(at.local)}{offset[:3]}:{offset[3:5]}")
    lines.append(f"Timezone: {at.zone}")
    event = desk.request.event
    where = (("Channel", event.channel), ("Chat ID", event.chat_id))
    lines.extend(f"{what}: {one_line(value)}" for what, value in where if one_line(value))
    lines.extend(platform_lines(desk.request))
    return [Block("Event", "moment", "\n".join(lines), ORIGIN, "current", "system")], warned


def platform_lines(request: Request) -> list[str]:
    """The platform that the event names and what can be done there; nothing for workers, who talk to nobody."""
    event = request.event
    if request.routing.role == "worker" or not one_line(event.platform):
        return []
    actions = ", ".join(one_line(action) for action in event.platform_actions)
    return [f"Platform: {one_line(event.platform)}", *([f"Available actions: {actions}"] if actions else [])]


def _stamp(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds")
