"""The ledger in SQLite: hand-written SQL behind the store protocol.

One writes at a time, in `BEGIN IMMEDIATE` transactions; reads have connections of their own and wait for nobody.
Everything read is checked against its hashes before it is served.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nexus.errors import EraseIncomplete, LedgerClosed, LedgerGone
from nexus.ledger.entries import AssemblyRow, Calibration, Commit, Committed, Cut, Entry, Row
from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    Alias,
    Erased,
    Hit,
    Move,
    NewMove,
    Query,
    Segment,
    SessionFacts,
    SessionInfo,
    Thread,
)
from nexus.ledger.sqlite import dump as sqlite_dump
from nexus.ledger.sqlite import search as sqlite_search
from nexus.ledger.sqlite.connection import MEMORY, Database, connect, settle, spoils, typed
from nexus.ledger.sqlite.files import held, identity, opened
from nexus.ledger.sqlite.read import Reader
from nexus.ledger.sqlite.write import Writing
from nexus.ledger.sqlite.writer import Writer, run_alone
from nexus.ledger.text_rule import original, storable

T = TypeVar("T")

IDLE_READERS = 8
"""Connections that are kept open for the next read."""

_open: weakref.WeakSet[SqliteLedger]


class SqliteLedger:
    """A ledger in one SQLite file, or in memory for `:memory:`. See `LedgerStore` for what each method promises.

    `clock_ms` gives the time of what is written without one; `vfs` names a SQLite file layer other than the usual one.
    Safe to share between threads, not between processes: a process that was forked opens its own.
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
        self.file, self._tenant, self._vfs = path, tenant, vfs
        self._name = storable(tenant)
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.pid = os.getpid()
        self._segments: dict[int, list[Segment]] = {}
        self._lock = threading.RLock()
        self._here = threading.local()
        self._idle: list[Database] = []
        self._writer: Writer | None = None
        self._closed = False
        with typed(path):
            db = opened(path, create=create, vfs=vfs)
        self._memory = db if path == MEMORY else None
        self._idle = [] if path == MEMORY else [db]
        self._identity = identity(path) if path != MEMORY and not vfs else None
        _open.add(self)

    @property
    def place(self) -> str:
        """The file's path."""
        return self.file

    @property
    def tenant(self) -> str:
        """Whose rows these are."""
        return self._tenant

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Closes all connections, after what waits to be written."""
        with self._lock:
            if self._closed or self.pid != os.getpid():
                return
            self._closed = True
            writer, idle = self._writer, self._idle
            self._idle = []
        if writer is not None:
            writer.close()
        for db in [*idle, *([self._memory] if self._memory else [])]:
            db.close()

    def _check_open(self) -> None:
        if self.pid != os.getpid():
            raise LedgerClosed(
                f"{self.file} was opened by process {self.pid} and this is a fork of it: SQLite's locks do not survive a "
                "fork. Open the ledger again in this process"
            )
        if self._closed:
            raise LedgerClosed(f"{self.file} was closed; open it again")
        if self._identity is not None and identity(self.file) != self._identity:
            raise LedgerGone(
                f"the file at {self.file} is not the one that was opened: it was moved, replaced or deleted. Nothing was "
                "read or written; open the ledger again"
            )

    @contextmanager
    def _reading(self) -> Generator[Reader]:
        """A reader in a snapshot; inside `snapshot()` always the same one."""
        held: Reader | None = getattr(self._here, "reader", None)
        self._check_open()
        if held is not None:
            with typed(self.file):
                yield held
            return
        with typed(self.file):
            db = self._taken()
            reader = Reader(db, self._name, self.file, self._segments)
            self._here.reader = reader
            spoilt = False
            try:
                with db.snapshot():
                    yield reader
            except BaseException as error:
                spoilt = spoils(error)
                raise
            finally:
                self._here.reader = None
                self._give_back(db, spoilt=spoilt)

    def _taken(self) -> Database:
        if self._memory is not None:
            self._lock.acquire()
            return self._memory
        with self._lock:
            if self._idle:
                return self._idle.pop()
        db = connect(self.file, create=False, vfs=self._vfs)
        settle(db)
        return db

    def _give_back(self, db: Database, *, spoilt: bool = False) -> None:
        if self._memory is not None:
            self._lock.release()
            return
        with self._lock:
            if not spoilt and not self._closed and len(self._idle) < IDLE_READERS and not db.in_transaction:
                self._idle.append(db)
                return
        db.close()

    def _write(self, call: Callable[[Writing], T], *, alone: bool = False) -> T:
        """Runs a write in the writer's transaction and waits until it is on the disk."""
        self._check_open()
        tenant, path, clock_ms = self._name, self.file, self.clock_ms

        def work(db: Database) -> T:
            # A path is read anew: the transaction may yet be taken back, and what it made with it.
            return call(Writing(db, Reader(db, tenant, path, {}), clock_ms))

        with typed(self.file):
            if self._memory is not None:
                with self._lock:
                    if not self._memory.in_transaction:
                        return run_alone(self._memory, work)
                    with self._memory.transaction():
                        return work(self._memory)
            writer = self._own_writer()
            try:
                return writer.run(work, alone=alone)
            except BaseException as error:
                if spoils(error):
                    self._drop(writer)
                raise

    def _drop(self, writer: Writer) -> None:
        """Gives up a writer whose connection an error has spoilt; the next write opens another one."""
        with self._lock:
            if self._writer is not writer:
                return
            self._writer = None
        writer.close()

    def _own_writer(self) -> Writer:
        with self._lock:
            if self._closed:
                raise LedgerClosed(f"{self.file} was closed; open it again")
            if self._writer is None:
                db = connect(self.file, create=False, vfs=self._vfs)
                settle(db)
                self._writer = Writer(db)
                weakref.finalize(self, self._writer.let_go)
            return self._writer

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """One read transaction for all reads of this thread inside."""
        with self._reading():
            yield

    def resolve(self, name: str) -> str | None:
        """The label that a name stands for."""
        with self._reading() as reader:
            label = reader.resolve(storable(name))
        return original(label) if label is not None else None

    def thread_of(self, session: str) -> int | None:
        """The thread that a label or alias points to."""
        with self._reading() as reader:
            return reader.thread_of(session)

    def session(self, label: str) -> Move | None:
        """The newest move of exactly this label."""
        with self._reading() as reader:
            record = reader.move_of(storable(label))
            return reader.move(record) if record is not None else None

    def sessions(self, *, every: bool = False) -> list[SessionInfo]:
        """The sessions, newest first."""
        with self._reading() as reader:
            return sqlite_search.sessions(reader, every=every)

    def moves(self, label: str) -> list[Move]:
        """All moves of exactly this label, oldest first."""
        with self._reading() as reader:
            return [reader.move(record) for record in reader.moves_of(storable(label))]

    def move(self, moves: Sequence[NewMove], aliases: Sequence[Alias] = ()) -> list[Move]:
        """Appends moves and alias changes in one transaction."""
        return self._write(lambda writing: writing.move(moves, aliases))

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """The aliases that hold, or each change there was."""
        with self._reading() as reader:
            return reader.aliases(every=every)

    def commit(self, session: str, commit: Commit, facts: SessionFacts | None = None) -> Committed:
        """One transaction for everything, or nothing."""
        return self._write(lambda writing: writing.commit(session, commit, facts))

    def fork(
        self, session: str, source: str, at_seq: int, *, reason: str = "fork", facts: SessionFacts | None = None
    ) -> int:
        """A fork is one row: a thread that starts with its parent's hash at `at_seq`."""
        return self._write(lambda writing: writing.fork(session, source, at_seq, reason, facts))

    def calibrate(self, provider: str, model: str, calibration: Calibration) -> None:
        """Stores a newer calibration."""
        self._write(lambda writing: writing.calibrate(provider, model, calibration))

    def erase(self, threads: Sequence[int] | None, labels: Sequence[str] = ()) -> Erased:
        """Deletes for good, empties the log and searches the file for what was deleted."""
        erased, needles = self._write(lambda writing: sqlite_dump.erase(writing, threads, labels), alone=True)
        self._segments.clear()
        found = self._remaining(needles)
        if found:
            raise EraseIncomplete(
                f"{erased.messages} messages were deleted, but {len(found)} of {len(needles)} pieces of their text are "
                f"still in {self.file}: close it everywhere and run `sqlite3 FILE VACUUM`"
            )
        return Erased(erased.threads, erased.entries, erased.messages, erased.blobs, len(needles), len(found))

    def _remaining(self, needles: list[str]) -> list[str]:
        """The pieces that the file or its log still hold, though no row has them."""
        if self._memory is not None:
            return []
        with typed(self.file):
            db = self._taken()
            try:
                found = held(db, self.file, needles)
                if found:  # what an older version left in the unused part of pages
                    db.run("VACUUM")
                    found = held(db, self.file, needles)
                return found
            finally:
                self._give_back(db)

    def load(self, records: Iterable[Record]) -> int:
        """Stores records that `dump` gave."""
        return self._write(lambda writing: sqlite_dump.load(writing, records), alone=True)

    def thread(self, thread: int) -> Thread:
        """A thread's row."""
        with self._reading() as reader:
            return reader.thread(thread)

    def threads(self) -> list[Thread]:
        """All threads, by number."""
        with self._reading() as reader:
            return reader.threads()

    def path(self, thread: int) -> list[Segment]:
        """The thread's path, root first."""
        with self._reading() as reader:
            return list(reader.path(thread))

    def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and hash."""
        with self._reading() as reader:
            row = reader.thread(thread)
            return row.head_seq, row.head_hash

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The path's entries in order, verified. The whole range is read before the first one is given out."""
        with self._reading() as reader:
            return iter(reader.entries(thread, after, until))

    def marks(self, thread: int) -> list[Entry]:
        """The path's marks, newest first."""
        with self._reading() as reader:
            return reader.marks(thread)

    def instructions(self, thread: int) -> Sequence[Row]:
        """The leading system messages of the path's first entry."""
        with self._reading() as reader:
            return reader.instructions(thread)

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The newest cut of the view on the path."""
        with self._reading() as reader:
            return reader.last_cut(thread, view)

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest manifest of the view on the path."""
        with self._reading() as reader:
            return reader.last_assembly(thread, view)

    def assemblies(self, thread: int) -> list[AssemblyRow]:
        """All manifests on the path, oldest first."""
        with self._reading() as reader:
            return reader.assemblies(thread)

    def known_keys(self, session: str) -> dict[str, int]:
        """The idempotency keys that were used on the session's path, and where."""
        with self._reading() as reader:
            return sqlite_search.known_keys(reader, session)

    def holders(self, key: str) -> list[tuple[int, int]]:
        """Where an idempotency key was used: (thread, seq)."""
        with self._reading() as reader:
            return sqlite_search.holders(reader, key)

    def search(self, query: Query) -> list[Hit]:
        """The messages that have all the query's words."""
        with self._reading() as reader:
            return sqlite_search.search(reader, query)

    def calibration(self, provider: str, model: str) -> Calibration | None:
        """The newest calibration."""
        with self._reading() as reader:
            return reader.calibration(provider, model)

    def dump(self) -> Iterator[Record]:
        """All rows of the tenant as records, unchecked, as they were when it began."""
        held: Reader | None = getattr(self._here, "reader", None)
        self._check_open()
        if held is not None or self._memory is not None:
            with self._reading() as reader:
                records = list(sqlite_dump.dump(reader.db, self._name))
            yield from records
            return
        # A connection of its own: a generator may be ended by another thread than began it.
        with typed(self.file):
            db = self._taken()
            try:
                with db.snapshot():
                    yield from sqlite_dump.dump(db, self._name)
            finally:
                self._give_back(db)


_open = weakref.WeakSet()


def open_ledgers() -> list[tuple[str, int]]:
    """The ledgers that are open here, each with the process that opened it: another one's must not be used."""
    return sorted((ledger.file, ledger.pid) for ledger in list(_open) if not ledger.closed)
