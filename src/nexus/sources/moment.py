"""The present moment, first in the current message: time, zone, channel, platform (document 002).

Times come from the event, in the user's zone; the model never sees the server's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from nexus.block import Block, Warned
from nexus.sources.desk import Desk, Gathered


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
    if desk.timezone:
        try:
            local = at.astimezone(ZoneInfo(desk.timezone))
        except OverflowError:
            warned.append(Warned("nexus:moment", f"the time has no local form in {desk.timezone!r}: UTC is shown"))
        except (KeyError, ValueError, OSError):
            warned.append(Warned("nexus:moment", f"there is no time zone {desk.timezone!r}: UTC is shown"))
        else:
            offset = local.strftime("%z")
            lines.append(f"Local time: {_stamp(local.replace(tzinfo=None))}{offset[:3]}:{offset[3:5]}")
    lines.append(f"Timezone: {'UTC' if warned else desk.timezone or 'UTC'}")
    named = (("Channel", event.channel), ("Chat ID", event.chat_id))
    lines.extend(f"{name}: {_one_line(value)}" for name, value in named if value)
    if role != "worker" and event.platform:
        lines.append(f"Platform: {_one_line(event.platform)}")
        if event.platform_actions:
            lines.append(f"Available actions: {', '.join(_one_line(action) for action in event.platform_actions)}")
    return [Block("Event", "moment", "\n".join(lines), "nexus:moment", "current", "system")], warned


def _stamp(naive: datetime) -> str:
    return naive.isoformat(timespec="milliseconds")


def _one_line(value: str) -> str:
    return " ".join(value.split())
