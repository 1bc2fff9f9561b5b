"""A program that was stopped for longer than its lease does not write into the turns of the one that went on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nexus
from nexus.errors import SessionBusy
from nexus.ledger.lease import session_lease
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Entry

PROGRAM = """
import asyncio, sys, time
from pathlib import Path
import nexus
from nexus.ledger import lease

lease.LEASE_MS, lease.RENEW_S = 1_000, 0.2
file, way, name, question, event = sys.argv[1:]
ready = Path(file).with_name(name)

def send(ctx):
    ready.touch()
    while not ready.with_suffix(".go").exists():
        time.sleep(0.02)
    return nexus.AgentResult((nexus.assistant(f"Answer to: {question}"),))

async def asend(ctx):
    return await asyncio.to_thread(send, ctx)

asked = nexus.Event((nexus.Text(question),), id=event)
nx = nexus.open(ledger=file, home=ready.parent, model="gpt-4o")
try:
    if way == "call":
        nexus.call(nx, asked, send, session="s", wait=20)
    elif way == "acall":
        asyncio.run(nexus.acall(nexus.AsyncEngine(nx), asked, asend, session="s", wait=20))
    else:
        turn = nx.begin(asked, session="s")
        turn.record(send(turn.assemble()))
    print("stored")
except nexus.NexusError as error:
    print(type(error).__name__, getattr(error, "stored_as", ""))
"""


class Program:
    """A program that asks a question and waits for its answer until it is let go."""

    def __init__(self, file: Path, way: str, name: str, question: str, event: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(file), way, name, question, event]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._ready = file.with_name(name)

    def wait_for_call(self) -> None:
        for _ in range(3_000):
            if self._ready.exists():
                return
            assert self.process.poll() is None
            time.sleep(0.02)
        raise AssertionError("the program did not come to its call")

    def let_go(self) -> str:
        self._ready.with_suffix(".go").touch()
        return self.process.communicate(timeout=60)[0].strip()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def continue_(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


def steps(nx: nexus.Engine, session: str) -> list[tuple[int, str]]:
    entries: list[Entry] = nx.entries(session)
    return [(entry.turn, row.message.text()) for entry in entries for row in entry.rows]


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("way", ["call", "acall", "turn"])
@pytest.mark.parametrize("event", ["e1", "e2"])
def test_stopped_program_is_shut_out_by_the_one_that_went_on(way: str, event: str, tmp_path: Path) -> None:
    """The other program answers the same event, or another one of the session."""
    file = tmp_path / "ledger.db"
    questions = {"e1": "First?", "e2": "Second?"}
    first = Program(file, way, "one", "First?", "e1")
    first.wait_for_call()
    first.stop()
    time.sleep(1.2)  # the lease ends meanwhile
    second = Program(file, way, "two", questions[event], event)
    second.wait_for_call()
    assert second.let_go() == "stored"
    first.continue_()
    ending = first.let_go()
    with nexus.open(ledger=file, home=tmp_path) as nx:
        assert steps(nx, "s")[-2:] == [
            ({"e1": 1, "e2": 2}[event], questions[event]),
            ({"e1": 1, "e2": 2}[event], f"Answer to: {questions[event]}"),
        ]
        assert all(text != "Answer to: First?" or turn == 1 for turn, text in steps(nx, "s"))
        if event == "e2":
            name, stored_as = ending.split()
            assert name == "LateReply"
            assert [text for _, text in steps(nx, stored_as)] == ["First?", "Answer to: First?"]


def test_lease_of_a_wrong_clock_blocks_nobody(tmp_path: Path) -> None:
    """Neither one that was taken years ahead, nor one of a machine that has restarted since."""
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path) as nx:
        store = nx.store
        assert isinstance(store, SqliteLedger)
        for ends_ms in (4_000_000_000_000, 1):
            store._pool.write(
                lambda db, ends_ms=ends_ms: db.run(
                    "INSERT OR REPLACE INTO lease VALUES ('local','s','another machine',?,7,0)", (ends_ms,)
                ),
                alone=True,
            )
            with session_lease(store, "s", wait_s=0) as lease:
                assert lease.fence == 8


def test_lease_does_not_end_early_when_the_time_of_day_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path) as nx:
        nx.store.take_lease("s", "process 1 on elsewhere (x)", 20_000)
        for jump_s in (31, -31, 86_400 * 3_650):
            now_ns = time.time_ns() + jump_s * 1_000_000_000
            monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
            with pytest.raises(SessionBusy), session_lease(nx.store, "s", wait_s=0):
                pass
            monkeypatch.undo()
