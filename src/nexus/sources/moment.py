"""The present moment, first in the current message: time, zone, channel, platform (document 002).

Times come from the event, in the user's zone; the model never sees the server's.
"""

from __future__ import annotations

from datetime import UTC, datetime

from nexus.block import Block, Warned
from nexus.sources.desk import Desk, Gathered
from nexus.sources.lines import one_line
from nexus.sources.zone import zone_of


def moment(desk: Desk) -> Gathered:
    """`Current time:` in UTC, `Local time:` where the zone is known, zone, channel, platform and its actions."""
    event, role = desk.request.event, desk.request.routing.role
    warned: list[Warned] = []
    try:
        at = datetime.fromtimestamp(desk.at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        warned.append(Warned("nexus:moment", f"{desk.at_ms} is no time in milliseconds: the earliest one is shown"))
        at = datetime.fromtimestamp(0, UTC)
    lines = [f"Current time: {_stamp(at.replace(tzinfo=None))}Z"]
    name = "UTC"
    if desk.timezone:
        try:
            named, zone = zone_of(desk.timezone)
            local = at.astimezone(zone)
        except OverflowError:
            warned.append(Warned("nexus:moment", f"the time has no local form in {desk.timezone!r}: UTC is shown"))
        except ValueError as error:
            warned.append(Warned("nexus:moment", f"{error}: UTC is shown"))
        else:
            name, offset = named, local.strftime("%z")
            lines.append(f"Local time: {_stamp(local.replace(tzinfo=None))}{offset[:3]}:{offset[3:5]}")
    lines.append(f"Timezone: {name}")
    where = (("Channel", event.channel), ("Chat ID", event.chat_id))
    lines.extend(f"{what}: {one_line(value)}" for what, value in where if one_line(value))
    if role != "worker" and one_line(event.platform):
        lines.append(f"Platform: {one_line(event.platform)}")
        if event.platform_actions:
            lines.append(f"Available actions: {', '.join(one_line(action) for action in event.platform_actions)}")
    return [Block("Event", "moment", "\n".join(lines), "nexus:moment", "current", "system")], warned


def _stamp(naive: datetime) -> str:
    return naive.isoformat(timespec="milliseconds")
