"""The store protocol for asyncio: each call runs on a thread of the ledger's own, so the event loop never waits.

Writes run one after the other on one thread, reads on four others, a snapshot on one of its own. A task that is cancelled
stops waiting at once, but its call goes on: **a cancelled append may still be committed**. Give entries idempotency keys,
and after a cancellation look at `known_keys`, or append again: what was stored is not stored twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from nexus.errors import LedgerClosed
from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    Alias,
    EraseResult,
    NewRefUpdate,
    Query,
    RefUpdate,
    SearchHit,
    Segment,
    SessionInfo,
    SessionMetadata,
    Thread,
)
from nexus.ledger.store import LedgerStore
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, Entry, StoredCalibration, StoredMessage

T = TypeVar("T")

READERS = 4
"""Reads that run at the same time, at most."""


class AsyncReads:
    """The reads of a store as coroutines. See `LedgerStore` for what each gives and raises."""

    def __init__(self, store: LedgerStore, executor: ThreadPoolExecutor, is_open: Callable[[], bool]) -> None:
        self._store = store
        self._reads = executor
        self._is_open = is_open

    @property
    def place(self) -> str:
        """Where the ledger is, for messages."""
        return self._store.place

    @property
    def tenant(self) -> str:
        """Whose rows are read and written."""
        return self._store.tenant

    async def resolve(self, name: str) -> str | None:
        """The label that a name stands for."""
        return await self._read(lambda: self._store.resolve(name))

    async def thread_of(self, session: str) -> int | None:
        """The thread that a session's label or alias points to."""
        return await self._read(lambda: self._store.thread_of(session))

    async def session(self, label: str) -> RefUpdate | None:
        """The newest move of exactly this label."""
        return await self._read(lambda: self._store.session(label))

    async def sessions(self, *, every: bool = False) -> list[SessionInfo]:
        """The active sessions, newest first; `every` adds archived and deleted ones."""
        return await self._read(lambda: self._store.sessions(every=every))

    async def moves(self, label: str) -> list[RefUpdate]:
        """All moves of exactly this label, oldest first."""
        return await self._read(lambda: self._store.moves(label))

    async def aliases(self, *, every: bool = False) -> list[Alias]:
        """The aliases that hold now, by name; `every` gives each change there was."""
        return await self._read(lambda: self._store.aliases(every=every))

    async def thread(self, thread: int) -> Thread:
        """A thread's row."""
        return await self._read(lambda: self._store.thread(thread))

    async def threads(self) -> list[Thread]:
        """All threads, by number."""
        return await self._read(self._store.threads)

    async def path(self, thread: int) -> list[Segment]:
        """The thread's path, root first."""
        return await self._read(lambda: self._store.path(thread))

    async def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and its hash."""
        return await self._read(lambda: self._store.head(thread))

    async def entries(self, thread: int, after: int = 0, until: int | None = None) -> list[Entry]:
        """The path's entries with `after < seq <= until`, in order, as a list."""
        return await self._read(lambda: list(self._store.entries(thread, after, until)))

    async def marks(self, thread: int) -> list[Entry]:
        """The path's marks, newest first."""
        return await self._read(lambda: self._store.marks(thread))

    async def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """The system messages that stand before everything else on the path."""
        return await self._read(lambda: self._store.instructions(thread))

    async def last_cut(self, thread: int, view: str) -> Cut | None:
        """The view's newest cut on the path."""
        return await self._read(lambda: self._store.last_cut(thread, view))

    async def cuts(self, thread: int, view: str) -> list[Cut]:
        """Every cut of the view on the path, by number."""
        return await self._read(lambda: self._store.cuts(thread, view))

    async def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest stored manifest of the view."""
        return await self._read(lambda: self._store.last_assembly(thread, view))

    async def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """The stored manifests on the path with `after < seq <= until`, oldest first."""
        return await self._read(lambda: self._store.assemblies(thread, after, until))

    async def blob(self, sha256: str) -> bytes | None:
        """What is stored by this hash; None if it is not there."""
        return await self._read(lambda: self._store.blob(sha256))

    async def known_keys(self, session: str) -> dict[str, int]:
        """The seq at which each idempotency key of the session's own thread was used."""
        return await self._read(lambda: self._store.known_keys(session))

    async def holders(self, key: str) -> list[tuple[int, int]]:
        """Where an idempotency key was used, in any session."""
        return await self._read(lambda: self._store.holders(key))

    async def search(self, query: Query) -> list[SearchHit]:
        """The messages that have all the query's words."""
        return await self._read(lambda: self._store.search(query))

    async def calibration(self, provider: str, model: str) -> StoredCalibration | None:
        """The newest calibration for a provider and model."""
        return await self._read(lambda: self._store.calibration(provider, model))

    async def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Every provider and model that has one, by name, with its newest calibration."""
        return await self._read(self._store.calibrations)

    async def dump(self) -> list[Record]:
        """All rows of the tenant as records, in their fixed order, as a list."""
        return await self._read(lambda: list(self._store.dump()))

    async def _read(self, call: Callable[[], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._reads, call)

    def _check_open(self) -> None:
        if not self._is_open():
            raise LedgerClosed(f"the ledger {self._store.place} was closed, or this snapshot of it has ended")


class AsyncLedger(AsyncReads):
    """A store for asyncio, any number of tasks at once. It closes the store that it was given.

    `async with AsyncLedger(store) as ledger:` closes it at the end.
    """

    def __init__(self, store: LedgerStore) -> None:
        super().__init__(store, ThreadPoolExecutor(READERS, "nexus-ledger-read"), lambda: self._ending is None)
        self._writes = ThreadPoolExecutor(1, "nexus-ledger-write")
        self._ending: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the store, after all calls that were made before. Later calls raise LedgerClosed."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().run_in_executor(self._writes, self._end)
        await asyncio.shield(self._ending)

    def _end(self) -> None:
        self._reads.shutdown()
        try:
            self._store.close()
        finally:
            self._writes.shutdown(wait=False)

    async def move(self, moves: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Appends moves and alias changes in one transaction."""
        return await self._write(lambda: self._store.move(moves, aliases))

    async def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        """Writes everything in one transaction, or nothing. If this is cancelled, either may have happened."""
        return await self._write(lambda: self._store.commit(session, commit, facts))

    async def fork(
        self,
        session: str,
        source: str,
        at_seq: int,
        *,
        reason: str = "fork",
        facts: SessionMetadata | None = None,
        expected_number: int | None = None,
    ) -> int:
        """Points `session` to a new thread that shares `source`'s path up to `at_seq`; returns the new thread."""
        fork = partial(self._store.fork, reason=reason, facts=facts, expected_number=expected_number)
        return await self._write(lambda: fork(session, source, at_seq))

    async def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Stores a newer calibration for a provider and model."""
        await self._write(lambda: self._store.calibrate(provider, model, calibration))

    async def erase(self, threads: Sequence[int] | None, labels: Sequence[str] = ()) -> EraseResult:
        """Deletes threads and labels for good; None is everything of the tenant."""
        return await self._write(lambda: self._store.erase(threads, labels))

    async def load(self, records: Iterable[Record]) -> int:
        """Stores records that `dump` gave, in one transaction; returns how many were new."""
        return await self._write(lambda: self._store.load(records))

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[AsyncReads]:
        """Reads that all see one state of the ledger: `async with ledger.snapshot() as reads:`.

        They run on one thread of their own. Do not wait for a write inside: a store in memory lets it wait for the end.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, "nexus-ledger-snapshot")
        stack, holds = ExitStack(), True
        try:
            await asyncio.shield(loop.run_in_executor(executor, lambda: stack.enter_context(self._store.snapshot())))
            yield AsyncReads(self._store, executor, lambda: holds)
        finally:
            holds = False
            # On the same thread and after all that it was given, also when entering was cancelled half-way.
            ended = loop.run_in_executor(executor, stack.close)
            executor.shutdown(wait=False)
            await asyncio.shield(ended)

    async def _write(self, call: Callable[[], T]) -> T:
        """Runs a write. It is shielded: once given, it is carried out whole, whether or not anyone waits for it."""
        self._check_open()
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writes, call))
