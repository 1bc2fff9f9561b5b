"""Who the agent is before any file says more, and where its files are (document 003's identity with runtime and paths)."""

from __future__ import annotations

from pathlib import Path

from nexus.types.block import Block
from nexus.workspace.files.one_line import one_line
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.source_context import Desk, Gathered
from nexus.workspace.sources.memory import log_place, memory_place

_HEAD = """\
# Nexus

You are Nexus, an agent that works for its user in the workspace below. Where files of the workspace say who you are, \
they go before this."""


def nexus_identity(desk: Desk) -> Gathered:
    """The identity, the machine's facts, and the paths of workspace, memory, log and skills; nothing without a workspace.

    The memory file is the one that is shown, else the one that a first fact would go to; the log stands beside it.
    """
    if desk.files is None:
        return [], []
    root = desk.files.root
    memory = memory_place(desk.files)
    places = {
        "Workspace": root,
        "Long-term memory": root / memory,
        "History log": root / log_place(memory),
        "Skills": root / SKILLS / "NAME" / FILE,
    }
    facts = {name: value for name, value in desk.around.host.items() if value}
    text = "\n\n".join(filter(None, (_HEAD, _list("Runtime", facts), _list("Places", places))))
    return [Block("Workspace", "identity", text, "nexus:identity", trust="system")], []


def _list(title: str, values: dict[str, str] | dict[str, Path]) -> str:
    lines = [f"- {name}: {one_line(str(value))}" for name, value in values.items()]
    return "\n".join([f"## {title}", "", *lines]) if lines else ""
