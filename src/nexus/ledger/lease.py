"""Calls of one session one after the other: in one process by a lock, across processes by a lease in the ledger.

A lease expires unless its holder renews it, so a program that stopped blocks a session for half a minute at most, and
not at all for others on its machine. A program that was suspended may go on when another one holds the session: it is
shut out by its fencing token, which the store checks with each write of a turn (`Commit.fence`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import random
import re
import threading
import time
import uuid
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from nexus.errors import NexusError, SessionBusy
from nexus.ledger.sessions import Lease
from nexus.ledger.store import LedgerStore
from nexus.types.ledger_entries import Committed, LeaseChange

T = TypeVar("T")

LEASE_MS = 30_000
RENEW_S = 10.0
WAIT_S = 60.0
"""Seconds that a call waits for its session by default."""

_HOLDER = re.compile(r"process (\d+) on (\w+) ", re.ASCII)
_FIRST_PAUSE_S = 0.005
_MAX_PAUSE_S = 0.2

RunInThread: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments outside the event loop."""


class _SessionLock:
    """The lock of one session in this process. Locks do not allow weak references; this does."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


_locks: weakref.WeakValueDictionary[tuple[int, str, str], _SessionLock] = weakref.WeakValueDictionary()
_guard = threading.Lock()


class SessionLease:
    """A session's lease that this program holds, or may still take: with a commit, or by itself.

    Attributes:
        fence: Fencing token of the lease; 0 while it is not held.
    """

    def __init__(self, store: LedgerStore, session: str, wait_s: float, *, is_brief: bool = False) -> None:
        """Prepare a lease. A brief one ends with the commit that takes it."""
        self.fence = 0
        self._store = store
        self._session = session
        self._wait_s = wait_s
        self._deadline = time.monotonic() + wait_s
        self._holder = f"process {os.getpid()} on {_machine()} ({uuid.uuid4().hex[:8]})"
        self._may_be_stored = False  # an interrupt may come between a write and its result
        self._is_renewed = False
        self._is_brief = is_brief
        self._is_over = False  # what was taken behind it by a canceled call is given back
        self._has_commits: bool = getattr(store, "changes_leases_in_commits", False)

    @property
    def is_takable(self) -> bool:
        """True if it is not held, and a commit may take it."""
        return self._has_commits and not self.fence

    def beginning(self) -> LeaseChange:
        """Return the change of a commit that takes the lease. Its result is for `note`."""
        if self._is_brief:  # a store that leaves it in place has it for a millisecond
            return LeaseChange(self._holder, 1, is_brief=True)
        self._may_be_stored = True
        return LeaseChange(self._holder, LEASE_MS)

    def end(self) -> LeaseChange | None:
        """Return the change of a commit that ends the lease, None if there is none. Its result is for `note`.

        A brief lease that was not taken before is taken by the same commit.
        """
        self._is_renewed = False
        if self._is_brief and self.is_takable:
            return self.beginning()
        if self.fence and self._has_commits:
            return LeaseChange(self._holder)
        return None

    def note(self, committed: Committed, change: LeaseChange | None) -> None:
        """Take note of a commit with a change of the lease."""
        if change is None or change.is_brief or not committed.changed_lease:
            return
        if change.ms:
            self._hold(committed.fence)
            return
        _renewal.remove(self)
        self.fence = 0
        self._may_be_stored = self._is_renewed  # behind its end

    def take(self) -> Lease:
        """Take the lease, and wait for it. Raises SessionBusy."""
        pauses = _pauses()
        while (lease := self.take_lease()) is None:
            time.sleep(next(pauses))
        return lease

    async def take_async(self, run: RunInThread) -> Lease:
        """Take the lease, and wait for it without blocking the event loop. Raises SessionBusy."""
        pauses = _pauses()
        lease: Lease | None = await run(self.take_lease)
        while lease is None:
            await asyncio.sleep(next(pauses))
            lease = await run(self.take_lease)
        return lease

    def renew(self) -> None:
        """Let the lease last longer."""
        self._is_renewed = True
        self._store.take_lease(self._session, self._holder, LEASE_MS)

    def close(self) -> None:
        """Give the lease back as soon as it is taken from now on: a thread may begin to after its call was canceled."""
        self._is_over = True

    def release(self) -> None:
        """Give the lease back if the ledger may have it."""
        self._is_over = True
        _renewal.remove(self)
        if self._may_be_stored:
            self._store.release_lease(self._session, self._holder)

    @property
    def may_be_stored(self) -> bool:
        """True if the ledger may have the lease."""
        return self._may_be_stored

    def _hold(self, fence: int) -> None:
        self.fence = fence
        _renewal.add(self)
        if self._is_over:
            self.release()

    def take_lease(self) -> Lease | None:
        """Take the lease if nobody has it; None if somebody does. Raises SessionBusy after the time to wait."""
        self._may_be_stored = True
        while (lease := self._store.take_lease(self._session, self._holder, LEASE_MS)).holder != self._holder:
            if not _has_ended(lease.holder):
                if time.monotonic() >= self._deadline:
                    raise SessionBusy(self._session, lease.holder, self._wait_s)
                return None
            self._store.release_lease(self._session, lease.holder)
        self._hold(lease.fence)
        return lease


@contextmanager
def session_lease(store: LedgerStore, session: str, *, wait_s: float = WAIT_S) -> Generator[Lease]:
    """Hold a session while the block runs; return its lease. Raises SessionBusy after `wait_s` seconds of waiting."""
    with session_of_process(store, session, wait_s=wait_s) as lease:
        yield lease.take()


@asynccontextmanager
async def async_session_lease(
    store: LedgerStore, session: str, run: RunInThread, *, wait_s: float = WAIT_S
) -> AsyncGenerator[Lease]:
    """Hold a session while the block runs, without blocking the event loop; see `session_lease`."""
    async with async_session_of_process(store, session, run, wait_s=wait_s) as lease:
        yield await lease.take_async(run)


@contextmanager
def session_of_process(store: LedgerStore, session: str, *, wait_s: float = WAIT_S) -> Generator[SessionLease]:
    """Hold a session within this process while the block runs, and its lease as soon as that is taken.

    Raises SessionBusy after `wait_s` seconds of waiting.
    """
    lock = _lock_of(store, session)
    lease = SessionLease(store, session, wait_s)
    if not lock.lock.acquire(timeout=max(wait_s, 0)):
        raise SessionBusy(session, "", wait_s)
    try:
        try:
            yield lease
        finally:
            lease.release()
    finally:
        lock.lock.release()


@asynccontextmanager
async def async_session_of_process(
    store: LedgerStore, session: str, run: RunInThread, *, wait_s: float = WAIT_S, is_brief: bool = False
) -> AsyncGenerator[SessionLease]:
    """Hold a session as `session_of_process` does, without blocking the event loop.

    The lease of a commit is brief if it ends with it; one that is taken before a commit lasts until the block ends.
    """
    lock = _lock_of(store, session)
    lease = SessionLease(store, session, wait_s, is_brief=is_brief)
    deadline = time.monotonic() + wait_s
    for pause in _pauses():
        if lock.lock.acquire(blocking=False):
            break
        if time.monotonic() >= deadline:
            raise SessionBusy(session, "", wait_s)
        await asyncio.sleep(pause)
    try:
        try:
            yield lease
        finally:
            lease.close()
            if lease.may_be_stored:  # a canceled call may have taken it all the same
                await shielded(run(lease.release))
    finally:
        lock.lock.release()


def shielded(work: Awaitable[T]) -> asyncio.Future[T]:
    """Return `asyncio.shield` of work, without a report of its error if the caller was canceled before.

    The event loop reports such an error as unhandled otherwise.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_take_note)
    return asyncio.shield(task)


def _take_note(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _lock_of(store: LedgerStore, session: str) -> _SessionLock:
    key = (id(store) if store.location == ":memory:" else 0, f"{store.location}\0{store.tenant}", session)
    with _guard:
        return _locks.setdefault(key, _SessionLock())


@cache
def _machine() -> str:
    """Return a name for this machine since its start, and for its process numbers, which a container has of its own."""
    facts = [platform.node()]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text("ascii"), str(Path("/proc/self/ns/pid").readlink())]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def _has_ended(holder: str) -> bool:
    """Return True if a lease's holder was a process of this machine that no longer runs."""
    match = _HOLDER.match(holder)
    if os.name != "posix" or match is None or match[2] != _machine():
        return False
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _pauses() -> Generator[float]:
    """Yield the seconds between two tries, longer each time, and never the same for two callers."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        pause = min(pause * 2, _MAX_PAUSE_S)


class _Renewal:
    """One thread of this process that renews all leases held in it."""

    def __init__(self) -> None:
        self._leases: set[SessionLease] = set()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, lease: SessionLease) -> None:
        """Renew a lease until it is removed."""
        with self._guard:
            self._leases.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="nexus leases", daemon=True)
                self._thread.start()

    def remove(self, lease: SessionLease) -> None:
        """Renew a lease no longer."""
        with self._guard:
            self._leases.discard(lease)

    def _run(self) -> None:
        while True:
            time.sleep(RENEW_S)
            with self._guard:
                leases = list(self._leases)
                if not leases:
                    self._thread = None
                    return
            for lease in leases:
                # Under the lock, so that no lease is renewed after its release.
                with self._guard, suppress(NexusError, OSError):  # the next round tries again; a lease lasts for three
                    if lease in self._leases:
                        lease.renew()


_renewal = _Renewal()
