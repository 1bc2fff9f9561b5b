"""Connections of the HTTP server: how many there may be, which requests they refuse, and their end if a client does not go on.

A response is paused while its client has not taken 64 KiB of it (asyncio's high-water mark), so a slow reader costs no
more memory than that.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nexus.server.jsonrpc import REFUSALS, SERVER_ERROR, RpcError, refusal

MAX_FILES = 8_192
"""Open files that the server asks the system for."""
MIN_OTHER_FILES = 224
"""Files that are left for ledgers and models, at least; else a quarter of all."""
MAX_HEAD_BYTES = 64 * 1024
"""Bytes of a request line with its headers."""
MAX_HEADERS = 100
RECEIVE_S = 60.0
"""Seconds in which a request's head must arrive, and after which a client is disconnected that sends no more of a body."""
_RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: reset the connection when it is closed."""


class _StrictConnection(h11.Connection):
    """Reads requests, and refuses those whose length a proxy before the server may read differently."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return the next part of a request. Raises RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            size = len(event.target) + sum(len(name) + len(value) for name, value in event.headers)
            if len(names) > MAX_HEADERS or size > MAX_HEAD_BYTES:  # h11 limits a head that does not come at once
                raise h11.RemoteProtocolError("headers too large")
            if b"content-length" in names and b"transfer-encoding" in names:  # RFC 9112, 6.3: request smuggling
                raise h11.RemoteProtocolError("two lengths of a body")
        return event


class ClientConnection(H11Protocol):
    """A connection that is closed if its client does not read a response, or does not send a whole request, for some seconds.

    Args:
        send_s: The seconds. A client stays as long as its system asks for more within them.
        **options: Arguments of uvicorn's protocol.
    """

    def __init__(self, *, send_s: float, **options: Any) -> None:
        super().__init__(**options)
        self.conn = _StrictConnection(h11.SERVER, MAX_HEAD_BYTES)
        self._send_s = send_s
        self._check: asyncio.TimerHandle | None = None
        self._arrival: asyncio.TimerHandle | None = None
        """Ends the connection; None unless a request is awaited."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._arrival = asyncio.get_running_loop().call_later(RECEIVE_S, self._end_request)

    def handle_events(self) -> None:
        """Read what has arrived, and wait for the rest of a request."""
        super().handle_events()
        state = self.conn.their_state
        if state is h11.IDLE and self.conn.trailing_data[0]:
            if self._arrival is None:  # more bytes give a head no more time
                self._arrival = asyncio.get_running_loop().call_later(RECEIVE_S, self._end_request)
            return
        self._end_arrival()
        if state is h11.SEND_BODY:
            self._arrival = asyncio.get_running_loop().call_later(RECEIVE_S, self._end_request)

    def _end_request(self) -> None:
        """Close the connection, unless it is the application that does not go on reading."""
        self._arrival = None
        if self.flow.read_paused:
            self._arrival = asyncio.get_running_loop().call_later(RECEIVE_S, self._end_request)
        else:
            self.abort()

    def _end_arrival(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    @property
    def is_paused(self) -> bool:
        """True while a response waits for its client to read."""
        return self._check is not None

    def pause_writing(self) -> None:
        """Begin to watch whether the client reads."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Let the response go on."""
        self._end_watch()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the same text for all
        """Refuse a malformed request. A response that has begun ends with its connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_malformed())  # h11 would refuse the body of a response to HEAD
            self.transport.close()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch with the connection."""
        self._end_arrival()
        self._end_watch()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once: `close` would wait until the client has read all."""
        connection: socket.socket = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # else the system keeps what was not read
        self.transport.abort()

    def _watch(self) -> None:
        left_bytes = self._left_bytes()
        self._check = asyncio.get_running_loop().call_later(self._send_s, self._check_progress, left_bytes)

    def _end_watch(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _check_progress(self, left_bytes: int) -> None:
        if self._left_bytes() < left_bytes:
            self._watch()
        else:
            self.abort()

    def _left_bytes(self) -> int:
        """Return the bytes that the client has not taken, in this process and in the system."""
        connection: socket.socket = self.transport.get_extra_info("socket")
        return self.transport.get_write_buffer_size() + _unacknowledged_bytes(connection.fileno())


@cache
def _malformed() -> bytes:
    """Return the response to a request that is not valid HTTP."""
    text = f"request malformed (send HTTP/1.1 with at most {MAX_HEADERS} headers of {MAX_HEAD_BYTES:,} bytes)"
    body = refusal(RpcError(SERVER_ERROR, text, {"code": REFUSALS[400], "status": 400})).body
    lines = ["HTTP/1.1 400 Bad Request", "content-type: application/json", f"content-length: {len(body)}"]
    lines += ["cache-control: no-store", "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _unacknowledged_bytes(descriptor: int) -> int:
    """Return the bytes that the system has for a client; 0 where it does not say.

    Linux takes more from the process only when a third of its buffer is free, which a slow reader needs long for.
    """
    try:
        import fcntl
        import termios

        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (ImportError, AttributeError, OSError):  # Windows; systems that have it for terminals alone
        return 0


def max_connections() -> int:
    """Raise this process's limit of open files if the system allows it, and return the connections that fit in it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_FILES - MAX_FILES // 4
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        files = MAX_FILES
    else:
        files = min(MAX_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= files:
        files = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    else:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return files - max(MIN_OTHER_FILES, files // 4)
