"""A relay between a client and a proxy: it numbers the client's requests and keeps each as the client sent it.

The number is a header, which the proxy passes on, so that a request that arrives upstream is compared with its own original.
Everything else goes on byte for byte in both directions, as it arrives.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

NUMBER_HEADER = "x-tap"

_CALL_ID = re.compile(rb"\r\nx-nexus-call: (\w+)", re.IGNORECASE)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


@dataclass
class TappedRequest:
    """One request of a client, and its answer as the client got it."""

    number: int
    path: str
    data: bytes
    answer: bytes = b""
    is_refused: bool = False
    """True if nobody listened at the proxy's address."""

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body; empty if it has none."""
        try:
            return json.loads(self.data)
        except ValueError:
            return {}

    @property
    def status(self) -> int:
        """HTTP status of the answer; 0 without one."""
        found = _STATUS.match(self.answer)
        return int(found[1]) if found else 0

    @property
    def call_id(self) -> str:
        """The proxy's id of the call; empty without an answer."""
        found = _CALL_ID.search(self.answer.partition(b"\r\n\r\n")[0])
        return found[1].decode() if found else ""

    @property
    def is_answered(self) -> bool:
        """True if the client got the answer to its last byte."""
        head, end, rest = self.answer.partition(b"\r\n\r\n")
        if not end:
            return False
        length = _LENGTH.search(head)
        if length:
            return len(rest) >= int(length[1])
        return rest.endswith(b"0\r\n\r\n")


class Tap:
    """The requests of one client, in order."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.requests: list[TappedRequest] = []
        self.url = ""
        self._port = port
        self._tasks = set[asyncio.Task[None]]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_writer: asyncio.StreamWriter | None = None
        answering: asyncio.Task[None] | None = None
        current: list[TappedRequest] = []
        try:
            while True:
                asked, head, body = await self._read(reader)
                current[:] = [asked]
                if upstream_writer is None:
                    try:
                        upstream, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port)
                    except OSError:
                        asked.is_refused = True
                        return
                    answering = asyncio.create_task(self._answer(upstream, writer, current))
                upstream_writer.write(head + body)
                await upstream_writer.drain()
        finally:
            if upstream_writer is not None:
                upstream_writer.transport.abort()
            if answering is not None:
                answering.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[TappedRequest, bytes, bytes]:
        """Return the next request, with the head and the body to send."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        assert b"transfer-encoding" not in head.lower(), "a client that sends its body in chunks"
        asked = TappedRequest(len(self.requests), head.split(b" ", 2)[1].decode(), body)
        self.requests.append(asked)
        numbered = head[:-2] + f"{NUMBER_HEADER}: {self.name}/{asked.number}\r\n\r\n".encode()
        return asked, numbered, body

    async def _answer(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, current: list[TappedRequest]
    ) -> None:
        with suppress(OSError):
            while piece := await upstream.read(65_536):
                current[0].answer += piece
                writer.write(piece)
                await writer.drain()
        writer.transport.close()

    async def close(self) -> None:
        """End all connections."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def tap(name: str, port: int) -> Generator[Tap]:
    """Relay from a free port to the proxy's until the block ends."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    relay = Tap(name, port)

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(relay.serve, "127.0.0.1", 0, limit=2**20)

    listening = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    relay.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listening.close()
        asyncio.run_coroutine_threadsafe(relay.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
