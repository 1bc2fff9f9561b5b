"""The price of a break, when it pays for itself, and the cheapest marks: against brute force and the simulator."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import BadSetting
from nexus.providers.prompt_cache import (
    CacheCall,
    CacheRule,
    CacheSegment,
    CutCycle,
    Rates,
    break_even,
    cheapest_cut_points,
    cut_cycle_cost,
    price_of_break,
    simulate,
)
from nexus.tokens.model import resolve
from support.errors import has_code

CLAUDE = Rates(input=100, output=500, read=10, write=125)


@pytest.mark.parametrize(
    ("model", "hour", "usd"),
    [
        ("claude-sonnet-4-5", False, "0.0345"),
        ("claude-sonnet-4-5", True, "0.057"),
        ("gpt-4o", False, "0.0125"),
        ("deepseek-chat", False, "0.00252"),
    ],
)
def test_break_costs_write_minus_read(model: str, *, hour: bool, usd: str) -> None:
    assert price_of_break(10_000, resolve(model), hour=hour) == Decimal(usd)


def test_break_is_free_when_uncached_and_none_when_unpriced() -> None:
    claude = resolve("claude-sonnet-4-5")
    assert price_of_break(0, claude) == price_of_break(1_023, claude) == 0
    assert price_of_break(500, claude, prompt_tokens=9_000) == Decimal("0.001725")
    assert price_of_break(10_000, resolve("no-such-model")) is None
    with pytest.raises(BadSetting, check=has_code("bad_call")):
        price_of_break(-1, claude)


def test_price_of_break_uses_long_prompt_prices() -> None:
    gemini = resolve("gemini-2.5-pro")
    short, long = (price_of_break(10_000, gemini, prompt_tokens=tokens) for tokens in (100_000, 300_000))
    assert short == Decimal("0.01125")
    assert long == Decimal("0.0225")


@given(st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 500))
def test_break_even_equals_difference_of_simulated_series(rewritten: int, dropped: int, calls: int) -> None:
    rule = CacheRule("automatic", 0, 0, 1, 1, 1_000, CLAUDE)
    prefix = (CacheSegment("a", 1_000), CacheSegment("old", dropped), CacheSegment("kept", rewritten))
    shorter = (prefix[0], prefix[2])
    cut = list(simulate([CacheCall(0, prefix), *[CacheCall(0, shorter)] * 2], rule))
    kept = list(simulate([CacheCall(0, prefix), CacheCall(0, prefix)], rule))
    gain = (kept[1].input_cost - cut[1].input_cost) + calls * (kept[1].input_cost - cut[2].input_cost)
    assert break_even(rewritten, dropped, CLAUDE).after(calls) == (gain if dropped else -rewritten * 115)


@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_break_even_is_first_call_with_net_gain(rewritten: int, dropped: int) -> None:
    paid = break_even(rewritten, dropped, CLAUDE)
    if paid.calls is None:
        assert (dropped, paid.after(10**9) < 0) == (0, True)
    else:
        assert paid.after(paid.calls) >= 0
        assert paid.calls == 0 or paid.after(paid.calls - 1) < 0


def test_break_even_rejects_negative_tokens() -> None:
    with pytest.raises(BadSetting, check=has_code("bad_call")):
        break_even(-1, 0, CLAUDE)


@given(st.integers(0, 3_000), st.integers(1, 400), st.integers(1, 30), st.integers(0, 5_000), st.integers(2, 3))
def test_cut_cycle_cost_equals_simulated_cost(fixed: int, growth: int, calls: int, kept: int, cycles: int) -> None:
    low = fixed + kept + growth
    rule = CacheRule("automatic", 0, 0, 1, 1, 1_000, CLAUDE)
    sent: list[CacheCall] = []
    for cycle in range(cycles):
        base = (CacheSegment("fixed", fixed), CacheSegment(f"{cycle}: kept", kept + growth))
        grown = tuple(CacheSegment(f"{cycle}: {number}", growth) for number in range(calls - 1))
        sent.extend(CacheCall(0, (*base, *grown[:number])) for number in range(calls))
    costs = [outcome.input_cost for outcome in simulate(sent, rule)][calls:]
    course = CutCycle((0, kept), fixed, growth, 10**9, growth)
    steady = Fraction(sum(costs), (cycles - 1) * calls * growth)
    assert steady == cut_cycle_cost(low, calls, course, CLAUDE)


@st.composite
def courses(draw: st.DrawFn) -> CutCycle:
    groups = draw(st.lists(st.integers(0, 400), min_size=1, max_size=12))
    fixed, event = draw(st.integers(0, 2_000)), draw(st.integers(0, 300))
    return CutCycle(
        tuple(sum(groups[:place]) for place in range(len(groups) + 1)),
        fixed,
        event,
        fixed + event + draw(st.integers(0, 4_000)),
        draw(st.integers(25, 300)),
        draw(st.integers(0, 2_000)),
        draw(st.integers(0, 15)),
    )


@st.composite
def rates_of_some_provider(draw: st.DrawFn) -> Rates:
    read, plain, write = draw(st.integers(0, 50)), draw(st.integers(0, 50)), draw(st.integers(0, 100))
    return Rates(read + plain, 0, read, read + plain + write)


@given(courses(), rates_of_some_provider())
def test_cheapest_cut_points_equal_brute_force(course: CutCycle, rates: Rates) -> None:
    found = cheapest_cut_points(course, rates)
    whole = course.sums[-1]
    costs: dict[tuple[int, int], Fraction] = {}
    for boundary, before in enumerate(course.sums[:-1]):
        low = course.fixed + whole - before + course.event
        calls = 1
        while low + (calls - 1) * course.growth <= course.budget:
            if boundary == 0 or whole - before >= course.min_kept:
                costs[boundary, calls] = cut_cycle_cost(low, calls, course, rates)
            calls += 1
    assert (found is None) == (not costs)
    if found is not None:
        assert found.cost == min(costs.values()) == costs[found.boundary, found.calls]
        assert found.high <= course.budget
        assert found.now == (course.fixed + whole + course.event > found.high)


def test_cheapest_cut_is_deepest_at_order_quantity_without_worth() -> None:
    course = CutCycle(tuple(range(0, 20_001, 500)), 2_000, 400, 40_000, 400, min_kept=4_000)
    found = cheapest_cut_points(course, CLAUDE)
    assert found is not None
    assert course.sums[-1] - course.sums[found.boundary] == 4_000
    # sqrt(2 · (4,000 kept and 400 of the event, less 400 new) · (125 - 10) / (400 · 10)) = 15.2
    assert (found.low, found.calls, found.high, found.now) == (6_400, 15, 12_000, True)


def test_cuts_are_shallower_and_rarer_when_history_has_worth() -> None:
    sums = tuple(range(0, 20_001, 500))
    cheap, dear = (
        cheapest_cut_points(CutCycle(sums, 2_000, 400, 30_000, 400, worth=worth), CLAUDE) for worth in (0, 60)
    )
    assert cheap is not None
    assert dear is not None
    assert dear.low > cheap.low
    assert dear.high > cheap.high


@pytest.mark.parametrize(
    "course",
    [
        CutCycle((), 0, 0, 100, 1),
        CutCycle((5, 10), 0, 0, 100, 1),
        CutCycle((0, 10, 5), 0, 0, 100, 1),
        CutCycle((0, 5), 0, 0, 9, 0),
    ],
)
def test_cheapest_cut_points_reject_invalid_cycle(course: CutCycle) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_call")):
        cheapest_cut_points(course, CLAUDE)
