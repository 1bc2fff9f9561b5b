"""Connections of one ledger file: idle ones for reads, one for writes, and checks before use.

A ledger in memory has one connection and one lock.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from nexus.errors import LedgerUnusable
from nexus.ledger.sqlite.connection import MEMORY, SqliteDatabase, spoils
from nexus.ledger.sqlite.files import another, folder_of, identity, open_file
from nexus.ledger.sqlite.writer import Writer, WriterClosed, run_alone

T = TypeVar("T")

IDLE_READERS = 8
"""Connections that are kept open for the next read."""

UNSEEN_NS = 100_000_000
"""How old a folder's last change has to be for a later one to be seen by its time."""

FORK_PATIENCE_S = 5.0
"""How long a fork of the process waits for connections that other threads use."""


class SqlitePool:
    """Connections to the ledger at `path`, which is created or migrated first. Thread-safe."""

    def __init__(self, path: str, *, create: bool, vfs: str) -> None:
        self.file = path
        self._vfs = vfs
        self.pid = os.getpid()
        self.closed = False
        self._lock = threading.RLock()
        self._given_back = threading.Condition(self._lock)
        self._out: dict[int, int] = {}
        self._pausing = False
        self._writer: Writer | None = None
        self._ending: weakref.finalize[..., SqlitePool] | None = None
        self._log: tuple[int, int] | None = None
        db = open_file(path, create=create, vfs=vfs)
        self._memory = db if path == MEMORY else None
        self._idle = [] if path == MEMORY else [db]
        self._watched = path != MEMORY and not vfs
        self._identity = identity(path) if self._watched else None
        self._folder = os.path.dirname(path)  # noqa: PTH120 - on the way of every call
        self._folder_then: tuple[int, int, int] | None = None
        _pools.add(self)

    @property
    def in_memory(self) -> bool:
        """True for a ledger without a file."""
        return self._memory is not None

    def check(self, *, files: bool = True) -> None:
        """Raise LedgerUnusable, or LedgerUnusable if the files changed, when connections must not be used."""
        if self.pid != os.getpid():
            raise LedgerUnusable(
                f"{self.file} was opened by process {self.pid} and this is a fork of it: the ledger is in memory, or a "
                "connection was in use, whose locks do not survive a fork (fork outside of snapshots and writes, or "
                "before the ledger is opened)",
                code="ledger_closed",
            )
        if self.closed:
            raise LedgerUnusable(f"{self.file} is closed (open it again)", code="ledger_closed")
        if files and self._watched:
            self._check_files()

    def _check_files(self) -> None:
        """Raise LedgerUnusable if the file or its log is not the one that was opened, or is not there any more."""
        folder = folder_of(self._folder)
        if folder == self._folder_then:  # nothing was made, renamed or deleted in it since the last time
            return
        if identity(self.file) != self._identity:
            raise LedgerUnusable(
                f"{self.file} was moved, replaced or deleted while it was open (nothing was read or written; open the "
                "ledger again)",
                code="ledger_gone",
            )
        if not self._has_its_log():
            with self._lock:  # a fork takes the log away with the last connection: only then can it be missing
                self._wait_for_fork()
                if not self._has_its_log():
                    raise LedgerUnusable(
                        f"{self.file}-wal, the log of {self.file}, was deleted or replaced while the ledger was open: the "
                        "last appends may be lost (nothing was written now; make no copy by hand, close the ledger "
                        "everywhere, then run nexus ledger verify)",
                        code="ledger_gone",
                    )
        # A folder's time has steps of some milliseconds: a change just now may hide the next one.
        settled = folder is not None and time.time_ns() - folder[2] > UNSEEN_NS and not os.path.islink(self.file)  # noqa: PTH114
        self._folder_then = folder if settled else None

    def _has_its_log(self) -> bool:
        """Return True if the log is the one that the writer started with, or there is no writer."""
        log = self._log
        return log is None or identity(f"{self.file}-wal") == log

    @contextmanager
    def connection(self) -> Generator[SqliteDatabase]:
        """Yield a connection for reading that no other thread uses meanwhile."""
        db = self.acquire()
        spoilt = False
        try:
            yield db
        except BaseException as error:
            spoilt = spoils(error)
            raise
        finally:
            self.give_back(db, spoilt=spoilt)

    def write(self, work: Callable[[SqliteDatabase], T], *, alone: bool, durable: bool = True) -> T:
        """Run work in a write transaction and return once it is on the disk; see `Writer.run`."""
        if self._memory is not None:
            with self._lock:
                if not self._memory.in_transaction:
                    return run_alone(self._memory, work)
                with self._memory.transaction():
                    return work(self._memory)
        while True:
            writer = self._own_writer()
            try:
                return writer.run(work, alone=alone, durable=durable)
            except WriterClosed:
                continue
            except BaseException as error:
                if spoils(error):  # the next write opens another connection
                    with self._lock:
                        if self._writer is writer:
                            self._give_up_writer()
                    writer.close()
                raise

    def close(self) -> None:
        """Close all connections, after what waits to be written."""
        with self._lock:
            if self.closed or self.pid != os.getpid():
                return
            self.closed = True
            writer = self._writer
            idle = self._idle
            self._idle = []
        if writer is not None:
            writer.close()
        for db in [*idle, *([self._memory] if self._memory else [])]:
            db.close()

    def acquire(self) -> SqliteDatabase:
        """Return a connection for reading that no other thread uses until `give_back`."""
        if self._memory is not None:
            self._lock.acquire()
            return self._memory
        me = threading.get_ident()
        with self._lock:
            self._wait_for_fork()
            self._out[me] = self._out.get(me, 0) + 1
            if self._idle:
                return self._idle.pop()
        try:
            return another(self.file, vfs=self._vfs)
        except BaseException:
            self._count_back()
            raise

    def _count_back(self) -> None:
        me = threading.get_ident()
        with self._lock:
            self._out[me] -= 1
            if not self._out[me]:
                del self._out[me]
            self._given_back.notify_all()

    def _wait_for_fork(self) -> None:
        """Wait while another thread forks the process, unless that waits for this thread's connection."""
        while self._pausing and threading.get_ident() not in self._out:
            self._given_back.wait()

    def give_back(self, db: SqliteDatabase, *, spoilt: bool) -> None:
        """Take a connection back, and close it if an error spoilt it."""
        if self._memory is not None:
            self._lock.release()
            return
        with self._lock:
            keep = not spoilt and not self.closed and len(self._idle) < IDLE_READERS and not db.in_transaction
            if keep:
                self._idle.append(db)
        if not keep:
            db.close()
        self._count_back()

    def _own_writer(self) -> Writer:
        with self._lock:
            self._wait_for_fork()
            if self.closed:
                raise LedgerUnusable(f"{self.file} is closed (open it again)", code="ledger_closed")
            if self._writer is None:
                self._writer = Writer(another(self.file, vfs=self._vfs))
                if self._watched:
                    self._log = identity(f"{self.file}-wal")
                else:
                    self._log = None
                self._folder_then = None
                self._ending = weakref.finalize(self, self._writer.let_go)
            return self._writer

    def _give_up_writer(self) -> Writer | None:
        """Return the writer and forget it; the next write creates another one."""
        writer = self._writer
        self._writer = None
        self._log = None
        if self._ending is not None:
            self._ending.detach()
        return writer

    # forks -------------------------------------------------------------------------------------------------------

    def pause(self, until: float) -> bool:
        """Close all connections before the process forks, and block new ones until `resume`.

        SQLite keeps the process's locks in its memory: a fork would inherit locks that it does not hold, and even a
        connection that it opens later would rely on them. Returns False if a connection was still in use at the time
        `until`.
        """
        if self._memory is not None or self.closed or self.pid != os.getpid():
            return False
        self._lock.acquire()
        self._pausing = True
        while self._out or self._writer is not None:
            left_s = until - time.monotonic()
            if left_s <= 0 or threading.get_ident() in self._out:
                self.resume(forked=False)
                return False
            writer = self._give_up_writer()
            if writer is None:
                self._given_back.wait(left_s)
                continue
            self._lock.release()
            try:
                closed = writer.close(left_s)
            finally:
                self._lock.acquire()
            if not closed:
                self.resume(forked=False)
                return False
        for db in self._idle:
            db.close()
        self._idle = []
        return True

    def resume(self, *, forked: bool) -> None:
        """Let others open connections again; in the fork too, which begins without any."""
        if forked:
            self.pid = os.getpid()
        self._pausing = False
        self._given_back.notify_all()
        self._lock.release()


_pools: weakref.WeakSet[SqlitePool] = weakref.WeakSet()
_forking = threading.Lock()
_paused: list[SqlitePool] = []


def _before_fork() -> None:
    _forking.acquire()
    until = time.monotonic() + FORK_PATIENCE_S
    _paused.extend(pool for pool in list(_pools) if pool.pause(until))


def _after_fork(*, forked: bool) -> None:
    while _paused:
        _paused.pop().resume(forked=forked)
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(forked=False),
        after_in_child=lambda: _after_fork(forked=True),
    )
