"""The tasks that run the queues of a broker's sessions, one for each session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from math import inf

from nexus.errors import LedgerError, SessionBusy

LOG = logging.getLogger("nexus.broker")

_RETRY_S = 2.0
"""Seconds until a queue that an error stopped goes on."""


class SessionTasks:
    """Tasks of sessions in which an event waits or runs.

    Args:
        run_queue: Runs the queue of a session once it has the session's lease, for which it waits some seconds.
        on_end: Called with a session and the text of the error that stopped its queue, if one did.
    """

    def __init__(
        self, run_queue: Callable[[str, float], Awaitable[None]], on_end: Callable[[str, str | None], None]
    ) -> None:
        self._run_queue = run_queue
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self.are_open = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, label: object) -> bool:
        return label in self._tasks

    def wake(self, label: str, pause_s: float = 0.0, *, waits: bool = True) -> None:
        """Run a session's queue after a pause, or have the running task look at it once more.

        `waits`: False to leave a session alone that another process runs.
        """
        if waits:
            self._woken.add(label)
        if label not in self._tasks and self.are_open:
            task = asyncio.ensure_future(self._run(label, pause_s, waits=waits))
            self._tasks[label] = task
            task.add_done_callback(lambda _: self._end(label))

    def looks_at(self, label: str) -> None:
        """Note that a queue is read now: an event that comes from now on wakes the session again."""
        self._woken.discard(label)

    async def _run(self, label: str, pause_s: float, *, waits: bool) -> None:
        await asyncio.sleep(pause_s)
        try:
            await self._run_queue(label, inf if waits else 0.0)
        except SessionBusy:
            if waits:
                raise

    def _end(self, label: str) -> None:
        task = self._tasks.pop(label)
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._on_end(label, None)
            if label in self._woken:
                self.wake(label)
        else:
            self._on_end(label, f"queue of session {label!r} stopped, and goes on in {_RETRY_S:g} s: {error}")
            self.wake(label, _RETRY_S)

    async def look(self, read_labels: Callable[[], Awaitable[Iterable[str]]], pause_s: float) -> None:
        """Run what other processes accepted and left, now and then: a process may have been killed."""
        while True:
            await asyncio.sleep(pause_s)
            try:
                labels = await read_labels()
            except LedgerError:
                LOG.warning("no look for waiting events", exc_info=True)
                continue
            for label in labels:
                if label not in self._tasks:
                    self.wake(label, waits=False)

    async def join(self) -> None:
        """Wait until no task runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def stop(self, grace_s: float) -> None:
        """Begin no further task, wait for those that run up to some seconds, and cancel the others."""
        self.are_open = False
        tasks = list(self._tasks.values())
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
