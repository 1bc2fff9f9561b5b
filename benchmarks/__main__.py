"""Runs the named benchmarks, or all; prints their tables, then each target, and writes `.bench/results.json`."""

from __future__ import annotations

import sys
import time
from importlib import import_module

import msgspec

from benchmarks.report import Outcome, Target, machine, shown, summary
from benchmarks.sessions import ROOT

NAMES = ("prefix", "next_call", "ledger", "start", "counting", "counter_error")
RESULTS = ROOT / ".bench" / "results.json"


def main(names: list[str]) -> int:
    """0, also when a target is missed: measuring is not testing. 2 for an unknown name."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"benchmarks: there is no {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    outcomes: dict[str, Outcome] = {}
    for name in names or NAMES:
        begun = time.monotonic()
        outcomes[name] = import_module(f"benchmarks.{name}").run()
        for table in outcomes[name].tables:
            print(f"{shown(table)}\n", flush=True)
        print(f"({name}: {time.monotonic() - begun:.0f} s)\n", flush=True)
    targets: list[Target] = [target for outcome in outcomes.values() for target in outcome.targets]
    print(summary(targets))
    RESULTS.parent.mkdir(exist_ok=True)
    data = {"machine": machine(), "benchmarks": outcomes}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1))
    print(f"\nwritten: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
