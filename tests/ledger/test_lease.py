"""Leases of sessions: calls of one session follow each other, in one process, across processes and after a kill."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.errors import SessionBusy
from nexus.ledger import lease
from nexus.ledger.lease import async_session_lease, session_lease
from nexus.ledger.sqlite import SqliteLedger

FORK = multiprocessing.get_context("spawn")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteLedger]:
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        assert isinstance(nx.store, SqliteLedger)
        yield nx.store


def hold(path: Path, is_held: Event) -> None:
    """Hold the session's lease until the process is killed."""
    with nexus.open(ledger=path) as nx, session_lease(nx.store, "main"):
        is_held.set()
        time.sleep(600)


def test_threads_of_a_process_hold_a_session_one_after_the_other(store: SqliteLedger) -> None:
    inside, most = [0], [0]

    def work() -> None:
        with session_lease(store, "main"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_tasks_of_a_loop_hold_a_session_one_after_the_other(store: SqliteLedger) -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        async with async_session_lease(store, "main", asyncio.to_thread):
            order.append(number)
            await asyncio.sleep(0.002)
            order.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*map(work, range(6)))

    asyncio.run(all_of_them())
    assert order[::2] == order[1::2]


def test_lease_of_one_session_does_not_block_another(store: SqliteLedger) -> None:
    with session_lease(store, "main"), session_lease(store, "other", wait_s=0):
        pass


@pytest.mark.parametrize("wait_s", [0, 0.05])
def test_second_holder_in_another_process_waits_and_gives_up(store: SqliteLedger, wait_s: float) -> None:
    assert store.take_lease("main", "process 1 on elsewhere (x)", 60_000).holder.startswith("process 1 on")
    with pytest.raises(SessionBusy, match="main"), session_lease(store, "main", wait_s=wait_s):
        pass


def test_lease_that_expired_is_taken(store: SqliteLedger) -> None:
    store.take_lease("main", "process 1 on elsewhere (x)", 1)
    with session_lease(store, "main", wait_s=20):
        assert store.take_lease("main", "other", 1).holder != "other"


def test_lease_is_renewed_while_it_is_held(store: SqliteLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.02)
    with session_lease(store, "main"):
        first = store.take_lease("main", "other", 1).expires_ms
        for _ in range(1_000):
            if store.take_lease("main", "other", 1).expires_ms > first:
                break
            time.sleep(0.02)
        else:
            pytest.fail("the lease was not renewed")


@pytest.mark.skipif(os.name != "posix", reason="processes are told apart on POSIX systems")
def test_lease_of_a_killed_process_is_taken_at_once(tmp_path: Path) -> None:
    path, is_held = tmp_path / "ledger.db", FORK.Event()
    holder = FORK.Process(target=hold, args=(path, is_held))
    holder.start()
    assert is_held.wait(120)
    with nexus.open(ledger=path) as nx:
        with pytest.raises(SessionBusy), session_lease(nx.store, "main", wait_s=0):
            pass
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
        with session_lease(nx.store, "main", wait_s=0):
            pass


def test_call_waits_for_the_sessions_lease(store: SqliteLedger, tmp_path: Path) -> None:
    def send(_ctx: nexus.AssembledContext) -> Any:
        return nexus.AgentResult((nexus.assistant("ok"),))

    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        store.take_lease("main", "process 1 on elsewhere (x)", 60_000)
        with pytest.raises(SessionBusy):
            nexus.call(nx, "hi", send, session="main", wait=0)
        assert nx.sessions() == []
        store.release_lease("main", "process 1 on elsewhere (x)")
        nexus.call(nx, "hi", send, session="main", wait=0)
        assert len(nx.history("main")) == 2
