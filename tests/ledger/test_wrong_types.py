"""Text where a number belongs, as a damaged page may give it: every read says so with an error of its own, or is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger import everything
from ledger.stores import append, behind_its_back
from nexus.errors import LedgerDamaged, LedgerError
from nexus.ledger import maintenance as care
from nexus.ledger.sessions import Query
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import user

TABLES = (
    "entry",
    "message",
    "idempotency",
    "thread",
    "tool_call",
    "decision",
    "assembly",
    "session_move",
    "alias",
    "event",
    "document",
    "lease",
)


def numbers() -> list[tuple[str, str]]:
    ledger = SqliteLedger()
    with ledger.reading() as reader:
        found = [
            (table, str(row[1]))
            for table in TABLES
            for row in reader.db.rows(f"PRAGMA table_info({table})")
            if str(row[2]) in ("INTEGER", "INT")
        ]
    ledger.close()
    return [(table, column) for table, column in found if column != "id_row"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "l.db"
    ledger = SqliteLedger(str(path), clock_ms=lambda: 1_000)
    everything.fill(ledger)
    for number in range(3):
        ledger.fork(f"fork {number}", "main" if not number else f"fork {number - 1}", 5 + number)
        append(ledger, f"fork {number}", user("said in a fork"), key=f"fork {number}")
    ledger.close()
    return path


def reads(path: Path) -> dict[str, Callable[[], Any]]:
    ledger = SqliteLedger(str(path), create=False)
    asked: dict[str, Callable[[], Any]] = {
        "sessions": lambda: ledger.sessions(every=True),
        "threads": ledger.threads,
        "search": lambda: ledger.search(Query("said", limit=99, every=True)),
        "in a session": lambda: ledger.search(Query("said", session="fork 2")),
        "dump": lambda: list(ledger.dump()),
        "holders": lambda: ledger.holders("fork 1"),
        "aliases": lambda: ledger.aliases(every=True),
        "events": ledger.queued_events,
        "documents": lambda: ledger.documents("agent"),
        "lease": lambda: ledger.take_lease("main", "me", 1).holder,
        "append": lambda: append(ledger, "fork 2", user("more"), key="more").head,
        "stats": lambda: care.stats(path).messages,
        "verify": lambda: care.verify(path),
    }
    for label in ("main", "side", "fork 2"):
        asked |= {
            f"{label}: thread": lambda label=label: ledger.thread_of(label),
            f"{label}: moves": lambda label=label: ledger.ref_updates(label),
            f"{label}: entries": lambda label=label: list(ledger.entries(ledger.thread_of(label) or 0)),
            f"{label}: marks": lambda label=label: ledger.checkpoints(ledger.thread_of(label) or 0),
            f"{label}: cut": lambda label=label: ledger.last_cut(ledger.thread_of(label) or 0, "v"),
            f"{label}: manifests": lambda label=label: ledger.assemblies(ledger.thread_of(label) or 0),
            f"{label}: keys": lambda label=label: ledger.known_keys(label),
        }
    return asked


def answers(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, ask in reads(path).items():
        try:
            found[name] = ask()
        except LedgerError as error:
            found[name] = error
    return found


@pytest.mark.parametrize(("table", "column"), numbers())
def test_text_in_a_number_column_raises_a_ledger_error(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    path = Path(shutil.copy(whole, tmp_path / "l.db"))
    with behind_its_back(path) as db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_schema SET sql=replace(sql,'STRICT,','') WHERE name=?", (table,))
        db.execute("UPDATE sqlite_schema SET sql=replace(sql,'STRICT','') WHERE name=?", (table,))
    with behind_its_back(path) as db:
        db.execute("PRAGMA foreign_keys=OFF")
        db.execute(f"UPDATE {table} SET {column}='x' || {column} WHERE {column} IS NOT NULL")
        assert db.changes()
    found = answers(path)
    wrong = found["lease" if table == "lease" else "verify"]  # leases are no part of what is verified
    assert isinstance(wrong, LedgerDamaged) or (wrong and table != "lease")
