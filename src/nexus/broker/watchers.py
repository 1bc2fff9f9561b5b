"""Those who watch the turns of a broker's sessions or wait for events, and what each session does now."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from nexus.broker.events import SessionEvent, SessionState
from nexus.errors import NotAccepted
from nexus.types.stream_events import CompactionStart, Reasoning, StreamEnd, StreamError, StreamEvent, Token

WATCHED_EVENTS = 10_000
"""Events that wait for a slow watcher, at most; then it is told that it missed some."""

_Watcher: TypeAlias = tuple[str | None, asyncio.Queue[SessionEvent | NotAccepted | None]]
"""The session that is watched, or None for all, and the events for the watcher: None is the last one."""


class Watchers:
    """The watchers of a broker.

    Attributes:
        states: What each session does that does anything.
    """

    def __init__(self) -> None:
        self.states: dict[str, SessionState] = {}
        self._watchers: set[_Watcher] = set()

    def watch(self, session: str | None) -> AsyncGenerator[SessionEvent]:
        """Return the events from now on, of one session or of all; see `Broker.watch`."""
        watcher: _Watcher = (session, asyncio.Queue())
        self._watchers.add(watcher)
        return self._watched(watcher)

    async def _watched(self, watcher: _Watcher) -> AsyncGenerator[SessionEvent]:
        _, queue = watcher
        try:
            while (event := await queue.get()) is not None:
                if isinstance(event, NotAccepted):
                    raise event
                yield event
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """End all watching, behind the events that are there."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    def end(self, label: str, error: str | None) -> None:
        """Note that a session does nothing any more, and pass on the error that stopped it."""
        self.states.pop(label, None)
        if error is not None:
            self.emit(label, (), StreamError("error", error, retryable=True))

    def emit(self, label: str, ids: Sequence[str], event: StreamEvent) -> None:
        """Pass an event of a session on to those who watch it."""
        match event:
            case Token() | Reasoning():
                self.states[label] = "streaming"
            case CompactionStart():
                self.states[label] = "compacting"
            case StreamEnd() | StreamError():
                self.states[label] = "completing"
            case _:
                self.states[label] = "processing"
        for session, queue in list(self._watchers):
            if session is None or session == label:
                if queue.qsize() >= WATCHED_EVENTS:
                    self._watchers.discard((session, queue))
                    text = f"watcher was more than {WATCHED_EVENTS:,} events behind (watch again)"
                    queue.put_nowait(NotAccepted(text))
                else:
                    queue.put_nowait(SessionEvent(label, event, tuple(ids)))


class Waiters:
    """Those who wait until events are settled, by their keys."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def wait(self, key: str) -> Generator[asyncio.Future[None]]:
        """Return a future that is done once an event is settled."""
        settled = asyncio.get_running_loop().create_future()
        self._waiting[key].append(settled)
        try:
            yield settled
        finally:
            self._waiting[key].remove(settled)
            if not self._waiting[key]:
                del self._waiting[key]

    def settle(self, keys: Iterable[str]) -> None:
        """Wake those who wait for some events."""
        for key in keys:
            for future in self._waiting.get(key, ()):
                if not future.done():
                    future.set_result(None)
