"""The server over standard input and output: one JSON-RPC message per line, for a program that starts it as a child.

Requests run at the same time, so answers come in the order in which they are ready. After `watch`, events of the agent's
turns are notifications named `event`. The end of the input stops the server.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeAlias

import msgspec

from nexus.server.access_log import CURRENT, AccessRecord
from nexus.server.forms import Case
from nexus.server.jsonrpc import INVALID_PARAMS, PARSE_ERROR, Params, RpcError, answer, refusal
from nexus.server.security import LOCAL_TENANT
from nexus.server.service import Service
from nexus.types.validation import repair_json

MAX_LINE_BYTES = 10 * 2**20
MAX_RUNNING = 1_000
"""Messages that are answered at the same time; further lines are not read meanwhile."""

_LINES_AHEAD = 16
_SEPARATORS = tuple((chr(code).encode(), f"\\u{code:04x}".encode()) for code in (0x85, 0x2028, 0x2029))

ReadLine: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns the next line with its end, at most `MAX_LINE_BYTES` and one more of it; empty at the end of the input."""
WriteLine: TypeAlias = Callable[[bytes], Awaitable[None]]


class StdioServer:
    """Answers the lines of one program.

    Args:
        service: Runs the methods.
        read: Reads a line.
        write: Writes a line.
        tenant: Name of the tenant.
        case: Case of the names of results and events.
    """

    def __init__(
        self, service: Service, read: ReadLine, write: WriteLine, *, tenant: str = LOCAL_TENANT, case: Case = "snake"
    ) -> None:
        self._service = service
        self._read = read
        self._write = write
        self._tenant = tenant
        self._case: Case = case
        self._running: set[asyncio.Task[None]] = set()
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._write_lock = asyncio.Lock()

    async def run(self, stop: asyncio.Event) -> None:
        """Answer lines until the input ends or `stop` is set; then let running requests end, and stop all turns."""
        tenants = self._service.tenants
        await tenants.start([self._tenant])
        stopping = asyncio.ensure_future(stop.wait())
        slots = asyncio.Semaphore(MAX_RUNNING)
        try:
            while not stop.is_set():
                reading = asyncio.ensure_future(self._read())
                await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    break
                line = reading.result()
                if not line:
                    break
                if line.strip():
                    await slots.acquire()
                    task = asyncio.ensure_future(self._answer(line))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                    task.add_done_callback(lambda _: slots.release())
            if self._running and not stop.is_set():  # the input has ended: its requests may still be answered
                ending = asyncio.gather(*self._running, return_exceptions=True)
                await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await tenants.stop_turns()
            await asyncio.gather(stopping, *self._running, *self._watched.values(), return_exceptions=True)
            await tenants.close()

    async def _answer(self, line: bytes) -> None:
        record = AccessRecord("stdio", tenant=self._tenant, received_bytes=len(line))
        CURRENT.set(record)  # of this task
        if len(line) > MAX_LINE_BYTES + 1:
            response = refusal(RpcError(PARSE_ERROR, f"line has more than {MAX_LINE_BYTES:,} bytes"))
        else:
            response = await answer(repair_json(line), self._call)
        record.sent_bytes = len(response.body)
        record.write()
        if response.body:
            await self._send(response.body)

    async def _call(self, method: str, params: Params) -> Any:
        if method not in ("watch", "unwatch"):
            return await self._service.call(self._tenant, method, params, case=self._case)
        agent_id = None
        if isinstance(params, dict):
            agent_id = params.get("agent_id", params.get("agentId"))
        if not isinstance(agent_id, str):
            raise RpcError(INVALID_PARAMS, f"params of {method} invalid: agent_id missing (pass the agent's id)")
        watching = self._watched.pop(agent_id, None)
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if method == "watch":
            await self._service.find_agent(self._tenant, agent_id)
            started = asyncio.Event()
            self._watched[agent_id] = asyncio.ensure_future(self._watch(agent_id, started))
            await started.wait()
        return {"success": True}

    async def _watch(self, agent_id: str, started: asyncio.Event) -> None:
        """Write the events of an agent's turns as notifications."""
        try:
            async with self._service.tenants.use(self._tenant) as tenant:
                reading = tenant.events.read(agent_id, tenant.events.end())
                started.set()
                async for items in reading:
                    for item in items:
                        message = {"jsonrpc": "2.0", "method": "event", "params": msgspec.Raw(item.encoded(self._case))}
                        await self._send(msgspec.json.encode(message))
        finally:
            started.set()

    async def _send(self, body: bytes) -> None:
        async with self._write_lock:
            await self._write(_escaped(body) + b"\n")


def _escaped(body: bytes) -> bytes:
    """Return JSON without line separators that it need not escape, at which some readers split lines."""
    for separator, escape in _SEPARATORS:
        body = body.replace(separator, escape)
    return body


@contextmanager
def read_lines(descriptor: int) -> Generator[ReadLine]:
    """Return a function that reads lines of a file descriptor, which a thread reads a few lines ahead.

    The thread is a daemon without buffers of Python's own: it may still wait for input when the process ends.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue(_LINES_AHEAD)

    def read() -> None:
        with suppress(RuntimeError, OSError, FutureCancelled):  # the loop has ended, or the input
            for line in _lines_of(descriptor):
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        with suppress(RuntimeError, FutureCancelled):
            asyncio.run_coroutine_threadsafe(lines.put(b""), loop).result()

    Thread(target=read, name="nexus input", daemon=True).start()
    yield lines.get


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield lines with their ends; of a longer one than `MAX_LINE_BYTES` that many bytes and one more."""
    rest = bytearray()
    while chunk := os.read(descriptor, 65_536):
        *complete, last = chunk.split(b"\n")
        for piece in complete:
            rest += piece[: MAX_LINE_BYTES + 1 - len(rest)]
            yield bytes(rest) + b"\n"
            rest.clear()
        rest += last[: MAX_LINE_BYTES + 1 - len(rest)]
    if rest:
        yield bytes(rest)


async def write_line(line: bytes) -> None:
    """Write a line to standard output. Raises OSError if the reader has gone."""
    await asyncio.to_thread(_write, line)


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
