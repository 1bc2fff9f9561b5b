"""The connections of one ledger file: idle ones for reads, one for writes, and whether they may still be used.

A ledger in memory has one connection for everything, and one lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from nexus.errors import LedgerClosed, LedgerGone
from nexus.ledger.sqlite.connection import MEMORY, Database, connect, settle, spoils
from nexus.ledger.sqlite.files import identity, opened
from nexus.ledger.sqlite.writer import Writer, run_alone

T = TypeVar("T")

IDLE_READERS = 8
"""Connections that are kept open for the next read."""


class Pool:
    """Hands out connections to the ledger at `path`, which is made or migrated first. Safe to share between threads."""

    def __init__(self, path: str, *, create: bool, vfs: str) -> None:
        self.file, self._vfs = path, vfs
        self.pid = os.getpid()
        self.closed = False
        self._lock = threading.RLock()
        self._writer: Writer | None = None
        self._log: tuple[int, int] | None = None
        db = opened(path, create=create, vfs=vfs)
        self._memory = db if path == MEMORY else None
        self._idle = [] if path == MEMORY else [db]
        self._watched = path != MEMORY and not vfs
        self._identity = identity(path) if self._watched else None

    @property
    def in_memory(self) -> bool:
        """Whether there is no file."""
        return self._memory is not None

    def check(self) -> None:
        """Raises LedgerClosed or LedgerGone where the connections must not be used any more."""
        if self.pid != os.getpid():
            raise LedgerClosed(
                f"{self.file} was opened by process {self.pid} and this is a fork of it: SQLite's locks do not survive a "
                "fork. Open the ledger again in this process"
            )
        if self.closed:
            raise LedgerClosed(f"{self.file} was closed; open it again")
        if self._watched and identity(self.file) != self._identity:
            raise LedgerGone(
                f"the file at {self.file} is not the one that was opened: it was moved, replaced or deleted. Nothing was "
                "read or written; open the ledger again"
            )

    @contextmanager
    def connection(self) -> Generator[Database]:
        """A connection to read with; nobody else has it meanwhile."""
        db = self._taken()
        spoilt = False
        try:
            yield db
        except BaseException as error:
            spoilt = spoils(error)
            raise
        finally:
            self._give_back(db, spoilt=spoilt)

    def write(self, work: Callable[[Database], T], *, alone: bool) -> T:
        """Runs work in a write transaction and returns once it is on the disk; see `Writer.run` for `alone`."""
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

    def close(self) -> None:
        """Closes all connections, after what waits to be written."""
        with self._lock:
            if self.closed or self.pid != os.getpid():
                return
            self.closed = True
            writer, idle = self._writer, self._idle
            self._idle = []
        if writer is not None:
            writer.close()
        for db in [*idle, *([self._memory] if self._memory else [])]:
            db.close()

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

    def _give_back(self, db: Database, *, spoilt: bool) -> None:
        if self._memory is not None:
            self._lock.release()
            return
        with self._lock:
            if not spoilt and not self.closed and len(self._idle) < IDLE_READERS and not db.in_transaction:
                self._idle.append(db)
                return
        db.close()

    def _own_writer(self) -> Writer:
        with self._lock:
            if self.closed:
                raise LedgerClosed(f"{self.file} was closed; open it again")
            if self._writer is None:
                db = connect(self.file, create=False, vfs=self._vfs)
                settle(db)
                self._writer = Writer(db)
                self._log = identity(f"{self.file}-wal") if self._watched else None
                weakref.finalize(self, self._writer.let_go)
            elif self._watched:
                self._check_log()
            return self._writer

    def _check_log(self) -> None:
        """Raises LedgerGone if the log is not the one that the writer began with."""
        log = identity(f"{self.file}-wal")
        self._log = self._log or log
        if log != self._log:
            raise LedgerGone(
                f"the log of {self.file}, {self.file}-wal, was deleted or replaced while the ledger was open: what was "
                "appended last may be in no file. Nothing was written now. Make no copy by hand; close the ledger "
                "everywhere, then run `nexus ledger verify`"
            )

    def _drop(self, writer: Writer) -> None:
        """Gives up a writer whose connection an error has spoilt; the next write opens another one."""
        with self._lock:
            if self._writer is not writer:
                return
            self._writer = None
        writer.close()
