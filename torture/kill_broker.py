"""Processes that run a broker are killed (`kill -9`) between an event's acceptance and its answer; no event may be lost.

Their events have all queue modes, full queues drop some, and their agents call tools and spawn workers. A ledger gets
several kills, one after the other, of one process or of two that share it. After each kill the ledger is read, and the
next process gets all events again, the answered ones too; the last one answers what is left. Then each event is there
once, answered, failed or dropped with a reason, each worker is linked to the call that spawned it, each call of a
completed turn has one result, and each session's next context is valid in all formats.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import nexus
from nexus.broker.queue_modes import DropPolicy
from nexus.ledger import maintenance
from nexus.tokens.counter import get_counter
from nexus.tokens.model import resolve
from torture import broker_checks as checks
from torture.brokers import Queue, serve
from torture.figures import Figures, Progress, require, shares
from torture.processes import Numbers, Signal, answer, ended, killed, started

NAME = "kill_broker"
ROUNDS = 1_000
"""Kills."""

KILLS_OF_A_LEDGER: Final = 8
LONGEST_SECONDS: Final = 0.5

LANDED: Final = "kills between acceptance and reply"
SHARED: Final = "kills while another process shared the ledger"
WORKERS: Final = "workers, each linked to its call"
COUNTED: Final = (LANDED, *checks.STAGES, SHARED, "events accepted", "events done", "events failed", "events dropped")


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kills so many processes. Raises AssertionError with what was lost or doubled."""
    dice, counts = random.Random(seed), Counter[str](dict.fromkeys((*COUNTED, WORKERS), 0))
    prepare()
    load_judges()
    kills = ledgers = 0
    while kills < rounds:
        ledgers += 1
        path = folder / f"{ledgers}.db"
        queue = Queue(dice.choice(get_args(DropPolicy)), dice.randint(1, 2))
        kills += kill_often(path, queue, min(KILLS_OF_A_LEDGER, rounds - kills), 1 + (ledgers % 3 == 0), dice, counts)
        counts["events accepted"] += len(queue.events)
        for old in folder.glob(f"{path.name}*"):
            old.unlink()
        progress(kills, rounds)
    shown = shares(counts, (LANDED, *checks.STAGES, SHARED), kills)
    return Figures(NAME, kills, {"ledgers": ledgers, **shown, "events lost or doubled": 0})


def prepare() -> None:
    """Load what processes with a broker need, before they are forked: each would take half a second for it."""
    get_counter().count(resolve("gpt-4o").name)
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        nx.record(nx.assemble("Hello"), nexus.AgentResult((nexus.assistant("Hello."),)))


def kill_often(path: Path, queue: Queue, most: int, processes: int, dice: random.Random, counts: Counter[str]) -> int:
    """Kill the processes that share a ledger until all events are settled, or so many times; return the kills."""
    cells, kills, state = Numbers(len(queue.events)), 0, checks.State({}, set(checks.STAGES))
    while kills < most and state.stages:
        pids = [_begin(path, queue, dice, cells) for _ in range(min(processes, most - kills))]
        while pids:
            time.sleep(dice.random() * LONGEST_SECONDS)
            killed(pids.pop(dice.randrange(len(pids))))
            kills += 1
            state = after_kill(path, queue, cells, state.rows)
            counts[LANDED] += bool(state.stages)
            counts[SHARED] += bool(pids)
            counts.update(state.stages if not pids else ())  # else an event may be with the other process
    finish(path, queue, cells, state.rows, counts)
    answer(check_contexts, path)
    return kills


def finish(path: Path, queue: Queue, cells: Numbers, rows: dict[str, checks.Row], counts: Counter[str]) -> None:
    """Let a last process settle all events, and check the ledger."""
    require(
        ended(started(serve, path, queue, len(rows) + 1, cells)) == 0, "the broker did not go on; see its output above"
    )
    after_kill(path, queue, cells, rows)
    states, workers = answer(checks.check_end, path, queue)
    counts.update({f"events {state}": number for state, number in states.items()})
    counts[WORKERS] += workers


def after_kill(path: Path, queue: Queue, cells: Numbers, rows: dict[str, checks.Row]) -> checks.State:
    """Check a ledger after a kill; see `torture.broker_checks.check_kill`."""
    return answer(checks.check_kill, path, queue, [cells[number] for number in range(len(queue.events))], rows)


def _begin(path: Path, queue: Queue, dice: random.Random, cells: Numbers) -> int:
    """Start a process with a broker; return its number once its ledger is open."""
    ready = Signal()
    pid = started(serve, path, queue, dice.randrange(1, 1 << 30), cells, ready)
    require(ready.wait(), "the process with the broker ended by itself; what it said stands above")
    return pid


def check_contexts(path: Path) -> None:
    """Check the ledger itself, and that each session's next context is valid for all providers."""
    found = maintenance.verify(path)
    require(not found, f"the ledger is damaged: {found}")
    bodies, judges = load_judges()
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        for info in nx.sessions():
            for form, body in bodies(nx.assemble("Is it valid?", session=info.label)).items():
                problems = judges[form](body)
                require(not problems, f"the next context of {info.label} is invalid for {form}: {problems}")


@cache
def load_judges() -> tuple[Any, Any]:
    """Return what makes the bodies of a context, and the judge of each form, which has judged one."""
    bodies = import_module("laws.call").bodies
    judges = import_module("support.validity").CHECKS
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        for form, body in bodies(nx.assemble("Hello")).items():
            judges[form](body)
    return bodies, judges


sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for the judges of request bodies
