"""Anchor of a count: the provider's report for a view's last prompt, and the tokens added since.

A report includes what no count sees: the provider's own framing, and how its vocabulary splits this very text. With an
anchor only the added tokens carry the error of the count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nexus.tokens.calibration import is_plausible
from nexus.tokens.model_names import same_model

_SAME_PROMPT = ("mark", "cut", "counter")
"""Manifest fields that must be equal for two prompts to be comparable."""


class Anchor(Struct, frozen=True):
    """The report for the view's newest call, and the difference to the present one, in provider tokens."""

    reported_tokens: int
    added_tokens: int
    """By our count; negative if the prompt became shorter, as when a file in the system slot did."""

    @property
    def tokens(self) -> int:
        """The expected report for this call."""
        return max(0, self.reported_tokens + self.added_tokens)


def anchor_of(before: Mapping[str, Any] | None, now: Mapping[str, Any], factor: float) -> Anchor | None:
    """Return the anchor for a call with manifest `now`; `before` is the manifest of the view's newest recorded call.

    None if that call had no plausible report or another prompt: another model or counter, or a cut, clear or compaction
    since.
    """
    base, reported = (before.get("base", 0), before.get("reported", 0)) if before else (0, 0)
    if not before or not base or not is_plausible(base, reported):
        return None
    if any(before.get(name) != now[name] for name in _SAME_PROMPT):
        return None
    if not same_model(before.get("model", ""), now["model"]):
        return None
    return Anchor(reported, math.ceil((now["base"] - base) * factor))
