"""Many open streams of events whose readers are slow or take nothing, while turns run."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

SLOW_BYTES, SLOW_S = 512, 0.5
"""What a slow reader takes at once, and its pause, in seconds."""
_RECEIVE_BYTES = 4_096
"""Buffer of a reader's socket: what it has not taken stays with the server."""
_POLL_S, _QUIET_POLLS = 0.05, 400
"""Seconds between two looks at what came, and looks without anything new after which nothing more is expected."""


class StreamEvent(Struct, frozen=True):
    """An event as a reader got it."""

    id: str
    type: str


class Readers(Struct, frozen=True):
    """What readers got that read on: number of readers by what came of them."""

    complete: int
    """Have all events of their agent, in order."""
    with_gap: int
    """Have a gap, and all events since."""
    disconnected: int


class Reader:
    """One open stream, and what was read of it.

    Args:
        url: Address of the server.
        headers: Headers of the request.
        agent: The agent whose events are read.
        pause_s: Seconds between two small reads; 0 reads all at once, None nothing but the head until `events`.
    """

    def __init__(self, url: str, headers: Mapping[str, str], agent: str, pause_s: float | None) -> None:
        self.agent, self._pause_s = agent, pause_s
        self._netloc, self._headers = urlsplit(url).netloc, headers
        self._may_read = asyncio.Event()
        self._data = bytearray()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._read())

    async def opened(self) -> None:
        """Wait until the stream is open. Raises AssertionError if the server refuses it."""
        await self._opened

    @property
    def is_open(self) -> bool:
        """False if the server has ended the stream."""
        return not self._task.done()

    async def events(self, last_type: str, count: int) -> list[StreamEvent]:
        """Read on at once, until so many events of a type came, or nothing more does; return all events."""
        self._may_read.set()
        end, size, ends, quiet_polls = f"event: {last_type}\n".encode(), 0, 0, 0
        while self.is_open and quiet_polls < _QUIET_POLLS:
            ends += self._data.count(end, max(size - len(end) + 1, 0))
            quiet_polls = quiet_polls + 1 if len(self._data) == size else 0
            size = len(self._data)
            if ends >= count and self._data.find(b"\n\n", self._data.rfind(end)) >= 0:
                break
            await asyncio.wait((self._task,), timeout=_POLL_S)
        return self._parsed()

    async def close(self) -> None:
        """Close the stream."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        host, _, port = self._netloc.partition(":")
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            connection.settimeout(0)
            await loop.sock_connect(connection, (host, int(port)))
            lines = [f"GET /agent/{self.agent}/events HTTP/1.1", f"Host: {self._netloc}"]
            lines += [f"{name}: {value}" for name, value in self._headers.items()]
            await loop.sock_sendall(connection, "".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            while chunk := await self._chunk(connection):
                self._data += chunk
                if not self._opened.done() and b"event: open" in self._data:
                    self._opened.set_result(None)
        if not self._opened.done():
            self._opened.set_exception(AssertionError(bytes(self._data[:500])))

    async def _chunk(self, connection: socket.socket) -> bytes:
        """Return what is read next; empty at the end of the stream."""
        is_slow = self._pause_s != 0 and not self._may_read.is_set()
        if is_slow and self._opened.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._may_read.wait(), self._pause_s)
        try:
            return await asyncio.get_running_loop().sock_recv(connection, SLOW_BYTES if is_slow else 65_536)
        except ConnectionError:
            return b""

    def _parsed(self) -> list[StreamEvent]:
        text = _unchunked(bytes(self._data.partition(b"\r\n\r\n")[2])).decode()
        frames = [frame for frame in text.split("\n\n")[:-1] if not frame.startswith(":")]
        fields = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in frames]
        return [StreamEvent(field["id"], json.loads(field["data"])["type"]) for field in fields]


def _unchunked(data: bytes) -> bytes:
    """Return the body of a chunked response, up to its last whole chunk."""
    body, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0:
        start, size = end + 2, int(data[at:end], 16)
        if not size or start + size > len(data):
            break
        body += data[start : start + size]
        at = start + size + 2
    return bytes(body)


async def open_readers(url: str, headers: Mapping[str, str], agents: Sequence[str], streams: int) -> list[Reader]:
    """Open streams: one for each agent that reads all at once; of the others half read slowly, half nothing."""
    readers: list[Reader] = []
    for number in range(streams):
        pause_s = 0.0 if number < len(agents) else SLOW_S if number % 2 else None
        readers.append(Reader(url, headers, agents[number % len(agents)], pause_s))
    await asyncio.gather(*(reader.opened() for reader in readers))
    return readers


async def read_on(readers: Sequence[Reader], agents: Sequence[str], turns: int) -> Readers:
    """Let all readers read on to the end of their agent's turns, and compare them with the one that read at once.

    Raises AssertionError if a reader lost or repeated an event without a gap.
    """
    found = await asyncio.gather(*(reader.events("stream_end", turns) for reader in readers))
    complete = {
        agent: [event.id for event in events] for agent, events in zip(agents, found[: len(agents)], strict=True)
    }
    whole = gaps = ended = 0
    for reader, events in zip(readers, found, strict=True):
        ids, all_ids = [event.id for event in events], complete[reader.agent]
        gap = max((at for at, event in enumerate(events) if event.type == "gap"), default=None)
        if not reader.is_open:
            ended += 1
            assert gap is not None or ids == all_ids[: len(ids)], f"{reader.agent}: events lost before the end"
        elif gap is None:
            whole += 1
            assert ids == all_ids, f"{reader.agent}: {len(ids)} of {len(all_ids)} events"
        else:
            gaps += 1
            rest = ids[gap + 1 :]
            assert rest == all_ids[len(all_ids) - len(rest) :], f"{reader.agent}: events lost behind a gap"
    return Readers(whole, gaps, ended)
