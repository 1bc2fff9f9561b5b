"""Facts about this machine: programs, variables, operating system, terminal; and a snapshot of them for a session.

Probe results are cached, so that a program installed meanwhile does not change the system slot and a warm call does not
search the path. A session has one snapshot from its start to its next compaction or check
(`nexus.workspace.environment.survey.Surveys`), so that the list of skills and the environment block always agree.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from nexus.text.one_line import collapse_whitespace
from nexus.types.environment import Environment
from nexus.types.settings import RunMode
from nexus.types.skill import Requires
from nexus.workspace.credentials.index import is_variable

HEADING = "# Environment"

MODES: dict[RunMode, str] = {"repl": "Interactive REPL", "server": "HTTP JSON-RPC Server"}

_PROGRAM = re.compile(r"[\w+-][\w.+-]*")


def is_program(text: str) -> bool:
    """Return whether this can be the name of a program: no path, no command with arguments."""
    return _PROGRAM.fullmatch(text) is not None


@dataclass(slots=True)
class Probe:
    """Cached existence of programs and variables. `has_variable` looks up a variable, the process's by default."""

    has_variable: Callable[[str], bool] = lambda name: bool(os.environ.get(name))
    _programs: dict[str, bool] = field(default_factory=dict[str, bool])
    _variables: dict[str, bool] = field(default_factory=dict[str, bool])

    def program(self, name: str) -> bool:
        """Return whether a program of that name is on the path; False for an invalid name."""
        if name not in self._programs:
            self._programs[name] = is_program(name) and shutil.which(name) is not None
        return self._programs[name]

    def variable(self, name: str) -> bool:
        """Return whether a variable of that name is set and not empty; False for an invalid name."""
        if name not in self._variables:
            self._variables[name] = is_variable(name) and self.has_variable(name)
        return self._variables[name]

    def missing(self, requires: Requires) -> tuple[str, ...]:
        """Return the names of missing programs and variables. Credentials are not checked here."""
        names = [name for name in requires.bins if not self.program(name)]
        if requires.any_bins and not any(map(self.program, requires.any_bins)):
            names.append(f"one of {'/'.join(requires.any_bins)}")
        names += [name for name in requires.env if not self.variable(name)]
        # A name may be listed in several kinds; the line of a skill names it once.
        return tuple(dict.fromkeys(names))


_PENDING = Environment()  # None is a result: no survey


@dataclass(slots=True)
class EnvironmentSnapshot:
    """A probe and the environment surveyed with it, which is computed on first use and then fixed."""

    probe: Probe = field(default_factory=Probe)
    survey: Callable[[Probe], Environment | None] = lambda _probe: None
    _environment: Environment | None = _PENDING

    @property
    def environment(self) -> Environment | None:
        """Capabilities and credentials; None without a survey."""
        if self._environment is _PENDING:
            self._environment = self.survey(self.probe)
        return self._environment


def host_facts() -> dict[str, str]:
    """Return the machine's name, operating system and architecture."""
    return {"Host": platform.node(), "OS": platform.system().lower(), "Arch": platform.machine()}


def environment_section(folder: str, mode: RunMode, variables: Mapping[str, str], time: str = "") -> str:
    """Return document 004's `# Environment` section: the terminal in a REPL only, mode and time only if not empty."""
    terminal = terminal_name(variables) if mode == "repl" else ""
    lines = [
        HEADING,
        time,
        f"Working directory: {collapse_whitespace(folder)}",
        f"Operating system: {this_system()}",
        f"Terminal: {terminal}" if terminal else "",
        f"Mode: {MODES[mode]}" if mode else "",
    ]
    return "\n".join(filter(None, lines))


def operating_system(system: str, release: str, *, distribution: str = "", mac: str = "") -> str:
    """Return the name as document 004 prints it: `Linux (WSL2 on Windows)`, `Linux (Ubuntu 24.04)`, `macOS 14.2`."""
    if system == "Linux":
        kernel = release.lower()
        if "microsoft" in kernel:
            # WSL2 is `4.19.84-microsoft-standard`, later with `-WSL2` at its end; WSL 1 is `4.4.0-19041-Microsoft`.
            is_second = "microsoft-standard" in kernel or "wsl2" in kernel
            return f"Linux ({'WSL2' if is_second else 'WSL'} on Windows)"
        if distribution:
            return f"Linux ({distribution})"
        return "Linux"
    if system == "Darwin":
        return f"macOS {mac}".strip()
    return f"{system} {release}".strip() or "unknown"


def terminal_name(variables: Mapping[str, str]) -> str:
    """Return the terminal's program and kind, `vscode (xterm-256color)`, or one of them, or ""."""
    program, kind = (collapse_whitespace(variables.get(name, "")) for name in ("TERM_PROGRAM", "TERM"))
    if program and kind:
        return f"{program} ({kind})"
    return program or kind


@cache
def this_system() -> str:
    """Return the name of the operating system that this process runs on."""
    try:
        distribution = collapse_whitespace(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
    except OSError:  # a minimal Linux without /etc/os-release, or another system
        distribution = ""
    mac = platform.mac_ver()[0]
    return operating_system(platform.system(), platform.release(), distribution=distribution, mac=mac)
