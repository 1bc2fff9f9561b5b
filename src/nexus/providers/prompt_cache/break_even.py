"""Cost of a broken prefix, its break-even point, and the cheapest points for cuts.

A cut rewrites the part that it keeps, once, and saves reading the omitted part at every later call. Between two cuts a
prompt grows from a low point to a high one; this cut cycle has a closed-form cost per new token. By cost alone the deepest
cut is always the cheapest, so the caller sets the minimum to keep, or a worth of visible history. The number of calls
between cuts is a matter of cost: rare cuts read much, frequent cuts write much. The optimum is the economic order quantity,
sqrt(2 K / h), with K the cost of rewriting the kept part and h the growth of reading per call.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isqrt

from msgspec import Struct

from nexus.errors import BadCall
from nexus.providers.prompt_cache.rules import Rates, cache_rule, dollars
from nexus.tokens.model import Model


def price_of_break(lost_tokens: int, model: Model, *, prompt_tokens: int = 0, hour: bool = False) -> Decimal | None:
    """Return the cost in USD of writing so many tokens of a warm prefix instead of reading them; None without prices.

    `prompt_tokens` is the whole prompt, if larger: long prompts may have other prices, and a prompt below the smallest
    cached prefix loses nothing. `hour` selects the longer lifetime of Anthropic's cache. Raises BadCall for a negative
    number.
    """
    if lost_tokens < 0:
        raise BadCall(f"lost tokens negative: {lost_tokens:,}")
    rule = cache_rule(model, hour=hour)
    if not rule.priced:
        return None
    prompt_tokens = max(prompt_tokens, lost_tokens)
    rates = rule.rates_at(prompt_tokens)
    return dollars(lost_tokens * (rates.write - rates.read) if rule.cached_part(prompt_tokens) else 0)


class BreakEven(Struct, frozen=True):
    """A cut as an investment, in picodollars."""

    extra: int
    """Cost at the call that cuts; negative if the cut is cheaper at once."""
    saved: int
    """Saving at each later call."""

    def after(self, calls: int) -> int:
        """Return the net gain after so many further calls; negative before the break-even point."""
        return self.saved * calls - self.extra

    @property
    def calls(self) -> int | None:
        """Further calls until the cut has paid for itself; None if it never does."""
        if self.extra <= 0:
            return 0
        return -(-self.extra // self.saved) if self.saved > 0 else None


def break_even(rewritten: int, dropped: int, rates: Rates) -> BreakEven:
    """Return the break-even of a cut that rewrites `rewritten` tokens after the change and omits `dropped` ones.

    Without the cut all of them would be read, now and at every later call. Raises BadCall for a negative number.
    """
    if rewritten < 0 or dropped < 0:
        raise BadCall(f"tokens of a cut negative: {rewritten:,} rewritten, {dropped:,} dropped")
    return BreakEven(rewritten * (rates.write - rates.read) - dropped * rates.read, dropped * rates.read)


class CutCycle(Struct, frozen=True):
    """Inputs of a decision about cuts, in tokens."""

    sums: tuple[int, ...]
    """Tokens of the history before each group, rising from 0, and finally of all of it; the last group is never cut."""
    fixed: int
    """Unchanged part before the history: system and tools."""
    event: int
    """Part after the history."""
    budget: int
    growth: int
    """Average growth per call."""
    min_kept: int = 0
    """Minimum of the history that a cut keeps."""
    worth: int = 0
    """Value of one visible token of history per call, in picodollars; 0 minimizes cost alone."""


class CutPoints(Struct, frozen=True):
    """The cheapest cut cycle: cut at group `boundary`, to a prompt of `low` tokens, when a prompt would exceed `high`."""

    boundary: int
    low: int
    high: int
    calls: int
    """Calls per cycle, the one that cuts included."""
    cost: Fraction
    """Picodollars per new token, less the worth of visible history."""
    now: bool
    """True if the present prompt exceeds `high`."""


def cut_cycle_cost(low: int, calls: int, course: CutCycle, rates: Rates) -> Fraction:
    """Return picodollars per new token if every `calls`-th call cuts down to a prompt of `low` tokens.

    The call that cuts reads the fixed part and writes the rest; each later one reads the previous prompt and writes the new
    part. The worth of visible history is subtracted.
    """
    fixed, growth, later = course.fixed, course.growth, calls - 1
    read = fixed + later * low + growth * (later * (later - 1) // 2)
    written = low - fixed + later * growth
    visible = calls * (low - fixed) + growth * (calls * later // 2)
    return Fraction(read * rates.read + written * rates.write - visible * course.worth, calls * growth)


def cheapest_cut_points(course: CutCycle, rates: Rates) -> CutPoints | None:
    """Return the cut points with the lowest expected cost per new token, if every later cut is like this one.

    None if no group boundary leaves a prompt within the budget. Ties go to the cut that keeps more, then to the later one.
    Raises BadCall for sums that do not rise from 0, and for a growth below 1.
    """
    sums, total = course.sums, course.sums[-1] if course.sums else 0
    if not sums or sums[0] or list(sums) != sorted(sums) or course.growth < 1:
        raise BadCall("sums of the history do not rise from 0, or growth is below 1")
    best: tuple[Fraction, int, int] | None = None
    for boundary, before in enumerate(sums[: max(len(sums) - 1, 1)]):
        low = course.fixed + total - before + course.event
        if low > course.budget or (boundary and total - before < course.min_kept):
            continue
        max_calls = (course.budget - low) // course.growth + 1
        for calls in _candidates(low, max_calls, course, rates):
            cost = cut_cycle_cost(low, calls, course, rates)
            if best is None or (cost, boundary, -calls) < (best[0], best[1], -best[2]):
                best = (cost, boundary, calls)
    if best is None:
        return None
    cost, boundary, calls = best
    low = course.fixed + total - sums[boundary] + course.event
    high = low + (calls - 1) * course.growth
    return CutPoints(boundary, low, high, calls, cost, now=course.fixed + total + course.event > high)


def _candidates(low: int, max_calls: int, course: CutCycle, rates: Rates) -> set[int]:
    """Return numbers of calls that include the cheapest: the cost is a / n + b + c n, with its minimum at sqrt(a / c)."""
    paid_by_cut = (low - course.fixed - course.growth) * (rates.write - rates.read)
    twice_per_call = course.growth * (rates.read - course.worth)
    candidates = {1, max_calls}
    if paid_by_cut > 0 and twice_per_call > 0:
        turn = isqrt(2 * paid_by_cut // twice_per_call)
        candidates.update(min(max(near, 1), max_calls) for near in (turn, turn + 1))
    return candidates
