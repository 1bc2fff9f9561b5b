"""Random lists of clients: system messages anywhere, tools in the list, missing and foreign ids, images, server tools.

A round is one list in one of the four formats, the next one with the reply's calls, and the same within a budget. Each body
passes the judges of `tests/support`; every result is in it, and a list in which nothing has to change is sent as it was.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from torture.figures import Figures, Progress

ROUNDS = 100_000


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """All lists of this seed; they live in memory, so nothing is written into the folder."""
    del folder
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from interchange.client_lists import searched

    counts: Counter[str] = Counter()
    searched(rounds, seed, counts, progress)
    return Figures("lists", rounds, dict(sorted(counts.items())))
