"""Writes docs/benchmarks.md from the last results: `python -m benchmarks.page`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from benchmarks.report import Table, Target, cell_text
from benchmarks.results import NAMES, RESULTS, Result, read
from benchmarks.sessions import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

This page is generated: `make bench` measures, `python -m benchmarks.page` writes what was measured last. One benchmark \
alone: `python -m benchmarks NAME`, where NAME is one of {names}.

Rows that stand in one table were measured in one run on one machine, on the same data. Times are medians and change \
from machine to machine and from run to run; compare rows, not numbers with those of another machine. Where something \
else is better than Nexus, the table shows it.

Real sessions are not in this repository ([CONTRIBUTING.md](../CONTRIBUTING.md#tests) says where they are looked for). \
Without them, the benchmarks that need them are not run, and the one of the peers uses its synthetic session alone.
"""

TITLES: Mapping[str, str] = {
    "prefix": "The prompt cache",
    "forms": "What each form costs",
    "next_call": "The next call",
    "ledger": "The ledger",
    "start": "Starting",
    "system_slot": "The system slot",
    "counting": "Counting",
    "counter_error": "Counting by kind of content",
    "peers": "Beside other projects",
    "conformance": "What compaction keeps",
    "survival": "What survives in real sessions",
    "frames": "Frames",
}


def page(results: Mapping[str, Result]) -> str:
    """The page's text. A benchmark without a result has a section that says so."""
    parts = [HEAD.format(names=", ".join(f"`{name}`" for name in NAMES))]
    for name in NAMES:
        parts.append(f"## {TITLES[name]}\n")
        found = results.get(name)
        if found is None:
            parts.append(f"Not measured yet: `python -m benchmarks {name}`.\n")
            continue
        about = ", ".join(f"{key} {value}" if key[0].islower() else value for key, value in found.machine.items())
        parts.append(f"`python -m benchmarks {name}`, measured on {found.day}: {about}.\n")
        parts.extend(_shown(table) for table in found.outcome.tables)
        parts.extend([_targets(found.outcome.targets)] if found.outcome.targets else [])
    return "\n".join(parts)


def _shown(table: Table) -> str:
    left = [all(isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
    lines = [
        f"### {table.title}\n",
        f"Data: {_escaped(table.data)}.\n",
        _line(table.columns),
        _line([":--" if is_left else "--:" for is_left in left]),
        *(_line(tuple(map(cell_text, table.columns, row))) for row in table.rows),
    ]
    return "\n".join(
        [*lines, "", *(f"- {_escaped(note)}" for note in _joined(table.notes)), *([""] if table.notes else [])]
    )


def _joined(notes: tuple[str, ...]) -> list[str]:
    """Notes whose lines were broken for a terminal, each as one line: what is indented goes on with the line before."""
    joined: list[str] = []
    for note in notes:
        if note.startswith(" ") and joined:
            joined[-1] += f" {note.strip()}"
        else:
            joined.append(note)
    return joined


def _targets(targets: tuple[Target, ...]) -> str:
    lines = [_line(("target", "wanted", "measured", "")), _line(("---",) * 4)]
    lines.extend(
        _line((target.name, target.wanted, target.measured, "reached" if target.reached else "missed"))
        for target in targets
    )
    return "\n".join([*lines, ""])


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """Text in which nothing is taken for a column, emphasis or a tag."""
    return re.sub(r"([|*_<>`\[\]])", r"\\\1", text)


def main() -> int:
    """Writes the page; 1 when nothing was measured yet."""
    results = read()
    if not results:
        print(f"benchmarks: there is no {RESULTS.relative_to(ROOT)}: `make bench` makes it", file=sys.stderr)
        return 1
    PAGE.write_text(page(results), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
