"""A provider's prompt cache, simulated: what each call of a series reads, writes and pays, and why it misses.

A prompt is a series of segments; equal keys in equal order are an equal prefix. What is cached is a node in a tree of
such prefixes with the time of its last use, so a call costs one step for each of its segments. All amounts are
integers: tokens, milliseconds, picodollars.
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
"""Why a call did not read all that the last one sent: nothing was sent before; the prefix changed; it came too late;
the last prompt was below the smallest prefix; no mark came near enough; marks are missing. `hit`: it did."""

NEVER = -(1 << 62)


class CacheSegment(Struct, frozen=True, gc=False):
    """A piece of a prompt that is cached as a whole (a content block or message). Equal content has an equal key."""

    key: str
    tokens: int


class CacheCall(Struct, frozen=True):
    """One call: its start, its prompt in order, and how many segments each marked prefix has, rising."""

    at_ms: int
    segments: tuple[CacheSegment, ...]
    breakpoints: tuple[int, ...] = ()
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The prompt's tokens."""
        return sum(segment.tokens for segment in self.segments)


class CacheOutcome(Struct, frozen=True):
    """What the cache did for one call. Read, written and fresh tokens are the whole prompt; costs are picodollars.

    `written` is processed and cached, `fresh` only processed. `changed_at` is the number of the first segment that
    differs from the last call's prompt, and -1 where that prompt is a prefix of this one. `idle_ms` is the time since it.
    """

    read: int
    written: int
    uncached: int
    output: int
    input_cost: int
    output_cost: int
    miss: Miss
    changed_at: int = -1
    idle_ms: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.read + self.written + self.uncached


class CacheTotals(Struct, frozen=True):
    """Sums over calls; `misses` counts them by reason, hits included."""

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
        """The part of all prompt tokens that was read from the cache; 0 without any."""
        return self.read / self.prompt if self.prompt else 0.0

    @property
    def input_dollars(self) -> Decimal:
        """What the prompts cost, in USD."""
        return dollars(self.input_cost)

    @property
    def output_dollars(self) -> Decimal:
        """What the answers cost, in USD."""
        return dollars(self.output_cost)


class Cache:
    """The prompt cache of one model for one caller: `send` a call after the other."""

    def __init__(self, rule: CacheRule) -> None:
        self.rule = rule
        self._nodes: dict[tuple[int, str], int] = {}
        self._used: list[int] = [NEVER]
        self._now = NEVER
        self._last: tuple[list[int], tuple[int, ...]] | None = None

    def send(self, call: CacheCall) -> CacheOutcome:
        """What the call reads, writes and pays; the cache holds it afterwards.

        A call that is dated before the last one counts as made at the same time. Raises BadCall for negative tokens and
        for marks that the provider refuses: too many, out of order, or on no segment.
        """
        _check(call, self.rule)
        now = max(self._now, call.at_ms)
        idle = now - self._now if self._last else 0
        path = self._walk(call)
        sums = [0, *accumulate(segment.tokens for segment in call.segments)]
        read, kept = (
            self._by_marks(call, path, sums, now) if self.rule.uses_breakpoints else self._by_itself(path, sums, now)
        )
        common = len(path) - 1 if self._last is None else _common(self._last[0], path)
        miss = self._why(call, sums, read, common, idle)
        changed = self._last is not None and common < len(self._last[0]) - 1
        self._now, self._last = now, (path, call.breakpoints)
        rates = self.rule.rates_at(sums[-1])
        written = max(kept - read, 0)
        fresh = sums[-1] - read - written
        cost = read * rates.read + written * rates.write + fresh * rates.input
        paid = call.output_tokens * rates.output
        at = common if changed else -1
        return CacheOutcome(read, written, fresh, call.output_tokens, cost, paid, miss, at, idle)

    def _walk(self, call: CacheCall) -> list[int]:
        """The node of each of the prompt's prefixes, the empty one first."""
        nodes, used, node = self._nodes, self._used, 0
        path = [0]
        for segment in call.segments:
            step = (node, segment.key)
            found = nodes.get(step)
            if found is None:
                found = nodes[step] = len(used)
                used.append(NEVER)
            node = found
            path.append(node)
        return path

    def _by_marks(self, call: CacheCall, path: list[int], sums: list[int], now: int) -> tuple[int, int]:
        """Tokens read, and tokens cached afterwards, where only marks are cached."""
        rule, used = self.rule, self._used
        held = 0
        for mark in call.breakpoints:
            for length in range(mark, max(mark - rule.lookback_blocks, 0), -1):
                if now - used[path[length]] < rule.ttl_ms:
                    held = max(held, length)
                    break
        for length in range(1, held + 1):
            if now - used[path[length]] < rule.ttl_ms:
                used[path[length]] = now
        kept = 0
        for mark in call.breakpoints:
            if rule.cached_part(sums[mark]):
                used[path[mark]], kept = now, sums[mark]
        return sums[held], max(kept, sums[held])

    def _by_itself(self, path: list[int], sums: list[int], now: int) -> tuple[int, int]:
        """Tokens read, and tokens cached afterwards, where the provider caches all that is long enough."""
        rule, used = self.rule, self._used
        length = 0
        while length + 1 < len(path) and now - used[path[length + 1]] < rule.ttl_ms:
            length += 1
        kept = rule.cached_part(sums[-1])
        if kept:
            for node in path:
                used[node] = now
        return rule.cached_part(sums[length]), kept

    def _why(self, call: CacheCall, sums: list[int], read: int, common: int, idle: int) -> Miss:
        if self._last is None:
            return "first"
        path, marks = self._last
        rule = self.rule
        if rule.uses_breakpoints:
            stored = max((rule.cached_part(sums[mark]) for mark in marks if mark <= common), default=0)
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
        return "unmarked" if rule.uses_breakpoints and not marks else "minimum"


def simulate(calls: Iterable[CacheCall], rule: CacheRule) -> Iterator[CacheOutcome]:
    """The outcome of each call of one series, in order, with a cache that is empty at first. Raises BadCall."""
    cache = Cache(rule)
    return (cache.send(call) for call in calls)


def sum_outcomes(outcomes: Iterable[CacheOutcome]) -> CacheTotals:
    """The sums over outcomes."""
    sums = [0] * 6
    misses: dict[Miss, int] = {}
    calls = largest = 0
    for one in outcomes:
        calls += 1
        amounts = (one.read, one.written, one.uncached, one.output, one.input_cost, one.output_cost)
        sums = [before + more for before, more in zip(sums, amounts, strict=True)]
        misses[one.miss] = misses.get(one.miss, 0) + 1
        largest = max(largest, one.prompt)
    return CacheTotals(calls, *sums, misses=misses, largest_prompt=largest)


def _common(one: list[int], other: list[int]) -> int:
    """How many segments two prompts share at their beginning: equal nodes are equal prefixes."""
    shorter = min(len(one), len(other))
    return bisect_left(range(shorter), 1, key=lambda length: int(one[length] != other[length])) - 1


def _check(call: CacheCall, rule: CacheRule) -> None:
    marks, length = call.breakpoints, len(call.segments)
    if call.output_tokens < 0 or any(segment.tokens < 0 for segment in call.segments):
        raise BadCall("a call to simulate has a negative number of tokens")
    if any(mark < 1 or mark > length for mark in marks) or list(marks) != sorted(set(marks)):
        raise BadCall(f"the marks {list(marks)} do not rise, or stand on none of the {length:,} segments")
    if rule.uses_breakpoints and len(marks) > rule.max_breakpoints:
        raise BadCall(f"a call has {len(marks)} marks; {rule.provider} takes at most {rule.max_breakpoints}")
