"""What prompts cost with a provider's prompt cache: its rules, a simulation of it, and the arithmetic of cuts.

`rules` says how each cache works and what it charges, `simulator` plays a series of calls through it, `break_even` prices a
break of the prefix and finds the cheapest marks for cuts. All are pure and exact: integers of tokens, milliseconds and
picodollars.
"""

from __future__ import annotations

from nexus.providers.prompt_cache.break_even import (
    Course,
    Marks,
    Payback,
    cheapest_marks,
    cycle_cost,
    payback,
    price_of_break,
)
from nexus.providers.prompt_cache.rules import CacheRule, Rates, cache_rule, dollars
from nexus.providers.prompt_cache.simulator import Cache, Call, Outcome, Segment, Totals, simulate, total

__all__ = [
    "Cache",
    "CacheRule",
    "Call",
    "Course",
    "Marks",
    "Outcome",
    "Payback",
    "Rates",
    "Segment",
    "Totals",
    "cache_rule",
    "cheapest_marks",
    "cycle_cost",
    "dollars",
    "payback",
    "price_of_break",
    "simulate",
    "total",
]
