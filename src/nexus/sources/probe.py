"""What a skill needs, and what of it is missing on this machine: programs on the path and variables.

Looked up once for an engine: what was found holds until `forget`, so that the system slot does not move, and a warm call
does not search the path, because something was installed meanwhile.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

from nexus.skill import Requires


@dataclass(slots=True)
class Probe:
    """State over time: which programs and variables were there when they were first asked for."""

    _there: dict[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])

    def program(self, name: str) -> bool:
        """Whether a program of that name is on the path. A path is no name, so it is not there."""
        key = ("program", name)
        if key not in self._there:
            self._there[key] = os.path.basename(name) == name and shutil.which(name) is not None  # noqa: PTH119 - no path
        return self._there[key]

    def variable(self, name: str) -> bool:
        """Whether the environment has a variable of that name that is not empty."""
        key = ("variable", name)
        if key not in self._there:
            self._there[key] = bool(os.environ.get(name))
        return self._there[key]

    def missing(self, requires: Requires) -> tuple[str, ...]:
        """The names of what is required and not there. Credentials are not looked up here."""
        names = [name for name in requires.bins if not self.program(name)]
        if requires.any_bins and not any(map(self.program, requires.any_bins)):
            names.append(f"one of {'/'.join(requires.any_bins)}")
        names += [name for name in requires.env if not self.variable(name)]
        return tuple(dict.fromkeys(names))

    def forget(self) -> None:
        """Asks again at the next call."""
        self._there.clear()
