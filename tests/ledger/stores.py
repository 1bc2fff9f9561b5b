"""Small ledgers for the tests, and a look at their rows behind the ledger's back."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from nexus.assembly.record import with_sizes
from nexus.errors import LedgerUnusable
from nexus.ledger.sqlite import SqliteLedger
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import Commit, Committed, Entry, NewEntry
from nexus.types.message import Message, assistant, user

COUNTER = get_counter("estimate")


def append(
    ledger: SqliteLedger,
    session: str,
    *messages: Message,
    key: str = "",
    expected_head: int | None = None,
    **fields: Any,
) -> Committed:
    """Appends the messages as one entry that opens a turn."""
    entry = NewEntry(messages=with_sizes(messages, COUNTER), starts_turn=True, keys=(key,) if key else (), **fields)
    return ledger.commit(session, Commit((entry,), expected_head=expected_head))


def replay(ledger: SqliteLedger, session: str) -> list[Entry]:
    """All entries of the session's path."""
    thread = ledger.thread_of(session)
    return [] if thread is None else list(ledger.entries(thread))


def texts(ledger: SqliteLedger, session: str) -> list[str]:
    """The texts of all messages of the session, in order."""
    return [row.message.text() for entry in replay(ledger, session) for row in entry.rows]


def filled(path: Path, turns: int = 6) -> SqliteLedger:
    """A ledger with one session `main` of so many turns, every column of its messages in use."""
    ledger = SqliteLedger(str(path))
    for number in range(turns):
        asked = user(
            f"question {number}", id=f"u{number}", run_id="run", source="human", at_ms=1_000 + number, meta='{"a":1}'
        )
        answered = assistant(
            f"answer {number}", id=f"a{number}", run_id="run", source="model", model="gpt-5", meta='{"b":2}'
        )
        append(
            ledger,
            "main",
            asked,
            answered,
            key=f"k{number}",
            body={"usage": {"input_tokens": number}},
            at_ms=5_000 + number,
        )
    return ledger


def on_writer(ledger: SqliteLedger, sql: str) -> Any:
    """What a statement gives on the connection that the ledger writes with."""
    return ledger._write(lambda writing: writing.db.value(sql))


@contextmanager
def behind_its_back(path: Path) -> Generator[Any]:
    """A plain SQLite connection without any check, closed at the end."""
    db: Any = apsw.Connection(str(path))
    db.execute("PRAGMA foreign_keys=OFF")
    db.execute("PRAGMA ignore_check_constraints=ON")
    try:
        yield db
    finally:
        db.close()


def in_a_fork(*calls: Callable[[], object]) -> str:
    """What came of the calls in a fork of this process: `done`, `told` that it is a fork, or another error."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        said: list[str] = []
        for call in calls:
            try:
                call()
                said.append("done")
            except LedgerUnusable as error:
                said.append("told" if "fork" in str(error) else str(error))
            except Exception as error:  # noqa: BLE001 - it is the answer
                said.append(repr(error))
        os.write(writes, ",".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        return answer.read()
