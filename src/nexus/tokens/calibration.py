"""Adaptive token counts: a model's own tokens per base token, learned from reported usage.

A report is the size of a whole prompt whose base count is known. `factor_64` is their ratio in 64ths. It starts from the
model's `token_factor` and then replaces it.

Too low a factor means a rejected request, too high a factor only wasted tokens. So the factor rises with the first report
that requires it, and falls by small steps, at most once per four reports. Near its target it does not move: a change of
factor is a change of budget, and a factor that moved with every call would move cuts. One report moves it by at most one
step. Everything is whole numbers, so that the same reports give the same factor on every machine.
"""

from __future__ import annotations

from msgspec import Struct

PARTS = 64
"""Fractions of one in which a factor is stored."""

MIN_64, MAX_64 = 32, 192
"""Limits of a learned factor: 0.5 and 3.0."""

MIN_TOKENS = 500
"""Smallest prompt that counts, in base tokens: below it the provider's own framing dominates the ratio."""

QUICK_TOKENS = 4_000
"""From this base count on a report raises the factor by up to `QUICK_STEP_64`, below by `STEP_64`."""

MIN_RATIO, MAX_RATIO = 0.4, 4.0
"""Plausible ratios. Other reports measure something else: cached tokens left out, or several calls added up."""

HEADROOM_64 = 2
"""Distance of the target above a report: the factor settles at or above every report that it agrees with."""

STEP_64, QUICK_STEP_64 = 3, 16
"""Smallest step, the only one downwards; and the largest step upwards."""

GAP_64 = 4
"""Distance above its target at which a factor is too high. One more than a step, so that a step never goes too far."""

DOWN_EVERY = 4
"""Number of counted reports per step downwards."""

MAX_SAMPLES = 16
"""Agreeing reports are counted up to this number; further ones change nothing."""


class Calibration(Struct, frozen=True):
    """A learned factor."""

    factor_64: int
    """The model's tokens per 64 base tokens."""
    samples: int = 0
    """Number of reports that it was learned from."""

    @property
    def factor(self) -> float:
        """The model's tokens per base token; exact, since 64 is a power of two."""
        return self.factor_64 / PARTS


def initial_calibration(token_factor: float) -> Calibration:
    """Return the calibration before the first report: the model's own factor, rounded up to a 64th."""
    return Calibration(-int(-token_factor * PARTS // 1))


def is_plausible(base_tokens: int, reported_tokens: int) -> bool:
    """Return True if a report can be of the prompt with this base count."""
    return base_tokens * MIN_RATIO <= reported_tokens <= base_tokens * MAX_RATIO


def update_calibration_factor(before: Calibration, base_tokens: int, reported_tokens: int) -> Calibration:
    """Return the calibration after a report of a whole prompt's input tokens, cache reads and writes included.

    Returns `before` itself if the report adds nothing: the prompt is small, the report is not plausible, or it agrees and
    enough reports have agreed. Of two plausible reports of one prompt the larger never gives the smaller factor.
    """
    if base_tokens < MIN_TOKENS or not is_plausible(base_tokens, reported_tokens):
        return before
    target = -(-reported_tokens * PARTS // base_tokens) + HEADROOM_64
    gap = min(max(target, MIN_64), MAX_64) - before.factor_64
    samples = before.samples + 1
    if gap >= STEP_64:
        largest_step = QUICK_STEP_64 if base_tokens >= QUICK_TOKENS else STEP_64
        return Calibration(before.factor_64 + min(gap, largest_step), samples)
    if gap > -GAP_64:
        return before if before.samples >= MAX_SAMPLES else Calibration(before.factor_64, samples)
    return Calibration(before.factor_64 - (STEP_64 if samples % DOWN_EVERY == 0 else 0), samples)
