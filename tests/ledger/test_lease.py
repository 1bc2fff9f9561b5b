"""Leases of sessions: calls of one session follow each other, in one process, across processes and after a kill."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

import nexus
from ledger.files import sql
from nexus.errors import SessionBusy
from nexus.ledger import lease
from nexus.ledger.lease import async_session_lease, session_lease
from nexus.ledger.sqlite import SqliteLedger

FORK = multiprocessing.get_context("spawn")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteLedger]:
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        assert isinstance(nx.ledger.store, SqliteLedger)
        yield nx.ledger.store


def hold(path: Path, is_held: Event) -> None:
    """Hold the session's lease until the process is killed."""
    with nexus.open(ledger=path) as nx, session_lease(nx.ledger.store, "main"):
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


@pytest.mark.parametrize("end", ["9e15", "unixepoch()*1000+30000", "{now}+121000", "-1"])
def test_lease_whose_end_no_clock_can_reach_blocks_nobody(tmp_path: Path, end: str) -> None:
    """An end of another clock, such as from before a restart of the machine, or by the time of day."""
    store = SqliteLedger(str(tmp_path / "l.db"))
    held = store.take_lease("main", "before", 60_000)
    sql(tmp_path / "l.db", f"UPDATE lease SET expires_ms=CAST({end.format(now=held.expires_ms - 60_000)} AS INTEGER)")
    lease = store.take_lease("main", "me", 60_000)
    assert (lease.holder, lease.fence) == ("me", held.fence + 1)
    assert lease.expires_ms < held.expires_ms + 60_000


WRITING = """
import sys
from nexus.errors import TurnSuperseded
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import TokenSize, user

ledger = SqliteLedger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
fence, written = 0, 0
while written < 60:
    entry = NewEntry(messages=(SizedMessage(user("x"), TokenSize(1, 1, 1)),), starts_turn=True)
    try:
        done = ledger.commit("main", Commit((entry,), fence=fence))
    except TurnSuperseded:
        fence = 0
        continue
    fence, written = done.fence, written + 1
    print(done.head, fence, flush=True)
"""


def test_processes_that_take_a_session_from_each_other_never_share_a_token(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    SqliteLedger(str(path)).close()
    command = [sys.executable, "-c", WRITING, str(path)]
    processes: list[Any] = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    tokens: dict[int, tuple[int, int]] = {}
    for writer, process in enumerate(processes):
        for line in process.communicate(timeout=600)[0].splitlines():
            head, fence = map(int, line.split())
            tokens[head] = (fence, writer)
    assert sorted(tokens) == list(range(1, 121))
    in_order = [tokens[head] for head in sorted(tokens)]
    assert in_order == sorted(in_order), "tokens only rise"
    assert len({fence for fence, _ in in_order}) == len(set(in_order)), "each is of one writer"


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
        with pytest.raises(SessionBusy), session_lease(nx.ledger.store, "main", wait_s=0):
            pass
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
        with session_lease(nx.ledger.store, "main", wait_s=0):
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
