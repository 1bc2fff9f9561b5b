"""Ledger store in SQLite, in a file or in memory.

Writes run one at a time in `BEGIN IMMEDIATE` transactions. Reads have connections of their own and never wait. Every
row is checked against its hash before it is returned.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from nexus.errors import EraseIncomplete, LedgerNotTrusted
from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    AcceptedEvent,
    Alias,
    EraseResult,
    EventState,
    Lease,
    NewQueuedEvent,
    NewRefUpdate,
    QueuedEvent,
    RefUpdate,
    Segment,
    SessionMetadata,
)
from nexus.ledger.sqlite import dump as sqlite_dump
from nexus.ledger.sqlite import queue as sqlite_queue
from nexus.ledger.sqlite import search as sqlite_search
from nexus.ledger.sqlite.connection import MEMORY, Database, spoils, typed
from nexus.ledger.sqlite.files import delete_leftovers, find_needles, ledger_id, rewrite
from nexus.ledger.sqlite.pool import Pool
from nexus.ledger.sqlite.read import Reader
from nexus.ledger.sqlite.read_sessions import ReadCache
from nexus.ledger.sqlite.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.ledger_entries import Commit, Committed, Entry, StoredCalibration

P = ParamSpec("P")
T = TypeVar("T")

_open: weakref.WeakSet[SqliteLedger]


def _read(query: Callable[Concatenate[Reader, P], T]) -> Callable[Concatenate[SqliteLedger, P], T]:
    """Return the store's method that runs a reader's query in a snapshot."""

    @wraps(query)
    def method(self: SqliteLedger, *args: P.args, **kwargs: P.kwargs) -> T:
        reader = self.open_reader
        if reader is None:
            with self.reading() as reader:
                return query(reader, *args, **kwargs)
        with typed(self.file):
            return query(reader, *args, **kwargs)

    return method


class SqliteLedger:
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
        self.file, self._tenant = path, tenant
        self._name = encode_text(tenant)
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.trusted = True
        """False for a ledger that came with its folder: it rejects writes."""
        self._cache = ReadCache()
        self._of_thread = threading.local()
        with typed(path):
            self._pool = Pool(path, create=create, vfs=vfs)
        _open.add(self)

    @property
    def location(self) -> str:
        """The file's path."""
        return self.file

    @property
    def tenant(self) -> str:
        """Whose rows these are."""
        return self._tenant

    @cached_property
    def id(self) -> str:
        """The ledger's ID, which copies of its file share: the time at which its first migration was applied."""
        with self.reading() as reader:
            return ledger_id(reader.db)

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

    def reading(self) -> _Snapshot:
        """Return a context manager that gives a reader in a snapshot. Inside `snapshot()` it is always the same one."""
        return _Snapshot(self)

    def snapshot(self) -> AbstractContextManager[object]:
        """Run all reads of this thread in one read transaction."""
        return _Snapshot(self)

    def begin_reading(self) -> Reader:
        """Begin this thread's read transaction and return its reader."""
        self._pool.check()
        db = self._pool.acquire()
        self._of_thread.has_begun = False
        try:
            if not db.in_transaction:  # in memory, a read within a write has the write's connection
                db.run("BEGIN")
                self._of_thread.has_begun = True
        except BaseException as error:
            self._pool.give_back(db, spoilt=spoils(error))
            raise
        self._of_thread.reader = reader = Reader(db, self._name, self.file, self._cache)
        return reader

    def end_reading(self, db: Database, error: BaseException | None) -> None:
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
        """Raise LedgerNotTrusted for a ledger that came with its folder."""
        if not self.trusted:
            raise LedgerNotTrusted(
                f"ledger {self.file} was not made by this user: it is read-only, and its content goes to no model (look at "
                "it: nexus sessions, nexus history; accept it: nexus ledger trust; or use another one: --ledger FILE)"
            )

    def _write(self, call: Callable[[Writing], T], *, alone: bool = False, durable: bool = True) -> T:
        """Run a write in the writer's transaction and wait until it is on the disk; see `Writer.run`."""
        self._pool.check()
        self.check_trusted()
        tenant, path, clock_ms, moves = self._name, self.file, self.clock_ms, self._cache.moves

        def work(db: Database) -> T:
            # A path is read anew: the transaction may yet be taken back, and what it made with it.
            return call(Writing(db, Reader(db, tenant, path, ReadCache(moves), is_writing=True), clock_ms))

        with typed(self.file):
            return self._pool.write(work, alone=alone, durable=durable)

    # sessions ----------------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str | None:
        """Return the label that a name means."""
        with self.reading() as reader:
            label = reader.resolve(encode_text(name))
        return decode_text(label) if label is not None else None

    thread_of = _read(Reader.thread_of)
    session = _read(Reader.session)
    sessions = _read(sqlite_search.sessions)
    ref_updates = _read(Reader.ref_updates)
    aliases = _read(Reader.aliases)

    def update_refs(self, moves: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Append moves and alias changes in one transaction."""
        return self._write(lambda writing: writing.move(moves, aliases))

    # writing -----------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        """Write everything in one transaction, or nothing."""
        return self._write(lambda writing: writing.commit(session, commit, facts))

    def fork(
        self,
        session: str,
        source: str,
        at_seq: int,
        *,
        reason: str = "fork",
        facts: SessionMetadata | None = None,
        expected_number: int | None = None,
    ) -> int:
        """Start a thread with its parent's chain value at `at_seq`. A fork is one row."""
        new = NewRefUpdate(session, None, reason, facts, expected_number)
        return self._write(lambda writing: writing.fork(new, source, at_seq))

    def take_lease(self, session: str, holder: str, ms: int) -> Lease:
        """Take or renew the lease of a session."""
        return self._write(lambda writing: writing.take_lease(session, holder, ms), durable=False)

    def release_lease(self, session: str, holder: str) -> None:
        """Give a session's lease back."""
        self._write(lambda writing: writing.release_lease(session, holder), durable=False)

    def accept_events(self, events: Sequence[NewQueuedEvent]) -> list[AcceptedEvent]:
        """Store the events whose id is new, in one transaction."""
        return self._write(lambda writing: sqlite_queue.accept(writing, events))

    def update_events(
        self,
        ids: Collection[str],
        state: EventState,
        *,
        expected: Collection[EventState],
        reason: str = "",
        turn: int = 0,
    ) -> list[QueuedEvent]:
        """Change the events that are in an expected state."""
        durable = state != "running"  # or the event is found queued, and taken again
        return self._write(
            lambda writing: sqlite_queue.update(writing, ids, state, reason, turn, expected), durable=durable
        )

    def delete_finished_events(self, age_ms: int) -> int:
        """Delete the events that were finished longer ago."""
        return self._write(lambda writing: sqlite_queue.delete_finished(writing, age_ms))

    def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Store a newer calibration."""
        self._write(lambda writing: writing.calibrate(provider, model, calibration), durable=False)

    def erase(self, threads: Sequence[int] | None, labels: Sequence[str] = ()) -> EraseResult:
        """Delete rows, empty the log and search the file for the deleted text."""
        erased, needles = self._write(lambda writing: sqlite_dump.erase(writing, threads, labels), alone=True)
        self._cache.clear()
        remaining: list[str] = []
        if not self._pool.in_memory:
            delete_leftovers(Path(self.file).parent)  # copies of the text, which a killed backup left
            with typed(self.file), self._pool.connection() as db:
                remaining = find_needles(db, self.file, needles)
                if remaining:  # what an older version left in the unused part of pages
                    rewrite(db, self.file)
                    remaining = find_needles(db, self.file, needles)
        if remaining:
            raise EraseIncomplete(
                f"{erased.messages} messages were deleted, but {len(remaining)} of {len(needles)} pieces of their text remain "
                f"in {self.file} (close it everywhere, then run nexus ledger vacuum)"
            )
        return EraseResult(erased.threads, erased.entries, erased.messages, erased.blobs, len(needles), len(remaining))

    def load(self, records: Iterable[Record]) -> int:
        """Store records that `dump` gave."""
        return self._write(lambda writing: sqlite_dump.load(writing, records), alone=True)

    # reading -----------------------------------------------------------------------------------------------------

    def path(self, thread: int) -> list[Segment]:
        """Return the thread's path, root first."""
        with self.reading() as reader:
            return list(reader.path(thread))  # the reader's own list is cached

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """Return the path's entries in order, all verified before the first one is returned."""
        with self.reading() as reader:
            return iter(reader.entries(thread, after, until))

    thread = _read(Reader.thread)
    threads = _read(Reader.threads)
    head = _read(Reader.head)
    checkpoints = _read(Reader.checkpoints)
    instructions = _read(Reader.instructions)
    last_cut = _read(Reader.last_cut)
    cuts = _read(Reader.cuts)
    last_assembly = _read(Reader.last_assembly)
    assemblies = _read(Reader.assemblies)
    blob = _read(Reader.blob_if_there)
    known_keys = _read(sqlite_search.known_keys)
    holders = _read(sqlite_search.holders)
    search = _read(sqlite_search.search)
    calibration = _read(Reader.calibration)
    calibrations = _read(Reader.calibrations)
    queued_event = _read(sqlite_queue.event)
    queued_events = _read(sqlite_queue.events)
    queued_sessions = _read(sqlite_queue.sessions)

    def dump(self) -> Iterator[Record]:
        """Yield all rows of the tenant as records, unchecked, as they were when it began."""
        open_reader: Reader | None = getattr(self._of_thread, "reader", None)
        self._pool.check()
        if open_reader is not None or self._pool.in_memory:
            with self.reading() as reader:
                records = list(sqlite_dump.dump(reader.db, self._name))
            yield from records
            return
        # A connection of its own: a generator may be ended by another thread than began it.
        with typed(self.file), self._pool.connection() as db, db.snapshot():
            yield from sqlite_dump.dump(db, self._name)


class _Snapshot:
    """A thread's read transaction, or its part within an outer one. A class enters faster than a generator."""

    __slots__ = ("_db", "_store")

    def __init__(self, store: SqliteLedger) -> None:
        self._store = store
        self._db: Database | None = None

    def __enter__(self) -> Reader:
        store = self._store
        reader = store.open_reader
        if reader is None:
            with typed(store.file):
                reader = store.begin_reading()
            self._db = reader.db
        return reader

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with typed(self._store.file):
            if self._db is not None:
                self._store.end_reading(self._db, error)
        typed(self._store.file).__exit__(kind, error, trace)


_open = weakref.WeakSet()


def open_ledgers() -> list[tuple[str, int]]:
    """Return the paths of open ledgers, each with the process that may use it."""
    return sorted((ledger.file, ledger.pid) for ledger in list(_open) if not ledger.closed)
