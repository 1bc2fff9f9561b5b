"""Events of running turns for readers that come and go: a bounded buffer with numbers, and server-sent events from it.

A reader has a position in the buffer and nothing else, so a slow one costs no memory: if the buffer has dropped
events that it has not read, it gets a `gap` and continues. The id of an event is `EPOCH.NUMBER`; the epoch is the server's start, so a
position of an earlier process is a gap too. The messages behind a gap are in the ledger (`get_messages`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from nexus.broker import Broker, SessionEvent
from nexus.errors import NotAccepted
from nexus.server.agents import request_of
from nexus.text.redact import redact
from nexus.types.stream_events import StreamError

BUFFERED_EVENTS = 20_000
"""Events of one tenant that a reader may be behind."""
KEEP_ALIVE_S = 15.0
"""Seconds without an event after which a comment is sent."""


class Position(Struct, frozen=True):
    """The last event that a reader has."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


class EventBuffer:
    """The newest events of one tenant's turns.

    Attributes:
        epoch: Name of this buffer, part of its positions.
    """

    def __init__(self, size: int = BUFFERED_EVENTS) -> None:
        self.epoch = uuid.uuid4().hex[:8]
        self._events: deque[SessionEvent] = deque(maxlen=size)
        self._last = 0  # number of the newest event
        self._changed = asyncio.Event()
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
                watching = broker.watch()
            else:
                self.close()
                return

    def add(self, event: SessionEvent) -> None:
        """Add an event and wake the readers."""
        self._events.append(event)
        self._last += 1
        self._wake()

    def close(self) -> None:
        """End all readers, after the events that they have not read."""
        self._is_closed = True
        self._wake()

    def end(self) -> Position:
        """Return the position behind the newest event."""
        return Position(self.epoch, self._last)

    def position(self, text: str) -> Position | None:
        """Return the position of an event's id; None if this buffer has no such position."""
        epoch, _, number = text.partition(".")
        is_position = epoch == self.epoch and number.isascii() and number.isdigit() and len(number) < 16
        return Position(epoch, int(number)) if is_position and int(number) <= self._last else None

    async def read(self, session: str, start: Position | None) -> AsyncGenerator[tuple[Position, SessionEvent | None]]:
        """Yield a session's events behind a position, with their own; None for a gap.

        Without a position the reader begins with a gap.
        """
        at = self._last if start is None else start.number
        if start is None:
            yield self.end(), None
        while True:
            first = self._last - len(self._events)
            if at < first:
                at = first
                yield Position(self.epoch, at), None
                continue
            changed = self._changed
            for event in [self._events[index - first] for index in range(at, self._last)]:
                at += 1
                if event.session == session:
                    yield Position(self.epoch, at), event
            if self._last > at:
                continue
            if self._is_closed:
                return
            await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def event_data(event: SessionEvent, agent_id: str) -> dict[str, Any]:
    """Return the JSON value of an agent's event, with the ids of the requests that its turn answers."""
    inner = event.event
    if isinstance(inner, StreamError):
        inner = StreamError(inner.kind, redact(inner.text).text, inner.retryable)
    ids = [request_id for name in event.event_ids if (request_id := request_of(agent_id, name)) is not None]
    return {**msgspec.to_builtins(inner), "agent_id": agent_id, "request_ids": ids}


def sse(name: str, data: object, position: Position) -> bytes:
    """Return one server-sent event. Its data is one line: JSON escapes line breaks."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(position).encode(), name.encode(), msgspec.json.encode(data))
