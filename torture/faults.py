"""Faults at named points: each is met once, in every run, and each build that is broken on purpose is found by one.

First the cases of `torture.fault_cases` and `torture.fault_calls` have to pass. Then each broken build goes through the
case that is to find it, in a process of its own; a build that is not found fails the run. No kill, cut or seed is random.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from torture import broken
from torture.figures import Figures, Progress, require
from torture.processes import answer

NAME = "faults"
ROUNDS = 1
"""More change nothing: every round would be the same."""

Case = Callable[[Path], int]

MODULES: Final = (
    "torture.fault_cases",
    "torture.fault_brokers",
    "torture.fault_servers",
    "torture.fault_proxies",
    "torture.fault_calls",
    "torture.fault_identity",
)
"""Modules with `CASES` and `FOUND_BY`. Each is imported when it is its turn: a large process takes long to fork."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:  # noqa: ARG001 - nothing is random here
    """Meets every fault once. Raises AssertionError with what was lost, or with the builds that no case found."""
    counts: dict[str, int | str] = {}
    points, found, missed = 0, set[str](), list[str]()
    for number, name in enumerate(MODULES):
        module = import_module(name)
        module.prepare()
        for case in module.CASES:
            met = _met(case, folder)
            counts[f"points of: {_name(case)}"] = met
            points += met
        for build, case, told in module.FOUND_BY:
            problem = _searched(build, case, told, folder)
            missed += [problem] if problem else []
            found.add(build)
        progress(number + 1, len(MODULES))
    require(not missed, "\n".join(missed))
    unknown = broken.BUILDS.keys() - found
    require(not unknown, f"broken builds that no case is to find: {', '.join(sorted(unknown))}")
    return Figures(NAME, points, {**counts, "broken builds, each found at its point": len(found)})


def _name(case: Case) -> str:
    return case.__name__.replace("_", " ")


def _met(case: Case, folder: Path) -> int:
    own = folder / _name(case)
    own.mkdir()
    return case(own)


def _searched(build: str, case: Case, told: str, folder: Path) -> str:
    """Return why a broken build was not found by its case, empty if it was."""
    own = folder / f"{build} {_name(case)}"
    own.mkdir()
    try:
        answer(_broken, build, case, own)
    except AssertionError as error:
        return "" if told in str(error) else f"{build}: {_name(case)} reports {error}, not {told!r}"
    return f"{build}: {_name(case)} did not find it"


def _broken(build: str, case: Case, folder: Path) -> None:
    broken.apply(build)
    case(folder)
