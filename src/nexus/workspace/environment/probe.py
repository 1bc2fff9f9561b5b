"""What a skill needs, and what of it is missing on this machine: programs on the path and variables.

What was found holds for as long as a probe does: the system slot does not move, and a warm call does not search the path,
because something was installed meanwhile. A session has one probe from its start to its next compaction or check
(`nexus.workspace.environment.survey`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from nexus.types.skill import Requires
from nexus.workspace.credentials.names import is_variable

_PROGRAM = re.compile(r"[\w+-][\w.+-]*")


def is_program(text: str) -> bool:
    """Whether this can be the name of a program: a path or a command with arguments is none."""
    return _PROGRAM.fullmatch(text) is not None


def in_environment(name: str) -> bool:
    """Whether the process's environment has a variable of that name that is not empty."""
    return bool(os.environ.get(name))


@dataclass(slots=True)
class Probe:
    """State over time: which programs and variables were there when they were first asked for.

    `has_variable` tells of the variables, the process's own unless another source is given.
    """

    has_variable: Callable[[str], bool] = in_environment
    _programs: dict[str, bool] = field(default_factory=dict[str, bool])
    _variables: dict[str, bool] = field(default_factory=dict[str, bool])

    def program(self, name: str) -> bool:
        """Whether a program of that name is on the path. What is no name of a program is not there."""
        found = self._programs.get(name)
        if found is None:
            found = self._programs[name] = is_program(name) and shutil.which(name) is not None
        return found

    def variable(self, name: str) -> bool:
        """Whether the environment has a variable of that name that is not empty. What is no name of one is not there."""
        found = self._variables.get(name)
        if found is None:
            found = self._variables[name] = is_variable(name) and self.has_variable(name)
        return found

    def missing(self, requires: Requires) -> tuple[str, ...]:
        """The names of what is required and not there. Credentials are not looked up here."""
        names = [name for name in requires.bins if not self.program(name)]
        if requires.any_bins and not any(map(self.program, requires.any_bins)):
            names.append(f"one of {'/'.join(requires.any_bins)}")
        names += [name for name in requires.env if not self.variable(name)]
        return tuple(dict.fromkeys(names))
