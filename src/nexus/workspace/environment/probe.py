"""Lookup of a skill's requirements on this machine, and the snapshot of the environment.

Results are cached for the lifetime of a probe, so that a program installed meanwhile does not change the system slot and a
warm call does not search the path. A session has one snapshot from its start to its next compaction or check
(`nexus.workspace.environment.survey.Surveys`), so that the list of skills and the environment block always agree.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

from nexus.types.environment import Environment
from nexus.types.skill import Requires
from nexus.workspace.credentials.names import is_variable

_PROGRAM = re.compile(r"[\w+-][\w.+-]*")


def is_program(text: str) -> bool:
    """Return whether this can be the name of a program: no path, no command with arguments."""
    return _PROGRAM.fullmatch(text) is not None


def in_environment(name: str) -> bool:
    """Return whether the process has a variable of that name that is not empty."""
    return bool(os.environ.get(name))


@dataclass(slots=True)
class Probe:
    """Cached existence of programs and variables. `has_variable` looks up a variable, the process's by default."""

    has_variable: Callable[[str], bool] = in_environment
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
        return tuple(dict.fromkeys(names))


_PENDING = Environment()


def no_survey(_probe: Probe) -> None:
    """Return no environment."""


@dataclass(slots=True)
class EnvironmentSnapshot:
    """A probe and the environment surveyed with it, which is computed on first use and then fixed."""

    probe: Probe = field(default_factory=Probe)
    survey: Callable[[Probe], Environment | None] = no_survey
    _environment: Environment | None = _PENDING

    @property
    def environment(self) -> Environment | None:
        """Capabilities and credentials; None without a survey."""
        if self._environment is _PENDING:
            self._environment = self.survey(self.probe)
        return self._environment
