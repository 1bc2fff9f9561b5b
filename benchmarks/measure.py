"""Times of a piece of work: CPU beside wall, medians, because machines are noisy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")

TICK_S = 0.001


class Spent(Struct, frozen=True):
    """What one run took, in milliseconds."""

    cpu_ms: float
    wall_ms: float


def timed(work: Callable[[], T]) -> tuple[T, Spent]:
    """The work's result, and what it took in this process."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    result = work()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return result, Spent(cpu / 1e6, wall / 1e6)


def process(arguments: Sequence[str]) -> Spent:
    """What a whole python process with these arguments takes, its start included. Its output is thrown away.

    Raises subprocess.CalledProcessError when it fails.
    """
    command = [sys.executable, *arguments]
    before, wall = os.times(), time.perf_counter_ns()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after, wall = os.times(), time.perf_counter_ns() - wall
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Spent(cpu * 1e3, wall / 1e6)


def middle(runs: Sequence[Spent]) -> Spent:
    """The medians of both times."""
    return Spent(median(run.cpu_ms for run in runs), median(run.wall_ms for run in runs))


async def loop_lag(work: Callable[[], Awaitable[object]]) -> tuple[list[float], float]:
    """Run work beside a task that sleeps again and again; return how late that woke, and the work's time, in seconds."""
    lags: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            lags.append(time.perf_counter() - due)

    ticking = asyncio.create_task(tick())
    begun = time.perf_counter()
    await work()
    seconds = time.perf_counter() - begun
    ticking.cancel()
    return lags, seconds


def share_of(lags: Sequence[float], share: float) -> float:
    """The lag that a share of all lags does not exceed, in milliseconds."""
    return 1000 * sorted(lags)[min(int(share * len(lags)), len(lags) - 1)]
