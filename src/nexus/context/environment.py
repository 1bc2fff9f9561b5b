"""What a prompt says of its surroundings (document 004): folder, operating system, terminal, mode. No time."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from nexus.context.stamps import ENVIRONMENT


def get_system_info(is_repl: bool = True) -> str:  # noqa: FBT002 - the documented signature
    """The `# Environment` section: working directory, operating system, terminal (in a REPL only) and mode."""
    lines = [ENVIRONMENT, f"Working directory: {_one_line(str(Path.cwd()))}", f"Operating system: {_this_system()}"]
    terminal = terminal_name(os.environ) if is_repl else ""
    if terminal:
        lines.append(f"Terminal: {terminal}")
    lines.append(f"Mode: {'Interactive REPL' if is_repl else 'HTTP JSON-RPC Server'}")
    return "\n".join(lines)


def operating_system(system: str, release: str, *, distribution: str = "", mac: str = "") -> str:
    """The name as document 004 shows it: `Linux (WSL2 on Windows)`, `Linux (Ubuntu 24.04)`, `macOS 14.2`."""
    if system == "Linux":
        if "microsoft" in release.lower():
            return f"Linux ({'WSL2' if 'wsl2' in release.lower() else 'WSL'} on Windows)"
        return f"Linux ({distribution})" if distribution else "Linux"
    if system == "Darwin":
        return f"macOS {mac}".strip()
    return f"{system} {release}".strip() or "unknown"


def terminal_name(variables: Mapping[str, str]) -> str:
    """The terminal's program and kind, `vscode (xterm-256color)`; one of them alone, or nothing if neither is known."""
    program, kind = (_one_line(variables.get(name, "")) for name in ("TERM_PROGRAM", "TERM"))
    return f"{program} ({kind})" if program and kind else program or kind


def _this_system() -> str:
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    mac = platform.mac_ver()[0]
    return operating_system(platform.system(), platform.release(), distribution=_one_line(distribution), mac=mac)


def _one_line(text: str) -> str:
    return " ".join(text.split())
