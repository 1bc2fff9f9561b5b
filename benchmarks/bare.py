"""The bare side of the ledger's benchmark: the rows of a ledger, finished, put into a second file by plain APSW.

No verification, no hashing, no encoding, no checks: what is left is what SQLite itself takes for the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import msgspec
from msgspec import Struct

from benchmarks.measure import Spent, middle, timed
from benchmarks.turns import NOW_MS
from nexus.ledger.search_text import search_text
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.sqlite.connection import MEMORY, SqliteDatabase, connect, settle
from nexus.ledger.sqlite.files import open_file
from nexus.types.ledger_entries import Commit, NewEntry

Read: TypeAlias = tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]
"""Entries and messages, each as its row and what was read of its JSON."""

TENANT, SESSION, THREAD = "local", "main", 1
SETTINGS = (
    "journal_mode", "synchronous", "foreign_keys", "trusted_schema", "cell_size_check", "mmap_size",
    "wal_autocheckpoint", "journal_size_limit", "secure_delete",
)  # fmt: skip
TABLES = ("thread", "session", "session_move", "entry", "message", "tool_call", "idempotency", "search_data")

_CHANGING = (*THREAD_COLUMNS.split(",")[5:], "hash")
_THREAD = f"UPDATE thread SET {','.join(f'{name}=?' for name in _CHANGING)} WHERE tenant=? AND id=?"
_MESSAGE = f"INSERT INTO message VALUES ({','.join('?' * 17)})"
_CALL = f"INSERT INTO tool_call VALUES ({','.join('?' * 9)})"
_WINDOW = (
    "SELECT seq,ord,role,id,run_id,source,model,at_ms,content,meta,openai,anthropic,gemini,aside FROM message"
    " WHERE tenant=? AND thread=? AND seq>? AND seq<=? ORDER BY seq,ord"
)
_ENTRIES = "SELECT seq,kind,turn,at_ms,body FROM entry WHERE tenant=? AND thread=? AND seq>? AND seq<=? ORDER BY seq"


class Finished(Struct, frozen=True):
    """All that one commit writes, as rows."""

    entry: tuple[Any, ...]
    messages: list[tuple[Any, ...]]
    search: list[tuple[int, str]]
    calls: list[tuple[Any, ...]]
    keys: list[tuple[Any, ...]]
    thread: tuple[Any, ...]


def finished(entries: Iterable[NewEntry]) -> Iterator[tuple[NewEntry, Finished]]:
    """Each entry with its rows, read from a ledger in memory to which it was committed."""
    db = open_file(MEMORY, create=True, vfs="")
    for entry in entries:
        with db.transaction():
            Writing(db, Reader(db, TENANT, MEMORY, ReadCache()), lambda: NOW_MS).commit(SESSION, Commit((entry,)), None)
        yield entry, _rows(db, entry)
    db.close()


def _rows(db: SqliteDatabase, entry: NewEntry) -> Finished:
    head = db.rows(f"SELECT {','.join(_CHANGING)} FROM thread")[0]
    at = (TENANT, THREAD, head[0])
    where = "WHERE tenant=? AND thread=? AND seq=?"
    messages = db.rows(f"SELECT * FROM message {where} ORDER BY id_row", at)
    texts = (search_text(sized.message.parts) for sized in entry.messages)
    return Finished(
        db.rows(f"SELECT * FROM entry {where}", at)[0],
        messages,
        [(row[0], text) for row, text in zip(messages, texts, strict=True) if text.strip()],
        db.rows(f"SELECT * FROM tool_call {where}", at),
        db.rows(f"SELECT * FROM idempotency {where}", at),
        (*head, *at[:2]),
    )


class Bare:
    """A plain connection to a copy of a ledger, with the settings that a ledger's own connection has."""

    def __init__(self, file: Path) -> None:
        pattern = connect(str(file), create=False)
        settle(pattern)
        settings = [(name, pattern.value(f"PRAGMA {name}")) for name in SETTINGS]
        pattern.close()
        self.db: Any = apsw.Connection(str(file))
        for name, value in settings:
            self.db.execute(f"PRAGMA {name}={value}").fetchall()
            if self.db.execute(f"PRAGMA {name}").fetchall() != [(value,)]:
                raise AssertionError(f"the bare connection cannot be set to {name}={value}")

    def append(self, rows: Finished) -> None:
        """Puts the rows of one commit into their tables, in one transaction."""
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO entry VALUES (?,?,?,?,?,?,?,?)", rows.entry)
        db.executemany(_MESSAGE, rows.messages)
        db.executemany("INSERT INTO search(rowid,text) VALUES (?,?)", rows.search)
        db.executemany(_CALL, rows.calls)
        db.executemany("INSERT INTO idempotency VALUES (?,?,?,?,?)", rows.keys)
        db.execute(_THREAD, rows.thread)
        db.execute("COMMIT")

    def with_json(self, after: int, until: int) -> Read:
        """The entries and messages of a range, bodies and contents read by the standard library. Nothing is checked."""
        return self._read(after, until, json.loads)

    def with_msgspec(self, after: int, until: int) -> Read:
        """The same with msgspec, to dicts."""
        return self._read(after, until, msgspec.json.decode)

    def _read(self, after: int, until: int, decode: Callable[[str], Any]) -> Read:
        span = (TENANT, THREAD, after, until)
        heads = [(row, decode(row[4])) for row in self.db.execute(_ENTRIES, span)]
        return heads, [(row, decode(row[8])) for row in self.db.execute(_WINDOW, span)]

    def close(self) -> None:
        """Closes the connection."""
        self.db.close()


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Spent]:
    """The medians of each piece of work, run one after the other in every round."""
    runs: dict[str, list[Spent]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            runs[name].append(timed(work)[1])
    return {name: middle(found) for name, found in runs.items()}


def check_same(one: Path, other: Path) -> None:
    """Raises AssertionError unless both files have the same rows in every table that a commit writes."""
    flags = apsw.SQLITE_OPEN_READONLY
    connections: list[Any] = [apsw.Connection(str(file), flags=flags) for file in (one, other)]
    left, right = connections
    for table in TABLES:
        sql = f"SELECT * FROM {table}"
        if any(here != there for here, there in zip(left.execute(sql), right.execute(sql), strict=True)):
            raise AssertionError(f"the two sides have not written the same rows of {table}")
    for db in connections:
        db.close()
