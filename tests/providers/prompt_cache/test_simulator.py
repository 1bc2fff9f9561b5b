"""The simulated cache keeps the laws of real ones, whatever the series of calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import BadSetting
from nexus.providers.prompt_cache import (
    Cache,
    CacheCall,
    CacheRule,
    CacheSegment,
    Rates,
    cache_rule,
    simulate,
    sum_outcomes,
)
from nexus.tokens.model import resolve
from support.errors import has_code

MARKED = CacheRule("anthropic", 4, 20, 100, 1, 300_000, Rates(100, 500, 10, 125))
PLAIN = CacheRule("openai", 0, 0, 100, 16, 300_000, Rates(100, 500, 10, 100))
RULES = (MARKED, PLAIN)


def prompt(
    *sizes: int, at_ms: int = 0, marks: tuple[int, ...] | None = None, start: int = 0, output: int = 0
) -> CacheCall:
    """A call whose segments are named by their place, from `start` on, with a mark at its end."""
    segments = tuple(CacheSegment(str(start + place), tokens) for place, tokens in enumerate(sizes))
    return CacheCall(at_ms, segments, (len(sizes),) if marks is None and sizes else marks or (), output)


@st.composite
def series(draw: st.DrawFn) -> list[CacheCall]:
    """Calls that grow, shrink, change anywhere, pause for any time, with marks anywhere."""
    sizes = st.integers(0, 120)
    calls: list[CacheCall] = []
    segments: list[CacheSegment] = []
    at_ms = 0
    for number in range(draw(st.integers(1, 8))):
        keep = draw(st.integers(0, len(segments)) | st.just(len(segments)))
        new = [CacheSegment(f"{number}.{place}", draw(sizes)) for place in range(draw(st.integers(0, 25)))]
        segments = [*segments[:keep], *new]
        places = draw(st.sets(st.integers(1, len(segments)), max_size=4)) if segments else set[int]()
        at_ms += draw(st.sampled_from((0, 1_000, 299_999, 300_000, 4_000_000)))
        calls.append(CacheCall(at_ms, tuple(segments), tuple(sorted(places)), draw(st.integers(0, 50))))
    return calls


@given(series(), st.sampled_from(RULES))
def test_outcome_adds_up_and_cost_is_bounded(calls: list[CacheCall], rule: CacheRule) -> None:
    for call, outcome in zip(calls, simulate(calls, rule), strict=True):
        assert min(outcome.read, outcome.written, outcome.uncached) >= 0
        assert outcome.prompt == call.tokens
        assert call.tokens * rule.rates.read <= outcome.input_cost <= call.tokens * rule.rates.write
        assert outcome.output_cost == call.output_tokens * rule.rates.output


@given(series(), st.sampled_from(RULES), st.integers(1, 3_000_000))
def test_longer_lifetime_never_reads_less(calls: list[CacheCall], rule: CacheRule, more_ms: int) -> None:
    longer = CacheRule(
        rule.provider, rule.max_breakpoints, rule.lookback_blocks, rule.min_tokens, rule.step_tokens,
        rule.ttl_ms + more_ms, rule.rates,
    )  # fmt: skip
    for short, long in zip(simulate(calls, rule), simulate(calls, longer), strict=True):
        assert long.read >= short.read


@given(series(), st.sampled_from(RULES))
def test_reads_are_at_most_longest_shared_prefix(calls: list[CacheCall], rule: CacheRule) -> None:
    for number, outcome in enumerate(simulate(calls, rule)):
        shared = (common_tokens(calls[number], before) for before in calls[:number])
        assert outcome.read <= max(shared, default=0)


def common_tokens(one: CacheCall, other: CacheCall) -> int:
    tokens = 0
    for left, right in zip(one.segments, other.segments, strict=False):
        if left != right:
            break
        tokens += left.tokens
    return tokens


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.lists(st.integers(0, 300), max_size=10))
def test_unchanged_prefix_is_read_completely(old: list[int], new: list[int]) -> None:
    for rule in RULES:
        first, second = simulate((prompt(*old), prompt(*old, *new, at_ms=299_999, marks=marks_of(old, new))), rule)
        assert first.read == 0
        assert second.read == rule.cached_part(sum(old))
        assert second.miss == ("hit" if rule.cached_part(sum(old)) else "minimum")
        assert second.changed_at == -1


def marks_of(old: list[int], new: list[int]) -> tuple[int, ...]:
    return tuple(sorted({len(old), len(old) + len(new)}))


@given(st.lists(st.integers(1, 300), min_size=2, max_size=40), st.data())
def test_changed_segment_limits_read_to_preceding_ones(sizes: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sizes) - 1))
    before = prompt(*sizes, marks=tuple(sorted({at, len(sizes)} - {0})))
    segments = (*before.segments[:at], CacheSegment("changed", sizes[at]), *before.segments[at + 1 :])
    for rule in RULES:
        _, outcome = simulate((before, CacheCall(1, segments, before.breakpoints)), rule)
        assert outcome.read == rule.cached_part(sum(sizes[:at]))
        assert (outcome.miss, outcome.changed_at) == ("changed", at)


def test_read_restarts_lifetime() -> None:
    calls = [prompt(200, at_ms=at_ms) for at_ms in (0, 299_999, 599_998, 899_998)]
    for rule in RULES:
        assert [outcome.miss for outcome in simulate(calls, rule)] == ["first", "hit", "hit", "expired"]


@pytest.mark.parametrize(("blocks", "miss"), [(19, "hit"), (20, "lookback")])
def test_breakpoint_finds_cached_prefix_within_twenty_blocks(blocks: int, miss: str) -> None:
    calls = [prompt(200), prompt(200, *[10] * blocks)]
    outcome = list(simulate(calls, MARKED))[1]
    assert (outcome.miss, outcome.read) == (miss, 200 if miss == "hit" else 0)


def test_second_breakpoint_bridges_long_turn() -> None:
    outcome = list(simulate([prompt(200), prompt(200, *[10] * 30, marks=(15, 31))], MARKED))[1]
    assert (outcome.read, outcome.written, outcome.uncached) == (200, 300, 0)


def test_only_prefixes_up_to_breakpoints_are_cached() -> None:
    first, second, third = simulate(
        [prompt(200, 50, marks=(1,)), prompt(200, 50, 60, marks=(1,)), prompt(200, 50, 60, marks=())], MARKED
    )
    assert (first.written, first.uncached) == (200, 50)
    assert (second.read, second.written, second.uncached) == (200, 0, 110)
    assert (third.read, third.uncached, third.miss) == (0, 310, "unmarked")


def test_prompt_below_minimum_prefix_is_not_cached() -> None:
    for rule in RULES:
        first, second = simulate([prompt(99), prompt(99, 100)], rule)
        assert (first.written, first.uncached) == (0, 99)
        assert second.miss == "minimum"


def test_earlier_dated_call_counts_as_simultaneous() -> None:
    cache = Cache(PLAIN)
    cache.send(prompt(200, at_ms=1_000_000))
    assert cache.send(prompt(200, at_ms=5)).miss == "hit"


def test_equal_key_after_other_prefix_is_not_cached() -> None:
    one = CacheCall(0, (CacheSegment("a", 150), CacheSegment("b", 150)))
    other = CacheCall(0, (CacheSegment("b", 150), CacheSegment("b", 150)))
    assert [outcome.read for outcome in simulate([one, other, one], PLAIN)] == [0, 0, 288]


@pytest.mark.parametrize(
    "call",
    [
        CacheCall(0, (CacheSegment("a", -1),)),
        CacheCall(0, (CacheSegment("a", 1),), output_tokens=-1),
        CacheCall(0, (CacheSegment("a", 1),), (2,)),
        CacheCall(0, (CacheSegment("a", 1),), (0,)),
        CacheCall(0, (CacheSegment("a", 1), CacheSegment("b", 1)), (2, 1)),
        CacheCall(0, tuple(CacheSegment(str(place), 1) for place in range(5)), (1, 2, 3, 4, 5)),
    ],
)
def test_simulator_rejects_invalid_call(call: CacheCall) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_call")):
        Cache(MARKED).send(call)


def test_empty_prompt_and_empty_series_are_free() -> None:
    assert sum_outcomes(()).share == 0.0
    (outcome,) = simulate([CacheCall(0, ())], MARKED)
    assert (outcome.prompt, outcome.input_cost, outcome.miss) == (0, 0, "first")


GOLDEN = [
    # system and question; the reply and a second question; a pause of six minutes; the system changes
    prompt(2_000, 100, marks=(1, 2), output=50),
    prompt(2_000, 100, 50, 80, marks=(1, 4), at_ms=20_000, output=40),
    prompt(2_000, 100, 50, 80, 40, 90, marks=(1, 6), at_ms=380_000, output=30),
    prompt(2_100, 100, 50, marks=(1, 3), start=90, at_ms=390_000, output=20),
]


@pytest.mark.parametrize(
    ("model", "hour", "rows", "input_dollars", "output_dollars"),
    [
        (
            "claude-sonnet-4-5",
            False,
            [("first", 0, 2_100, 0), ("hit", 2_100, 130, 0), ("expired", 0, 2_360, 0), ("changed", 0, 2_250, 0)],
            "0.02628",
            "0.0021",
        ),
        (
            "claude-sonnet-4-5",
            True,
            [("first", 0, 2_100, 0), ("hit", 2_100, 130, 0), ("hit", 2_230, 130, 0), ("changed", 0, 2_250, 0)],
            "0.028959",
            "0.0021",
        ),
        (
            "gpt-4o",
            False,
            [("first", 0, 2_048, 52), ("hit", 2_048, 128, 54), ("expired", 0, 2_304, 56), ("changed", 0, 2_176, 74)],
            "0.01979",
            "0.0014",
        ),
    ],
)
def test_small_session_has_expected_outcomes(
    model: str, *, hour: bool, rows: list[tuple[str, int, int, int]], input_dollars: str, output_dollars: str
) -> None:
    outcomes = list(simulate(GOLDEN, cache_rule(resolve(model), hour=hour)))
    assert [(one.miss, one.read, one.written, one.uncached) for one in outcomes] == rows
    assert [one.idle_ms for one in outcomes] == [0, 20_000, 360_000, 10_000]
    sums = sum_outcomes(outcomes)
    assert (str(sums.input_dollars.normalize()), str(sums.output_dollars.normalize())) == (
        input_dollars,
        output_dollars,
    )
    assert sums.prompt == sum(call.tokens for call in GOLDEN)
    assert sums.misses == {miss: [row[0] for row in rows].count(miss) for miss, *_ in rows}


@given(series(), st.sampled_from(RULES))
def test_sum_outcomes_adds_every_amount(calls: list[CacheCall], rule: CacheRule) -> None:
    outcomes = list(simulate(calls, rule))
    sums, last = sum_outcomes(outcomes), sum_outcomes(outcomes[-1:])
    rest = sum_outcomes(outcomes[:-1])
    for field in ("calls", "read", "written", "uncached", "output", "input_cost", "output_cost"):
        assert getattr(sums, field) == getattr(rest, field) + getattr(last, field)
    assert all(one.idle_ms >= 0 for _, one in pairwise(outcomes))
