"""Three processes use the same sessions in every way at once; afterwards each call that was recorded must replay.

A process has an asynchronous engine with many tasks, and threads with an engine each. A call replays if its body, made
from the ledger alone, has the hash of the body that was sent.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Final

import nexus
from nexus.engine.analysis.replay import replay_call
from nexus.errors import NexusError
from nexus.ledger import integrity
from nexus.ledger.recorded_calls import RecordedCall
from nexus.ledger.sqlite import SqliteLedger
from torture.figures import Figures, Progress, require
from torture.mixed_steps import EXPECTED, SESSIONS, Talker
from torture.processes import Asked, answer

NAME = "mixed_load"
ROUNDS = 12
"""Things that each task and thread does, one after the other."""

PROCESSES: Final = 3
TASKS: Final = 64
THREADS: Final = 8
PAUSE_SECONDS: Final = 0.004


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Let each task and thread do so many things. Raises AssertionError with the calls that do not replay."""
    path = folder / "l.db"
    answer(_make, path)
    counts = Counter[str]()
    for asked in [Asked(_use, path, seed, which, rounds) for which in range(PROCESSES)]:
        counts.update(asked.answer())
    progress(1, 2)
    counts.update(answer(check, path))
    progress(2, 2)
    return Figures(NAME, rounds, dict(sorted(counts.items())))


def _make(path: Path) -> None:
    SqliteLedger(str(path)).close()


def _use(path: Path, seed: int, which: int, rounds: int) -> Counter[str]:
    """One process."""
    sessions = [f"s{number}" for number in range(SESSIONS)]
    ledger, failed = SqliteLedger(str(path)), list[BaseException]()
    nexus.open(ledger=ledger).warm()
    counts = Counter[str]()

    def work(number: int) -> None:
        try:
            name = f"{which}/thread {number}"
            talker = Talker(nexus.open(ledger=ledger), name, random.Random(f"{seed} {name}"), sessions, blocks=True)
            for _ in range(rounds):
                for _ in talker.steps():
                    time.sleep(talker.dice.random() * PAUSE_SECONDS)
            counts.update(talker.counts)
        except BaseException as error:  # noqa: BLE001 - raised again below, where the process can tell it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        counts.update(asyncio.run(_tasks(path, seed, which, rounds, sessions)))
    finally:
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    ledger.close()
    return counts


async def _tasks(path: Path, seed: int, which: int, rounds: int, sessions: list[str]) -> Counter[str]:
    counts = Counter[str]()
    async with nexus.open_async(ledger=path) as nx:

        async def work(number: int) -> None:
            name = f"{which}/task {number}"
            talker = Talker(nx.engine, name, random.Random(f"{seed} {name}"), sessions, blocks=False)
            for _ in range(rounds):
                if talker.dice.random() < 0.2:
                    await _acall(nx, talker)
                    continue
                steps = talker.steps()
                for _ in count():
                    if await nx.run(next, steps, steps) is steps:
                        break
                    await asyncio.sleep(talker.dice.random() * PAUSE_SECONDS)
            counts.update(talker.counts)

        async with asyncio.TaskGroup() as group:
            for number in range(TASKS):
                group.create_task(work(number))
    return counts


async def _acall(nx: nexus.AsyncEngine, talker: Talker) -> None:
    async def send(ctx: nexus.AssembledContext) -> nexus.AgentResult:
        await asyncio.sleep(talker.dice.random() * PAUSE_SECONDS)
        return talker.answer(ctx)

    session = talker.session()
    try:
        await nexus.acall(nx, talker.event(session), send, session=session, wait=20, **talker.options(session))
        talker.counts["calls by nexus.acall"] += 1
    except EXPECTED as error:
        talker.counts[f"refused: {type(error).__name__}"] += 1


def check(path: Path) -> Counter[str]:
    """Replay each recorded call of each thread, those of abandoned ones too. Raises AssertionError."""
    counts, failed = Counter[str](), list[str]()
    with nexus.open(ledger=path) as nx:
        damages = [str(damage) for damage in integrity.check(nx.ledger.store.dump())]
        require(not damages, f"the ledger is damaged: {damages[:3]}")
        for thread in nx.ledger.store.threads():
            rows = nx.ledger.store.assemblies(thread.id, thread.fork_seq, thread.head_seq)
            for number, row in enumerate(rows, 1):
                call = RecordedCall(f"thread {thread.id}", thread.id, 0, number, len(rows), row)
                try:
                    replayed = replay_call(nx.calls.dependencies, call)
                except NexusError as error:
                    failed.append(f"entry {row.seq}: {type(error).__name__}: {error}")
                    continue
                counts["calls replayed"] += 1
                counts["calls replayed with a cut of their own"] += replayed.ctx.cut is not None
                counts["calls replayed under an earlier cut"] += bool(not replayed.ctx.cut and row.manifest["cut"])
                counts["calls replayed after a compaction"] += bool(row.manifest["mark"])
    require(not failed, f"{len(failed)} of {counts['calls replayed'] + len(failed)}:\n" + "\n".join(failed[:40]))
    return counts
