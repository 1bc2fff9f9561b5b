"""Ledger store in PostgreSQL: the same values, hashes and promises as in SQLite, for many writers on many machines.

Writes to different sessions run at the same time. Writes to one session, and those that create or move sessions, wait
for each other by advisory locks. Reads run in snapshots.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from nexus.errors import LedgerUnavailable
from nexus.ledger.address import parse_address
from nexus.ledger.postgres.connection import (
    NotAlone,
    PostgresDatabase,
    is_lost,
    may_run_again,
    our_error,
    postgres_errors,
)
from nexus.ledger.postgres.pool import PostgresPool
from nexus.ledger.records import Record
from nexus.ledger.sessions import EraseResult
from nexus.ledger.shared_sql import dump as sql_dump
from nexus.ledger.shared_sql import erase as sql_erase
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.shared_sql.write import Writing

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S = 10.0
"""How long a server that went away is waited for, within one call."""

PAUSE_S = 0.1
"""Time between two tries to connect."""

MOST_TRIES = 20
"""How often a transaction runs that the server ends in favor of another one."""


class _Unanswered(Exception):
    """A commit was sent and its answer lost; `result` is the result of the write."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class PostgresLedger(SqlLedger):
    """Ledger in a PostgreSQL database. See `LedgerStore` for its methods.

    `url` is a connection URI of libpq. Its tables are in the schema `nexus`, or the one that the URL's search path names.
    Safe to share between threads. A forked process must open its own ledger.
    """

    outlives_holders = True

    def __init__(
        self, url: str, *, tenant: str = "local", create: bool = True, clock_ms: Callable[[], int] | None = None
    ) -> None:
        super().__init__(tenant, clock_ms)
        self.address = parse_address(url)
        self.typed_errors = postgres_errors(self.address.place)
        self._of_thread = threading.local()
        with self.typed_errors:
            self._pool = PostgresPool(self.address, self._name, create=create)

    @property
    def location(self) -> str:
        """The URL without passwords."""
        return self.address.place

    @cached_property
    def id(self) -> str:
        """The ledger's ID, which its copies share: the time at which its first migration was applied."""
        return str(self.read_alone(lambda reader: reader.db.value("SELECT min(at_ms) FROM migration")))

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._pool.closed

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    @contextmanager
    def connection(self) -> Generator[PostgresDatabase]:
        """Yield a connection in a read transaction, for maintenance."""
        with self.typed_errors, self._begin_reading(time.monotonic() + PATIENCE_S) as db:
            yield db

    # reading -----------------------------------------------------------------------------------------------------

    @property
    def open_reader(self) -> Reader | None:
        """The reader of this thread's open snapshot."""
        reader: Reader | None = getattr(self._of_thread, "reader", None)
        if reader is not None:
            self._pool.check()
        return reader

    def read_alone(self, query: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in a snapshot of its own; again, if the connection is lost meanwhile."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self._begin_reading(until) as db:
                    return query(self._reader(db), *args, **kwargs)
            except psycopg.Error as error:
                if not is_lost(error) or time.monotonic() > until:
                    raise our_error(self.location, error) or error from error
                self._pool.drop_idle()

    def reading(self) -> AbstractContextManager[Reader]:
        """Return a context manager that gives a reader in a snapshot. Inside `snapshot()` it is always the same one."""
        return self._snapshot()

    def snapshot(self) -> AbstractContextManager[object]:
        """Run all reads of this thread in one read transaction."""
        return self._snapshot()

    @contextmanager
    def _snapshot(self) -> Generator[Reader]:
        open_reader = self.open_reader
        if open_reader is not None:
            yield open_reader
            return
        with self.typed_errors, self._begin_reading(time.monotonic() + PATIENCE_S) as db:
            self._of_thread.reader = reader = self._reader(db)
            try:
                yield reader
            finally:
                self._of_thread.reader = None

    def _reader(self, db: PostgresDatabase, *, is_writing: bool = False) -> Reader:
        # In a write, a path is read anew: the transaction may yet be taken back, and what it made with it.
        cache = self._cache
        if is_writing:
            cache = ReadCache(self._cache.updates)
        return Reader(db, self._name, self.location, cache, is_writing=is_writing)

    @contextmanager
    def _begin_reading(self, until: float) -> Generator[PostgresDatabase]:
        """Yield a connection in a read transaction, on another connection if an idle one was lost."""
        db = self._begin(until, writes=False, begin=PostgresDatabase.begin_reading)
        try:
            yield db
        finally:
            self._pool.give_back(db)

    def _begin(self, until: float, *, writes: bool, begin: Callable[[PostgresDatabase], None]) -> PostgresDatabase:
        """Return a connection on which a transaction has begun, and wait for a server that went away."""
        while True:
            db: PostgresDatabase | None = None
            try:
                db = self._pool.acquire(writes=writes)
                begin(db)
            except BaseException as error:
                if db is not None:
                    self._pool.give_back(db, writes=writes)
                is_away = isinstance(error, LedgerUnavailable) or is_lost(error)
                if not is_away or time.monotonic() > until:
                    raise
                self._pool.drop_idle()
                if db is None:
                    time.sleep(PAUSE_S)
            else:
                return db

    def dump(self) -> Iterator[Record]:
        """Yield all rows of the tenant as records, unchecked, as they were when it began."""
        open_reader: Reader | None = getattr(self._of_thread, "reader", None)
        self._pool.check()
        if open_reader is not None:
            with self.typed_errors:
                records = list(sql_dump.dump(open_reader.db, self._name))
            yield from records
            return
        # A connection of its own: a generator may be ended by another thread than began it.
        with self.typed_errors, self._begin_reading(time.monotonic() + PATIENCE_S) as db:
            yield from sql_dump.dump(db, self._name)

    # writing -----------------------------------------------------------------------------------------------------

    def _write(
        self,
        call: Callable[[Writing], T],
        *,
        alone: bool = False,
        durable: bool = True,
        is_stored: Callable[[Reader, T], bool] | None = None,
    ) -> T:
        """Run a write in a transaction of its own; again, if the server ended it or went away.

        If the answer to the commit is lost, the ledger is examined while no other write of the tenant runs: the write is
        there, or it runs again. Raises LedgerUnavailable if it cannot be examined.
        """
        until = time.monotonic() + PATIENCE_S
        is_alone = alone
        unanswered: list[T] = []
        for number in range(MOST_TRIES):
            try:
                return self._transact(call, unanswered, until, is_alone=is_alone, durable=durable, is_stored=is_stored)
            except NotAlone:
                is_alone = True
            except _Unanswered:
                self._pool.drop_idle()
                if is_stored is None:
                    break
                until = time.monotonic() + PATIENCE_S
                is_alone = True
            except LedgerUnavailable as error:
                if unanswered:
                    raise self._unknown() from error
                raise
            except psycopg.Error as error:
                if unanswered and not is_lost(error):  # it could not be looked up
                    raise self._unknown() from error
                runs_again = may_run_again(error) or is_lost(error)
                if alone or not runs_again or number + 1 == MOST_TRIES:
                    raise our_error(self.location, error) or error from error
                if is_lost(error):
                    self._pool.drop_idle()
        raise self._unknown()

    def _transact(
        self,
        call: Callable[[Writing], T],
        unanswered: list[T],
        until: float,
        *,
        is_alone: bool,
        durable: bool,
        is_stored: Callable[[Reader, T], bool] | None,
    ) -> T:
        """Run a write once. `unanswered` has its result if an earlier commit was sent and not answered."""
        db = self._begin(until, writes=True, begin=lambda db: db.begin(durable=durable, alone=is_alone))
        try:
            reader = self._reader(db, is_writing=True)
            if unanswered and is_stored is not None and is_stored(reader, unanswered[-1]):
                return unanswered[-1]
            unanswered.clear()
            result = call(Writing(db, reader, self.clock_ms))
            try:
                db.commit()
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
                unanswered.append(result)
                raise _Unanswered(result) from error
            return result
        finally:
            self._pool.give_back(db, writes=True)

    def _unknown(self) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"{self.location} was lost while a write was committed (it is stored or not, as a whole: look before you "
            "repeat it)",
            code="outcome_unknown",
        )

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
        """Delete rows. The server removes their text from its files with the next VACUUM."""
        if scrub and threads is not None and not (threads or labels or events or documents):
            return self._delete_unused_blobs()
        chosen = (threads, labels, events, documents, unused_since_ms)
        erased, _ = self._write(lambda writing: sql_erase.erase(writing, *chosen, scrub=scrub), alone=True)
        self._cache.clear()
        return erased
