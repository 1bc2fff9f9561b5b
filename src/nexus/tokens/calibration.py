"""Learning from a provider's reports how many of a model's own tokens a base token is.

A report says what a whole prompt took; its base count is known. `factor_64` is their ratio in 64ths: so many of the
model's tokens for 64 base tokens. It starts from the model's `token_factor`, the cold factor, and replaces it.

Too low a factor is a refused request, too high a one only wasted room: the factor rises with the first report that
wants it and falls by small steps, one for every fourth report at most. It stays where it is while it is near: a change
of factor is a change of room, and a factor that moves with every call would move cuts. A single report moves it by at
most one step, whatever it says. Everything is whole numbers, so the same reports give the same factor anywhere.
"""

from __future__ import annotations

from msgspec import Struct

PARTS = 64
"""A factor is kept in so many parts of one."""

LEAST_64, MOST_64 = 32, 192
"""Reports move the factor to 0.5 at least and to 3.0 at most."""

LEAST_TOKENS = 500
"""A prompt of fewer base tokens says more about what the provider adds than about the model's tokens."""

QUICK_TOKENS = 4_000
"""From so many base tokens on a report moves the factor up by `QUICK_STEP_64` at most, below by `STEP_64`."""

LEAST_RATIO, MOST_RATIO = 0.4, 4.0
"""A report outside these times its base count is of something else: cached tokens left out, several calls added up."""

HEADROOM_64 = 2
"""The factor aims so far above a report; it is then at rest at or above every report that it agrees with."""

STEP_64, QUICK_STEP_64 = 3, 16
"""The smallest move and the only one downwards; the largest move upwards."""

GAP_64 = 4
"""So far above its aim, or farther, the factor is too high. One more than a step down, which thus never goes too far."""

DOWN_EVERY = 4
"""Only every fourth report that is counted may move the factor down."""

COUNTED = 16
"""Reports that agree with the factor are counted up to this number; after that they change nothing."""


class Calibration(Struct, frozen=True):
    """The factor in 64ths of the model's tokens per base token, and the number of reports that it was learned from."""

    factor_64: int
    samples: int = 0

    @property
    def factor(self) -> float:
        """The model's tokens per base token; exact, since 64 is a power of two."""
        return self.factor_64 / PARTS


def initial_calibration(token_factor: float) -> Calibration:
    """What holds before the first report: the model's own factor, rounded up to a 64th."""
    return Calibration(-int(-token_factor * PARTS // 1))


def plausible(base_tokens: int, reported_tokens: int) -> bool:
    """Whether a report can be of the prompt that has this base count."""
    return base_tokens * LEAST_RATIO <= reported_tokens <= base_tokens * MOST_RATIO


def update_calibration_factor(before: Calibration, base_tokens: int, reported_tokens: int) -> Calibration:
    """What holds after a report of a whole prompt's input tokens, cache reads and writes included.

    The value before, itself, where the report says nothing new: the prompt is small, the report is not plausible, or it
    agrees and enough have agreed. Of two plausible reports of one prompt the larger never gives the smaller factor.
    """
    if base_tokens < LEAST_TOKENS or not plausible(base_tokens, reported_tokens):
        return before
    wanted = -(-reported_tokens * PARTS // base_tokens) + HEADROOM_64
    gap = min(max(wanted, LEAST_64), MOST_64) - before.factor_64
    samples = before.samples + 1
    if gap >= STEP_64:
        return Calibration(
            before.factor_64 + min(gap, QUICK_STEP_64 if base_tokens >= QUICK_TOKENS else STEP_64), samples
        )
    if gap > -GAP_64:
        return before if before.samples >= COUNTED else Calibration(before.factor_64, samples)
    return Calibration(before.factor_64 - (STEP_64 if samples % DOWN_EVERY == 0 else 0), samples)
