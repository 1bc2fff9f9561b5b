"""Runs scripts: the same examples for the same seed, in blocks, so that what Hypothesis remembers does not grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings

from laws.scripts import SCRIPTS, Script
from laws.session import run

BLOCK = 1_000
"""Examples that are drawn together; each block has a seed of its own, made of the run's seed and the block's number."""


def searched(
    examples: int,
    first_seed: int,
    figures: Counter[str],
    *,
    shrink: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Takes so many sessions through the laws and counts what they met. Raises `Broken` at the first that breaks one.

    `shrink` looks for the least example first.
    """
    for number, begun in enumerate(range(0, examples, BLOCK)):
        _block(min(BLOCK, examples - begun), first_seed * 1_000_000 + number, figures, shrink=shrink)
        if progress is not None:
            progress(min(begun + BLOCK, examples), examples)


def _block(examples: int, block_seed: int, figures: Counter[str], *, shrink: bool) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @seed(block_seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(SCRIPTS)
    def sessions(script: Script) -> None:
        run(script, figures)

    sessions()
