"""Cost of one call at list prices, from its reported usage."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.providers.costs import cost_of_reply
from nexus.tokens.model import Prices, all_models, resolve
from nexus.types.request import TokenUsage

OPUS = resolve("claude-opus-4-5")  # 5 USD for input, 25 for output, 0.50 for cache reads, 6.25 for writes
LONG = msgspec.structs.replace(OPUS, long_prompt_tokens=200_000, long_prompt_prices=Prices(10, 50, 1, 12.5, 20))


def test_cache_reads_and_writes_have_their_own_prices() -> None:
    usage = TokenUsage(1_000_000, 100_000, cache_read_tokens=600_000, cache_write_tokens=300_000)
    assert cost_of_reply(usage, OPUS) == pytest.approx(0.1 * 5 + 0.6 * 0.5 + 0.3 * 6.25 + 0.1 * 25)


def test_writes_that_are_kept_for_an_hour_cost_twice_the_input() -> None:
    usage = TokenUsage(300_000, 0, cache_write_tokens=300_000, cache_write_1h_tokens=100_000)
    assert cost_of_reply(usage, OPUS) == pytest.approx(0.2 * 6.25 + 0.1 * 10)
    assert cost_of_reply(usage, LONG) == pytest.approx(0.2 * 12.5 + 0.1 * 20)


def test_reasoning_is_part_of_the_output() -> None:
    assert cost_of_reply(TokenUsage(0, 100, reasoning_tokens=90), OPUS) == cost_of_reply(TokenUsage(0, 100), OPUS)


def test_long_prompt_has_its_own_prices_for_the_whole_call() -> None:
    assert cost_of_reply(TokenUsage(199_999, 1_000), LONG) == pytest.approx(0.199999 * 5 + 0.025)
    assert cost_of_reply(TokenUsage(200_000, 1_000), LONG) == pytest.approx(0.2 * 10 + 0.05)


def test_model_without_prices_has_no_cost() -> None:
    assert cost_of_reply(TokenUsage(10, 10), resolve("our-own-model")) is None


@given(st.sampled_from(all_models()), st.lists(st.integers(0, 10**7), min_size=4, max_size=4))
def test_a_call_costs_no_less_with_more_tokens(model: object, counts: list[int]) -> None:
    uncached, read, write, output = counts
    usage = TokenUsage(uncached + read + write, output, read, write)
    more = msgspec.structs.replace(usage, output_tokens=output + 1, input_tokens=usage.input_tokens + 1)
    cost, larger = cost_of_reply(usage, model), cost_of_reply(more, model)  # type: ignore[arg-type]
    assert (cost is None) == (larger is None)
    if cost is not None and larger is not None:
        assert 0 <= cost <= larger
