"""What a provider says when a request did not fit, as one typed verdict.

`extract` takes out of any exception, body or text what was said; `codes` and `messages` are the tables of what providers
say; `classifier` decides by them, and `silent_overflow` finds overflows that came without an error. All are pure, and none knows a
provider's package: errors are read by the names of their fields.
"""

from __future__ import annotations

from nexus.providers.errors.classifier import OverflowVerdict, classify, detect_silent_overflow, learned_window

__all__ = ["OverflowVerdict", "classify", "detect_silent_overflow", "learned_window"]
