"""Simulation of a recorded session's prompt cache: tokens read and written, cost, and cost of breaks, by policy."""

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
from nexus.simulation.cache.pieces import Segmenter
from nexus.simulation.cache.points import RecordedSession, recorded_session, times_of
from nexus.simulation.cache.policies import NAMES, Replay
from nexus.tokens.model import Model

LEAST_KEPT_PERCENT = 25
"""Share of the budget that a cut keeps of the history by default, in the search of the cheapest cut points."""


class Breaks(Struct, frozen=True):
    """The calls of a policy that missed the cache because their prefix had changed. Tokens and dollars are averages."""

    count: int = 0
    rewritten: int = 0
    """Tokens sent again."""
    dropped: int = 0
    """Tokens no longer sent."""
    dollars: Decimal | None = None
    """None without prices."""
    paid_back: int | None = None
    """Calls after which the dropped tokens have paid for the break; None: never."""


class PolicyResult(Struct, frozen=True):
    """The result of one policy."""

    policy: str
    totals: CacheTotals
    refused: int
    """Calls that cannot be made within the budget."""
    over_window: int
    """Calls whose prompt exceeds the model's context window."""
    breaks: Breaks

    @property
    def mean_prompt(self) -> int:
        """Tokens of an average prompt, rounded down; 0 without calls."""
        return self.totals.prompt // self.totals.calls if self.totals.calls else 0


class Simulation(Struct, frozen=True):
    """The cost of a session with each policy."""

    session: str
    model: Model
    rule: CacheRule
    available: int
    calls: int
    timed: int
    """Calls with a recorded time; the others follow `interval_ms` after the previous one."""
    interval_ms: int
    growth: int
    """Tokens that a call added on average."""
    least_kept: int
    rows: tuple[PolicyResult, ...]
    marks: CutPoints | None

    def relative(self, row: PolicyResult) -> float | None:
        """Return the row's cost of input as a multiple of Nexus's; None if that is 0."""
        paid = self.rows[0].totals.input_cost
        return row.totals.input_cost / paid if paid else None


@dataclass(slots=True)
class _PolicyRun:
    """The calls of one policy so far."""

    cache: Cache
    outcomes: list[CacheOutcome] = field(default_factory=list[CacheOutcome])
    refused: int = 0
    rewritten: int = 0
    dropped: int = 0
    breaks: int = 0

    def send(self, call: CacheCall | None, added: int) -> None:
        """Send a call (None: it cannot be made) to which the session added so many tokens."""
        if call is None:
            self.refused += 1
            return
        outcome = self.cache.send(call)
        if outcome.miss == "changed":
            previous = self.outcomes[-1].prompt
            self.breaks += 1
            self.rewritten += max(outcome.prompt - outcome.read - added, 0)
            self.dropped += max(previous + added - outcome.prompt, 0)
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
    """Simulate a recorded session's calls with each policy. Nothing is written.

    Args:
        nx: The engine whose ledger contains the session.
        session: The session's label.
        model: The model whose cache rules, prices and provider format are used.
        budget: Available tokens; by default the model's context window less the reserves.
        hour: Use Anthropic's one-hour cache lifetime.
        interval_ms: Time between calls without a recorded time.
        least_kept: History tokens that a cut must keep, in the search of the cheapest cut points; by default a quarter of
            the budget.
        tools: Tool definitions sent with each call.
        profile: Name of the profile.
        progress: Called with the number of calls done and their total.

    Raises:
        NoSuchSession, BadBudget, UnknownProfile, LedgerError: See `Engine.entries` and `Engine.assemble`.
    """
    entries = nx.entries(session)
    recorded = recorded_session(entries)
    rule = cache_rule(model, hour=hour)
    runs = {name: _PolicyRun(Cache(rule)) for name in NAMES}
    segmenter = Segmenter(model, nx.counter)
    segmenter.add_images(row.message for entry in entries for row in entry.rows)
    with closing(Replay(nx, recorded, model, budget=budget, tools=tools, profile=profile)) as replay:
        growth = _send_calls(replay, segmenter, recorded, runs, interval_ms, progress)
        least_kept = replay.available * LEAST_KEPT_PERCENT // 100 if least_kept is None else least_kept
        cycle = replay.cut_cycle(growth, least_kept)
        return Simulation(
            session=session,
            model=model,
            rule=rule,
            available=replay.available,
            calls=len(recorded.points),
            timed=sum(point.at_ms > 0 for point in recorded.points),
            interval_ms=interval_ms,
            growth=growth,
            least_kept=least_kept,
            rows=tuple(_result(name, run, model, hour=hour) for name, run in runs.items()),
            marks=cheapest_cut_points(cycle, rule.rates) if recorded.points else None,
        )


def _send_calls(
    replay: Replay,
    segmenter: Segmenter,
    recorded: RecordedSession,
    runs: dict[str, _PolicyRun],
    interval_ms: int,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Send every call of every policy; return the tokens that a call added on average."""
    first = last = count = 0
    times = times_of(recorded.points, interval_ms)
    for number, (point, at_ms) in enumerate(zip(recorded.points, times, strict=True), 1):
        bodies = replay.bodies(point, at_ms)
        if bodies is not None:
            output = replay.output_tokens(point)
            sent_bodies = {name: body for name, body in bodies.items() if body is not None}
            # Policies that drop nothing share one body.
            calls_by_body = {id(body): segmenter.call(body, at_ms, output) for body in sent_bodies.values()}
            calls = {name: calls_by_body[id(body)] for name, body in sent_bodies.items()}
            total = calls["nothing"].tokens
            added, last = total - last, total
            first, count = first or total, count + 1
            for name, run in runs.items():
                run.send(calls.get(name), added)
        if progress:
            progress(number, len(recorded.points))
    return (last - first) // (count - 1) if count > 1 else last


def _result(name: str, run: _PolicyRun, model: Model, *, hour: bool) -> PolicyResult:
    totals, breaks = sum_outcomes(run.outcomes), Breaks()
    if run.breaks:
        rewritten, dropped = run.rewritten // run.breaks, run.dropped // run.breaks
        dollars = price_of_break(rewritten, model, prompt_tokens=totals.prompt // len(run.outcomes), hour=hour)
        paid_back = break_even(rewritten, dropped, run.cache.rule.rates).calls
        breaks = Breaks(run.breaks, rewritten, dropped, dollars, paid_back)
    over_window = sum(outcome.prompt > model.max_input_tokens for outcome in run.outcomes)
    return PolicyResult(name, totals, run.refused, over_window, breaks)
