"""Random sessions on random budgets: whatever happens to one, each context obeys every law of `tests/laws`.

A round is one session of up to sixteen steps: questions, results of parallel calls, hostile messages, long loops straight
into the ledger, cuts, compactions by rule and by a summariser of any mood, undo, redo, pins, forks, rewinds, clears.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from torture.figures import Figures, Progress, shares

ROUNDS = 200_000


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """All sessions of this seed; they live in memory, so nothing is written into the folder."""
    del folder
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from laws.running import searched

    counts: Counter[str] = Counter()
    searched(rounds, seed, counts, shrink=True, progress=progress)
    whole = counts.pop("examples")
    ordered = dict(sorted(counts.items()))
    named = [name for name in ordered if name.startswith(("examples ", "model "))]
    return Figures("fitting", rounds, shares(ordered, named, whole))
