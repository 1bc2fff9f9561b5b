"""The rules of caches are the documented ones, with the prices of the model, in exact units."""

from __future__ import annotations

from decimal import Decimal

import pytest

from nexus.providers.prompt_cache import Rates, cache_rule, dollars
from nexus.tokens.model import all_models, resolve
from nexus.tokens.model_table import provider_table


@pytest.mark.parametrize(
    ("name", "by_marks", "least", "step", "minutes"),
    [
        ("claude-sonnet-4-5", True, 1024, 1, 5),
        ("claude-haiku-4-5", True, 4096, 1, 5),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", True, 1024, 1, 5),
        ("gpt-4o", False, 1024, 128, 5),
        ("azure/gpt-4o", False, 1024, 128, 5),
        ("gpt-5.6-sol", False, 1024, 128, 30),
        ("gemini-2.5-pro", False, 2048, 1, 5),
        ("gemini-3.5-flash", False, 4096, 1, 5),
        ("deepseek-chat", False, 64, 64, 60),
        ("groq/openai/gpt-oss-120b", False, 1024, 1, 120),
    ],
)
def test_cache_rule_follows_provider_or_vendor(
    name: str, *, by_marks: bool, least: int, step: int, minutes: int
) -> None:
    rule = cache_rule(resolve(name))
    assert (rule.uses_breakpoints, rule.min_tokens, rule.step_tokens) == (by_marks, least, step)
    assert rule.ttl_ms == minutes * 60_000


def test_rates_are_picodollars_and_hour_has_its_own_write_price() -> None:
    short, hour = cache_rule(resolve("claude-sonnet-4-5")), cache_rule(resolve("claude-sonnet-4-5"), hour=True)
    assert short.rates == Rates(input=3_000_000, output=15_000_000, read=300_000, write=3_750_000)
    assert hour.rates == Rates(input=3_000_000, output=15_000_000, read=300_000, write=6_000_000)
    assert (short.ttl_ms, hour.ttl_ms) == (300_000, 3_600_000)
    assert dollars(1_000_000 * short.rates.write) == Decimal("3.75")


def test_cache_without_breakpoints_has_one_lifetime() -> None:
    for name in ("gpt-5.6-sol", "gemini-2.5-pro", "deepseek-chat"):
        assert cache_rule(resolve(name), hour=True) == cache_rule(resolve(name))


def test_cache_rule_has_long_prompt_rates() -> None:
    rule = cache_rule(resolve("gemini-2.5-pro"))
    assert rule.rates_at(199_999).input == 1_250_000
    assert rule.rates_at(200_000) == Rates(input=2_500_000, output=15_000_000, read=250_000, write=2_500_000)


def test_rates_are_relative_when_price_is_unknown() -> None:
    rule = cache_rule(resolve("claude-of-next-year"))
    assert not rule.priced
    assert rule.rates == Rates(input=1_000_000, output=0, read=100_000, write=1_250_000)


def test_prefix_is_cached_in_steps_from_minimum() -> None:
    rule = cache_rule(resolve("gpt-4o"))
    assert [rule.cached_part(tokens) for tokens in (0, 1023, 1024, 1151, 1152)] == [0, 0, 1024, 1024, 1152]


def test_every_known_model_has_rule_with_reads_at_most_input_price() -> None:
    for model in all_models():
        for hour in (False, True):
            rule = cache_rule(model, hour=hour)
            assert rule.ttl_ms > 0
            assert rule.min_tokens >= rule.step_tokens >= 1
            assert rule.rates.read <= rule.rates.input, model.name


def test_simulated_cache_rules_have_reasons() -> None:
    assert all(rules.why and rules.min_tokens for rules in provider_table().simulated_cache.values())
