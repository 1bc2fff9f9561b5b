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


@contextmanager
def session_lease(store: LedgerStore, session: str, *, wait_s: float = WAIT_S) -> Generator[Lease]:
    """Hold a session while the block runs; return its lease. Raises SessionBusy after `wait_s` seconds of waiting."""
    lock = _lock_of(store, session)
    holder = _new_holder()
    deadline = time.monotonic() + wait_s
    if not lock.lock.acquire(timeout=max(wait_s, 0)):
        raise SessionBusy(session, "", wait_s)
    try:
        pauses = _pauses()
        while (lease := store.take_lease(session, holder, LEASE_MS)).holder != holder:
            if _has_ended(lease.holder):
                store.release_lease(session, lease.holder)
                continue
            if time.monotonic() >= deadline:
                raise SessionBusy(session, lease.holder, wait_s)
            time.sleep(next(pauses))
        try:
            with _renewal.of(store, session, holder):
                yield lease
        finally:
            store.release_lease(session, holder)
    finally:
        lock.lock.release()


@asynccontextmanager
async def async_session_lease(
    store: LedgerStore, session: str, run: RunInThread, *, wait_s: float = WAIT_S
) -> AsyncGenerator[Lease]:
    """Hold a session while the block runs, without blocking the event loop; see `session_lease`."""
    lock = _lock_of(store, session)
    holder = _new_holder()
    deadline = time.monotonic() + wait_s
    for pause in _pauses():
        if lock.lock.acquire(blocking=False):
            break
        if time.monotonic() >= deadline:
            raise SessionBusy(session, "", wait_s)
        await asyncio.sleep(pause)
    try:
        try:  # a canceled call may have taken the lease all the same
            pauses = _pauses()
            while (lease := await run(store.take_lease, session, holder, LEASE_MS)).holder != holder:
                if _has_ended(lease.holder):
                    await run(store.release_lease, session, lease.holder)
                    continue
                if time.monotonic() >= deadline:
                    raise SessionBusy(session, lease.holder, wait_s)
                await asyncio.sleep(next(pauses))
            with _renewal.of(store, session, holder):
                yield lease
        finally:
            await shielded(run(store.release_lease, session, holder))
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


def _new_holder() -> str:
    return f"process {os.getpid()} on {_machine()} ({uuid.uuid4().hex[:8]})"


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
        self._leases: set[tuple[LedgerStore, str, str]] = set()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def of(self, store: LedgerStore, session: str, holder: str) -> Generator[None]:
        """Renew a lease while the block runs."""
        lease = (store, session, holder)
        with self._guard:
            self._leases.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="nexus leases", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
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
                store, session, holder = lease
                # Under the lock, so that no lease is renewed after its release.
                with self._guard, suppress(NexusError, OSError):  # the next round tries again; a lease lasts for three
                    if lease in self._leases:
                        store.take_lease(session, holder, LEASE_MS)


_renewal = _Renewal()
