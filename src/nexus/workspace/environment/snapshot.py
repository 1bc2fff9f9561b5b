"""What works here as one look found it: what skills need and lack, and the environment that follows from it.

A session has one such look from its start to its next compaction or check (`nexus.workspace.environment.survey.Surveys`), so that
the list of skills and the environment block never say different things, and the system slot does not move between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nexus.types.environment import Environment
from nexus.workspace.environment.probe import Probe

_UNKNOWN = Environment()


def no_survey(_probe: Probe) -> None:
    """The survey where there is none."""


@dataclass(slots=True)
class EnvironmentSnapshot:
    """State over one look: each thing is looked up when it is first asked for, and holds from then on.

    `survey` makes the environment from what the probe finds; None where nobody looks.
    """

    probe: Probe = field(default_factory=Probe)
    survey: Callable[[Probe], Environment | None] = no_survey
    _found: Environment | None = _UNKNOWN

    @property
    def environment(self) -> Environment | None:
        """Capabilities and credentials; None where nobody looks. The first question takes the survey."""
        if self._found is _UNKNOWN:
            self._found = self.survey(self.probe)
        return self._found
