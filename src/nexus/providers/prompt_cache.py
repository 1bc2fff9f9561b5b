"""Prompt caches of providers: their rules and prices, a simulator, and the arithmetic of cuts.

Smallest prefix, breakpoints, look-back, lifetimes and factors are from `tokens/data/providers.json` (as of its date, with
sources), prices from the model; docs/cache.md describes them. Breakpoints of GPT-5.6 and explicit caches of Gemini are not
simulated. Automatic caches are best effort: the simulation is their best case. Everything is pure and exact: integers of
tokens, milliseconds and picodollars.

A cut rewrites the part that it keeps, once, and saves reading the omitted part at every later call. Between two cuts a
prompt grows from a low point to a high one; this cut cycle has a closed-form cost per new token. By cost alone the deepest
cut is always the cheapest, so the caller sets the minimum to keep, or a worth of visible history. Rare cuts read much,
frequent cuts write much: the best number of calls between cuts is the economic order quantity, sqrt(2 K / h), with K the
cost of rewriting the kept part and h the growth of reading per call.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from math import isqrt
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import astuple

from nexus.errors import BadSetting
from nexus.tokens.model import Model, Prices, cache_rules
from nexus.tokens.model_table import CacheRules, provider_table

__all__ = [
    "NEVER",
    "STEPS",
    "BreakEven",
    "Cache",
    "CacheAmounts",
    "CacheCall",
    "CacheOutcome",
    "CacheRule",
    "CacheSegment",
    "CacheTotals",
    "CutCycle",
    "CutPoints",
    "Miss",
    "Rates",
    "break_even",
    "cache_rule",
    "cached_settings",
    "changed_settings",
    "cheapest_cut_points",
    "cut_cycle_cost",
    "dollars",
    "price_of_break",
    "simulate",
    "sum_outcomes",
]

STEPS: Final[dict[str, int]] = {"openai": 128, "azure": 128, "deepseek": 64}
"""Units of a cached prefix in tokens, by who serves the model or else made it; 1 if unknown."""

NEVER = -(1 << 62)

Miss: TypeAlias = Literal["hit", "first", "changed", "expired", "minimum", "lookback", "unmarked"]
"""Reason why a call did not read the whole last prompt: there was none; the prefix changed; it had expired; it was below
the smallest prefix; no breakpoint was near enough; breakpoints are missing. `hit`: it did."""


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
        if self.long_rates is not None and 0 < self.long_from <= prompt_tokens:
            return self.long_rates
        return self.rates

    def cached_part(self, tokens: int) -> int:
        """Return the tokens of a prefix that can be cached: whole steps, 0 below the smallest prefix."""
        if tokens < self.min_tokens:
            return 0
        return tokens - tokens % self.step_tokens


def cache_rule(model: Model, *, hour: bool = False) -> CacheRule:
    """Return the rule of the model's prompt cache.

    `hour` selects Anthropic's longer lifetime, at its own price of writing. Caches without breakpoints have one lifetime.
    """
    simulated = provider_table().simulated_cache.get(model.provider)
    rules = simulated or cache_rules(model)
    hour = hour and rules.lookback_blocks > 0
    prices = model.prices
    long_rates = None
    if prices is not None and model.long_prompt_prices is not None:
        long_rates = _rates(model.long_prompt_prices, rules, hour=hour)
    return CacheRule(
        provider=model.provider,
        max_breakpoints=rules.max_breakpoints,
        lookback_blocks=rules.lookback_blocks,
        min_tokens=simulated.min_tokens if simulated else model.cache_min_tokens,
        step_tokens=STEPS.get(model.provider, STEPS.get(model.vendor, 1)),
        ttl_ms=1000 * (rules.ttl_long_s if hour else rules.ttl_s),
        rates=_rates(prices, rules, hour=hour),
        long_from=model.long_prompt_tokens if prices is not None else 0,
        long_rates=long_rates,
        priced=prices is not None,
    )


_UNCACHED_SETTINGS = frozenset(
    {
        "temperature", "top_p", "top_k", "seed", "n", "candidate_count", "presence_penalty", "frequency_penalty",
        "logit_bias", "logprobs", "top_logprobs", "response_logprobs", "max_tokens", "max_completion_tokens",
        "max_output_tokens", "stop", "stop_sequences", "metadata", "user", "safety_identifier", "service_tier", "store",
        "stream", "stream_options", "include", "background", "truncation", "timeout", "extra_headers", "safety_settings",
        "labels",
    }
)  # fmt: skip
"""Settings of sampling, length and delivery, which are not part of the prompt."""

_TURN_SETTINGS = frozenset(
    {"tool_choice", "tool_config", "thinking", "thinking_config", "reasoning", "reasoning_effort", "output_config"}
)
"""Settings of thinking and tool choice. Anthropic caches the messages with them."""


def cached_settings(model: Model, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return hashes of the settings that a prompt cache depends on: from its beginning, and from the first message on.

    Anthropic's table of what invalidates the cache (platform.claude.com/docs/en/build-with-claude/prompt-caching): tool
    choice and thinking change the messages' part, not tools and system slot. OpenAI and Gemini compare the prompt
    alone (developers.openai.com/api/docs/guides/prompt-caching, ai.google.dev/gemini-api/docs/caching), in which a schema
    for structured output comes first. A setting that is not known counts from the beginning.
    """
    settings = {**settings, **settings.get("extra_body", {})}
    settings.pop("extra_body", None)
    start = {name: value for name, value in settings.items() if name not in _UNCACHED_SETTINGS | _TURN_SETTINGS}
    messages: dict[str, Any] = {}
    output = settings.get("output_config")
    if isinstance(output, Mapping) and "format" in output:
        start["output_config"] = cast("Mapping[str, Any]", output)["format"]
    if "anthropic" in (model.provider_format, model.vendor):
        messages = {name: value for name, value in settings.items() if name in _TURN_SETTINGS}
    return _settings_hash(start), _settings_hash(messages)


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ and that a prompt cache may depend on."""
    names = before.keys() | now.keys()
    return sorted(name for name in names - _UNCACHED_SETTINGS if before.get(name) != now.get(name))


def _settings_hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(settings.items())).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _rates(prices: Prices | None, rules: CacheRules, *, hour: bool) -> Rates:
    """Return prices as rates; without prices relative ones, in which an input token costs 1,000,000."""
    if prices is None:
        write = rules.write_long_factor if hour else rules.write_factor
        usd_per_million = (1, 0, rules.read_factor, write)
    else:
        write = prices.cache_write_1h if hour else prices.cache_write
        usd_per_million = (prices.input, prices.output, prices.cache_read, write)
    return Rates(*(round(price * 1_000_000) for price in usd_per_million))


def dollars(pico: int) -> Decimal:
    """Return picodollars as USD, exactly."""
    return Decimal(pico).scaleb(-12)


class CacheSegment(Struct, frozen=True, gc=False):
    """A piece of a prompt that is cached as a unit (a content block or message). Equal content has an equal key."""

    key: str
    tokens: int


class CacheCall(Struct, frozen=True):
    """One call: start time, prompt segments, and the length of each prefix with a breakpoint in segments, rising."""

    at_ms: int
    segments: tuple[CacheSegment, ...]
    breakpoints: tuple[int, ...] = ()
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(segment.tokens for segment in self.segments)


class CacheAmounts(Struct, frozen=True):
    """Tokens and costs of one call or several. Read, written and uncached tokens are the whole prompt."""

    read: int
    written: int
    """Processed and cached."""
    uncached: int
    """Processed only."""
    output: int
    input_cost: int
    """In picodollars, like `output_cost`."""
    output_cost: int

    @property
    def prompt(self) -> int:
        """All tokens of the prompts."""
        return self.read + self.written + self.uncached


class CacheOutcome(CacheAmounts, frozen=True):
    """Result of one call."""

    miss: Miss
    changed_at: int = -1
    """First segment that differs from the last prompt; -1 if that prompt is a prefix of this one."""
    idle_ms: int = 0
    """Time since the last call."""


class CacheTotals(CacheAmounts, frozen=True):
    """Sums over calls; `misses` counts calls by reason, hits included."""

    calls: int
    misses: dict[Miss, int]
    largest_prompt: int = 0

    @property
    def share(self) -> float:
        """Part of all prompt tokens that was read from the cache; 0 without any."""
        if self.prompt:
            return self.read / self.prompt
        return 0.0

    @property
    def input_dollars(self) -> Decimal:
        """Cost of the prompts in USD."""
        return dollars(self.input_cost)

    @property
    def output_dollars(self) -> Decimal:
        """Cost of the answers in USD."""
        return dollars(self.output_cost)


class Cache:
    """The prompt cache of one model for one caller; `send` takes one call after the other."""

    def __init__(self, rule: CacheRule) -> None:
        self.rule = rule
        self._nodes: dict[tuple[int, str], int] = {}
        self._used: list[int] = [NEVER]
        self._now = NEVER
        self._last: tuple[list[int], tuple[int, ...]] | None = None

    def send(self, call: CacheCall) -> CacheOutcome:
        """Return the outcome of a call, and cache its prompt.

        A call that is dated before the last one counts as simultaneous. Raises BadSetting for negative tokens and for
        breakpoints that the provider rejects: too many, out of order, or outside the prompt.
        """
        _check(call, self.rule)
        now = max(self._now, call.at_ms)
        idle = now - self._now if self._last else 0
        path = self._walk(call)
        sums = [0, *accumulate(segment.tokens for segment in call.segments)]
        if self.rule.uses_breakpoints:
            read, cached = self._send_with_breakpoints(call, path, sums, now)
        else:
            read, cached = self._send_automatic(path, sums, now)
        common = len(path) - 1
        if self._last is not None:
            before = self._last[0]
            shorter = min(len(before), len(path))
            # Equal nodes are equal prefixes, so the first difference can be found by bisection.
            common = bisect_left(range(shorter), 1, key=lambda length: int(before[length] != path[length])) - 1
        miss = self._why(call, sums, read, common, idle)
        changed = self._last is not None and common < len(self._last[0]) - 1
        self._now = now
        self._last = (path, call.breakpoints)
        rates = self.rule.rates_at(sums[-1])
        written = max(cached - read, 0)
        uncached = sums[-1] - read - written
        cost = read * rates.read + written * rates.write + uncached * rates.input
        paid = call.output_tokens * rates.output
        at = common if changed else -1
        return CacheOutcome(read, written, uncached, call.output_tokens, cost, paid, miss, at, idle)

    def _walk(self, call: CacheCall) -> list[int]:
        """Return the nodes of the prompt's prefixes, the empty one first."""
        nodes = self._nodes
        used = self._used
        node = 0
        path = [0]
        for segment in call.segments:
            step = (node, segment.key)
            if step not in nodes:
                nodes[step] = len(used)
                used.append(NEVER)
            node = nodes[step]
            path.append(node)
        return path

    def _send_with_breakpoints(self, call: CacheCall, path: list[int], sums: list[int], now: int) -> tuple[int, int]:
        """Return tokens read, and tokens cached afterwards, if only prefixes up to breakpoints are cached."""
        rule = self.rule
        used = self._used
        longest = 0
        for breakpoint_ in call.breakpoints:
            for length in range(breakpoint_, max(breakpoint_ - rule.lookback_blocks, 0), -1):
                if now - used[path[length]] < rule.ttl_ms:
                    longest = max(longest, length)
                    break
        for length in range(1, longest + 1):
            if now - used[path[length]] < rule.ttl_ms:
                used[path[length]] = now
        cached = 0
        for breakpoint_ in call.breakpoints:
            if rule.cached_part(sums[breakpoint_]):
                used[path[breakpoint_]] = now
                cached = sums[breakpoint_]
        return sums[longest], max(cached, sums[longest])

    def _send_automatic(self, path: list[int], sums: list[int], now: int) -> tuple[int, int]:
        """Return tokens read, and tokens cached afterwards, if the provider caches every prompt that is long enough."""
        rule = self.rule
        used = self._used
        length = 0
        while length + 1 < len(path) and now - used[path[length + 1]] < rule.ttl_ms:
            length += 1
        cached = rule.cached_part(sums[-1])
        if cached:
            for node in path:
                used[node] = now
        return rule.cached_part(sums[length]), cached

    def _why(self, call: CacheCall, sums: list[int], read: int, common: int, idle: int) -> Miss:
        if self._last is None:
            return "first"
        path, breakpoints = self._last
        rule = self.rule
        if rule.uses_breakpoints:
            stored = max((rule.cached_part(sums[end]) for end in breakpoints if end <= common), default=0)
        else:
            stored = rule.cached_part(sums[common])
        if read < stored:
            if idle >= rule.ttl_ms:
                return "expired"
            if call.breakpoints:
                return "lookback"
            return "unmarked"
        if common < len(path) - 1:
            return "changed"
        if stored or not path[1:]:
            return "hit"
        if rule.uses_breakpoints and not breakpoints:
            return "unmarked"
        return "minimum"


def simulate(calls: Iterable[CacheCall], rule: CacheRule) -> Iterator[CacheOutcome]:
    """Yield the outcome of each call of a series, with a cache that is empty at first. Raises BadSetting."""
    cache = Cache(rule)
    return (cache.send(call) for call in calls)


def sum_outcomes(outcomes: Iterable[CacheOutcome]) -> CacheTotals:
    """Return the sums over outcomes."""
    calls = list(outcomes)
    fields = len(CacheAmounts.__struct_fields__)
    sums = [sum(amounts) for amounts in zip(*(astuple(call)[:fields] for call in calls), strict=True)]
    largest = max((call.prompt for call in calls), default=0)
    misses: Counter[Miss] = Counter(call.miss for call in calls)
    return CacheTotals(*(sums or [0] * fields), calls=len(calls), misses=dict(misses), largest_prompt=largest)


def _check(call: CacheCall, rule: CacheRule) -> None:
    breakpoints = call.breakpoints
    length = len(call.segments)
    if call.output_tokens < 0 or any(segment.tokens < 0 for segment in call.segments):
        raise BadSetting("tokens of a simulated call negative", code="bad_call")
    if any(not 1 <= end <= length for end in breakpoints) or list(breakpoints) != sorted(set(breakpoints)):
        raise BadSetting(
            f"breakpoints {list(breakpoints)} do not rise, or are outside the {length:,} segments", code="bad_call"
        )
    if rule.uses_breakpoints and len(breakpoints) > rule.max_breakpoints:
        raise BadSetting(
            f"too many breakpoints: {len(breakpoints)}, {rule.provider} takes at most {rule.max_breakpoints}",
            code="bad_call",
        )


def price_of_break(lost_tokens: int, model: Model, *, prompt_tokens: int = 0, hour: bool = False) -> Decimal | None:
    """Return the cost in USD of writing so many tokens of a warm prefix instead of reading them; None without prices.

    `prompt_tokens` is the whole prompt, if larger: long prompts may have other prices, and a prompt below the smallest
    cached prefix loses nothing. `hour` selects the longer lifetime of Anthropic's cache. Raises BadSetting for a negative
    number.
    """
    if lost_tokens < 0:
        raise BadSetting(f"lost tokens negative: {lost_tokens:,}", code="bad_call")
    rule = cache_rule(model, hour=hour)
    if not rule.priced:
        return None
    prompt_tokens = max(prompt_tokens, lost_tokens)
    if not rule.cached_part(prompt_tokens):
        return dollars(0)
    rates = rule.rates_at(prompt_tokens)
    return dollars(lost_tokens * (rates.write - rates.read))


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
        if self.saved > 0:
            return -(-self.extra // self.saved)
        return None


def break_even(rewritten: int, dropped: int, rates: Rates) -> BreakEven:
    """Return the break-even of a cut that rewrites `rewritten` tokens after the change and omits `dropped` ones.

    Without the cut all of them would be read, now and at every later call. Raises BadSetting for a negative number.
    """
    if rewritten < 0 or dropped < 0:
        raise BadSetting(f"tokens of a cut negative: {rewritten:,} rewritten, {dropped:,} dropped", code="bad_call")
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


def cut_cycle_cost(low: int, calls: int, cycle: CutCycle, rates: Rates) -> Fraction:
    """Return picodollars per new token if every `calls`-th call cuts down to a prompt of `low` tokens.

    The call that cuts reads the fixed part and writes the rest; each later one reads the previous prompt and writes the new
    part. The worth of visible history is subtracted.
    """
    fixed = cycle.fixed
    growth = cycle.growth
    later = calls - 1
    read = fixed + later * low + growth * (later * (later - 1) // 2)
    written = low - fixed + later * growth
    visible = calls * (low - fixed) + growth * (calls * later // 2)
    return Fraction(read * rates.read + written * rates.write - visible * cycle.worth, calls * growth)


def cheapest_cut_points(cycle: CutCycle, rates: Rates) -> CutPoints | None:
    """Return the cut points with the lowest expected cost per new token, if every later cut is like this one.

    None if no group boundary leaves a prompt within the budget. Ties go to the cut that keeps more, then to the later one.
    Raises BadSetting for sums that do not rise from 0, and for a growth below 1.
    """
    sums = cycle.sums
    total = cycle.sums[-1] if cycle.sums else 0
    if not sums or sums[0] or list(sums) != sorted(sums) or cycle.growth < 1:
        raise BadSetting("sums of the history do not rise from 0, or growth is below 1", code="bad_call")
    best: tuple[Fraction, int, int] | None = None
    for boundary, before in enumerate(sums[: max(len(sums) - 1, 1)]):
        low = cycle.fixed + total - before + cycle.event
        if low > cycle.budget or (boundary and total - before < cycle.min_kept):
            continue
        max_calls = (cycle.budget - low) // cycle.growth + 1
        for calls in _candidates(low, max_calls, cycle, rates):
            cost = cut_cycle_cost(low, calls, cycle, rates)
            if best is None or (cost, boundary, -calls) < (best[0], best[1], -best[2]):
                best = (cost, boundary, calls)
    if best is None:
        return None
    cost, boundary, calls = best
    low = cycle.fixed + total - sums[boundary] + cycle.event
    high = low + (calls - 1) * cycle.growth
    return CutPoints(boundary, low, high, calls, cost, now=cycle.fixed + total + cycle.event > high)


def _candidates(low: int, max_calls: int, cycle: CutCycle, rates: Rates) -> set[int]:
    """Return numbers of calls that include the cheapest: the cost is a / n + b + c n, with its minimum at sqrt(a / c)."""
    paid_by_cut = (low - cycle.fixed - cycle.growth) * (rates.write - rates.read)
    twice_per_call = cycle.growth * (rates.read - cycle.worth)
    candidates = {1, max_calls}
    if paid_by_cut > 0 and twice_per_call > 0:
        turn = isqrt(2 * paid_by_cut // twice_per_call)
        candidates.update(min(max(near, 1), max_calls) for near in (turn, turn + 1))
    return candidates
