"""Time of `nexus --help` as a whole process, compared with a bare Python, and its imports."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Spent, middle, process
from benchmarks.report import Cell, Outcome, Table, Target

COMMAND = "python -m benchmarks start"
ROUNDS = 20
MOST_MS = 120.0
HEAVY = (
    "anthropic", "apsw", "asyncio", "google.genai", "langchain_core", "openai", "PIL", "rich", "tiktoken", "toktok",
    "yaml",
)  # fmt: skip
"""What a help text must not wait for."""

_RUNS = (
    ("bare python", ("-c", "pass")),
    ("python, import click", ("-c", "import click")),
    ("nexus --help", ("-m", "nexus", "--help")),
    ("nexus --version", ("-m", "nexus", "--version")),
)
_LOOK = (
    "import sys, nexus.cli\n"
    "try:\n    nexus.cli.main(['--help'])\n"
    "except SystemExit:\n    pass\n"
    "print(*sorted(sys.modules), file=sys.stderr)"
)


def run() -> Outcome:
    """The medians, run in turns, and the heavy modules that were found."""
    runs: dict[str, list[Spent]] = {name: [] for name, _ in _RUNS}
    for _ in range(ROUNDS):
        for name, arguments in _RUNS:
            runs[name].append(process(arguments))
    spent = {name: middle(found) for name, found in runs.items()}
    bare = spent["bare python"]
    rows: list[tuple[Cell, ...]] = [
        (name, one.cpu_ms, one.wall_ms, one.wall_ms / bare.wall_ms) for name, one in spent.items()
    ]
    heavy = heavy_modules()
    notes = (
        "Medians of whole processes. The system counts CPU in steps of 10 ms.",
        f"Of {', '.join(HEAVY)}, --help imports: {', '.join(heavy) or 'none'}.",
    )
    table = Table(
        "Start of the command line",
        COMMAND,
        "none",
        ("process", "CPU ms", "wall ms", "/ bare"),
        tuple(rows),
        notes,
    )
    wall = spent["nexus --help"].wall_ms
    targets = (
        Target("nexus --help, whole process", f"under {MOST_MS:.0f} ms", f"{wall:.0f} ms", wall < MOST_MS),
        Target("heavy imports of --help", "none", ", ".join(heavy) or "none", not heavy),
    )
    return Outcome((table,), targets)


def heavy_modules() -> list[str]:
    """The heavy modules that are imported after `--help` was shown."""
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    return sorted(set(HEAVY) & set(done.stderr.split()))
