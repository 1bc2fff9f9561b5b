"""Many processes write at the same time: to one session, and to many. Nothing is lost, mixed up, or refused as busy."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from nexus.errors import LedgerBusy
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import TokenSize, user
from torture import traffic
from torture.figures import Figures, Progress, lost, require
from torture.processes import Asked, answer

NAME = "contention"
ROUNDS = 400
"""Appends of each process to the session that all share. The other sessions are 2.5 times as many."""

PROCESSES: Final = 8
THREADS: Final = 2
"""Threads of a process that share its appends, so that commits are put together too."""

MOST_TURNS: Final = 100
"""Turns of each of the other sessions; a quarter of the rounds when that is less."""

SHARED: Final = "shared"


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:  # noqa: ARG001 - nothing is random here
    """So many appends of each process. Raises AssertionError with what was lost, mixed up or refused."""
    sessions, turns = max(PROCESSES, rounds * 5 // 2), max(1, min(MOST_TURNS, rounds // 4))
    path = folder / "l.db"
    answer(_make, path)
    waits = _together([Asked(_append_shared, path, which, rounds) for which in range(PROCESSES)])
    answer(_check_shared, path, rounds)
    progress(1, 2)
    shares = [range(which, sessions, PROCESSES) for which in range(PROCESSES)]
    waits += _together([Asked(_append_many, path, share, turns) for share in shares])
    answer(_check_many, path, range(sessions), turns)
    progress(2, 2)
    counts: dict[str, int | str] = {
        "processes": PROCESSES,
        "appends to one session": PROCESSES * rounds,
        "other sessions": sessions,
        "appends to them": sessions * turns,
        "longest wait of an append, ms": max(waits),
        "appends lost, doubled, mixed up or refused as busy": 0,
    }
    return Figures(NAME, rounds, counts)


def _together(asked: list[Asked]) -> list[int]:
    """What all processes tell, after all have ended; then the first error."""
    found: list[int] = []
    failed: list[AssertionError] = []
    for one in asked:
        try:
            found.append(one.answer())
        except AssertionError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return found


def _make(path: Path) -> None:
    SqliteLedger(str(path)).close()


def _append_shared(path: Path, which: int, rounds: int) -> int:
    """The longest wait, in ms. The process's appends are shared out to its threads."""
    ledger = SqliteLedger(str(path))
    waits, failed = [0], list[BaseException]()

    def work(thread: int) -> None:
        try:
            numbers = range(thread, rounds, THREADS)
            waits.extend(_append(ledger, SHARED, f"{which}/{thread}", number) for number in numbers)
        except BaseException as error:  # noqa: BLE001 - raised again below, where the process can tell it
            failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    ledger.close()
    return max(waits)


def _append_many(path: Path, sessions: range, turns: int) -> int:
    """The longest wait, in ms. Sessions take turns, so that neighbours in the file are of different ones."""
    ledger = SqliteLedger(str(path))
    longest = max(_append(ledger, f"s{session}", "", turn) for turn in range(turns) for session in sessions)
    ledger.close()
    return longest


def _append(ledger: SqliteLedger, session: str, name: str, number: int) -> int:
    begun = time.monotonic()
    said = SizedMessage(user(_text(session, name, number)), TokenSize(5, 5, 5))
    entry = NewEntry(messages=(said,), at_ms=traffic.FIRST_MS, starts_turn=True, keys=(f"{name}/{number}",))
    try:
        done = ledger.commit(session, Commit((entry,)))
    except LedgerBusy as error:
        lost(f"an append was refused as busy: {error}")
    require(done.added == 1, f"append {name}/{number} of {session} added {done.added} entries")
    return round(1_000 * (time.monotonic() - begun))


def _text(session: str, name: str, number: int) -> str:
    return f"{session} {name} says {number}"


def _check_shared(path: Path, rounds: int) -> None:
    ledger = SqliteLedger(str(path))
    texts = _texts(ledger, SHARED)
    for which in range(PROCESSES):
        for thread in range(THREADS):
            name = f"{which}/{thread}"
            wanted = [_text(SHARED, name, number) for number in range(thread, rounds, THREADS)]
            found = [text for text in texts if text.startswith(f"{SHARED} {name} ")]
            require(found == wanted, f"of {len(wanted)} appends of {name}, {len(found)} are there, or in another order")
    require(len(texts) == PROCESSES * rounds, f"{len(texts)} appends are there, {PROCESSES * rounds} were acknowledged")
    ledger.close()


def _check_many(path: Path, sessions: range, turns: int) -> None:
    ledger = SqliteLedger(str(path))
    for session in sessions:
        label = f"s{session}"
        wanted = [_text(label, "", turn) for turn in range(turns)]
        require(_texts(ledger, label) == wanted, f"session {label} does not have its {turns} turns and no others")
    labels = {info.label for info in ledger.sessions()}
    require(labels == {SHARED, *(f"s{session}" for session in sessions)}, f"{len(labels)} sessions are listed")
    ledger.close()
    traffic.sound(path)


def _texts(ledger: SqliteLedger, session: str) -> list[str]:
    thread = ledger.thread_of(session)
    entries = list(ledger.entries(thread)) if thread is not None else []
    require([one.seq for one in entries] == list(range(1, len(entries) + 1)), f"seq of {session} has gaps")
    return [row.message.text() for entry in entries for row in entry.rows]
