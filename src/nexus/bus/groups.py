"""Order inside one process: a group runs the messages of a session one after the other, and sessions in parallel."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from nexus.bus.message import Message, expired
from nexus.bus.port import Function
from nexus.errors import BusDeadlineExceeded, BusError

LOG = logging.getLogger("nexus.bus")

MAX_QUEUED = 10_000
"""Messages that wait in a group of one process before more are refused."""


class Delivery(Protocol):
    """A message on its way to a function. A bus decides what success and failure mean."""

    @property
    def message(self) -> Message:
        """The message."""
        ...

    async def finish(self, result: Message | None) -> None:
        """Settle it after the function returned."""
        ...

    async def fail(self, error: Exception, *, final: bool) -> float | None:
        """Settle it after an error and return None, or return the seconds until the group tries again.

        `final`: another delivery cannot succeed.
        """
        ...

    async def abandon(self) -> None:
        """Give it up because the bus closes."""
        ...


class Member:
    """A function in a group, and how much it does now."""

    def __init__(self, function: Function, concurrency: int) -> None:
        self.function = function
        self.concurrency = concurrency
        self.running = 0


class SubscriberGroup:
    """Members of a group in this process, and their messages by session."""

    def __init__(self, clock_ms: Callable[[], int], *, max_queued: int = MAX_QUEUED) -> None:
        self._clock_ms = clock_ms
        self._max_queued = max_queued
        self._members: list[Member] = []
        self._lanes: dict[object, deque[Delivery]] = {}  # the first of a lane runs, is ready, or waits for its retry
        self._ready: deque[object] = deque()
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._tasks: dict[asyncio.Task[None], tuple[Member, Delivery]] = {}
        self.queued = 0

    @property
    def members(self) -> int:
        """Number of functions."""
        return len(self._members)

    @property
    def is_full(self) -> bool:
        """True if another message would be refused."""
        return self.queued >= self._max_queued

    def add(self, function: Function, concurrency: int) -> Member:
        """Add a function."""
        member = Member(function, concurrency)
        self._members.append(member)
        self._start()
        return member

    def submit(self, delivery: Delivery) -> bool:
        """Queue a message behind the others of its session. Returns False if the group is full."""
        if self.is_full:
            return False
        self.queued += 1
        message = delivery.message
        key: object = (message.tenant, message.session) if message.session else object()
        lane = self._lanes.setdefault(key, deque())
        lane.append(delivery)
        if len(lane) == 1:
            self._ready.append(key)
            self._start()
        return True

    async def leave(self, member: Member, *, finish_queue: bool) -> None:
        """Remove a function when its messages are processed; the last one first finishes the queue, if wanted.

        A function that removes itself is not waited for.
        """
        if finish_queue and self._members == [member]:
            await self.drain()
        if member in self._members:
            self._members.remove(member)
        current = asyncio.current_task()
        while tasks := [task for task, (runs, _) in self._tasks.items() if runs is member and task is not current]:
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Wait until all queued messages are processed, except those that wait for a retry, and the calling one."""
        current = asyncio.current_task()
        while tasks := [task for task in self._tasks if task is not current]:
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Cancel running functions and give up all messages that are left."""
        self._members.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        running = [delivery for _, delivery in self._tasks.values()]  # of a function that closes its own bus
        waiting = [delivery for lane in self._lanes.values() for delivery in lane if delivery not in running]
        self._lanes.clear()
        self._ready.clear()
        for delivery in waiting:
            await _settle(delivery.abandon(), delivery)

    def _start(self) -> None:
        """Start the messages that are ready, as far as members are free."""
        while self._ready:
            member = self._free_member()
            if member is None:
                return
            key = self._ready.popleft()
            member.running += 1
            task = asyncio.get_running_loop().create_task(self._run(member, key))
            self._tasks[task] = member, self._lanes[key][0]
            task.add_done_callback(self._tasks.pop)

    def _free_member(self) -> Member | None:
        """Return the next member that may start a message, in turns."""
        for member in self._members:
            if member.running < member.concurrency:
                self._members.remove(member)
                self._members.append(member)
                return member
        return None

    async def _run(self, member: Member, key: object) -> None:
        lane = self._lanes[key]
        delay_s: float | None = None
        try:
            delay_s = await self._process(member, lane[0])
        finally:
            member.running -= 1
            if delay_s is not None:
                loop = asyncio.get_running_loop()
                self._timers[key] = loop.call_later(delay_s, self._retry, key)
            elif self._lanes.get(key) is lane:
                lane.popleft()
                self.queued -= 1
                if lane:
                    self._ready.append(key)
                else:
                    del self._lanes[key]
            self._start()

    def _retry(self, key: object) -> None:
        del self._timers[key]
        self._ready.append(key)
        self._start()

    async def _process(self, member: Member, delivery: Delivery) -> float | None:
        """Pass a message to a function and settle it. Returns the seconds until the next try, or None."""
        message = delivery.message
        if expired(message, self._clock_ms()):
            late = BusDeadlineExceeded(f"message for {message.topic!r} expired before it was processed")
            return await _settle(delivery.fail(late, final=True), delivery)
        try:
            result = await member.function(message)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                await _settle(delivery.abandon(), delivery)
                raise
            return await _settle(delivery.fail(BusError(f"function was canceled: {error}"), final=False), delivery)
        except Exception as error:  # noqa: BLE001 - whatever a function raises is its answer
            return await _settle(delivery.fail(error, final=False), delivery)
        if result is not None and not isinstance(result, Message):
            wrong = BusError(f"function returned a {type(result).__name__} (return a Message or None)")
            return await _settle(delivery.fail(wrong, final=False), delivery)
        return await _settle(delivery.finish(result), delivery)


async def _settle(settling: Awaitable[float | None], delivery: Delivery) -> float | None:
    """Await a settlement. An error in it is logged: the function has run, and the bus redelivers unsettled messages."""
    try:
        return await settling
    except Exception as error:  # noqa: BLE001 - the task of a group must go on
        LOG.warning("message %s for %r was not settled: %r", delivery.message.id, delivery.message.topic, error)
        return None
