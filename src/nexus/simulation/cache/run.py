"""A recorded session through the prompt cache, policy by policy: what each reads, writes and pays, and what its breaks cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import Struct

from nexus.engine import Engine
from nexus.providers.prompt_cache import (
    Cache,
    CacheCall,
    CacheOutcome,
    CacheRule,
    CacheTotals,
    CutPoints,
    break_even,
    cache_rule,
    cheapest_cut_points,
    price_of_break,
    sum_outcomes,
)
from nexus.simulation.cache.pieces import Cutter
from nexus.simulation.cache.points import RecordedSession, recorded_session, times_of
from nexus.simulation.cache.policies import NAMES, Replay
from nexus.tokens.model import Model

LEAST_KEPT_PERCENT = 25
"""What of the budget a cut keeps of the history at least, where the cheapest marks are sought and nothing else is said."""


class Breaks(Struct, frozen=True):
    """The calls of a policy that missed because their prefix had changed: how many, and on average what was sent again and what was dropped.

    `dollars` is the price of an average one (None without prices), `paid_back` the calls after which it has paid for
    itself by what it dropped (None: never).
    """

    count: int = 0
    rewritten: int = 0
    dropped: int = 0
    dollars: Decimal | None = None
    paid_back: int | None = None


class PolicyResult(Struct, frozen=True):
    """One policy: its sums, the calls that it refused, and those whose prompt is over the model's window."""

    policy: str
    totals: CacheTotals
    refused: int
    over_window: int
    breaks: Breaks

    @property
    def mean_prompt(self) -> int:
        """Tokens of an average prompt, rounded down; 0 without any."""
        return self.totals.prompt // self.totals.calls if self.totals.calls else 0


class Simulation(Struct, frozen=True):
    """What a session would have cost with each policy. `growth` is what a call added on average, in tokens.

    `timed` counts the calls whose time is known; the others come `interval_ms` after the one before.
    """

    session: str
    model: Model
    rule: CacheRule
    available: int
    calls: int
    timed: int
    interval_ms: int
    growth: int
    least_kept: int
    rows: tuple[PolicyResult, ...]
    marks: CutPoints | None

    def relative(self, row: PolicyResult) -> float | None:
        """The row's cost of input as a multiple of what Nexus pays; None where that is nothing."""
        paid = self.rows[0].totals.input_cost
        return row.totals.input_cost / paid if paid else None


@dataclass(slots=True)
class _Course:
    """One policy under way."""

    cache: Cache
    outcomes: list[CacheOutcome] = field(default_factory=list[CacheOutcome])
    refused: int = 0
    rewritten: int = 0
    dropped: int = 0
    breaks: int = 0

    def send(self, call: CacheCall | None, new: int) -> None:
        """Sends a call (None: it was refused) to which the session added `new` tokens."""
        if call is None:
            self.refused += 1
            return
        outcome = self.cache.send(call)
        if outcome.miss == "changed":
            before = self.outcomes[-1].prompt
            self.breaks += 1
            self.rewritten += max(outcome.prompt - outcome.read - new, 0)
            self.dropped += max(before + new - outcome.prompt, 0)
        self.outcomes.append(outcome)


def simulate_session(
    nx: Engine,
    session: str,
    model: Model,
    *,
    budget: int | None = None,
    hour: bool = False,
    interval_ms: int = 30_000,
    tools: Sequence[dict[str, Any]] = (),
    least_kept: int | None = None,
    profile: str = "layered",
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Plays the session again with each policy and sends every call through a simulated cache of the model.

    `budget` is what a prompt may take (default: the model's window less the reserves), `hour` Anthropic's longer life of
    the cache, `interval_ms` the time between calls that have none of their own. `least_kept` is the history that a cut
    must keep where the cheapest marks are sought (default: a quarter of the budget). `profile` is the form of the
    contexts. `progress` is told the calls done and their number. Nothing is written. Raises NoSuchSession, BadBudget,
    UnknownProfile, LedgerError.
    """
    entries = nx.entries(session)
    found = recorded_session(entries)
    rule = cache_rule(model, hour=hour)
    courses = {name: _Course(Cache(rule)) for name in NAMES}
    cutter = Cutter(model, nx.counter)
    cutter.learn_images(row.message for entry in entries for row in entry.rows)
    with closing(Replay(nx, found, model, budget=budget, tools=tools, profile=profile)) as replay:
        growth = _play(replay, cutter, found, courses, interval_ms, progress)
        least = replay.available * LEAST_KEPT_PERCENT // 100 if least_kept is None else least_kept
        marks = cheapest_cut_points(replay.course(growth, least), rule.rates) if found.points else None
        return Simulation(
            session=session,
            model=model,
            rule=rule,
            available=replay.available,
            calls=len(found.points),
            timed=sum(point.at_ms > 0 for point in found.points),
            interval_ms=interval_ms,
            growth=growth,
            least_kept=least,
            rows=tuple(_row(name, course, model, hour=hour) for name, course in courses.items()),
            marks=marks,
        )


def _play(
    replay: Replay,
    cutter: Cutter,
    found: RecordedSession,
    courses: dict[str, _Course],
    interval_ms: int,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Sends every call of every policy; returns what a call added on average."""
    first = last = sent = 0
    for number, (point, at_ms) in enumerate(zip(found.points, times_of(found.points, interval_ms), strict=True), 1):
        bodies = replay.bodies(point, at_ms)
        if bodies is not None:
            output = replay.output_tokens(point)
            sent_bodies = {name: body for name, body in bodies.items() if body is not None}
            # Policies that drop nothing share one body.
            cut = {id(body): cutter.call(body, at_ms, output) for body in sent_bodies.values()}
            calls = {name: cut[id(body)] for name, body in sent_bodies.items()}
            whole = calls["nothing"].tokens
            new, last = whole - last, whole
            first, sent = first or whole, sent + 1
            for name, course in courses.items():
                course.send(calls.get(name), new)
        if progress:
            progress(number, len(found.points))
    return (last - first) // (sent - 1) if sent > 1 else last


def _row(name: str, course: _Course, model: Model, *, hour: bool) -> PolicyResult:
    over = sum(outcome.prompt > model.max_input_tokens for outcome in course.outcomes)
    return PolicyResult(name, sum_outcomes(course.outcomes), course.refused, over, _breaks(course, model, hour=hour))


def _breaks(course: _Course, model: Model, *, hour: bool) -> Breaks:
    if not course.breaks:
        return Breaks()
    rewritten, dropped = course.rewritten // course.breaks, course.dropped // course.breaks
    paid = break_even(rewritten, dropped, course.cache.rule.rates)
    prompt = sum_outcomes(course.outcomes).prompt // len(course.outcomes)
    dollars = price_of_break(rewritten, model, prompt_tokens=prompt, hour=hour)
    return Breaks(course.breaks, rewritten, dropped, dollars, paid.calls)
