"""A process that runs a broker is killed (`kill -9`) between an event's acceptance and its answer; no event may be lost.

Its agent calls tools and spawns workers, and the events have all queue modes. After each kill, or two, another process gets all
events again: each must be there once, answered or failed with a reason, each worker linked to the call that spawned it,
each such call with one result, and each session's next context valid in all formats. `killed_operations` kills at each
operation of the ledger in turn, before it and after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import nexus
from nexus import AgentResult, Event, Text, ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.async_engine import AsyncEngine
from nexus.broker import Broker, QueueMode
from nexus.context import AssembledContext
from nexus.ledger import maintenance
from nexus.models import ModelReply
from nexus.tokens.counter import get_counter
from nexus.tokens.model import resolve
from nexus.tools import ToolRegistry
from nexus.types.ledger_entries import Entry
from nexus.types.stream_events import Token
from torture.figures import Figures, Progress, require
from torture.processes import Numbers, Signal, answer, ended, killed, started

NAME = "kill_broker"
ROUNDS = 1_000

EVENTS: Final[tuple[tuple[str, str, QueueMode], ...]] = (
    ("one", "boss", "followup"),
    ("two", "boss", "steer"),
    ("three", "boss", "collect"),
    ("four", "boss", "collect"),
    ("five", "other", "steer-backlog"),
    ("six", "other", "interrupt"),
)
"""Ids, sessions and queue modes of the events that are delivered after each start."""

LONGEST_SECONDS = 0.5
PAUSE_SECONDS = 0.004
MANY_POINTS: Final = 10_000

WAITING = "kills while accepted events waited"
ACCEPTED = "events accepted, each there once"
COUNTED = (ACCEPTED, "workers, each linked to its call", WAITING)


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kills so many processes. Raises AssertionError with what was lost or doubled."""
    dice, counts, cells = random.Random(seed), Counter[str](dict.fromkeys(COUNTED, 0)), Numbers(1)
    prepare()
    for number in range(rounds):
        path = folder / f"{number}.db"
        for _ in range(dice.randint(1, 2)):
            ready = Signal()
            cells.clear()
            pid = started(_serve, path, cells, ready)
            require(ready.wait(), "the process with the broker ended by itself; what it said stands above")
            time.sleep(dice.random() * LONGEST_SECONDS)
            killed(pid)
            counts[WAITING] += bool(answer(_pending, path, cells[0]))
        require(ended(started(_serve, path, cells)) == 0, "the broker did not go on; what it said stands above")
        counts["workers, each linked to its call"] += answer(check, path)
        counts[ACCEPTED] += len(EVENTS)
        for old in folder.glob(f"{path.name}*"):
            old.unlink()
        progress(number + 1, rounds)
    return Figures(NAME, rounds, {**counts, "events lost or doubled": 0})


def killed_operations(folder: Path, step: int = 1) -> int:
    """Kill a process at each operation of its ledger, before and after it; return the number of kills."""
    prepare()
    cells = Numbers(1)
    for point in range(2, MANY_POINTS, step):
        path = folder / f"{point}.db"
        code = ended(started(_serve, path, cells, None, point))
        require(code in (0, -signal.SIGKILL), f"point {point}: the process ended with {code}; see its output above")
        require(ended(started(_serve, path, cells)) == 0, f"killed at point {point}: the broker did not go on")
        answer(check, path)
        if code == 0:
            return (point - 2) // step
    return MANY_POINTS


def prepare() -> None:
    """Load what processes need, before they are forked."""
    get_counter().count(resolve("gpt-4o").name)


class _Client:
    """The model: it calls a tool and spawns two workers, and answers their results."""

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
        """Yield a reply."""
        has_results = any(list(message.results()) for message in ctx.current)
        text, calls = "Done.", ()
        if ctx.role == "worker":
            calls = () if has_results else (ToolCall("w", "look", "{}"),)
        elif not has_results and "Report of worker" not in str(ctx.current):
            tasks = {"s": {"task": "count", "wait": True}, "t": {"task": "weigh", "wait": False}}
            spawning = (ToolCall(id_, "spawn_worker", json.dumps(task)) for id_, task in tasks.items())
            calls = (ToolCall("l", "look", "{}"), *spawning)
        await asyncio.sleep(PAUSE_SECONDS)
        yield Token(text)
        await asyncio.sleep(PAUSE_SECONDS)
        message = nexus.assistant(text, *calls)
        yield ModelReply(
            AgentResult((message,), stop_reason="tool_use" if calls else "end_turn", model="gpt-4o"), 0.001
        )

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        """Return the reply."""
        return [item async for item in self.stream(ctx)][-1]

    async def aclose(self) -> None:
        """Do nothing."""


def _serve(path: Path, cells: Numbers, ready: Signal | None = None, point: int = 0) -> None:
    asyncio.run(_serve_all(path, cells, ready, point))


async def _serve_all(path: Path, cells: Numbers, ready: Signal | None, point: int) -> None:
    tools = ToolRegistry()

    @tools.tool(repeatable=True)
    async def look() -> str:
        """Look."""
        await asyncio.sleep(PAUSE_SECONDS)
        return "seen"

    async with nexus.open_async(ledger=path, model="gpt-4o") as nx:
        if point:
            nx.run = _killing_run(nx, point)
        if ready is not None:
            ready.give()
        async with Broker(Agent(nx, _Client(), tools=tools, workers=WorkerLimits()), collect_s=0.0) as broker:
            for id_, session, mode in EVENTS:
                await broker.submit(Event((Text(f"event {id_}"),), id=id_), session=session, mode=mode)
                cells[0] += 1
            while rows := await nx.run(nx.engine.store.queued_events):
                for row in rows:
                    await broker.result(row.id, timeout_s=60)
            await broker.join()


def _killing_run(nx: AsyncEngine, point: int) -> Any:
    """Return a `run` that kills this process: before operation `point // 2`, or after it if `point` is odd."""
    original, count = nx.run, 0

    async def run(function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        number = count
        if 2 * number == point:
            os.kill(os.getpid(), signal.SIGKILL)
        done = await original(function, *args, **options)
        if 2 * number + 1 == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return run


def _pending(path: Path, accepted: int) -> int:
    """Check that what was accepted is there; return the number of events that wait."""
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        for id_, _, _ in EVENTS[:accepted]:
            require(nx.store.queued_event(id_) is not None, f"event {id_} was accepted, and is lost")
        return len(nx.store.queued_events())


def check(path: Path) -> int:
    """Check a ledger whose events are all settled; return the number of its workers."""
    found = maintenance.verify(path)
    require(not found, f"the ledger is damaged: {found}")
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        rows = nx.store.queued_events(None, ("queued", "running", "done", "failed", "dropped"))
        open_rows = [
            row.id for row in rows if row.state not in ("done", "failed") or (row.state == "failed") > bool(row.reason)
        ]
        require(not open_rows, f"events {open_rows} are neither answered nor failed with a reason")
        missing = {id_ for id_, _, _ in EVENTS} - {row.id for row in rows}
        require(not missing, f"events {missing} are lost")
        for row in rows:
            turn = next((turn for turn in nx.ledger.turns(row.session) if turn.number == row.turn), None)
            require(turn is not None, f"event {row.id} has no turn: {row}")
            assert turn is not None
            agrees = (row.state == "done") == (turn.status == "completed")
            require(agrees, f"event {row.id} is {row.state}, its turn {turn.status}")
        return sum(_check_session(nx, info.label) for info in nx.sessions())


def _check_session(nx: nexus.Engine, label: str) -> int:
    from laws.call import bodies
    from support.validity import CHECKS

    entries = nx.entries(label)
    texts = Counter(row.message.text() for entry in entries for row in entry.rows if row.message.role == "user")
    repeated = [text for text, times in texts.items() if times > 1]
    require(not repeated, f"messages of {label} are there twice: {repeated}")
    lost = [id_ for id_, session, _ in EVENTS if session == label and not texts[f"event {id_}"]]
    require(not lost, f"messages of events {lost} are not in {label}")
    calls, results = _calls(entries)
    completed = {turn.number for turn in nx.ledger.turns(label) if turn.status == "completed"}
    wrong = [call for call in calls if results[call] > 1 or (call[0] in completed and results[call] != 1)]
    require(not wrong, f"calls of {label} without one result: {wrong}")
    spawned = [nx.ledger.metadata(info.label) for info in nx.ledger.spawned(label)]
    links = Counter((fact.parent_turn, fact.parent_call_id) for fact in spawned)
    unknown = [link for link, times in links.items() if times > 1 or link not in calls]
    require(not unknown, f"workers of {label} are linked to {unknown}, its calls are {calls}")
    for form, body in bodies(nx.assemble("Is it valid?", session=label)).items():
        require(not (problems := CHECKS[form](body)), f"the next context of {label} is invalid for {form}: {problems}")
    return len(spawned)


def _calls(entries: list[Entry]) -> tuple[list[tuple[int, str]], Counter[tuple[int, str]]]:
    """Return the calls of a session by turn and id, and how many results each has."""
    messages = [(entry.turn, row.message) for entry in entries for row in entry.rows]
    calls = [(turn, part.id) for turn, message in messages for part in message.parts if isinstance(part, ToolCall)]
    return calls, Counter((turn, result.call_id) for turn, message in messages for result in message.results())


sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for the judges of request bodies
