"""Programs that append to PostgreSQL, and the server itself, are killed (`kill -9`); nothing acknowledged may be lost.

In half of the rounds the program dies, in the others the whole server, which is started again while the program goes on:
it must wait, find out what became of the commit whose answer it lost, and neither lose nor double an append.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from nexus.ledger.maintenance import server as server_maintenance
from nexus.ledger.postgres import PostgresLedger
from torture import traffic
from torture.figures import Figures, Progress, require, shares
from torture.kill_appends import ACKNOWLEDGED, BEGUN, BETWEEN, CELLS, INSIDE, RETURNED, check_one
from torture.postgres_server import PostgresServer
from torture.processes import Numbers, Signal, answer, ended, killed, started

NAME = "kill_postgres"
ROUNDS = 1_000

THREADS = 3
LONGEST_SECONDS = 0.05
CHECKED_EVERY = 100
"""Rounds between two checks of all rows."""

CLIENT, SERVER = "kills of a program", "kills of the server"
ENDED = "appends acknowledged"
GOING_ON = "appends acknowledged after the server was killed, by the program that was running"

LAST = THREADS * CELLS
"""The cell that tells the program to end."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:  # noqa: ARG001 - the server has its own folder
    """Kills so many programs and servers. Raises AssertionError with what was lost, doubled or in part."""
    dice, cells = random.Random(seed), Numbers(THREADS * CELLS + 1)
    counts = Counter[str](dict.fromkeys((ENDED, GOING_ON, CLIENT, SERVER, INSIDE, BETWEEN), 0))
    # After a crash PostgreSQL syncs every file of its folder: with `syncfs` that takes milliseconds, not seconds.
    server = PostgresServer(("recovery_init_sync_method = syncfs",))
    url = server.new_ledger()
    try:
        answer(_make, url)
        for number in range(rounds):
            sessions = [f"r{number}.{thread}" for thread in range(THREADS if dice.random() < 0.5 else 1)]
            cells.clear()
            kind = SERVER if dice.random() < 0.5 else CLIENT
            counts[kind] += 1
            more = _kill_one(server, url, sessions, cells, dice, kind)
            states = [tuple(cells[thread * CELLS + cell] for cell in range(CELLS)) for thread in range(len(sessions))]
            stored = answer(check_sessions, url, sessions, states)
            counts[ENDED] += sum(state[ACKNOWLEDGED] for state in states)
            counts[GOING_ON] += more
            counts[INSIDE] += any(state[BEGUN] > state[RETURNED] for state in states)
            counts[BETWEEN] += any(had > state[ACKNOWLEDGED] for had, state in zip(stored, states, strict=True))
            if number % CHECKED_EVERY == CHECKED_EVERY - 1 or number == rounds - 1:
                answer(_verify, url)
            progress(number + 1, rounds)
    finally:
        server.stop()
    kinds = (CLIENT, SERVER, INSIDE, BETWEEN)
    return Figures(NAME, rounds, shares(counts, kinds, rounds) | {"appends lost, doubled or in part": 0})


def _kill_one(
    server: PostgresServer, url: str, sessions: list[str], cells: Numbers, dice: random.Random, kind: str
) -> int:
    """Kill a program or its server. Returns how many appends the program made after its server was killed."""
    opened = Signal()
    pid = started(_append_all, url, sessions, cells, opened)
    require(opened.wait(), "the program that should append ended by itself; what it said stands above")
    time.sleep(dice.random() * LONGEST_SECONDS)
    if kind == CLIENT:
        killed(pid)
        return 0
    server.kill()
    before = sum(cells[thread * CELLS + ACKNOWLEDGED] for thread in range(len(sessions)))
    server.start()
    time.sleep(dice.random() * LONGEST_SECONDS)
    cells[LAST] = 1
    require(ended(pid) == 0, "the program did not survive the death of its server; what it said stands above")
    return sum(cells[thread * CELLS + ACKNOWLEDGED] for thread in range(len(sessions))) - before


def _make(url: str) -> None:
    PostgresLedger(url).close()


def _append_all(url: str, sessions: list[str], cells: Numbers, opened: Signal) -> None:
    ledger = PostgresLedger(url)
    opened.give()
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            _append(ledger, sessions[thread], cells, thread * CELLS)
        except BaseException as error:  # noqa: BLE001 - raised again below, where the process can tell it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    ledger.close()


def _append(ledger: PostgresLedger, session: str, cells: Numbers, first: int) -> None:
    number = 0
    while not cells[LAST]:
        number += 1
        cells[first + BEGUN] = number
        done = traffic.write(ledger, session, number)
        # The answer to a commit may be lost with the server: then the append is looked up, and is not a repeated one.
        wanted = len(traffic.append(session, number).entries)
        require(done.added == wanted, f"append {number} of {session} added {done.added} entries, not {wanted}")
        cells[first + RETURNED] = number
        cells[first + ACKNOWLEDGED] = number


def check_sessions(url: str, sessions: list[str], states: list[tuple[int, ...]]) -> list[int]:
    """Return how many appends each session had before the unacknowledged one was repeated; checks all of them."""
    ledger = PostgresLedger(url)
    found = [check_one(ledger, session, state) for session, state in zip(sessions, states, strict=True)]
    ledger.close()
    return found


def _verify(url: str) -> None:
    damages = server_maintenance.verify(url)
    require(not damages, f"{len(damages)} rows are damaged, the first: {damages[:1]}")
