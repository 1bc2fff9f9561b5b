"""What the provider reported for the last prompt of a view, and how much has been added to it since.

A report has what no count sees: what the provider puts around a prompt, and how its vocabulary takes this very text.
Only what came since carries the error of the count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nexus.tokens.calibration import plausible
from nexus.tokens.model_names import same_model

_SAME = ("mark", "cut", "counter")


class Anchor(Struct, frozen=True):
    """`reported_tokens` of the view's newest call, and our count of what this call has more, in provider tokens.

    `added_tokens` is negative where the prompt became shorter, as when a file of the system slot did.
    """

    reported_tokens: int
    added_tokens: int

    @property
    def tokens(self) -> int:
        """What the provider will report for this call, as far as that can be told from the last one."""
        return max(0, self.reported_tokens + self.added_tokens)


def anchor_of(before: Mapping[str, Any] | None, now: Mapping[str, Any], factor: float) -> Anchor | None:
    """The anchor of the call with manifest `now`, whose view's newest recorded call had the manifest `before`.

    None where that call had no plausible report, or was of another prompt: another model or counter, or a cut, clear or
    compaction since.
    """
    base, reported = (before.get("base", 0), before.get("reported", 0)) if before else (0, 0)
    if not before or not base or not plausible(base, reported):
        return None
    if any(before.get(name) != now[name] for name in _SAME) or not same_model(before.get("model", ""), now["model"]):
        return None
    return Anchor(reported, math.ceil((now["base"] - base) * factor))
