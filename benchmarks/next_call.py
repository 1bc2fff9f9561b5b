"""Time to assemble the next call, by session length: cold, warm, and over the budget.

Before each warm call another connection, as another process would, appends a whole turn, and
the timed part ends with the finished request body. Some bodies are compared, byte for byte, with those of a new engine
on the same file. LangChain's `trim_messages` gets the same messages under the same budget in the same run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

import nexus
from benchmarks.measure import Spent, middle, process, timed
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.talk import BUDGET_TOKENS, QUESTION, RESULT_CHARS, Place, filled, made
from benchmarks.trimming import trimmed
from nexus.ledger.sqlite import SqliteLedger

COMMAND = "python -m benchmarks next_call"
ROUNDS = 30
COLD_ROUNDS = 7
CHECK_EVERY = 10
LENGTHS = (100, 1_000, 10_000)
LEAST_IN_VIEW = 900
MOST_CPU_MS = 2.0
MOST_GROWTH = 1.5


class Timed(Struct, frozen=True):
    """What rounds of calls took: the median, the fewest messages of history that one showed, how many made a cut."""

    spent: Spent
    in_view: int
    cuts: int


def run() -> Outcome:
    """All lengths; each with Nexus and LangChain. The warm rounds of all lengths run in turns."""
    rows: list[tuple[Cell, ...]] = []
    with TemporaryDirectory() as folder:
        root = Path(folder)
        usual = [made(root / f"{length}", length) for length in LENGTHS]
        nearly = filled(root / "nearly", LENGTHS[-1], room_turns=ROUNDS + 5)
        over = [filled(root / f"over-{length}", length, room_turns=2) for length in LENGTHS]
        cold = [list(_cold(place)) for place in usual]
        *warm, full = _warm([*usual, nearly])
        exceeding = _over(over)
    for number, place in enumerate(usual):
        rows.extend(cold[number])
        rows.append(_row(place, "Nexus, warm", warm[number].spent, warm[number].in_view))
        if place.length == nearly.length:
            rows.append(_row(place, "Nexus, warm, budget nearly full", full.spent, full.in_view))
        found = exceeding[number]
        rows.append(_row(place, "Nexus, first over budget", found.spent, found.in_view))
        for one in trimmed(place.length, BUDGET_TOKENS):
            rows.append(_row(place, f"trim_messages, {one.name}", one.trim, one.in_view))
            rows.append(_row(place, f"trim_messages, {one.name}, + to dicts", one.whole, one.in_view))
    columns = ("messages", "what", "CPU ms", "shown")
    data = f"synthetic: turns of text, call, result of {RESULT_CHARS:,} characters, text; the layered profile"
    table = Table("Time to assemble the next call", COMMAND, data, columns, tuple(rows), _NOTES)
    return Outcome((table,), _targets(warm[-1].spent.cpu_ms, warm[-2].spent.cpu_ms))


_NOTES = (
    "Medians. Nexus reads a ledger file and ends with the body of ctx.to_anthropic(); trim_messages has the messages in",
    "  memory.",
    "warm: another connection appends a turn before each call. first over budget: that turn causes a cut.",
    "cold engine: includes opening the ledger. cold process: a new Python process with imports.",
    "trim_messages: documented settings, same messages and budget; token counts known, or approximate as documented.",
    f"messages: before the first round; each adds four. shown: fewest messages in a body. Budget: {BUDGET_TOKENS:,} tokens.",
)


def _targets(longest: float, middling: float) -> tuple[Target, ...]:
    figures = f"{longest:.2f} ms; {middling:.2f} ms at {LENGTHS[-2]:,}"
    most = f"at most {MOST_GROWTH} times at ten times the messages"
    name = f"warm call at {LENGTHS[-1]:,} messages, CPU"
    return (
        Target(name, f"under {MOST_CPU_MS} ms", figures, longest < MOST_CPU_MS),
        Target("growth of a warm call", most, figures, longest <= MOST_GROWTH * middling),
    )


def _body(nx: nexus.Engine, place: Place) -> tuple[nexus.AssembledContext, dict[str, Any]]:
    ctx = nx.assemble(QUESTION, budget=place.budget)
    return ctx, ctx.to_anthropic()


def _warm(places: Sequence[Place]) -> list[Timed]:
    found = _rounds(places, turns_first=1)
    for place, one in zip(places, found, strict=True):
        if one.cuts or one.in_view < min(LEAST_IN_VIEW, place.length):
            raise AssertionError(
                f"a warm call shows {one.in_view} messages, {one.cuts} made cuts: not what is measured"
            )
    return found


def _over(places: Sequence[Place]) -> list[Timed]:
    found = _rounds(places, turns_first=5)
    if any(one.cuts != ROUNDS for one in found):
        raise AssertionError(f"of {ROUNDS} calls over the budget, {[one.cuts for one in found]} made a cut")
    return found


@dataclass(slots=True)
class _Course:
    """One place's rounds: a warm engine, another connection, and what was found."""

    place: Place
    nx: nexus.Engine
    other: SqliteLedger
    runs: list[Spent] = field(default_factory=list[Spent])
    in_view: int = 1 << 31
    cuts: int = 0

    def round(self, turns: int) -> None:
        """Appends by the other connection, then one timed call. Nothing is recorded: a cut that is due stays due."""
        self.place.append(self.other, turns)
        (ctx, body), spent = timed(lambda: _body(self.nx, self.place))
        self.in_view = min(self.in_view, len(ctx.history))
        self.cuts += ctx.cut is not None
        if len(self.runs) % CHECK_EVERY == 0:
            _check(self.place, body)
        self.runs.append(spent)


def _rounds(places: Sequence[Place], turns_first: int) -> list[Timed]:
    courses = [_Course(place, place.engine(), place.connection()) for place in places]
    for course in courses:
        _body(course.nx, course.place)
    for number in range(ROUNDS):
        for course in courses:
            course.round(turns_first if number == 0 else 1)
    for course in courses:
        course.nx.close()
        course.other.close()
    return [Timed(middle(course.runs), course.in_view, course.cuts) for course in courses]


def _check(place: Place, body: dict[str, Any]) -> None:
    with place.engine() as cold:
        again = _body(cold, place)[1]
    if json.dumps(body) != json.dumps(again):
        raise AssertionError("a warm engine's body differs from a new engine's")


def _cold(place: Place) -> Iterator[tuple[Cell, ...]]:
    def whole() -> int:
        with place.engine() as nx:
            return len(_body(nx, place)[0].history)

    in_view = whole()
    runs = [timed(whole)[1] for _ in range(COLD_ROUNDS)]
    yield _row(place, "Nexus, cold engine", middle(runs), in_view)
    code = (
        f"import nexus; nx = nexus.open({str(place.workspace)!r}, ledger={str(place.ledger)!r}); "
        f"nx.assemble({QUESTION!r}, budget={place.budget}).to_anthropic()"
    )
    runs = [process(["-c", code]) for _ in range(COLD_ROUNDS)]
    yield _row(place, "Nexus, cold process", middle(runs), in_view)


def _row(place: Place, what: str, spent: Spent, in_view: int) -> tuple[Cell, ...]:
    return place.length, what, spent.cpu_ms, in_view
