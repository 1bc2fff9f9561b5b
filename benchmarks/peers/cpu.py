"""CPU time of a piece of work in a process whose CPU time is limited."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def cpu_ms(work: Callable[[], T]) -> tuple[T, float]:
    """The work's result, and the CPU milliseconds of this process for it, in all its threads.

    From `getrusage`: once a limit of CPU time is set, Linux advances the process's clock in steps of a tick (4 ms).
    """
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return result, 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
