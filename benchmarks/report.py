"""Values that a benchmark returns, and their plain text form."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

from msgspec import Struct

Cell: TypeAlias = str | int | float | None

SHOWN_PACKAGES = ("toktok-rs", "msgspec", "apsw", "langchain-core")


class Table(Struct, frozen=True):
    """One table of results.

    `command` prints it again, `data` describes the input, `notes` define the columns. A `detail` table is printed by
    the command and omitted from the page.
    """

    title: str
    command: str
    data: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    detail: bool = False


class NotRun(Exception):
    """Raised when a benchmark cannot run here; the text names the missing part. The others continue."""


class Target(Struct, frozen=True):
    """A target value, the measured value, and whether it was reached."""

    name: str
    wanted: str
    measured: str
    reached: bool


class Outcome(Struct, frozen=True):
    """Tables and targets of one benchmark."""

    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()


@cache
def machine() -> dict[str, str]:
    """The machine, its python and the versions of the packages that are measured."""
    from nexus import __version__

    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "nexus": __version__,
    }
    for package in SHOWN_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def shown(table: Table) -> str:
    """The table as text of plain columns, numbers to the right."""
    texts = [table.columns, *(tuple(map(cell_text, table.columns, row)) for row in table.rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(table.columns))]
    left = [all(isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
    lines = [_line(row, widths, left) for row in texts]
    lines.insert(1, "  ".join("-" * width for width in widths))
    about = machine()
    versions = ", ".join(f"{name} {about[name]}" for name in ("nexus", *SHOWN_PACKAGES))
    head = [
        table.title,
        f"  command: {table.command}",
        f"  data: {table.data}",
        f"  machine: {about['python']}, {about['system']}; {versions}",
    ]
    return "\n".join([*head, "", *lines, *(f"  {note}" for note in table.notes)])


def summary(targets: Sequence[Target]) -> str:
    """One line for each target."""
    lines = [
        f"  {'reached' if target.reached else 'MISSED ':7}  {target.name}: {target.measured} (wanted: {target.wanted})"
        for target in targets
    ]
    return "\n".join(["Targets", *lines])


def cell_text(column: str, value: Cell) -> str:
    """A cell as it is shown: shares with one digit, other fractions with two, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}" if column.endswith("%") else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def _line(row: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    cells = zip(row, widths, left, strict=True)
    return "  ".join(text.ljust(width) if first else text.rjust(width) for text, width, first in cells).rstrip()
