"""Single writer of a SQLite ledger. Waiting pieces of work are committed together.

A caller that finds the seat free writes in its own thread, which costs least. When several meet, a writer thread takes
all waiting work into one transaction, with one disk sync for all. Each piece of work has a savepoint, so that one
failure leaves the others intact.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from nexus.ledger.sqlite.connection import SqliteDatabase

T = TypeVar("T")

MOST_TOGETHER = 64
"""Pieces of work in one transaction, at most."""


class WriterClosed(Exception):
    """The writer was closed before it took the work: another one has to do it."""


class _Work(Generic[T]):
    """Piece of work with its result. `done` is released when the result is set."""

    __slots__ = ("call", "done", "durable", "error", "result")

    def __init__(self, call: Callable[[SqliteDatabase], T], *, durable: bool) -> None:
        self.call = call
        self.durable = durable
        self.done = threading.Lock()
        self.done.acquire()
        self.result: T | None = None
        self.error: BaseException | None = None


class Writer:
    """Runner of work in write transactions on one connection. Its thread starts when two callers first meet."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self._seat = threading.Lock()
        self._starting = threading.Lock()
        self._queue: SimpleQueue[_Work[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, call: Callable[[SqliteDatabase], T], *, alone: bool = False, durable: bool = True) -> T:
        """Return the result of the work, once it is committed. Its error is raised here.

        Work that waited with others may run twice, if their transaction fails; `alone` is for what can run only once.
        Work that is not `durable` does not wait for the disk: a loss of power may undo it, with all that came after it.
        Raises WriterClosed.
        """
        if alone or (not self._seat.locked() and self._queue.empty()):
            with self._seat:
                if self._closed:
                    raise WriterClosed
                return run_alone(self._db, call, durable=durable)
        work = _Work(call, durable=durable)
        with self._starting:
            if self._closed:
                raise WriterClosed
            self._queue.put(work)  # pyright: ignore[reportArgumentType]
            if self._thread is None:
                arguments = (self._db, self._seat, self._queue)
                self._thread = threading.Thread(target=_loop, args=arguments, name="nexus-ledger-writer", daemon=True)
                self._thread.start()
        work.done.acquire()
        if work.error is not None:
            raise work.error
        return work.result  # pyright: ignore[reportReturnType]

    def close(self, patience_s: float = -1) -> bool:
        """Close the connection after all waiting work, within `patience_s`. Returns True if it is closed."""
        with self._starting:
            self._closed = True
            thread = self._thread
            self._queue.put(None)  # nothing comes after it
        if thread is not None:
            thread.join(None if patience_s < 0 else patience_s)
        if not self._seat.acquire(timeout=patience_s):
            return False
        try:
            self._db.close()
        finally:
            self._seat.release()
        return True

    def let_go(self) -> None:
        """End the thread without waiting, for a ledger that was never closed."""
        self._queue.put(None)


def run_alone(db: SqliteDatabase, call: Callable[[SqliteDatabase], T], *, durable: bool = True) -> T:
    """Run one piece of work in a transaction of its own. An interrupt leaves no transaction open."""
    try:
        db.begin(durable=durable)
        result = call(db)
        db.run("COMMIT")
    except BaseException:
        db.memo.clear()
        raise
    finally:
        if db.in_transaction:
            db.roll_back()
    return result


def _loop(db: SqliteDatabase, seat: threading.Lock, queue: SimpleQueue[_Work[object] | None]) -> None:
    while True:
        group = [queue.get()]
        with seat:
            while len(group) < MOST_TOGETHER and group[-1] is not None:
                try:
                    group.append(queue.get_nowait())
                except Empty:
                    break
            together = [work for work in group if work is not None]
            if together:
                _commit(db, together)
        for work in together:
            work.done.release()
        if group[-1] is None:
            return
        del group, together


def _commit(db: SqliteDatabase, group: list[_Work[object]]) -> None:
    """Run and commit a group. If the transaction as a whole fails, each piece gets its own."""
    if len(group) > 1:
        try:
            with db.transaction(durable=any(work.durable for work in group)):
                for work in group:
                    try:
                        with db.savepoint():
                            work.result = work.call(db)
                    except BaseException as error:
                        if not db.in_transaction:
                            raise
                        work.error = error
        except BaseException:  # noqa: BLE001 - tried again one by one, where each has its own error
            if db.in_transaction:
                db.roll_back()
        else:
            return
    for work in group:
        work.result = work.error = None
        try:
            work.result = run_alone(db, work.call, durable=work.durable)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the work came from
            work.error = error
