"""Facts about the machine: host, operating system, terminal, and document 004's `# Environment` section."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache

from nexus.text.one_line import collapse_whitespace
from nexus.workspace.source_context import Mode

HEADING = "# Environment"

MODES: dict[Mode, str] = {"repl": "Interactive REPL", "server": "HTTP JSON-RPC Server"}
"""How an agent is run, as the section prints it."""


def host_facts() -> dict[str, str]:
    """Return the machine's name, operating system and architecture."""
    return {"Host": platform.node(), "OS": platform.system().lower(), "Arch": platform.machine()}


def environment_section(folder: str, mode: Mode, variables: Mapping[str, str], time: str = "") -> str:
    """Return the section's lines: the terminal in a REPL only, mode and time only if they are not empty."""
    lines = [HEADING, time, f"Working directory: {collapse_whitespace(folder)}", f"Operating system: {this_system()}"]
    terminal = terminal_name(variables) if mode == "repl" else ""
    if terminal:
        lines.append(f"Terminal: {terminal}")
    if mode:
        lines.append(f"Mode: {MODES[mode]}")
    return "\n".join(line for line in lines if line)


def operating_system(system: str, release: str, *, distribution: str = "", mac: str = "") -> str:
    """Return the name as document 004 prints it: `Linux (WSL2 on Windows)`, `Linux (Ubuntu 24.04)`, `macOS 14.2`."""
    if system == "Linux":
        kernel = release.lower()
        if "microsoft" in kernel:
            # WSL2 is `4.19.84-microsoft-standard`, later with `-WSL2` at its end; WSL 1 is `4.4.0-19041-Microsoft`.
            is_second = "microsoft-standard" in kernel or "wsl2" in kernel
            return f"Linux ({'WSL2' if is_second else 'WSL'} on Windows)"
        return f"Linux ({distribution})" if distribution else "Linux"
    if system == "Darwin":
        return f"macOS {mac}".strip()
    return f"{system} {release}".strip() or "unknown"


def terminal_name(variables: Mapping[str, str]) -> str:
    """Return the terminal's program and kind, `vscode (xterm-256color)`, or one of them, or ""."""
    program, kind = (collapse_whitespace(variables.get(name, "")) for name in ("TERM_PROGRAM", "TERM"))
    return f"{program} ({kind})" if program and kind else program or kind


@cache
def this_system() -> str:
    """Return the name of the operating system that this process runs on."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    mac = platform.mac_ver()[0]
    return operating_system(
        platform.system(), platform.release(), distribution=collapse_whitespace(distribution), mac=mac
    )
