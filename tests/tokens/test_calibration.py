"""Learning a model's factor from reports: where it goes, how fast, and what cannot move it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.tokens.calibration import (
    DOWN_EVERY,
    GAP_64,
    HEADROOM_64,
    MAX_64,
    MAX_SAMPLES,
    MIN_64,
    MIN_TOKENS,
    PARTS,
    QUICK_STEP_64,
    QUICK_TOKENS,
    STEP_64,
    Calibration,
    initial_calibration,
    is_plausible,
    update_calibration_factor,
)

FACTORS = st.integers(MIN_64, MAX_64)
BEFORE = st.builds(Calibration, FACTORS, st.integers(0, 1_000))
BASES = st.integers(0, 2_000_000)
LARGE = st.integers(QUICK_TOKENS, 2_000_000)
RATIOS = st.floats(0.5, (MAX_64 - HEADROOM_64) / PARTS)


def after(learned: Calibration, *reports: tuple[int, int]) -> Calibration:
    for base, reported in reports:
        learned = update_calibration_factor(learned, base, reported)
    return learned


@pytest.mark.parametrize(
    ("before", "base", "reported", "wanted"),
    [
        (Calibration(64), 10_000, 9_700, Calibration(64, 1)),
        (Calibration(64), 10_000, 13_000, Calibration(80, 1)),
        (Calibration(80, 1), 10_000, 13_000, Calibration(86, 2)),
        (Calibration(64), 1_000, 1_300, Calibration(67, 1)),
        (Calibration(86, 2), 10_000, 10_000, Calibration(86, 3)),
        (Calibration(86, 3), 10_000, 10_000, Calibration(83, 4)),
        (Calibration(64, MAX_SAMPLES), 10_000, 9_700, Calibration(64, MAX_SAMPLES)),
        (Calibration(64), 499, 900, Calibration(64)),
        (Calibration(64), 10_000, 3_999, Calibration(64)),
        (Calibration(64), 10_000, 40_001, Calibration(64)),
        (Calibration(190, 9), 10_000, 39_000, Calibration(190, 10)),
    ],
)
def test_one_report_gives_expected_calibration(
    before: Calibration, base: int, reported: int, wanted: Calibration
) -> None:
    assert update_calibration_factor(before, base, reported) == wanted


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, 64), (1.1, 71), (1.35, 87), (0.5, 32), (5.0, 320)])
def test_initial_calibration_is_model_factor_rounded_up(factor: float, wanted: int) -> None:
    assert initial_calibration(factor) == Calibration(wanted, 0)
    assert initial_calibration(factor).factor >= factor


@given(BEFORE, st.lists(st.tuples(BASES, st.integers(-5, 10_000_000)), max_size=40))
def test_factor_stays_in_bounds_and_moves_by_steps(before: Calibration, reports: list[tuple[int, int]]) -> None:
    path = [before]
    for report in reports:
        path.append(update_calibration_factor(path[-1], *report))
    for one, other in pairwise(path):
        moved = other.factor_64 - one.factor_64
        assert MIN_64 <= other.factor_64 <= MAX_64
        assert moved in (0, -STEP_64) or STEP_64 <= moved <= QUICK_STEP_64
        assert other.samples in (one.samples, one.samples + 1)
        assert other.samples > one.samples or other == one


@given(BEFORE, BASES, st.integers(0, 10_000_000), st.integers(0, 10_000_000))
def test_larger_report_never_gives_smaller_factor(before: Calibration, base: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    if is_plausible(base, low) and is_plausible(base, high):
        assert (
            update_calibration_factor(before, base, low).factor_64
            <= update_calibration_factor(before, base, high).factor_64
        )


@settings(max_examples=40)
@given(BEFORE, st.integers(MIN_TOKENS, 2_000_000), st.floats(0.5, 2.9))
def test_settled_factor_is_at_or_above_reported_ratio(before: Calibration, base: int, ratio: float) -> None:
    reported = int(base * ratio)
    settled = before
    for _ in range(2 * MAX_64):
        settled = update_calibration_factor(settled, base, reported)
    assert update_calibration_factor(settled, base, reported).factor_64 == settled.factor_64
    assert settled.factor * base >= reported
    assert settled.factor_64 <= max(MIN_64, reported * PARTS / base + 1 + HEADROOM_64 + GAP_64 - 1)


@given(BEFORE, RATIOS, st.lists(LARGE, min_size=10, max_size=10))
def test_factor_reaches_true_ratio_within_ten_large_prompts(
    before: Calibration, ratio: float, bases: list[int]
) -> None:
    learned = after(before, *((base, int(base * ratio)) for base in bases))
    assert learned.factor >= ratio - 1 / QUICK_TOKENS


@settings(max_examples=40)
@given(st.floats(0.7, 1.5), st.lists(st.tuples(LARGE, st.floats(0, 0.08)), min_size=88, max_size=88))
def test_factor_decreases_to_true_ratio_despite_high_reports(ratio: float, noisy: list[tuple[int, float]]) -> None:
    """From 1.7 to 0.7 there are 22 steps down, one in four reports."""
    learned = after(initial_calibration(1.7), *((base, int(base * ratio * (1 + noise))) for base, noise in noisy))
    assert learned.factor >= ratio * 0.999
    assert learned.factor <= ratio * 1.08 + (1 + HEADROOM_64 + GAP_64) / PARTS


@given(BEFORE, LARGE, st.integers(0, 10_000_000))
def test_wrong_report_moves_factor_by_one_step(before: Calibration, base: int, wrong: int) -> None:
    hit = update_calibration_factor(before, base, wrong)
    assert -STEP_64 <= hit.factor_64 - before.factor_64 <= QUICK_STEP_64
    right = int(base * (before.factor_64 - HEADROOM_64) / PARTS)
    mended = after(hit, *((base, right) for _ in range(DOWN_EVERY * -(-QUICK_STEP_64 // STEP_64) + DOWN_EVERY)))
    assert mended.factor * base >= right - 1
    assert mended.factor_64 <= before.factor_64 + GAP_64


@given(st.lists(st.sampled_from([0.95, 1.3]), min_size=64, max_size=64))
def test_factor_is_stable_for_alternating_prompts(ratios: list[float]) -> None:
    path = [Calibration(86, MAX_SAMPLES)]
    for ratio in ratios:
        path.append(update_calibration_factor(path[-1], 10_000, int(10_000 * ratio)))
    falls = sum(other.factor_64 < one.factor_64 for one, other in pairwise(path))
    assert falls <= len(ratios) // DOWN_EVERY
    rises = sum(other.factor_64 > one.factor_64 for one, other in pairwise(path))
    assert rises <= falls
