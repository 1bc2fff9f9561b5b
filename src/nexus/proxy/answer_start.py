"""The beginning of a streamed answer: a provider may refuse a request there, although its status says 200."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from nexus.errors import BadReply
from nexus.providers.received import mapping
from nexus.proxy.calls import events_of

MAX_BYTES = 2**20
"""Bytes of a beginning that are kept back, at most. The Responses API repeats instructions and tools in it."""

HOLD_S = 5.0
"""Seconds that a beginning is kept back, at most."""

_WITHOUT_NEWS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Events of the Responses API before it says whether it takes the request."""


class AnswerStream:
    """The body of an answer, of which the beginning may be read before the client gets any.

    Args:
        pieces: The body as it arrives; it raises what the connection raises.
    """

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._beginning: list[bytes] = []
        self._next: asyncio.Future[bytes | None] | None = None
        """The piece that is being read when the client gets the beginning."""

    async def refusal(self) -> Any:
        """Return the error that a stream of events begins with, as the body of a refusal; None if there is none.

        The beginning is what comes before the first event that says what becomes of the request.
        """
        data = b""
        until_s = time.monotonic() + HOLD_S
        while len(data) <= MAX_BYTES:
            reading = asyncio.ensure_future(self._read())
            try:
                await asyncio.wait({reading}, timeout=max(until_s - time.monotonic(), 0))
            except asyncio.CancelledError:
                reading.cancel()
                raise
            if not reading.done() or reading.exception() is not None or not reading.result():
                self._next = reading
                return None
            piece = reading.result() or b""
            self._beginning.append(piece)
            data += piece
            try:
                is_decided, error = _decision(data)
            except BadReply:
                return None
            if is_decided:
                return error
        return None

    async def _read(self) -> bytes | None:
        """Return the next piece; None at the end."""
        return await anext(self._pieces, None)

    def close(self) -> None:
        """End the reading of a piece that nobody waits for."""
        if self._next is not None:
            self._next.cancel()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the whole body, and raise where it breaks off."""
        for piece in self._beginning:
            yield piece
        self._beginning.clear()
        if self._next is not None and (piece := await self._next):
            yield piece
        async for piece in self._pieces:
            yield piece


def _decision(data: bytes) -> tuple[bool, Any]:
    """Return whether a stream's beginning says what becomes of the request, and the error if it is refused.

    Raises BadReply.
    """
    whole, end, _ = data.replace(b"\r\n", b"\n").rpartition(b"\n\n")
    if not end:
        return False, None
    events = [*events_of(whole)]
    for event in events:
        fields = mapping(event)
        if fields.get("type") not in _WITHOUT_NEWS:
            return True, _error_in(fields)
    return not events, None  # comments alone keep the connection alive: the client waits for them


def _error_in(event: dict[str, Any]) -> Any:
    error = mapping(event.get("response")).get("error") or event.get("error")
    if error:
        return {"error": error}
    return event if event.get("type") == "error" else None
