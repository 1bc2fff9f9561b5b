"""Connections of one ledger to its server: idle ones are used again, at most so many are open.

A caller connects in its own thread, so that it gets the server's own error at once. It has no threads of its own, which a
fork of the process would lose.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from psycopg.pq import TransactionStatus

from nexus.errors import LedgerBusy, LedgerUnusable
from nexus.ledger.address import Address
from nexus.ledger.postgres.connection import BUSY_TIMEOUT_MS, PostgresDatabase, connect
from nexus.ledger.postgres.schema import migrate

MOST_READERS = 16
"""Connections for reads, at most; further readers wait."""

MOST_WRITERS = 16
"""Connections for writes, at most. They are counted by themselves: a thread may write while it reads a snapshot."""

MOST_IDLE = 8


class PostgresPool:
    """Connections to the ledger at an address, which is created or migrated first. Thread-safe."""

    def __init__(self, address: Address, tenant: str, *, create: bool) -> None:
        self.address = address
        self._tenant = tenant
        self.pid = os.getpid()
        self.closed = False
        self._lock = threading.Lock()
        self._readers = threading.Semaphore(MOST_READERS)
        self._writers = threading.Semaphore(MOST_WRITERS)
        db = connect(address, tenant)
        try:
            migrate(db, create=create)
        except BaseException:
            db.close()
            raise
        self._idle = [db]

    def check(self) -> None:
        """Raise LedgerUnusable when connections must not be used."""
        if self.pid != os.getpid():
            raise LedgerUnusable(
                f"{self.address.place} was opened by process {self.pid} and this is a fork of it (open the ledger in the "
                "forked process)",
                code="ledger_closed",
            )
        if self.closed:
            raise LedgerUnusable(f"{self.address.place} is closed (open it again)", code="ledger_closed")

    @contextmanager
    def connection(self, *, writes: bool = False) -> Generator[PostgresDatabase]:
        """Yield a connection that no other thread uses meanwhile. An open transaction is rolled back at the end."""
        db = self.acquire(writes=writes)
        try:
            yield db
        finally:
            self.give_back(db, writes=writes)

    def acquire(self, *, writes: bool = False) -> PostgresDatabase:
        """Return a connection that no other thread uses until `give_back`. Raises LedgerBusy, LedgerUnavailable."""
        self.check()
        free = self._writers if writes else self._readers
        if not free.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
            raise LedgerBusy(f"{self.address.place}: all connections of this program are in use (try again)")
        try:
            with self._lock:
                db = self._idle.pop() if self._idle else None
            return db or connect(self.address, self._tenant)
        except BaseException:
            free.release()
            raise

    def give_back(self, db: PostgresDatabase, *, writes: bool = False) -> None:
        """Take a connection back, and close it if it cannot be used again."""
        try:
            if not db.is_lost and db.connection.info.transaction_status is not TransactionStatus.IDLE:
                db.roll_back()
            is_usable = not db.is_lost and db.connection.info.transaction_status is TransactionStatus.IDLE
            with self._lock:
                keep = is_usable and not self.closed and len(self._idle) < MOST_IDLE
                if keep:
                    self._idle.append(db)
            if not keep:
                db.close()
        finally:
            (self._writers if writes else self._readers).release()

    def drop_idle(self) -> None:
        """Close all idle connections: when one was lost, the others are too."""
        with self._lock:
            idle = self._idle
            self._idle = []
        for db in idle:
            db.close()

    def close(self) -> None:
        """Close all connections; those in use are closed when they are given back."""
        if self.pid != os.getpid():
            return
        self.closed = True
        self.drop_idle()
