"""Classification of provider errors: overflow, rate limit or other, as one typed verdict.

`extract` reads status, codes and texts from any exception, body or text; `messages` loads the rules; `classifier` decides,
and detects overflows that came without an error. No provider's package is imported: errors are read by their field names.
"""

from nexus.providers.errors.classifier import (
    OverflowVerdict,
    classify,
    detect_silent_overflow,
    error_text,
    learned_window,
)

__all__ = ["OverflowVerdict", "classify", "detect_silent_overflow", "error_text", "learned_window"]
