"""What a torture returns, and how a run is shown: the machine, then a table, or JSON."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from msgspec import Struct

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many rounds are done, and of how many."""


class Figures(Struct, frozen=True):
    """What one torture counted. It is made only when nothing was lost; `seconds` is wall time.

    `table` has a row of figures for each part of a long run.
    """

    name: str
    rounds: int
    counts: Mapping[str, int | str]
    seconds: float = 0.0
    table: tuple[Mapping[str, int | float], ...] = ()


class Machine(Struct, frozen=True):
    """On what it ran."""

    date: str
    python: str
    sqlite: str
    system: str
    cores: int
    file_system: str


class Report(Struct, frozen=True):
    """A whole run: what was counted, and of each torture that failed what was lost."""

    machine: Machine
    seed: int
    broken: str
    tortures: tuple[Figures, ...]
    failed: dict[str, str] = {}


def require(holds: object, what: str) -> None:
    """Raises AssertionError unless it holds; unlike the statement it stays when Python runs with `-O`."""
    if not holds:
        lost(what)


def lost(what: str) -> NoReturn:
    """Raises AssertionError."""
    raise AssertionError(what)


def machine(folder: Path) -> Machine:
    """The machine's facts; the file system is that of `folder`."""
    import apsw

    return Machine(
        time.strftime("%Y-%m-%d"),
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        os.cpu_count() or 0,
        _file_system(folder),
    )


def shown(report: Report) -> str:
    """The report as text."""
    about = report.machine
    system = f"{about.system}; {about.cores} cores; files on {about.file_system}"
    lines = [f"{about.date}; {about.python}; SQLite {about.sqlite}; {system}; seed {report.seed}", ""]
    width = max(map(len, (*(one.name for one in report.tortures), *report.failed)), default=0)
    for one in report.tortures:
        lines.append(f"{one.name:<{width}}  {one.rounds:>9,} rounds  {one.seconds:>8,.1f} s")
        lines += [f"{'':<{width}}  {_number(value):>9}  {name}" for name, value in one.counts.items()]
        lines += _table(one.table)
    lines += [f"{name:<{width}}     FAILED  {what}" for name, what in report.failed.items()]
    return "\n".join(lines)


def shares(counts: dict[str, int], of: Sequence[str], whole: int) -> dict[str, int | str]:
    """The counts, with a share of `whole` added to those named in `of`."""
    return {
        f"{name} ({100 * value / whole:.1f} %)" if name in of and whole else name: value
        for name, value in counts.items()
    }


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _table(rows: Sequence[Mapping[str, int | float]]) -> list[str]:
    """The rows as lines, under the names of their figures."""
    cells = [[*rows[0]], *(list(map(_number, row.values())) for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.rjust, line, widths)) for line in cells]


def _file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, as Linux tells it."""
    mounts = Path("/proc/self/mounts")
    if not mounts.is_file():
        return "an unknown file system"
    here = folder.resolve()
    found = [line.split(" ")[1:3] for line in mounts.read_text("utf-8").splitlines()]
    holding = [(len(place), kind) for place, kind in found if here.is_relative_to(place.replace("\\040", " "))]
    return max(holding)[1] if holding else "an unknown file system"
