"""Texts that want to forge a frame: whatever they hold, they come back as they were and no mark is left but ours.

A round is one text, value or whole memory: marks in sixteen disguises, what is unseen, what is no text, contexts inside
of messages (`tests/laws/frame_laws.py`).
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from torture.figures import Figures, Progress, shares

ROUNDS = 200_000


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """All texts of this seed; nothing is written into the folder."""
    del folder
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    from laws.frame_laws import LAWS, searched

    counts: Counter[str] = Counter()
    searched(rounds, seed, counts, shrink=True, progress=progress)
    whole = counts.pop("examples")
    return Figures("frames", rounds, shares(dict(sorted(counts.items())), ("examples with a mark", *LAWS), whole))
