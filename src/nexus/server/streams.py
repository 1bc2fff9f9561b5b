"""Events of running turns for readers that come and go: a bounded buffer with numbers, and server-sent events from it.

An event is encoded once for all readers. A reader has a position in the buffer and at most `_BATCH` events, so a slow one
costs no memory: if the buffer has dropped events that it has not read, it gets a `gap` and continues. The id of an event
is `EPOCH.NUMBER`; the epoch is the server's start, so a position of an earlier process is a gap too. The messages behind
a gap are in the ledger (`get_messages`).
"""

from __future__ import annotations

import asyncio
import uuid
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from nexus.broker import Broker, SessionEvent
from nexus.errors import NotAccepted
from nexus.server.agents import request_of
from nexus.server.forms import Case, camel, to_plain
from nexus.text.redact import redact
from nexus.types.stream_events import StreamError, StreamEvent, ignore_event

BUFFERED_EVENTS = 20_000
"""Events of one tenant that a reader may be behind."""
KEEP_ALIVE_S = 15.0
"""Seconds without an event after which a comment is sent."""
_BATCH = 100
"""Events that a reader takes from the buffer at once."""


class StreamPosition(Struct, frozen=True):
    """The last event that a reader has."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


class StreamItem(Struct, frozen=True):
    """An event as its readers get it, `gap` for missing events, or `idle` for none in a while."""

    position: StreamPosition
    type: str
    data: bytes = b""
    """Its JSON value in snake_case, on one line."""
    event: SessionEvent | None = None

    def encoded(self, case: Case) -> bytes:
        """Return its JSON value in a case, on one line."""
        if case == "snake":
            return self.data
        if self.event is not None:
            return msgspec.json.encode(event_data(self.event, case))
        return msgspec.json.encode({camel(name): value for name, value in msgspec.json.decode(self.data).items()})


class EventBuffer:
    """The newest events of one tenant's turns.

    Args:
        listen: Called with each event.
        size: Events that are kept.

    Attributes:
        epoch: Name of this buffer, part of its positions.
    """

    def __init__(self, listen: Callable[[StreamEvent], None] = ignore_event, *, size: int = BUFFERED_EVENTS) -> None:
        self._listen = listen
        self.epoch = uuid.uuid4().hex[:8]
        self._size = size
        self._events: dict[str, deque[StreamItem]] = {}  # by session
        self._sessions: deque[str] = deque()  # of all events, oldest first
        self._last = 0  # number of the newest event
        self._waiting: defaultdict[str, set[asyncio.Future[int]]] = defaultdict(set)
        self._is_closed = False

    async def fill(self, broker: Broker) -> None:
        """Add a broker's events until it stops."""
        watching = broker.watch()
        while True:
            try:
                async with aclosing(watching) as events:
                    async for event in events:
                        self.add(event)
            except NotAccepted:  # this process was too busy: readers see a gap
                self._last += 1
                self._events.clear()
                self._sessions.clear()
                self._wake_all(self._last - 1)
                watching = broker.watch()
            else:
                self.close()
                return

    def add(self, event: SessionEvent) -> None:
        """Add an event and wake the readers of its session."""
        self._listen(event.event)
        self._last += 1
        data = event_data(event)
        item = StreamItem(self.end(), data["type"], msgspec.json.encode(data), event)
        self._events.setdefault(event.session, deque()).append(item)
        self._sessions.append(event.session)
        if len(self._sessions) > self._size:
            self._drop_oldest()
        self._wake(event.session, self._last - 1)

    def close(self) -> None:
        """End all readers, after the events that they have not read."""
        self._is_closed = True
        self._wake_all(self._last)

    def end(self) -> StreamPosition:
        """Return the position behind the newest event."""
        return StreamPosition(self.epoch, self._last)

    def position(self, text: str) -> StreamPosition | None:
        """Return the position of an event's id; None if this buffer has no such position."""
        epoch, _, number = text.partition(".")
        is_position = epoch == self.epoch and number.isascii() and number.isdigit() and len(number) < 16
        if is_position and int(number) <= self._last:
            return StreamPosition(epoch, int(number))
        return None

    async def read(
        self, session: str, start: StreamPosition | None, idle_s: float | None = None
    ) -> AsyncGenerator[list[StreamItem]]:
        """Yield a session's events behind a position as they come, and a gap where the buffer has dropped events.

        A slow reader gets many events at once.

        Args:
            session: The session.
            start: Position of the last event that the reader has. Without one the reader begins with a gap.
            idle_s: Seconds without an event after which "idle" is yielded; None for never.
        """
        at = self._last if start is None else start.number
        if start is None:
            yield [own_item("gap", StreamPosition(self.epoch, at), session)]
        while True:
            first = self._last - len(self._sessions)
            if at < first:
                at = first
                yield [own_item("gap", StreamPosition(self.epoch, at), session)]
                continue
            if items := self._behind(session, at):
                at = items[-1].position.number
                yield items
                continue
            if self._is_closed:
                return
            woken_at = await self._next(session, idle_s)
            at = self._last if woken_at is None else woken_at
            if woken_at is None:
                yield [StreamItem(StreamPosition(self.epoch, at), "idle")]

    def _behind(self, session: str, at: int) -> list[StreamItem]:
        """Return the next events of a session behind a position."""
        events = self._events.get(session, ())
        start = bisect_right(events, at, key=_number)
        return list(islice(events, start, start + _BATCH))

    def _drop_oldest(self) -> None:
        session = self._sessions.popleft()
        events = self._events[session]
        events.popleft()
        if not events:
            del self._events[session]

    async def _next(self, session: str, idle_s: float | None) -> int | None:
        """Wait for a session's next event, or the end; return the position before it, None if none came."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[session]
        waiting.add(future)
        try:
            await asyncio.wait((future,), timeout=idle_s)
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(session) is waiting:
                del self._waiting[session]
        if future.done():
            return future.result()
        return None

    def _wake(self, session: str, at: int) -> None:
        for future in self._waiting.pop(session, ()):
            future.set_result(at)

    def _wake_all(self, at: int) -> None:
        for session in list(self._waiting):
            self._wake(session, at)


def own_item(name: str, position: StreamPosition, agent_id: str) -> StreamItem:
    """Return an event of the stream itself: `open` or `gap`."""
    return StreamItem(position, name, msgspec.json.encode({"type": name, "agent_id": agent_id}))


def event_data(item: SessionEvent, case: Case = "snake") -> dict[str, Any]:
    """Return the JSON value of an agent's event, with the ids of the requests that its turn answers."""
    inner = item.event
    agent_id = item.session
    if isinstance(inner, StreamError):
        inner = StreamError(inner.kind, redact(inner.text).text, inner.retryable)
    ids = [request_id for name in item.event_ids if (request_id := request_of(agent_id, name)) is not None]
    if case == "snake":
        names = ("agent_id", "request_ids")
    else:
        names = ("agentId", "requestIds")
    return {**to_plain(inner, case), **dict(zip(names, (agent_id, ids), strict=True))}


def sse(item: StreamItem, case: Case = "snake") -> bytes:
    """Return one server-sent event. Its data is one line: JSON escapes line breaks."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(item.position).encode(), item.type.encode(), item.encoded(case))


def _number(item: StreamItem) -> int:
    return item.position.number
