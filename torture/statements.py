"""Named points of a process: before each SQL statement that it runs, and after each commit.

APSW calls back at these points, so nothing of the ledger is replaced, and the points are the same in every run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import apsw

Act = Callable[[str], None]
"""Called at a point with its name, such as `before INSERT INTO entry` or `after COMMIT`."""


def watch_statements(act: Act) -> None:
    """Have `act` called at the points of every connection that this process opens from now on."""

    def watch(db: Any) -> None:
        def before(_cursor: object, sql: str, _values: object) -> bool:
            act(f"before {' '.join(sql.split()[:3])}")
            return True

        def after(event: dict[str, Any]) -> None:
            if str(event["sql"]).strip() == "COMMIT":
                act("after COMMIT")

        db.set_exec_trace(before)
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, after)

    apsw.connection_hooks.append(watch)


class Counted:
    """Counts points once it is armed; at the wanted one (from 1) it calls `fault`. With 0 it only counts."""

    def __init__(self, wanted: int, fault: Callable[[str], object]) -> None:
        self.wanted, self.fault = wanted, fault
        self.count, self.armed = 0, False

    def __call__(self, point: str) -> None:
        """A point is reached."""
        if self.armed:
            self.count += 1
            if self.count == self.wanted:
                self.fault(point)


def die(_point: str) -> None:
    """Ends this process as `kill -9` does, at once."""
    os.kill(os.getpid(), signal.SIGKILL)
