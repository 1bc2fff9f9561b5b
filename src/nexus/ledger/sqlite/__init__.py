"""Ledger store in SQLite, in a file or in memory.

Writes run one at a time in `BEGIN IMMEDIATE` transactions. Reads have connections of their own and never wait. Every
row is checked against its hash before it is returned.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from nexus.errors import LedgerError, LedgerUnusable
from nexus.ledger.records import Record
from nexus.ledger.sessions import EraseResult
from nexus.ledger.shared_sql import dump as sql_dump
from nexus.ledger.shared_sql import erase as sql_erase
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.sqlite.connection import MEMORY, SqliteDatabase, spoils, sqlite_errors
from nexus.ledger.sqlite.files import delete_leftovers, find_needles, ledger_id, merge_search, rewrite
from nexus.ledger.sqlite.pool import SqlitePool

P = ParamSpec("P")
T = TypeVar("T")

MERGED_PAGES = 200
"""Pages of the search index that an erasure merges in one step; others may write between steps."""

_open: weakref.WeakSet[SqliteLedger]


class SqliteLedger(SqlLedger):
    """Ledger in one SQLite file, or in memory for `:memory:`. See `LedgerStore` for its methods.

    `clock_ms` supplies times that an entry lacks, `vfs` names another SQLite file layer. Safe to share between threads.
    A forked process must open its own ledger.
    """

    def __init__(
        self,
        path: str = MEMORY,
        *,
        tenant: str = "local",
        create: bool = True,
        clock_ms: Callable[[], int] | None = None,
        vfs: str = "",
    ) -> None:
        path = path if path == MEMORY or vfs else os.path.abspath(path)  # noqa: PTH100 - no link is followed
        super().__init__(tenant, clock_ms)
        self.file = path
        self.typed_errors = sqlite_errors(path)
        self.trusted = True
        """False for a ledger that came with its folder: it rejects writes."""
        self._of_thread = threading.local()
        with sqlite_errors(path):
            self._pool = SqlitePool(path, create=create, vfs=vfs)
        _open.add(self)

    @property
    def location(self) -> str:
        """The file's path."""
        return self.file

    @cached_property
    def id(self) -> str:
        """The ledger's ID, which copies of its file share: the time at which its first migration was applied."""
        with self._pool.connection() as db, sqlite_errors(self.file):
            return ledger_id(db)

    @property
    def pid(self) -> int:
        """The process that opened it, the only one that may use it."""
        return self._pool.pid

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._pool.closed

    def close(self) -> None:
        """Close all connections, after what waits to be written."""
        self._pool.close()

    @property
    def open_reader(self) -> Reader | None:
        """The reader of this thread's open snapshot."""
        reader: Reader | None = getattr(self._of_thread, "reader", None)
        if reader is not None:
            self._pool.check(files=False)  # once for all reads of a snapshot
        return reader

    def read_alone(self, query: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in a snapshot of its own."""
        with self.reading() as reader:
            return query(reader, *args, **kwargs)

    def read_statement(self, query: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of a single statement, which is a snapshot by itself."""
        with _Snapshot(self, begins=False) as reader:
            return query(reader, *args, **kwargs)

    def reading(self) -> _Snapshot:
        """Return a context manager that gives a reader in a snapshot. Inside `snapshot()` it is always the same one."""
        return _Snapshot(self)

    def snapshot(self) -> AbstractContextManager[object]:
        """Run all reads of this thread in one read transaction."""
        return _Snapshot(self)

    def begin_reading(self, *, begins: bool = True) -> tuple[Reader, SqliteDatabase]:
        """Begin this thread's read transaction, unless it is for one statement; return its reader and connection."""
        self._pool.check()
        db = self._pool.acquire()
        self._of_thread.has_begun = False
        try:
            if begins and not db.in_transaction:  # in memory, a read within a write has the write's connection
                db.run("BEGIN")
                self._of_thread.has_begun = True
        except BaseException as error:
            self._pool.give_back(db, spoilt=spoils(error))
            raise
        self._of_thread.reader = reader = Reader(db, self._name, self.file, self._cache)
        return reader, db

    def end_reading(self, db: SqliteDatabase, error: BaseException | None) -> None:
        """End this thread's read transaction, after an error or none."""
        self._of_thread.reader = None
        spoilt = error is not None and spoils(error)
        try:
            if self._of_thread.has_begun and db.in_transaction:
                db.run("COMMIT")
        except BaseException as failure:
            spoilt = spoils(failure)
            raise
        finally:
            self._pool.give_back(db, spoilt=spoilt)

    def check_trusted(self) -> None:
        """Raise LedgerUnusable for a ledger that came with its folder."""
        if not self.trusted:
            raise LedgerUnusable(
                f"ledger {self.file} was not made by this user: it is read-only, and its content goes to no model (look at "
                "it: nexus sessions, nexus history; accept it: nexus ledger trust; or use another one: --ledger FILE)",
                code="ledger_not_trusted",
            )

    def _write(
        self,
        call: Callable[[Writing], T],
        *,
        alone: bool = False,
        durable: bool = True,
        is_stored: Callable[[Reader, T], bool] | None = None,  # noqa: ARG002 - no answer of SQLite is lost
    ) -> T:
        """Run a write in the writer's transaction and wait until it is on the disk; see `Writer.run`."""
        self._pool.check()
        self.check_trusted()
        tenant = self._name
        path = self.file
        clock_ms = self.clock_ms
        updates = self._cache.updates

        def work(db: SqliteDatabase) -> T:
            # A path is read anew: the transaction may yet be taken back, and what it made with it.
            return call(Writing(db, Reader(db, tenant, path, ReadCache(updates), is_writing=True), clock_ms))

        with sqlite_errors(self.file):
            return self._pool.write(work, alone=alone, durable=durable)

    def erase(
        self,
        threads: Sequence[int] | None,
        labels: Sequence[str] = (),
        *,
        events: Sequence[str] = (),
        documents: Sequence[tuple[str, str]] = (),
        unused_since_ms: int | None = None,
        scrub: bool = True,
    ) -> EraseResult:
        """Delete rows, remove their words from the index, empty the log and search the file for the deleted text."""
        is_erasing = threads is None or bool(threads or labels or events or documents)

        def write(writing: Writing) -> tuple[EraseResult, list[str]]:
            result = sql_erase.erase(writing, threads, labels, events, documents, unused_since_ms, scrub=scrub)
            if scrub:
                writing.db.run("INSERT INTO search(search) VALUES ('optimize')")  # or the index keeps deleted words
            return result

        needles: list[str] = []
        if is_erasing:
            erased, needles = self._write(write, alone=True)
        else:
            erased = self._delete_unused_blobs() if scrub else EraseResult((), 0, 0, 0)
        self._cache.clear()
        if not scrub:
            return erased
        if not is_erasing:
            self._merge_search()
        remaining: list[str] = []
        if not self._pool.in_memory:
            delete_leftovers(Path(self.file).parent)  # copies of the text, which a killed backup left
            with sqlite_errors(self.file), self._pool.connection() as db:
                remaining = find_needles(db, self.file, needles)
                if remaining:  # what an older version left in the unused part of pages
                    rewrite(db, self.file)
                    remaining = find_needles(db, self.file, needles)
        if remaining:
            raise LedgerError(
                f"{erased.messages} messages were deleted, but {len(remaining)} of {len(needles)} pieces of their text remain "
                f"in {self.file} (close it everywhere, then run nexus ledger vacuum)",
                code="erase_incomplete",
            )
        return EraseResult(erased.threads, erased.entries, erased.messages, erased.blobs, len(needles), len(remaining))

    def _merge_search(self) -> None:
        """Merge the whole search index, in steps between which others may write."""
        pages = -MERGED_PAGES
        with sqlite_errors(self.file):
            while self._pool.write(partial(merge_search, pages=pages), alone=True, durable=False):
                pages = MERGED_PAGES

    def dump(self) -> Iterator[Record]:
        """Yield all rows of the tenant as records, unchecked, as they were when it began."""
        open_reader: Reader | None = getattr(self._of_thread, "reader", None)
        self._pool.check()
        if open_reader is not None or self._pool.in_memory:
            with self.reading() as reader:
                records = list(sql_dump.dump(reader.db, self._name))
            yield from records
            return
        # A connection of its own: a generator may be ended by another thread than began it.
        with sqlite_errors(self.file), self._pool.connection() as db, db.snapshot():
            yield from sql_dump.dump(db, self._name)


class _Snapshot:
    """A thread's read transaction, or its part within an outer one. A class enters faster than a generator."""

    __slots__ = ("_begins", "_db", "_store")

    def __init__(self, store: SqliteLedger, *, begins: bool = True) -> None:
        self._store = store
        self._begins = begins
        self._db: SqliteDatabase | None = None

    def __enter__(self) -> Reader:
        store = self._store
        reader = store.open_reader
        if reader is None:
            with sqlite_errors(store.file):
                reader, self._db = store.begin_reading(begins=self._begins)
        return reader

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with sqlite_errors(self._store.file):
            if self._db is not None:
                self._store.end_reading(self._db, error)
        sqlite_errors(self._store.file).__exit__(kind, error, trace)


_open = weakref.WeakSet()


def open_ledgers() -> list[tuple[str, int]]:
    """Return the paths of open ledgers, each with the process that may use it."""
    return sorted((ledger.file, ledger.pid) for ledger in list(_open) if not ledger.closed)
