"""64 writers of eight programs append to 1,000 sessions in PostgreSQL at the same time.

Nothing is lost or crossed, and `HeadMoved` comes only to writers that expect a head, of which one wins each round.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from nexus.errors import HeadMoved
from nexus.ledger.maintenance import server as server_maintenance
from nexus.ledger.postgres import PostgresLedger
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import TokenSize, user
from torture import traffic
from torture.figures import Figures, Progress, require
from torture.postgres_server import PostgresServer
from torture.processes import Asked, answer

NAME = "postgres_writers"
ROUNDS = 10
"""Appends of each session."""

PROGRAMS: Final = 8
THREADS: Final = 8
SESSIONS: Final = 1_000
DISPUTED: Final = "disputed"
"""The session to which all writers append with an expected head."""


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:  # noqa: ARG001 - nothing is random here
    """So many appends to each session. Raises AssertionError with what was lost or crossed."""
    sessions = min(SESSIONS, 100 * rounds)
    server = PostgresServer()
    url = server.new_ledger()
    try:
        answer(_make, url)
        asked = [Asked(_append_all, url, which, sessions, rounds) for which in range(PROGRAMS)]
        wins = [one.answer() for one in asked]
        progress(1, 2)
        answer(_check, url, sessions, rounds, sum(won for won, _ in wins))
        progress(2, 2)
    finally:
        server.stop()
    counts: dict[str, int | str] = {
        "writers": PROGRAMS * THREADS,
        "sessions": sessions,
        "appends to them": sessions * rounds * PROGRAMS,
        "appends with an expected head": sum(won for won, _ in wins),
        "of these refused by HeadMoved first": sum(lost for _, lost in wins),
        "appends lost, doubled or crossed": 0,
    }
    return Figures(NAME, rounds, counts)


def _make(url: str) -> None:
    ledger = PostgresLedger(url)
    _append(ledger, DISPUTED, "begin", 0)
    ledger.close()


def _append_all(url: str, which: int, sessions: int, rounds: int) -> tuple[int, int]:
    """Append to all sessions from all threads. Returns how many appends with an expected head won and lost."""
    ledger = PostgresLedger(url)
    failed: list[BaseException] = []
    disputes: list[tuple[int, int]] = []

    def work(thread: int) -> None:
        try:
            for number in range(rounds):
                for session in range(thread, sessions, THREADS):
                    _append(ledger, f"s{session}", f"{which}", number)
                disputes.append(_dispute(ledger, f"{which}/{thread}", number))
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
    return sum(won for won, _ in disputes), sum(lost for _, lost in disputes)


def _append(ledger: PostgresLedger, session: str, name: str, number: int, head: int | None = None) -> None:
    message = SizedMessage(user(_text(session, name, number)), TokenSize(5, 5, 5))
    entry = NewEntry(messages=(message,), at_ms=traffic.FIRST_MS, starts_turn=True, keys=(f"{name}/{number}",))
    done = ledger.commit(session, Commit((entry,), expected_head=head))
    require(done.added == 1, f"append {name}/{number} of {session} added {done.added} entries")


def _dispute(ledger: PostgresLedger, name: str, number: int) -> tuple[int, int]:
    """Append with an expected head until it is the right one. Returns 1 and how often it was refused."""
    refused = 0
    while True:
        thread = ledger.thread_of(DISPUTED) or 0
        try:
            _append(ledger, DISPUTED, name, number, ledger.head(thread)[0])
        except HeadMoved:
            refused += 1
        else:
            return 1, refused


def _text(session: str, name: str, number: int) -> str:
    return f"{session} {name} says {number}"


def _check(url: str, sessions: int, rounds: int, disputed: int) -> None:
    ledger = PostgresLedger(url)
    for session in range(sessions):
        label = f"s{session}"
        texts = _texts(ledger, label)
        for which in range(PROGRAMS):
            wanted = [_text(label, f"{which}", number) for number in range(rounds)]
            found = [text for text in texts if text.startswith(f"{label} {which} ")]
            require(found == wanted, f"of {rounds} appends of program {which} to {label}, {len(found)} are there")
        require(len(texts) == rounds * PROGRAMS, f"{label} has {len(texts)} entries, not {rounds * PROGRAMS}")
    require(len(_texts(ledger, DISPUTED)) == disputed + 1, "the disputed session has lost or doubled appends")
    require(len(ledger.sessions()) == sessions + 1, f"{len(ledger.sessions())} sessions are listed")
    ledger.close()
    damages = server_maintenance.verify(url)
    require(not damages, f"{len(damages)} rows are damaged, the first: {damages[:1]}")


def _texts(ledger: PostgresLedger, session: str) -> list[str]:
    thread = ledger.thread_of(session)
    entries = list(ledger.entries(thread)) if thread is not None else []
    require([one.seq for one in entries] == list(range(1, len(entries) + 1)), f"seq of {session} has gaps")
    return [row.message.text() for entry in entries for row in entry.rows]
