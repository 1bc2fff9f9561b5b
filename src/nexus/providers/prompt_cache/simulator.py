"""Simulator of a provider's prompt cache: tokens read and written, cost, and reason of a miss for each call.

A prompt is a series of segments; equal keys in equal order are an equal prefix. A cached prefix is a node in a tree of
prefixes with the time of its last use, so a call costs one step per segment. All amounts are integers: tokens,
milliseconds, picodollars.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.errors import BadCall
from nexus.providers.prompt_cache.rules import CacheRule, dollars

Miss: TypeAlias = Literal["hit", "first", "changed", "expired", "minimum", "lookback", "unmarked"]
"""Reason why a call did not read the whole last prompt: there was none; the prefix changed; it had expired; it was below
the smallest prefix; no breakpoint was near enough; breakpoints are missing. `hit`: it did."""

NEVER = -(1 << 62)


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


class CacheOutcome(Struct, frozen=True):
    """Result of one call. Read, written and uncached tokens are the whole prompt; costs are picodollars."""

    read: int
    written: int
    """Processed and cached."""
    uncached: int
    """Processed only."""
    output: int
    input_cost: int
    output_cost: int
    miss: Miss
    changed_at: int = -1
    """First segment that differs from the last prompt; -1 if that prompt is a prefix of this one."""
    idle_ms: int = 0
    """Time since the last call."""

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.read + self.written + self.uncached


class CacheTotals(Struct, frozen=True):
    """Sums over calls; `misses` counts calls by reason, hits included."""

    calls: int
    read: int
    written: int
    uncached: int
    output: int
    input_cost: int
    output_cost: int
    misses: dict[Miss, int]
    largest_prompt: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of all prompts."""
        return self.read + self.written + self.uncached

    @property
    def share(self) -> float:
        """Part of all prompt tokens that was read from the cache; 0 without any."""
        return self.read / self.prompt if self.prompt else 0.0

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

        A call that is dated before the last one counts as simultaneous. Raises BadCall for negative tokens and for
        breakpoints that the provider rejects: too many, out of order, or outside the prompt.
        """
        _check(call, self.rule)
        now = max(self._now, call.at_ms)
        idle = now - self._now if self._last else 0
        path = self._walk(call)
        sums = [0, *accumulate(segment.tokens for segment in call.segments)]
        read, cached = (
            self._send_with_breakpoints(call, path, sums, now)
            if self.rule.uses_breakpoints
            else self._send_automatic(path, sums, now)
        )
        common = len(path) - 1 if self._last is None else _common(self._last[0], path)
        miss = self._why(call, sums, read, common, idle)
        changed = self._last is not None and common < len(self._last[0]) - 1
        self._now, self._last = now, (path, call.breakpoints)
        rates = self.rule.rates_at(sums[-1])
        written = max(cached - read, 0)
        uncached = sums[-1] - read - written
        cost = read * rates.read + written * rates.write + uncached * rates.input
        paid = call.output_tokens * rates.output
        at = common if changed else -1
        return CacheOutcome(read, written, uncached, call.output_tokens, cost, paid, miss, at, idle)

    def _walk(self, call: CacheCall) -> list[int]:
        """Return the nodes of the prompt's prefixes, the empty one first."""
        nodes, used, node = self._nodes, self._used, 0
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
        rule, used = self.rule, self._used
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
                used[path[breakpoint_]], cached = now, sums[breakpoint_]
        return sums[longest], max(cached, sums[longest])

    def _send_automatic(self, path: list[int], sums: list[int], now: int) -> tuple[int, int]:
        """Return tokens read, and tokens cached afterwards, if the provider caches every prompt that is long enough."""
        rule, used = self.rule, self._used
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
            return "lookback" if call.breakpoints else "unmarked"
        if common < len(path) - 1:
            return "changed"
        if stored or not path[1:]:
            return "hit"
        return "unmarked" if rule.uses_breakpoints and not breakpoints else "minimum"


def simulate(calls: Iterable[CacheCall], rule: CacheRule) -> Iterator[CacheOutcome]:
    """Yield the outcome of each call of a series, with a cache that is empty at first. Raises BadCall."""
    cache = Cache(rule)
    return (cache.send(call) for call in calls)


def sum_outcomes(outcomes: Iterable[CacheOutcome]) -> CacheTotals:
    """Return the sums over outcomes."""
    sums = [0] * 6
    misses: dict[Miss, int] = {}
    calls = largest = 0
    for outcome in outcomes:
        calls += 1
        amounts = (
            outcome.read,
            outcome.written,
            outcome.uncached,
            outcome.output,
            outcome.input_cost,
            outcome.output_cost,
        )
        sums = [before + more for before, more in zip(sums, amounts, strict=True)]
        misses[outcome.miss] = misses.get(outcome.miss, 0) + 1
        largest = max(largest, outcome.prompt)
    return CacheTotals(calls, *sums, misses=misses, largest_prompt=largest)


def _common(last: list[int], path: list[int]) -> int:
    """Return how many segments two prompts share at their beginning: equal nodes are equal prefixes."""
    shorter = min(len(last), len(path))
    return bisect_left(range(shorter), 1, key=lambda length: int(last[length] != path[length])) - 1


def _check(call: CacheCall, rule: CacheRule) -> None:
    breakpoints, length = call.breakpoints, len(call.segments)
    if call.output_tokens < 0 or any(segment.tokens < 0 for segment in call.segments):
        raise BadCall("tokens of a simulated call negative")
    if any(not 1 <= end <= length for end in breakpoints) or list(breakpoints) != sorted(set(breakpoints)):
        raise BadCall(f"breakpoints {list(breakpoints)} do not rise, or are outside the {length:,} segments")
    if rule.uses_breakpoints and len(breakpoints) > rule.max_breakpoints:
        raise BadCall(f"too many breakpoints: {len(breakpoints)}, {rule.provider} takes at most {rule.max_breakpoints}")
