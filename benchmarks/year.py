"""A year in one session: time, memory and ledger per turn in ten periods, with the promises that the run checked.

The run is `torture.year`, which fails if one of them does not hold.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from torture import year
from torture.figures import Figures

from benchmarks.report import NotRun, Outcome, Table, Target

COMMAND = f"python -m torture year --turns {year.ROUNDS} --seed 1"
_COLUMNS = {
    "last_turn": "turns to",
    "cpu_ms": "CPU ms/turn",
    "cpu_p90_ms": "p90 ms",
    "statements": "SQL statements",
    "rss_mb": "RSS MB",
    "blocks": "blocks",
    "open_files": "open files",
    "ledger_kb": "ledger KB/turn",
    "compactions": "compactions",
}


def run() -> Outcome:
    """Play the year and report it."""
    if not Path("/proc/self/statm").exists():
        raise NotRun("memory is read from /proc, which only Linux has")
    with tempfile.TemporaryDirectory() as folder:
        return outcome(year.run(year.ROUNDS, 1, Path(folder), lambda _done, _all: None))


def outcome(figures: Figures) -> Outcome:
    """Return the tables of a run."""
    rows = tuple(tuple(row[name] for name in _COLUMNS) for row in figures.table)
    notes = (
        f"One session of {figures.rounds:,} turns, one to three tool calls each, at windows of {year.WINDOW:,} tokens;",
        " results of 50 characters to eight times as many as the window has tokens; four formats in turn.",
        "CPU, RSS, blocks and files are of the agent's process: the model is in another. CPU and statements: medians.",
        "blocks: allocated by Python, after a collection. The compactions are extractive and happen by themselves.",
    )
    data = "synthetic: prose, code, logs, JSON, Chinese, Japanese and Korean"
    periods = Table("Figures per turn", COMMAND, data, tuple(_COLUMNS.values()), rows, notes)
    counts = Table("Promises of the year", COMMAND, data, ("what", "number"), tuple(figures.counts.items()))
    ratio, growth = (str(figures.counts[name]) for name in (year.CPU_RATIO, year.RSS_GROWTH))
    return Outcome(
        (periods, counts),
        (
            Target("CPU of the last fifth", f"at most {year.MOST_CPU_RATIO} of the second", ratio, reached=True),
            Target("memory after the first fifth", f"under {year.MOST_RSS_GROWTH:,} bytes", growth, reached=True),
        ),
    )
