"""Adaptive token counts from reported usage: a model's own tokens per base token, and the anchor of the next count.

A report is the size of a whole prompt whose base count is known. `factor_64` is their ratio in 64ths. It starts from the
model's `token_factor` and then replaces it.

Too low a factor means a rejected request, too high a factor only wasted tokens. So the factor rises with the first report
that requires it, and falls by small steps, at most once per four reports. Near its target it does not move: a change of
factor is a change of budget, and a factor that moved with every call would move cuts. One report moves it by at most one
step. Everything is whole numbers, so that the same reports give the same factor on every machine.

An anchor is the usage that a provider reported for the last prompt of a view, with the tokens added since. Reported usage
includes what no count sees: the tokens that the provider puts around a prompt, and its own vocabulary on this very text.
Only the tokens added since carry the error of the count.
"""

from __future__ import annotations

import math
from typing import Protocol

from msgspec import Struct

from nexus.tokens.model_names import same_model

PARTS = 64
"""Fractions of one in which a factor is stored."""

MIN_64 = 32
MAX_64 = 192
"""Limits of a learned factor: 0.5 and 3.0."""

MIN_TOKENS = 500
"""Smallest prompt that counts, in base tokens: below it the provider's own framing dominates the ratio."""

QUICK_TOKENS = 4_000
"""From this base count on a report raises the factor by up to `QUICK_STEP_64`, below by `STEP_64`."""

MIN_RATIO = 0.4
MAX_RATIO = 4.0
"""Plausible ratios. Other reports measure something else: cached tokens left out, or several calls added up."""

HEADROOM_64 = 2
"""Distance of the target above a report: the factor settles at or above every report that it agrees with."""

STEP_64 = 3
QUICK_STEP_64 = 16
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


def is_counted(base_tokens: int, reported_tokens: int) -> bool:
    """Return True if a report can change the factor."""
    return base_tokens >= MIN_TOKENS and is_plausible(base_tokens, reported_tokens)


def update_calibration_factor(before: Calibration, base_tokens: int, reported_tokens: int) -> Calibration:
    """Return the calibration after a report of a whole prompt's input tokens, cache reads and writes included.

    Returns `before` itself if the report adds nothing: the prompt is small, the report is not plausible, or it agrees and
    enough reports have agreed. Of two plausible reports of one prompt the larger never gives the smaller factor.
    """
    if not is_counted(base_tokens, reported_tokens):
        return before
    target = -(-reported_tokens * PARTS // base_tokens) + HEADROOM_64
    gap = min(max(target, MIN_64), MAX_64) - before.factor_64
    samples = before.samples + 1
    if gap >= STEP_64:
        largest_step = STEP_64
        if base_tokens >= QUICK_TOKENS:
            largest_step = QUICK_STEP_64
        return Calibration(before.factor_64 + min(gap, largest_step), samples)
    if gap > -GAP_64:
        if before.samples >= MAX_SAMPLES:
            return before
        return Calibration(before.factor_64, samples)
    return Calibration(before.factor_64 - (STEP_64 if samples % DOWN_EVERY == 0 else 0), samples)


class _CountedPrompt(Protocol):
    """Fields of a manifest that an anchor depends on: properties, because a frozen struct's fields are read-only."""

    @property
    def model(self) -> str: ...
    @property
    def mark(self) -> int: ...  # seq of the newest clear or current compaction
    @property
    def cut(self) -> int: ...  # number of the current cut
    @property
    def counter(self) -> str: ...
    @property
    def base(self) -> int: ...  # base tokens


class _ReportedPrompt(_CountedPrompt, Protocol):
    @property
    def reported(self) -> int: ...  # input tokens


class Anchor(Struct, frozen=True):
    """Reported tokens of the view's newest call, and the tokens that this call adds, in provider tokens."""

    reported_tokens: int
    added_tokens: int
    """Negative if the prompt became shorter, for example because a file of the system prompt did."""

    @property
    def tokens(self) -> int:
        """The expected usage of this call."""
        return max(0, self.reported_tokens + self.added_tokens)


def anchor_of(before: _ReportedPrompt | None, now: _CountedPrompt, factor: float) -> Anchor | None:
    """Return the anchor of a call; `before` is the manifest of the view's newest recorded call.

    None if that call had no plausible report, or was for another prompt: another model or counter, or a cut, clear or
    compaction since.
    """
    if before is None or not before.base or not is_plausible(before.base, before.reported):
        return None
    if (before.mark, before.cut, before.counter) != (now.mark, now.cut, now.counter):
        return None
    if not same_model(before.model, now.model):
        return None
    return Anchor(before.reported, math.ceil((now.base - before.base) * factor))
