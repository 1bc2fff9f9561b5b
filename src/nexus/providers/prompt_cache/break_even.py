"""What a break of the prefix costs, when it pays for itself, and where a cut costs least.

A cut writes again what it keeps, once, and spares reading what it drops, at every later call. Between two cuts a prompt
grows from the low mark to the high one: a saw-tooth, whose cost for each new token has a closed form. On cost alone the
deepest cut is always the cheapest, so a caller says what a cut must keep, or what history in view is worth. How high the
prompt may grow before that is a matter of cost: cuts that are too rare read much, cuts that are too frequent write much,
and the best number of calls between them is that of the classical order-quantity model, sqrt(2 K / h) with K the cost of
writing again what a cut keeps and h what each call adds to the reading of the next.
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
    """What it costs in USD that so many tokens of a warm prefix are written instead of read; None without prices.

    `prompt_tokens` is the whole prompt, if it is more: its size decides the price where long ones cost more, and one
    below the smallest cached prefix loses nothing. `hour` is the longer life of Anthropic's cache. Raises BadCall for a
    negative number.
    """
    if lost_tokens < 0:
        raise BadCall(f"a prefix cannot have lost {lost_tokens:,} tokens")
    rule = cache_rule(model, hour=hour)
    if not rule.priced:
        return None
    whole = max(prompt_tokens, lost_tokens)
    rates = rule.rates_at(whole)
    return dollars(lost_tokens * (rates.write - rates.read) if rule.cached_part(whole) else 0)


class BreakEven(Struct, frozen=True):
    """A cut as a payment, in picodollars: `extra` at its own call, below zero if it pays at once, `saved` at each later."""

    extra: int
    saved: int

    def after(self, calls: int) -> int:
        """What the cut has gained after so many further calls; negative as long as it has not paid for itself."""
        return self.saved * calls - self.extra

    @property
    def calls(self) -> int | None:
        """The further calls after which the cut has paid for itself; None if it never does."""
        if self.extra <= 0:
            return 0
        return -(-self.extra // self.saved) if self.saved > 0 else None


def break_even(rewritten: int, dropped: int, rates: Rates) -> BreakEven:
    """A cut that keeps `rewritten` tokens behind the change, to be written again, and drops others from the prompt.

    Without it all of them would be read, now and at every later call. Raises BadCall for a negative number.
    """
    if rewritten < 0 or dropped < 0:
        raise BadCall("a cut cannot write or drop a negative number of tokens")
    return BreakEven(rewritten * (rates.write - rates.read) - dropped * rates.read, dropped * rates.read)


class CutCycle(Struct, frozen=True):
    """What is known when a cut is considered, in tokens.

    `sums` are the history's tokens before each of its groups, rising from 0, and last those of all of it; the last
    group is never cut. `fixed` stands before the history and stays as it is (system, tools), `event` after it.
    `growth` is what a call adds on average. A cut keeps at least `least` of the history. `worth` is what a token of
    history in view is worth at each call, in picodollars: 0 asks for the least cost alone.
    """

    sums: tuple[int, ...]
    fixed: int
    event: int
    budget: int
    growth: int
    least: int = 0
    worth: int = 0


class CutPoints(Struct, frozen=True):
    """The cheapest low and high mark: cut to group `boundary`, prompt `low`, when a prompt would exceed `high`.

    `calls` lie between two such cuts, the one that cuts included. `cost` is picodollars for each new token, less what
    the history in view was worth; `now` says whether the present prompt is over the high mark.
    """

    boundary: int
    low: int
    high: int
    calls: int
    cost: Fraction
    now: bool


def cut_cycle_cost(low: int, calls: int, course: CutCycle, rates: Rates) -> Fraction:
    """Picodollars for each new token when every `calls`-th call cuts down to a prompt of `low` tokens.

    The call that cuts reads what is fixed and writes the rest; each later one reads the prompt before it and writes
    what is new. What history in view is worth is taken off.
    """
    fixed, growth, later = course.fixed, course.growth, calls - 1
    read = fixed + later * low + growth * (later * (later - 1) // 2)
    written = low - fixed + later * growth
    shown = calls * (low - fixed) + growth * (calls * later // 2)
    return Fraction(read * rates.read + written * rates.write - shown * course.worth, calls * growth)


def cheapest_cut_points(course: CutCycle, rates: Rates) -> CutPoints | None:
    """The marks with the lowest expected cost for each new token, if every later cut is like this one.

    None where no group boundary leaves a prompt within the budget. Ties go to the cut that keeps more, then to the later
    one. Raises BadCall for sums that do not rise from 0, and for a growth below 1.
    """
    sums, whole = course.sums, course.sums[-1] if course.sums else 0
    if not sums or sums[0] or list(sums) != sorted(sums) or course.growth < 1:
        raise BadCall("the history's sums do not rise from 0, or a call adds nothing to it")
    best: tuple[Fraction, int, int] | None = None
    for boundary, before in enumerate(sums[: max(len(sums) - 1, 1)]):
        low = course.fixed + whole - before + course.event
        if low > course.budget or (boundary and whole - before < course.least):
            continue
        most = (course.budget - low) // course.growth + 1
        for calls in _candidates(low, most, course, rates):
            cost = cut_cycle_cost(low, calls, course, rates)
            if best is None or (cost, boundary, -calls) < (best[0], best[1], -best[2]):
                best = (cost, boundary, calls)
    if best is None:
        return None
    cost, boundary, calls = best
    low = course.fixed + whole - sums[boundary] + course.event
    high = low + (calls - 1) * course.growth
    return CutPoints(boundary, low, high, calls, cost, now=course.fixed + whole + course.event > high)


def _candidates(low: int, most: int, course: CutCycle, rates: Rates) -> set[int]:
    """Numbers of calls among which the cheapest is: the cost is a / n + b + c n, with its turn at sqrt(a / c)."""
    paid_by_cut = (low - course.fixed - course.growth) * (rates.write - rates.read)
    twice_per_call = course.growth * (rates.read - course.worth)
    found = {1, most}
    if paid_by_cut > 0 and twice_per_call > 0:
        turn = isqrt(2 * paid_by_cut // twice_per_call)
        found.update(min(max(near, 1), most) for near in (turn, turn + 1))
    return found
