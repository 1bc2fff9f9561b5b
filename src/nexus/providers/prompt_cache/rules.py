"""Rules and prices of each provider's prompt cache, as frozen values for the simulator.

Smallest prefix, breakpoints, look-back, lifetimes and factors are from `tokens.model.cache_rules`, prices from the model.
This module adds the steps in which a prefix is cached, and the rules of two more providers.
As of 2026-11-12:

- Anthropic (platform.claude.com, prompt caching), also on Bedrock and Vertex: only prefixes up to a `cache_control`
  breakpoint are cached, at most four per request; each finds a prefix that was cached at most 20 blocks back, counted from
  its own; prefixes below 512 to 4,096 tokens, by model, are not cached; five minutes or an hour from the start of the
  request, restarted by every read; writing costs 1.25 or 2 times the input, reading a tenth or less.
- OpenAI (developers.openai.com, prompt caching), also on Azure: automatic, from 1,024 tokens in steps of 128, kept for 5
  to 10 idle minutes. Writing is free up to GPT-5.5 and costs 1.25 times the input from GPT-5.6 on, which keeps for half
  an hour; its own breakpoints are not simulated, the automatic one is.
- Gemini (ai.google.dev, context caching): implicit, from 2,048 or 4,096 tokens by model, kept for minutes, reads at a
  tenth. Explicit caches (`cachedContents`) also charge storage by the hour; they are not simulated.
- DeepSeek (api-docs.deepseek.com, context caching): automatic, in units of 64 tokens, kept for hours; an hour is assumed.
- Groq (console.groq.com, prompt caching): automatic, two idle hours, reads at half the input, writing is free; the least
  prefix is 128 to 1,024 tokens by model, the largest is assumed.

Automatic caches are best effort: the simulation is their best case.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from msgspec import Struct

from nexus.tokens.model import Model, Prices, cache_rules
from nexus.tokens.model_table import CacheRules

STEPS: Final[dict[str, int]] = {"openai": 128, "azure": 128, "deepseek": 64}
"""Units of a cached prefix in tokens, by who serves the model or else made it; 1 if unknown."""

ADDED: Final[dict[str, CacheRules]] = {
    "deepseek": CacheRules(
        min_tokens=64, max_breakpoints=0, lookback_blocks=0, ttl_s=3600, ttl_long_s=3600,
        read_factor=0.1, write_factor=1.0, write_long_factor=1.0,
        why="automatic on disk, in units of 64 tokens, for hours to days; the shortest is assumed",
    ),
    "groq": CacheRules(
        min_tokens=1024, max_breakpoints=0, lookback_blocks=0, ttl_s=7200, ttl_long_s=7200,
        read_factor=0.5, write_factor=1.0, write_long_factor=1.0,
        why="automatic, two hours without use, half the price of input, no fee for writing",
    ),
}  # fmt: skip
"""Rules of providers without their own row in the table of `tokens`, by who serves the model."""

_PER_MILLION = 1_000_000
_PICO_DIGITS = 12


class Rates(Struct, frozen=True):
    """Prices in picodollars (10^-12 USD) per token, so that sums are exact: 3 USD per million tokens are 3,000,000."""

    input: int
    output: int
    read: int
    write: int


class CacheRule(Struct, frozen=True):
    """One model's prompt cache."""

    provider: str
    max_breakpoints: int
    lookback_blocks: int
    """0 for a cache without breakpoints."""
    min_tokens: int
    step_tokens: int
    """Unit of a cached prefix."""
    ttl_ms: int
    rates: Rates
    long_from: int = 0
    """Input tokens from which `long_rates` apply to the whole call; 0 for never."""
    long_rates: Rates | None = None
    priced: bool = True
    """False if no price is known. Rates are relative then: an input token costs 1,000,000, output nothing."""

    @property
    def uses_breakpoints(self) -> bool:
        """True if only prefixes up to a breakpoint are cached; False if the provider caches automatically."""
        return self.lookback_blocks > 0

    def rates_at(self, prompt_tokens: int) -> Rates:
        """Return the rates of a call with a prompt of this size."""
        return self.long_rates if self.long_rates and 0 < self.long_from <= prompt_tokens else self.rates

    def cached_part(self, tokens: int) -> int:
        """Return the tokens of a prefix that can be cached: whole steps, 0 below the smallest prefix."""
        return tokens - tokens % self.step_tokens if tokens >= self.min_tokens else 0


def cache_rule(model: Model, *, hour: bool = False) -> CacheRule:
    """Return the rule of the model's prompt cache.

    `hour` selects Anthropic's longer lifetime, at its own price of writing. Caches without breakpoints have one lifetime.
    """
    rules = ADDED.get(model.provider) or cache_rules(model)
    uses_breakpoints = rules.lookback_blocks > 0
    hour = hour and uses_breakpoints
    prices, long_prices = model.prices, model.long_prompt_prices
    return CacheRule(
        provider=model.provider,
        max_breakpoints=rules.max_breakpoints,
        lookback_blocks=rules.lookback_blocks,
        min_tokens=rules.min_tokens if model.provider in ADDED else model.cache_min_tokens,
        step_tokens=STEPS.get(model.provider, STEPS.get(model.vendor, 1)),
        ttl_ms=1000 * (rules.ttl_long_s if hour else rules.ttl_s),
        rates=_relative(rules, hour=hour) if prices is None else _rates(prices, hour=hour),
        long_from=model.long_prompt_tokens if prices is not None else 0,
        long_rates=None if long_prices is None or prices is None else _rates(long_prices, hour=hour),
        priced=prices is not None,
    )


def dollars(pico: int) -> Decimal:
    """Return picodollars as USD, exactly."""
    return Decimal(pico).scaleb(-_PICO_DIGITS)


def _rates(prices: Prices, *, hour: bool) -> Rates:
    write = prices.cache_write_1h if hour else prices.cache_write
    return Rates(*map(_pico, (prices.input, prices.output, prices.cache_read, write)))


def _relative(rules: CacheRules, *, hour: bool) -> Rates:
    write = rules.write_long_factor if hour else rules.write_factor
    return Rates(_pico(1), 0, _pico(rules.read_factor), _pico(write))


def _pico(usd_per_million: float) -> int:
    """Return USD per million tokens as picodollars per token."""
    return round(usd_per_million * _PER_MILLION)
