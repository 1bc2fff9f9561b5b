"""Runs the named benchmarks, or all; prints their tables, then each target, and writes `.bench/results.json`.

A benchmark that cannot be run here (no data, no network) says so, and the others go on. Results of benchmarks that are
not run stay in the file as they were; `python -m benchmarks.page` makes docs/benchmarks.md of it.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module

from benchmarks.report import NotRun, Target, shown, summary
from benchmarks.results import NAMES, RESULTS, add
from benchmarks.sessions import ROOT


def main(names: list[str]) -> int:
    """0, also when a target is missed: measuring is not testing. 2 for an unknown name."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: there is no {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    targets: list[Target] = []
    for name in names or NAMES:
        begun = time.monotonic()
        try:
            outcome = import_module(f"benchmarks.{name}").run()
        except NotRun as reason:
            print(f"({name} was not run: {reason})\n", flush=True)
            continue
        for table in outcome.tables:
            print(f"{shown(table)}\n", flush=True)
        print(f"({name}: {time.monotonic() - begun:.0f} s)\n", flush=True)
        targets.extend(outcome.targets)
        add(name, outcome)
    print(summary(targets))
    print(f"\nresults: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
