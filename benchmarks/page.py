"""Generator of docs/benchmarks.md from the last results: `python -m benchmarks.page`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.report import Outcome, Table, Target, cell_text
from benchmarks.results import NAMES, RESULTS, Result, read
from benchmarks.sessions import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"

HEAD = """\
# Benchmarks

Speed, prompt cache, token counts and compaction of Nexus, next to other projects. Where another project is better, the \
table shows it. This page is generated. Repeat a benchmark with its command, and the page with:

```sh
make bench
python -m benchmarks.page
```

The rows of a table come from one run on one machine. Times are medians: compare rows, not machines. The commands also \
print every target with its figures. Real sessions are not in this repository \
([CONTRIBUTING.md](../CONTRIBUTING.md#tests)); without them, benchmarks that need them are skipped.
"""

TITLES: Mapping[str, str] = {
    "prefix": "Prompt cache",
    "proxy": "Proxy",
    "proxy_faults": "Proxy: faults",
    "forms": "Cost of context formats",
    "next_call": "Next call",
    "sending": "Sending",
    "ledger": "Ledger",
    "scale": "Many sessions in one ledger",
    "postgres": "PostgreSQL",
    "start": "Start",
    "serving": "Many clients",
    "agents": "Many sessions",
    "services": "Services in processes",
    "server": "Server",
    "system_slot": "System slot",
    "counting": "Token counts",
    "counter_error": "Token counts by content",
    "peers": "Other projects",
    "conformance": "Compaction conformance",
    "survival": "What survives in real sessions",
    "equal_prompt": "Cost and survival at an equal prompt",
    "frames": "Frames",
    "cached_tokens": "Predicted cache reads",
    "consolidation": "Facts from sessions",
}

ANCHORS: Mapping[str, str] = {"forms": "what-each-form-costs"}
"""Anchors that other pages use for sections whose title reads differently."""


def page(results: Mapping[str, Result]) -> str:
    """Return the text of the page. A section without a result says so."""
    parts = [HEAD]
    machines = {_machine(result) for result in results.values()}
    is_same = len(machines) == 1
    parts.extend(f"Machine and versions: {machine}.\n" for machine in machines if is_same)
    for name in NAMES:
        parts.extend([f'<a id="{ANCHORS[name]}"></a>\n'] if name in ANCHORS else [])
        parts.append(f"## {TITLES[name]}\n")
        found = results.get(name)
        if found is None:
            parts.append(f"Not measured yet: `python -m benchmarks {name}`.\n")
            continue
        about = "" if is_same else f": {_machine(found)}"
        parts.append(f"`python -m benchmarks {name}`, measured on {found.day}{about}.\n")
        parts.extend(_section(found.outcome))
    return "\n".join(parts)


def _machine(result: Result) -> str:
    return ", ".join(f"{key} {value}" if key[0].islower() else value for key, value in result.machine.items())


def _section(outcome: Outcome) -> Iterator[str]:
    """Yield the tables of one benchmark, its targets, and the titles of tables that only the command prints.

    Data and notes that an earlier table of the section has are not repeated.
    """
    printed = {"none"}
    for table in outcome.tables:
        if not table.detail:
            notes = _joined(table.notes)
            yield _shown(table, "" if table.data in printed else table.data, [n for n in notes if n not in printed])
            printed.update((table.data, *notes))
    if outcome.targets:
        yield f"{_targets(outcome.targets)}\n"
    details = [table.title for table in outcome.tables if table.detail]
    if details:
        yield f"The command also prints: {'; '.join(map(_escaped, details))}.\n"


def _shown(table: Table, data: str, notes: Sequence[str]) -> str:
    left = [all(isinstance(row[column], str) for row in table.rows) for column in range(len(table.columns))]
    lines = [
        f"### {table.title}\n",
        *([f"Data: {_escaped(data)}.\n"] if data else []),
        _line(table.columns),
        _line([":--" if is_left else "--:" for is_left in left]),
        *(_line(tuple(map(cell_text, table.columns, row))) for row in table.rows),
    ]
    return "\n".join([*lines, "", *(f"- {_escaped(note)}" for note in notes), *([""] if notes else [])])


def _joined(notes: tuple[str, ...]) -> list[str]:
    """Join notes that are broken for a terminal: an indented line continues the line before."""
    joined: list[str] = []
    for note in notes:
        if note.startswith(" ") and joined:
            joined[-1] += f" {note.strip()}"
        else:
            joined.append(note)
    return joined


def _targets(targets: Sequence[Target]) -> str:
    """Return one sentence: the number of targets reached, and each missed one with its figures."""
    missed = [target for target in targets if not target.reached]
    count = f"Targets reached: {len(targets) - len(missed)} of {len(targets)}."
    if not missed:
        return count
    figures = (f"{target.name}: wanted {target.wanted}, measured {target.measured}" for target in missed)
    return _escaped(f"{count} Missed: {'; '.join(figures)}.")


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"|{'|'.join(_escaped(cell) for cell in cells)}|"


def _escaped(text: str) -> str:
    """Escape characters with a meaning in Markdown."""
    return re.sub(r"([|*_<>`\[\]])", r"\\\1", text)


def main() -> int:
    """Write the page. Return 1 without results."""
    results = read()
    if not results:
        print(f"benchmarks: {RESULTS.relative_to(ROOT)} not found (run `make bench`)", file=sys.stderr)
        return 1
    PAGE.write_text(page(results), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
