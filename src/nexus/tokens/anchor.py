"""The usage that a provider reported for the last prompt of a view, and the tokens added since.

Reported usage includes what no count sees: the tokens that the provider puts around a prompt, and its own vocabulary on
this very text. Only the tokens added since carry the error of the count.
"""

from __future__ import annotations

import math
from typing import Protocol

from msgspec import Struct

from nexus.tokens.calibration import is_plausible
from nexus.tokens.model_names import same_model


class CountedPrompt(Protocol):
    """The fields of a manifest that an anchor depends on."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def mark(self) -> int:
        """Seq of the newest clear or current compaction."""
        ...

    @property
    def cut(self) -> int:
        """Number of the current cut."""
        ...

    @property
    def counter(self) -> str:
        """Name of the token counter."""
        ...

    @property
    def base(self) -> int:
        """Base tokens of the prompt."""
        ...


class ReportedPrompt(CountedPrompt, Protocol):
    """The fields of a recorded manifest that an anchor depends on."""

    @property
    def reported(self) -> int:
        """Input tokens that the provider reported."""
        ...


class Anchor(Struct, frozen=True):
    """Reported tokens of the view's newest call, and the tokens that this call adds, in provider tokens."""

    reported_tokens: int

    added_tokens: int
    """Negative if the prompt became shorter, for example because a file of the system prompt did."""

    @property
    def tokens(self) -> int:
        """The expected usage of this call."""
        return max(0, self.reported_tokens + self.added_tokens)


def anchor_of(before: ReportedPrompt | None, now: CountedPrompt, factor: float) -> Anchor | None:
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
