"""Processes that may be killed at any moment, forked from one that never opens a ledger, and numbers shared with them."""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from nexus.errors import NexusError
from torture.figures import lost

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS: Final = 1_800.0
"""How long a process may take before it counts as stuck."""


class Numbers:
    """Whole numbers that a process and those forked from it share. They outlive a process that is killed."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, 8 * count)
        self._cells = memoryview(self._memory).cast("q")

    def __getitem__(self, place: int) -> int:
        return self._cells[place]

    def __setitem__(self, place: int, value: int) -> None:
        self._cells[place] = value

    def clear(self) -> None:
        """Sets all to 0."""
        for place in range(len(self._cells)):
            self._cells[place] = 0


class Signal:
    """A pipe that tells a parent once that its child got somewhere."""

    def __init__(self) -> None:
        self._out, self._into = os.pipe()

    def give(self) -> None:
        """Says so, in the child."""
        os.write(self._into, b"!")

    def wait(self) -> bool:
        """Waits for it, in the parent; False if the child ended before. Closes the pipe."""
        os.close(self._into)
        try:
            ready, _, _ = select.select([self._out], [], [], PATIENCE_SECONDS)
            return bool(ready) and os.read(self._out, 1) == b"!"
        finally:
            os.close(self._out)

    def drop(self) -> None:
        """Closes the pipe without waiting."""
        os.close(self._into)
        os.close(self._out)


def started(work: Callable[P, object], *args: P.args, **named: P.kwargs) -> int:
    """Forks a process that does the work and ends. Its exit code is 0 when nothing was raised."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(*args, **named)
        code = 0
    except (AssertionError, NexusError) as error:
        print(told(error), file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def killed(pid: int) -> None:
    """Kills the process as `kill -9` does and waits until it is gone."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def ended(pid: int) -> int:
    """Waits for the process and returns its exit code (negative: the signal that ended it); a stuck one is killed."""
    until = time.monotonic() + PATIENCE_SECONDS
    pause = 0.0005
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    killed(pid)
    return lost(f"a process did not end within {PATIENCE_SECONDS:.0f} s")


class Asked:
    """Work in a forked process, which tells what came of it."""

    def __init__(self, work: Callable[..., object], *args: object, **named: object) -> None:
        self._out, into = os.pipe()
        self._pid = started(_tell, into, work, args, named)
        os.close(into)

    def answer(self) -> Any:
        """What the work returned. Any error in it is raised here as AssertionError."""
        try:
            data = _all_of(self._out, self._pid)
        finally:
            os.close(self._out)
        code = ended(self._pid)
        if not data:
            lost(f"a process ended with {code} and said nothing")
        good, value = pickle.loads(data)
        if not good:
            raise AssertionError(value)
        return value


def answer(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What the work returns, done in a forked process. Any error in it is raised here as AssertionError."""
    return Asked(work, *args, **named).answer()


def told(error: AssertionError | NexusError) -> str:
    """What was lost, or the error of ours that should not have come."""
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _tell(into: int, work: Callable[..., object], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    try:
        found: tuple[bool, object] = (True, work(*args, **named))
    except (AssertionError, NexusError) as error:
        found = (False, told(error))
    except Exception:  # noqa: BLE001 - it is told to the parent, which raises it
        found = (False, traceback.format_exc())
    data = memoryview(pickle.dumps(found))
    while data:
        data = data[os.write(into, data) :]


def _all_of(out: int, pid: int) -> bytes:
    data = bytearray()
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        ready, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            killed(pid)
            lost(f"a process said nothing for {PATIENCE_SECONDS:.0f} s")
        piece = os.read(out, 1 << 16)
        if not piece:
            return bytes(data)
        data += piece
