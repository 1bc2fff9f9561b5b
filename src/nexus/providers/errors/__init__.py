"""Classification of provider errors: overflow, rate limit or other, as one typed verdict.

`extract` reads status, codes and texts from any exception, body or text; `messages` contains the tables of codes and
patterns per provider; `classifier` decides, and detects overflows that came without an error. All are pure and import no
provider's package: errors are read by the names of their fields.
"""

from __future__ import annotations

from nexus.providers.errors.classifier import OverflowVerdict, classify, detect_silent_overflow, learned_window

__all__ = ["OverflowVerdict", "classify", "detect_silent_overflow", "learned_window"]
