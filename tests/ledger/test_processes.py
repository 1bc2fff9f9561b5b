"""Threads, forks and interrupts of a process with an open ledger, and files that change under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger.stores import COUNTER, append, behind_its_back, in_a_fork, replay, texts
from nexus.assembly.record import with_sizes
from nexus.errors import BadReference, LedgerError, LedgerUnusable
from nexus.ledger.sqlite import SqliteLedger, open_ledgers
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import user
from support.errors import has_code

INTERRUPTED = """
import signal, sys
from ledger.stores import append
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import user

armed = False

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
    print(number, flush=True)

signal.signal(signal.SIGINT, interrupt)
ledger = SqliteLedger(sys.argv[1])
number = 0
print("begin", flush=True)
while True:
    try:
        armed = True
        while True:
            append(ledger, "main", user(f"n{number}"), key=f"k{number}")
            number += 1
    except KeyboardInterrupt:
        print(number, flush=True)
"""


def test_waiting_writes_commit_together_and_fail_alone(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("first"))
    failed: list[BaseException] = []
    begin = threading.Barrier(12)

    def work(name: int) -> None:
        begin.wait()
        for number in range(15):
            try:
                kind = "undone" if number % 5 == 4 else "messages"
                entry = NewEntry(
                    kind, with_sizes((user(f"{name}/{number}"),), COUNTER) if kind == "messages" else (), {"of": 1}
                )
                ledger.commit("main", Commit((entry,)))
            except BadReference as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 12 * 3
    found = replay(ledger, "main")
    assert [entry.seq for entry in found] == list(range(1, 2 + 12 * 12))
    assert sorted(texts(ledger, "main")[1:]) == sorted(f"{a}/{b}" for a in range(12) for b in range(15) if b % 5 != 4)
    for name in range(12):
        own = [text for text in texts(ledger, "main") if text.startswith(f"{name}/")]
        assert own == sorted(own, key=lambda text: int(text.split("/")[1])), "each thread's own order is kept"


def test_interrupted_appends_leave_the_ledger_usable(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    acknowledged = 0
    for _ in range(40):
        process.send_signal(signal.SIGINT)
        acknowledged = int(process.stdout.readline())
    process.kill()
    process.communicate()
    said = texts(SqliteLedger(str(path)), "main")
    assert said[:acknowledged] == [f"n{number}" for number in range(acknowledged)], "each once, and in order"


def test_forked_process_opens_its_own_connections(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("one"))
    assert (str(tmp_path / "l.db"), os.getpid()) in open_ledgers()

    def open_anew() -> None:
        other = SqliteLedger(str(tmp_path / "l.db"))
        append(other, "main", user("three"))
        assert texts(other, "main") == ["one", "two", "three"]
        other.close()

    assert in_a_fork(lambda: append(ledger, "main", user("two")), open_anew, ledger.close) == "done,done,done"
    append(ledger, "main", user("four"))
    assert texts(ledger, "main") == ["one", "two", "three", "four"]


def test_process_fork_in_a_snapshot_or_in_memory_raises(tmp_path: Path) -> None:
    for ledger in (SqliteLedger(str(tmp_path / "l.db")), SqliteLedger()):
        append(ledger, "main", user("one"))
        write = partial(append, ledger, "main", user("two"))
        with ledger.snapshot():
            assert in_a_fork(ledger.sessions, write, ledger.close) == "told,told,done"
        assert texts(ledger, "main") == ["one"]


@pytest.mark.usefixtures("patient")
def test_process_forks_during_reads_and_writes_lose_nothing(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("first"))
    stop = threading.Event()
    written: list[int] = []

    def write(name: str) -> None:
        while not stop.is_set():
            append(ledger, name, user("x"))
            written.append(len(texts(ledger, "main")))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    try:
        for number in range(25):
            assert in_a_fork(partial(append, ledger, "main", user(f"n{number}"))) == "done"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert texts(ledger, "main") == ["first", *(f"n{number}" for number in range(25))]
    assert sum(len(texts(ledger, name)) for name in ("a", "b", "c")) == len(written) > 25


@pytest.mark.parametrize("change", ["deleted", "replaced", "moved"])
def test_replaced_file_is_neither_read_nor_written(tmp_path: Path, change: str) -> None:
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("one"))
    if change == "deleted":
        path.unlink()
    elif change == "moved":
        path.rename(tmp_path / "elsewhere.db")
    else:
        other = SqliteLedger(str(tmp_path / "other.db"))
        append(other, "main", user("other"))
        other.close()
        (tmp_path / "other.db").replace(path)
    for call in (lambda: append(ledger, "main", user("two")), lambda: replay(ledger, "main"), ledger.sessions):
        with pytest.raises(LedgerUnusable, match="open the ledger again", check=has_code("ledger_gone")):
            call()
    ledger.close()


def test_a_pipe_in_the_place_of_a_ledger_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "l.db")
    with pytest.raises(LedgerError, match="not a regular file"):
        SqliteLedger(str(tmp_path / "l.db"))


def test_an_empty_file_is_no_ledger_unless_one_is_to_be_made(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    file.touch()
    with pytest.raises(LedgerUnusable, match="empty", check=has_code("not_a_ledger")):
        SqliteLedger(str(file), create=False)
    assert file.stat().st_size == 0
    ledger = SqliteLedger(str(file))
    append(ledger, "main", user("one"))
    ledger.close()
    assert SqliteLedger(str(file), create=False).thread_of("main") == 1


def test_append_detects_a_deleted_log(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("one"))
    (tmp_path / "l.db-wal").unlink()
    with pytest.raises(LedgerUnusable, match="log of", check=has_code("ledger_gone")):
        append(ledger, "main", user("two"))
    ledger.close()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_ledger_that_cannot_be_written_can_be_read(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "l.db")
        ledger = SqliteLedger(str(file))
        append(ledger, "main", user("one"))
        ledger.close()
        file.chmod(0o444 if what == "file" else 0o666)
        file.parent.chmod(0o777 if what == "file" else 0o555)

        def read_and_write() -> None:
            if os.getuid() == 0:  # who may do everything
                os.setgid(65_534)
                os.setuid(65_534)
            kept = SqliteLedger(str(file), create=False)
            assert texts(kept, "main") == ["one"]
            with pytest.raises(LedgerError, match="writable"):
                append(kept, "main", user("two"))
            assert texts(kept, "main") == ["one"]
            kept.close()

        assert in_a_fork(read_and_write) == "done"
        file.parent.chmod(0o777)


def test_closed_ledger_raises_and_closing_twice_is_allowed(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("one"))
    ledger.close()
    ledger.close()
    for call in (lambda: append(ledger, "main", user("two")), ledger.sessions):
        with pytest.raises(LedgerUnusable, match="closed", check=has_code("ledger_closed")):
            call()


def test_a_new_ledger_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    SqliteLedger(str(tmp_path / "l.db")).close()
    assert (tmp_path / "l.db").stat().st_mode & 0o777 == 0o600


def test_many_processes_open_the_same_new_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    program = (
        "import sys; from ledger.stores import append; from nexus.ledger.sqlite import SqliteLedger;"
        "from nexus.types.message import user; sys.stdin.readline(); append(SqliteLedger(sys.argv[1]), 'main', user(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    waiting: list[Any] = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(number)], stdin=subprocess.PIPE, text=True, env=environment
        )
        for number in range(6)
    ]
    for process in waiting:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in waiting:
        process.communicate(timeout=600)
    assert [process.returncode for process in waiting] == [0] * 6
    assert sorted(texts(SqliteLedger(str(path)), "main")) == [str(number) for number in range(6)]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("rounds", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_processes_create_a_ledger_at_once_without_busy_errors(tmp_path: Path, rounds: int) -> None:
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        begin, go = os.pipe()
        children: list[int] = []
        for name in ("a", "b", "c"):
            child = os.fork()
            if child == 0:
                os.close(go)
                os.read(begin, 1)  # until all are there and the pipe is closed
                code = 1
                try:
                    append(SqliteLedger(str(path)), "main", user(name))
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        os.close(go)
        os.close(begin)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        assert sorted(texts(SqliteLedger(str(path)), "main")) == ["a", "b", "c"]


def test_reading_a_file_keeps_the_locks_of_the_process(tmp_path: Path) -> None:
    """A file that is opened and closed beside SQLite loses all locks of the process: others could take the log away."""
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("one"))
    locks = Path("/proc/locks").read_text("utf-8").count(f":{path.stat().st_ino} ")
    again = SqliteLedger(str(path))
    append(again, "main", user("two"))
    again.close()
    with behind_its_back(path) as db:
        db.execute("PRAGMA user_version=99")
        with pytest.raises(LedgerUnusable, check=has_code("ledger_too_new")):
            SqliteLedger(str(path))
    assert locks > 0
    assert Path("/proc/locks").read_text("utf-8").count(f":{path.stat().st_ino} ") >= locks
