"""One program at a time writes to a session: neither a stop for longer than its lease nor a wrong clock makes it two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest

import nexus
from nexus.errors import SessionBusy
from nexus.ledger.lease import session_lease
from nexus.ledger.sqlite import SqliteLedger

PROGRAM = Path(__file__).parents[1] / "support" / "writing_program.py"
QUEUES = ("broker", "server", "services")
WITH_LEASE = ("call", "acall", "agent", *QUEUES)
WAYS = (*WITH_LEASE, "turn")
YEARS_S = 10 * 365 * 86_400

posix = pytest.mark.skipif(os.name != "posix", reason="signals")


class Program:
    """A program of `support/writing_program.py`: its model replies in a session once it may go on there."""

    def __init__(
        self,
        ledger: str,
        folder: Path,
        way: str,
        name: str,
        questions: Mapping[str, str],
        *,
        clock_s: int = 0,
        renew_s: float = 0.3,
    ) -> None:
        self._folder, self._name = folder, name
        asked = [f"{session}={event}" for session, event in questions.items()]
        command = [sys.executable, str(PROGRAM), ledger, str(folder), way, name, str(clock_s), str(renew_s), *asked]
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors)

    def step(self, session: str, what: str) -> Path:
        return self._folder / f"{self._name}.{session}.{what}"

    def wait_for(self, what: str, sessions: Iterable[str]) -> list[str]:
        steps = [self.step(session, what) for session in sessions]
        wait_until(lambda: all(step.exists() for step in steps) or self.process.poll() not in (None, 0))
        assert self.process.poll() in (None, 0), self._errors.read_text("utf-8", "replace")
        return [step.read_text("utf-8") for step in steps]

    def let_go(self, sessions: Iterable[str]) -> None:
        for session in sessions:
            self.step(session, "go").touch()


@contextmanager
def programs(*running: Program) -> Iterator[None]:
    try:
        yield
    finally:
        for program in running:
            program.process.kill()
            program.process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("the other program did not come so far")


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_server").new_ledger()
    return str(tmp_path / "ledger.db")


def exchanges(nx: nexus.Engine, session: str) -> list[tuple[int, list[str], str]]:
    """Return number, texts and status of each turn of a session, in the order of its rows."""
    rows = [(entry.turn, row.message) for entry in nx.ledger.entries(session) for row in entry.rows]
    texts = [(turn, message.text()) for turn, message in rows if message.role in ("user", "assistant")]
    status = {turn.number: turn.status for turn in nx.ledger.turns(session)}
    return [(turn, [text for _, text in part], status[turn]) for turn, part in groupby(texts, lambda row: row[0])]


def answered(turn: int, event: str, name: str) -> tuple[int, list[str], str]:
    return turn, [f"Question {event}?", f"{name} answers Question {event}?"], "completed"


@posix
@pytest.mark.parametrize("way", WAYS)
def test_stopped_program_is_shut_out_by_the_one_that_went_on(way: str, ledger: str, tmp_path: Path) -> None:
    """The other program has the same event or another one, and the stopped one goes on behind its call or during it."""
    questions = {"same-behind": "a", "other-behind": "b", "other-during": "b", "same-during": "a"}
    if way == "turn":
        del questions["same-during"]  # a `Turn` alone has no lease: the first reply to the event counts
    behind, during = [*questions][:2], [*questions][2:]
    # It is not stopped while it renews a lease: a write that is stopped keeps a file locked.
    first = Program(ledger, tmp_path, way, "one", dict.fromkeys(questions, "a"), clock_s=31, renew_s=60)
    first.wait_for("called", questions)
    first.process.send_signal(signal.SIGSTOP)
    second = Program(ledger, tmp_path, way, "two", questions)
    prefix = "dm:" if way == "services" else ""
    with programs(first, second), nexus.open(ledger=ledger, home=tmp_path) as nx:
        second.wait_for("called", questions)
        second.let_go(behind)
        second.wait_for("end", behind)
        first.process.send_signal(signal.SIGCONT)
        first.let_go(questions)
        wait_until(lambda: all(nx.ledger.upkeep.late_replies(prefix + session) for session in questions))
        second.let_go(during)
        second.wait_for("end", questions)
        endings = first.wait_for("end", questions)
        if way in ("call", "acall", "turn"):
            assert all(ending.startswith("LateReply") for ending in endings), endings
        for session, event in questions.items():
            # A queue continues the turn of the stopped program before its own.
            before = answered(1, "a", "two") if way in QUEUES else (1, ["Question a?"], "interrupted")
            expected = [answered(1, "a", "two")] if event == "a" else [before, answered(2, "b", "two")]
            assert exchanges(nx, prefix + session) == expected, session
            (late,) = nx.ledger.upkeep.late_replies(prefix + session)
            assert exchanges(nx, late.label) == [answered(1, "a", "one")]


@posix
@pytest.mark.parametrize("ledger", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("way", WITH_LEASE)
def test_program_with_a_wrong_clock_waits_for_the_session(way: str, ledger: str, tmp_path: Path) -> None:
    first = Program(ledger, tmp_path, way, "one", {"fast": "a", "slow": "a"})
    first.wait_for("called", ["fast", "slow"])
    fast = Program(ledger, tmp_path, way, "two", {"fast": "b"}, clock_s=31)
    slow = Program(ledger, tmp_path, way, "three", {"slow": "b"}, clock_s=-YEARS_S)
    prefix = "dm:" if way == "services" else ""
    with programs(first, fast, slow), nexus.open(ledger=ledger, home=tmp_path) as nx:
        fast.wait_for("asked", ["fast"])
        slow.wait_for("asked", ["slow"])
        time.sleep(0.7)  # time enough to take a lease that is none
        assert not fast.step("fast", "called").exists()
        assert not slow.step("slow", "called").exists()
        for program in (first, fast, slow):
            program.let_go(["fast", "slow"])
        first.wait_for("end", ["fast", "slow"])
        fast.wait_for("end", ["fast"])
        slow.wait_for("end", ["slow"])
        for session in ("fast", "slow"):
            first_turn, (number, texts, status) = exchanges(nx, prefix + session)
            assert first_turn == answered(1, "a", "one")
            assert (number, texts[0], status) == (2, "Question b?", "completed")
            assert texts[1].endswith("answers Question b?")
            assert not nx.ledger.upkeep.late_replies(prefix + session)


def test_lease_of_a_wrong_clock_blocks_nobody(tmp_path: Path) -> None:
    """Neither one that was taken years ahead, nor one of a machine that has restarted since."""
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path) as nx:
        store = nx.ledger.store
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
        nx.ledger.store.take_lease("s", "process 1 on elsewhere (x)", 20_000)
        for jump_s in (31, -31, 86_400 * 3_650):
            now_ns = time.time_ns() + jump_s * 1_000_000_000
            monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
            with pytest.raises(SessionBusy), session_lease(nx.ledger.store, "s", wait_s=0):
                pass
            monkeypatch.undo()
