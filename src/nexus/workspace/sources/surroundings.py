"""What the agent is told of its surroundings (document 004, "System Information"): folder, system, terminal, mode.

No time: a clock in the system slot moves it with every call, so times come with the messages. The document's own form, the
time as the section's first line, is there for who asks for it (`clock="system"`).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache

from nexus.types.block import Block
from nexus.workspace.files.one_line import one_line
from nexus.workspace.source_context import Desk, Gathered, Mode
from nexus.workspace.times.stamps import time_line

HEADING = "# Environment"
ORIGIN = "nexus:surroundings"

MODES: dict[Mode, str] = {"repl": "Interactive REPL", "server": "HTTP JSON-RPC Server"}
"""The printed words for how an agent is run."""


def surroundings(desk: Desk) -> Gathered:
    """The `# Environment` block: the workspace as working directory; nothing without one."""
    if desk.files is None:
        return [], []
    line, warned = time_line(desk, ORIGIN) if desk.around.clock == "system" else ("", [])
    text = environment(str(desk.files.root), desk.around.mode, os.environ, line)
    return [Block("Workspace", "surroundings", text, ORIGIN, trust="system")], warned


def environment(folder: str, mode: Mode, variables: Mapping[str, str], time: str = "") -> str:
    """The section's lines. The terminal is told in a REPL only, the mode where it is known, the time where there is one."""
    lines = [HEADING, time, f"Working directory: {one_line(folder)}", f"Operating system: {this_system()}"]
    terminal = terminal_name(variables) if mode == "repl" else ""
    if terminal:
        lines.append(f"Terminal: {terminal}")
    if mode:
        lines.append(f"Mode: {MODES[mode]}")
    return "\n".join(line for line in lines if line)


def operating_system(system: str, release: str, *, distribution: str = "", mac: str = "") -> str:
    """The name as document 004 shows it: `Linux (WSL2 on Windows)`, `Linux (Ubuntu 24.04)`, `macOS 14.2`."""
    if system == "Linux":
        kernel = release.lower()
        if "microsoft" in kernel:
            # WSL2 is `4.19.84-microsoft-standard`, later with `-WSL2` at its end; WSL 1 is `4.4.0-19041-Microsoft`.
            second = "microsoft-standard" in kernel or "wsl2" in kernel
            return f"Linux ({'WSL2' if second else 'WSL'} on Windows)"
        return f"Linux ({distribution})" if distribution else "Linux"
    if system == "Darwin":
        return f"macOS {mac}".strip()
    return f"{system} {release}".strip() or "unknown"


def terminal_name(variables: Mapping[str, str]) -> str:
    """The terminal's program and kind, `vscode (xterm-256color)`; one of them alone, or nothing if neither is known."""
    program, kind = (one_line(variables.get(name, "")) for name in ("TERM_PROGRAM", "TERM"))
    return f"{program} ({kind})" if program and kind else program or kind


@cache
def this_system() -> str:
    """The name of the operating system that this process runs on."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    mac = platform.mac_ver()[0]
    return operating_system(platform.system(), platform.release(), distribution=one_line(distribution), mac=mac)
