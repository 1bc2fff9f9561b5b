"""Prompt caches of providers: their rules and prices, a simulator, and the arithmetic of cuts.

`rules` contains the behavior and prices of each cache, `simulator` sends a series of calls through one, `break_even` prices
a break of the prefix and finds the cheapest cut points. All are pure and exact: integers of tokens, milliseconds and
picodollars.
"""

from __future__ import annotations

from nexus.providers.prompt_cache.break_even import (
    BreakEven,
    CutCycle,
    CutPoints,
    break_even,
    cheapest_cut_points,
    cut_cycle_cost,
    price_of_break,
)
from nexus.providers.prompt_cache.rules import CacheRule, Rates, cache_rule, dollars
from nexus.providers.prompt_cache.simulator import (
    Cache,
    CacheCall,
    CacheOutcome,
    CacheSegment,
    CacheTotals,
    simulate,
    sum_outcomes,
)

__all__ = [
    "BreakEven",
    "Cache",
    "CacheCall",
    "CacheOutcome",
    "CacheRule",
    "CacheSegment",
    "CacheTotals",
    "CutCycle",
    "CutPoints",
    "Rates",
    "break_even",
    "cache_rule",
    "cheapest_cut_points",
    "cut_cycle_cost",
    "dollars",
    "price_of_break",
    "simulate",
    "sum_outcomes",
]
