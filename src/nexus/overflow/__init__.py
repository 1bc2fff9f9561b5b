"""What a provider says when a request did not fit, as one typed verdict.

`read` takes out of any exception, body or text what was said; `codes` and `texts` are the tables of what providers say;
`classify` decides by them, and `silent` finds overflows that came without an error. All are pure, and none knows a
provider's package: errors are read by the names of their fields.
"""

from __future__ import annotations

from nexus.overflow.classify import classify
from nexus.overflow.silent import silent
from nexus.overflow.verdict import Verdict, learned_window

__all__ = ["Verdict", "classify", "learned_window", "silent"]
