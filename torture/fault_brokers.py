"""Kills of a broker at named points: after each kind of write to its ledger, one after the other.

What a process that was killed leaves is what it had written, so a kill between two writes is one behind the first.
Nothing is random but how far the sessions are that the write does not concern.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nexus.ledger.sessions import event_id
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit
from torture import broker_checks as checks
from torture import kill_broker
from torture.brokers import EVENTS, Queue, serve
from torture.fault_cases import named
from torture.figures import require
from torture.processes import Numbers, answer, ended, started

QUEUE: Final = Queue("summarize", 1, tuple(event for event in EVENTS if event.session in ("s0", "s1", "s2")), 0.001)
WRITES: Final = ("commit", "accept_events", "update_events", "take_lease", "release_lease", "fork")
MANY_POINTS: Final = 10_000

NAMED: Final = (
    "accept event",
    "take_lease",
    "running event",
    "commit user",
    "dropped event",
    "commit assistant",
    "commit tool",
    "commit link",
    "accept task",
    "running task",
    "commit assistant completed",
    "commit failed",
    "done event",
    "failed event",
    "summarized event",
    "done task",
    "accept report",
    "running report",
    "release_lease",
)
"""The kinds of writes of a broker: what is written, or the new state, and of what."""
PROCESSES: Final = 3
RACES: Final = 12
TRIES: Final = 5
"""New ledgers at most until a process comes to a point: whether a report is dropped depends on which turn ends first."""


def killed_brokers(folder: Path) -> int:
    """Kill processes with a broker, one after the first write of each kind, and deliver all events again after each kill.

    The next process goes on with the ledger; a new ledger is begun when its events are settled.
    """
    ledger = _Killed(folder / "0.db")
    for point, name in enumerate(NAMED):
        if not ledger.kill_at(name, 1):
            ledger.finish()
            ledgers = (_Killed(folder / f"{point}-{number}.db") for number in range(TRIES))
            ledger = next((new for new in ledgers if new.kill_at(name, 1)), ledger)
            require(ledger.point == name, f"no process came to the point {name!r}")
    ledger.finish()
    return len(NAMED)


def killed_writes(folder: Path) -> int:
    """Kill a process with a broker after each write in turn, each on a new ledger; return how many there were."""
    kill_broker.load_judges()
    for point in range(1, MANY_POINTS):
        ledger = _Killed(folder / f"{point}.db")
        is_met = ledger.kill_at("", point)
        ledger.finish()
        if not is_met:
            return point - 1
        answer(kill_broker.check_contexts, ledger.path)
    return MANY_POINTS


class _Killed:
    """A ledger whose processes are killed at named points."""

    def __init__(self, path: Path, point: str = "") -> None:
        self.path, self.point = path, point
        self.cells, self.rows = Numbers(len(QUEUE.events)), dict[str, checks.Row]()

    def kill_at(self, name: str, number: int) -> bool:
        """Kill a process after its n-th write of a name, or of any, and check. Return False if it did not come to it."""
        self.point = name or str(number)
        code = ended(started(_serve_until, self.path, self.cells, name, number))
        require(code in (0, -signal.SIGKILL), f"{self.point}: the process ended with {code}; see its output above")
        self.check()
        return code != 0

    def check(self) -> None:
        """Check what is stored now."""
        with named(f"after {self.point}"):
            self.rows = kill_broker.after_kill(self.path, QUEUE, self.cells, self.rows).rows

    def finish(self) -> None:
        """Settle all events, and check."""
        with named(f"after {self.point}"):
            kill_broker.finish(self.path, QUEUE, self.cells, self.rows, Counter())


def _serve_until(path: Path, cells: Numbers, name: str, number: int) -> None:
    count = 0

    def act(write: str) -> None:
        nonlocal count
        count += name in ("", write)
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_writes(act)
    serve(path, QUEUE, 0, cells)


def watch_writes(act: Callable[[str], object]) -> None:
    """Have `act` called after each write of this process's ledgers, with its name."""
    for method in WRITES:
        _watch(method, act)


def _watch(method: str, act: Callable[[str], object]) -> None:
    write: Callable[..., Any] = getattr(SqliteLedger, method)

    def watched(self: SqliteLedger, *arguments: Any, **options: Any) -> Any:
        done = write(self, *arguments, **options)
        if not isinstance(done, list) or any(getattr(row, "added", True) for row in done):  # else it changed nothing
            act(_name_of(method, arguments, options))
        return done

    setattr(SqliteLedger, method, watched)


def _name_of(method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> str:
    match method:
        case "accept_events":
            return f"accept {_kind_of(arguments[0][0].id)}"
        case "update_events":
            state = "summarized" if arguments[1] == "dropped" and options.get("turn") else arguments[1]
            return f"{state} {_kind_of(event_id(next(iter(arguments[0]), '')))}"
        case "commit":
            return f"commit {_written(arguments[1])}"
        case _:
            return method


def _kind_of(id_: str) -> str:
    return id_.rpartition(":")[2] if ":" in id_ else "event"


def _written(commit: Commit) -> str:
    words = [entry.kind if entry.kind != "messages" else entry.messages[0].message.role for entry in commit.entries]
    return " ".join(words) or "link"


def shared_ledger(folder: Path) -> int:
    """Let processes that share a ledger deliver and answer the same events at the same time."""
    path, cells = folder / "l.db", Numbers(len(QUEUE.events))
    pids = [started(serve, path, QUEUE, seed, cells) for seed in range(1, PROCESSES + 1)]
    codes = [ended(pid) for pid in pids]
    ledger = _Killed(path, "sharing it")
    ledger.check()
    require(codes == [0] * PROCESSES, f"the processes that share a ledger ended with {codes}; see their output above")
    ledger.finish()
    return PROCESSES


def shared_ledgers(folder: Path) -> int:
    """Let processes share one ledger after another: each shows about half of the broken builds that race."""
    for number in range(RACES):
        ledger = folder / str(number)
        ledger.mkdir()
        shared_ledger(ledger)
    return RACES * PROCESSES


prepare = kill_broker.prepare

CASES: Final = (shared_ledger,)
"""`killed_brokers` is a test of its own."""

FOUND_BY: Final = (
    ("early_acceptance", killed_brokers, "was accepted, and is lost"),
    ("renamed_repeats", killed_brokers, "were never delivered"),
    ("early_settlement", killed_brokers, "is done,"),
    ("late_delivery", killed_brokers, "were not delivered"),
    ("new_workers", killed_brokers, "have several workers"),
    ("unleased_sessions", shared_ledgers, ""),
)
"""Each broken build of `torture.broken`, the case that finds it, and a part of what that case reports."""
