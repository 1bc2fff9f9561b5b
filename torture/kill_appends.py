"""A process that appends is killed (`kill -9`) at a random moment, again and again; nothing acknowledged may be lost.

After each kill another process opens the ledger, checks what must be there, and repeats the append that was not
acknowledged: with its key it must be there exactly once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger
from torture import traffic, version_1
from torture.figures import Figures, Progress, require, shares
from torture.processes import Numbers, Signal, answer, killed, started

NAME = "kill_appends"
ROUNDS = 10_000

BEGUN, RETURNED, ACKNOWLEDGED, CELLS = range(4)
"""Cells of each thread: the append that was begun last, whose commit returned last, and that was acknowledged last."""

THREADS = 3
"""Threads that append, each to its own session, in half of the rounds; then commits are put together."""

CHECKPOINT_PAGES = 50
ROUNDS_OF_A_FILE = 100
LONGEST_SECONDS, LONGEST_MAKING_SECONDS = 0.02, 0.008
NEW_FILES = 0.1
"""Share of the kills that hit a process that makes a ledger or migrates one, and that do not wait until it is open."""

OLD, OLD_APPENDS = "old", 12
"""The session of a ledger that was of version 1, and its appends."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kills so many processes. Raises AssertionError with what was lost, doubled or in part."""
    dice, cells = random.Random(seed), Numbers(THREADS * CELLS)
    counts = Counter[str](dict.fromkeys(COUNTED, 0))
    for number in range(rounds):
        of_file = number // ROUNDS_OF_A_FILE
        making = dice.random() < NEW_FILES
        path = folder / (f"new-{number}.db" if making else f"{of_file}.db")
        old = making and dice.random() < 0.5
        if old:
            answer(version_1.make, path, OLD, OLD_APPENDS)
        sessions = [f"r{number}"] if dice.random() < 0.5 else [f"r{number}.{thread}" for thread in range(THREADS)]
        cells.clear()
        _kill_one(path, sessions, cells, dice, making=making, old=old)
        whole = making or number % 25 == 24 or number == rounds - 1
        states = [tuple(cells[thread * CELLS + cell] for cell in range(CELLS)) for thread in range(len(sessions))]
        stored = answer(check_sessions, path, sessions, states, whole=whole, old=old)
        counts["appends acknowledged"] += sum(state[ACKNOWLEDGED] for state in states)
        counts["appends repeated after a kill, each there once"] += sum(s[BEGUN] > s[ACKNOWLEDGED] for s in states)
        counts[INSIDE] += any(state[BEGUN] > state[RETURNED] for state in states)
        counts[BETWEEN] += any(had > state[ACKNOWLEDGED] for had, state in zip(stored, states, strict=True))
        counts[MIGRATING if old else OPENING] += not any(state[BEGUN] for state in states)
        if making or number % ROUNDS_OF_A_FILE == ROUNDS_OF_A_FILE - 1:
            _delete(path if making else folder / f"{of_file}.db")
        progress(number + 1, rounds)
    return Figures(NAME, rounds, shares(counts, COUNTED[2:], rounds) | {"appends lost, doubled or in part": 0})


INSIDE = "kills inside a commit"
BETWEEN = "kills after an append was stored and before it was acknowledged"
OPENING = "kills before a ledger was made or open"
MIGRATING = "kills before one of version 1 was migrated"
COUNTED = (
    "appends acknowledged",
    "appends repeated after a kill, each there once",
    INSIDE,
    BETWEEN,
    OPENING,
    MIGRATING,
)


def _kill_one(path: Path, sessions: list[str], cells: Numbers, dice: random.Random, *, making: bool, old: bool) -> None:
    opened = Signal()
    storm = dice.random() < 0.5
    pid = started(_append_all, path, sessions, cells, opened, storm=storm)
    if making:
        opened.drop()
    else:
        require(opened.wait(), "the process that should append ended by itself; what it said stands above")
    time.sleep(dice.random() * (LONGEST_MAKING_SECONDS if making and not old else LONGEST_SECONDS))
    killed(pid)


def _delete(path: Path) -> None:
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()


def _append_all(path: Path, sessions: list[str], cells: Numbers, opened: Signal, *, storm: bool) -> None:
    if storm:
        traffic.frequent_checkpoints(CHECKPOINT_PAGES)
    ledger = SqliteLedger(str(path))
    opened.give()
    for thread, session in enumerate(sessions[1:], 1):
        threading.Thread(target=_append, args=(ledger, session, cells, thread * CELLS), daemon=True).start()
    _append(ledger, sessions[0], cells, 0)


def _append(ledger: SqliteLedger, session: str, cells: Numbers, first: int) -> None:
    number = 0
    while True:
        number += 1
        cells[first + BEGUN] = number
        traffic.write(ledger, session, number)
        cells[first + RETURNED] = number
        cells[first + ACKNOWLEDGED] = number


def check_sessions(
    path: Path, sessions: list[str], states: list[tuple[int, ...]], *, whole: bool, old: bool
) -> list[int]:
    """Return how many appends each session had before the unacknowledged one was repeated; checks all of them."""
    ledger = SqliteLedger(str(path))
    if old:
        traffic.check(ledger, OLD, OLD_APPENDS, OLD_APPENDS)
    found = [check_one(ledger, session, state) for session, state in zip(sessions, states, strict=True)]
    ledger.close()
    if whole:
        traffic.sound(path)
    return found


def check_one(ledger: SqlLedger, session: str, state: tuple[int, ...]) -> int:
    """Return how many appends a session had before the unacknowledged one was repeated; checks all of them."""
    begun, acknowledged = state[BEGUN], state[ACKNOWLEDGED]
    stored = traffic.check(ledger, session, acknowledged, begun).appends
    for number in range(max(acknowledged, 1), begun + 1):
        done = traffic.write(ledger, session, number)
        wanted = 0 if number <= stored else len(traffic.append(session, number).entries)
        require(
            done.added == wanted, f"append {number} of {session}, repeated, added {done.added} entries, not {wanted}"
        )
    if begun:
        traffic.check(ledger, session, begun, begun)
    return stored
