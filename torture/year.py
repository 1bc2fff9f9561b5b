"""A year in one session: 5,000 turns with tools in a window of 32,000 tokens, and every promise about it.

An agent with the clients of four providers' packages talks to a scripted model in another process, which judges each
request body (`year_model`). Every turn must end well, every prompt fit, every fact be found again by the `recall` tool;
at the end the ledger is verified and recorded calls are replayed. From 1,000 turns on, CPU time and memory must be flat.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

import nexus
from nexus.agents import Agent
from nexus.context import AssembledContext
from nexus.engine.analysis.replay import replay_call
from nexus.engine.async_engine import AsyncEngine
from nexus.ledger.location import LEDGER_FILE
from nexus.ledger.maintenance import verify
from nexus.models import ModelReply, Models, open_client
from nexus.types.ledger_entries import Entry
from torture.figures import Figures, Progress, require
from torture.processes import answer
from torture.statements import watch_statements
from torture.year_model import Judgment, Served, served
from torture.year_script import MODELS, SESSION, Fact, Year

NAME = "year"
ROUNDS = 5_000
WINDOW, SMALL_WINDOW = 32_000, 12_000
"""Tokens of the models' windows, and those of a run of under 1,000 turns: it has as many compactions per turn or more."""

_AT_ROOT = ("anthropic", "gemini")
"""Formats whose address has no version."""

PERIODS = 10
REPLAYED = 200
FLAT_FROM = 1_000
"""Turns from which on times and memory are judged."""

MOST_CPU_RATIO, MOST_RSS_GROWTH = 1.25, 20_000_000
"""CPU of the last fifth over that of the second, and bytes that the process may grow after the first fifth."""

CPU_RATIO, RSS_GROWTH = "CPU of the last fifth over the second", "bytes grown after the first fifth"
"""Names of these figures."""

_INSTRUCTIONS = """\
You help with the work of a small company. Use `fetch` for records and `read_file` for notes.
Earlier parts of this conversation are found with `recall`.
"""


class Period(Struct, frozen=True):
    """Figures of one period of the year. All are of the agent's process at its end, or medians of its turns."""

    last_turn: int
    cpu_ms: float
    cpu_p90_ms: float
    statements: float
    """SQL statements of a turn."""
    rss_mb: float
    blocks: int
    """Blocks that Python has allocated, after a collection."""
    open_files: int
    ledger_kb: float
    """Size of the ledger's files, per turn of the period."""
    compactions: int


class Clock:
    """The year's clock, in milliseconds. It moves with each turn and each call."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ms


class WatchedModels:
    """Passes calls on to the models' clients and checks each context by the engine's own counts."""

    def __init__(self, models: Models, window: int, clock: Clock) -> None:
        self._models, self._window, self._clock = models, window, clock
        self.calls = 0

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        """Stream a reply; raise AssertionError if the context exceeds its budget or the window."""
        budget = ctx.token_budget
        require(budget.remaining >= 0, f"call {self.calls}: over the budget: {budget}")
        lines = sum(line.tokens for line in ctx.accounting.token_breakdown)
        require(lines == budget.used.total <= self._window, f"call {self.calls}: {lines} of {budget}")
        self._clock.now_ms += 4_000
        async with aclosing(self._models.stream(ctx)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    self.calls += 1
                yield item


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Play a year of so many turns. Raises AssertionError with the promise that did not hold."""
    return answer(_play, rounds, seed, folder, progress)


def _play(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    year = Year(rounds, seed, WINDOW if rounds >= FLAT_FROM else SMALL_WINDOW)
    _write_workspace(folder, year)
    player = _Player(year, folder, progress)
    with served(year) as server:
        asyncio.run(player.play(server))
    counts = {**_judged(server.judgment, year), **player.counts, **asyncio.run(player.check_ledger())}
    if rounds >= FLAT_FROM:
        counts |= _flatness(player.periods)
    return Figures(NAME, rounds, counts, table=tuple(msgspec.to_builtins(player.periods)))


class _Player:
    """The agent's side of a year."""

    def __init__(self, year: Year, folder: Path, progress: Progress) -> None:
        self._year, self._folder, self._progress = year, folder, progress
        self._clock = Clock()
        self._statements = 0
        watch_statements(self._count_statement)
        self._cpu_ms: list[float] = []
        self._statement_counts: list[int] = []
        self._ledger_bytes = self._compactions = self._head = 0
        self.counts = Counter[str]()
        self.periods: list[Period] = []

    def _count_statement(self, _point: str) -> None:
        self._statements += 1

    def _engine(self) -> Any:
        year = self._year
        limits = {name: {"context_tokens": year.window, "max_input_tokens": year.window} for name in MODELS.values()}
        return nexus.open_async(self._folder, model=year.models[1], models=limits, clock_ms=self._clock, timezone="UTC")

    async def play(self, server: Served) -> None:
        """Run all turns, each checked when it ends."""
        year, clock = self._year, self._clock

        def fetch(item: int) -> str:
            """Return the record of an item.

            Args:
                item: Number of the item.
            """
            return year.result(item)

        clients = {
            name: open_client(format=form, base_url=server.url if form in _AT_ROOT else f"{server.url}/v1")
            for form, name in MODELS.items()
        }
        async with Models(clients) as models, self._engine() as nx:
            watched = WatchedModels(models, year.window, clock)
            agent = Agent(nx, watched, tools=[fetch])
            for turn in range(1, year.turns + 1):
                clock.now_ms = max(year.at_ms(turn), clock.now_ms)
                text, began, statements = year.text(turn), time.process_time(), self._statements
                result = await agent.run(text, session=SESSION, model=year.models[turn])
                self._cpu_ms.append(1_000 * (time.process_time() - began))
                self._statement_counts.append(self._statements - statements)
                require(result.error is None, f"turn {turn}: {result.error}")
                await self._check_turn(nx, turn)
                if turn in year.asked:
                    await self._count_summarized(nx, year.asked[turn])
                if turn * PERIODS % year.turns < PERIODS:
                    self._end_period(turn)
                self._progress(turn, year.turns)
            self.counts["calls"] = watched.calls
            self.counts["overflows that the engine met"] = sum(nx.engine.limits.recoveries.values())

    async def check_ledger(self) -> dict[str, int]:
        """Verify the ledger and replay a sample of its calls; return their numbers."""
        year, file = self._year, self._folder / LEDGER_FILE
        require(not (damages := verify(file)), f"the ledger is damaged: {damages[:3]}")
        dice = random.Random(f"{year.seed} replayed")
        turns = sorted(dice.sample(range(1, year.turns + 1), min(REPLAYED, year.turns)))
        async with self._engine() as nx:
            stored = await nx.run(nx.engine.ledger.turns, SESSION)
            ends = [(one.number, one.status) for one in stored]
            require(ends == [(number, "completed") for number in range(1, year.turns + 1)], f"turns: {ends[-3:]}")
            for turn in turns:
                last = await nx.run(nx.engine.calls.find, SESSION, turn)
                call = await nx.run(nx.engine.calls.find, SESSION, turn, dice.randint(1, last.count))
                await nx.run(
                    replay_call, nx.engine.calls.dependencies, call
                )  # raises unless the body's hash is the same
        return {"turns whose end is stored": len(ends), "contexts replayed byte for byte": len(turns)}

    async def _check_turn(self, nx: AsyncEngine, turn: int) -> None:
        (stored,) = await nx.run(nx.engine.ledger.turns, SESSION, turn)
        require((stored.number, stored.status) == (turn, "completed"), f"turn {turn} is stored as {stored}")
        new = await nx.run(nx.engine.ledger.entries, SESSION, self._head)
        self.counts["compactions"] += sum(entry.kind == "compaction" for entry in new)
        self._head = new[-1].seq

    async def _count_summarized(self, nx: AsyncEngine, fact: Fact) -> None:
        """Count a question whose fact is in the range that the current compaction covers."""
        mark: Entry | None = (await nx.run(nx.engine.ledger.live, SESSION)).checkpoint
        if mark is None:
            return
        (first, *_) = await nx.run(
            nx.engine.ledger.entries, SESSION, mark.body["covers_to"] - 1, mark.body["covers_to"]
        )
        self.counts["questions for facts that a summary replaced"] += fact.turn < first.turn

    def _end_period(self, turn: int) -> None:
        gc.collect()
        size = sum(file.stat().st_size for file in (self._folder / LEDGER_FILE).parent.glob("ledger.db*"))
        turns, cpu_ms = len(self._cpu_ms), sorted(self._cpu_ms)
        self.periods.append(
            Period(
                turn,
                round(median(cpu_ms), 2),
                round(cpu_ms[turns * 9 // 10], 2),
                median(self._statement_counts),
                round(_rss_bytes() / 1e6, 1),
                sys.getallocatedblocks(),
                _open_files(),
                round((size - self._ledger_bytes) / 1e3 / turns, 1),
                self.counts["compactions"] - self._compactions,
            )
        )
        self._compactions = self.counts["compactions"]
        self._ledger_bytes, self._cpu_ms, self._statement_counts = size, [], []


def _write_workspace(folder: Path, year: Year) -> None:
    (folder / "notes").mkdir()
    for name, text in {"AGENTS.md": _INSTRUCTIONS, **year.notes()}.items():
        (folder / name).write_text(text, "utf-8")


def _judged(judgment: Judgment, year: Year) -> dict[str, int | str]:
    """Return what the server counted. Raises AssertionError if a body was refused, or a fact not found."""
    require(not judgment.problems, f"{len(judgment.problems)} bodies refused: {judgment.problems[:3]}")
    require(set(judgment.bodies) == set(MODELS), f"formats: {judgment.bodies}")
    missed = [question for question in judgment.questions if not question.found]
    require(not missed and len(judgment.questions) == len(year.asked), f"facts not found: {missed}")
    calls = sum(judgment.bodies.values())
    return {
        **{f"bodies judged, {name}": count for name, count in sorted(judgment.bodies.items())},
        "bodies over the window by another tokenizer": judgment.overflows,
        "tokens of a prompt, mean": judgment.prompt_tokens // calls,
        "tokens of a prompt, most": judgment.largest_prompt,
        "facts found with recall": len(judgment.questions),
        "facts that the prompt had before": sum(question.in_prompt for question in judgment.questions),
        "facts in the first message opened": sum(question.opened == 1 for question in judgment.questions),
    }


def _flatness(periods: Sequence[Period]) -> dict[str, int | str]:
    """Compare the last fifth of the year with the second. Raises AssertionError if it is not flat."""
    fifth = PERIODS // 5
    second, last = (median(period.cpu_ms for period in some) for some in (periods[fifth : 2 * fifth], periods[-fifth:]))
    growth = int(1e6 * (periods[-1].rss_mb - periods[fifth - 1].rss_mb))
    require(
        last <= MOST_CPU_RATIO * second, f"CPU per turn: {second:.1f} ms in the second fifth, {last:.1f} in the last"
    )
    require(growth < MOST_RSS_GROWTH, f"memory grew by {growth:,} bytes after the first fifth")
    return {
        "CPU of the last fifth over the second": f"{last / second:.2f}",
        "bytes grown after the first fifth": growth,
    }


def _rss_bytes() -> int:
    """Return the memory of this process, without the free blocks that glibc keeps after a peak."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
