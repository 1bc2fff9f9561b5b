"""Static facts of the machine: host, operating system, architecture. Nothing that changes between turns."""

from __future__ import annotations

import platform

from nexus.types.block import Block
from nexus.workspace.files.one_line import one_line
from nexus.workspace.source_context import Desk, Gathered


def facts() -> dict[str, str]:
    """The machine's facts, read once for an engine."""
    return {"Host": platform.node(), "OS": platform.system().lower(), "Arch": platform.machine()}


def host(desk: Desk) -> Gathered:
    """One line for each fact."""
    known = {name: one_line(value) for name, value in desk.around.host.items()}
    lines = [f"{name}: {value}" for name, value in known.items() if value]
    if not lines:
        return [], []
    text = "\n".join(["# Runtime", "", *lines])
    return [Block("Workspace", "host", text, "nexus:host", trust="system")], []
