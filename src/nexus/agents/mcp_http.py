"""Answers of MCP servers over HTTP, repaired while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx2
import msgspec

from nexus.agents.mcp_messages import MAX_ANSWER_BYTES, TOO_LONG, RepairingDecoder, error_line, repair_line


def open_http(headers: Mapping[str, str], *, connect_timeout_s: float, read_timeout_s: float) -> httpx2.AsyncClient:
    """Return a client that repairs answers; it requests them uncompressed."""
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **headers},
        timeout=httpx2.Timeout(connect_timeout_s, read=read_timeout_s),
        event_hooks={"response": [_repair_response]},
    )


async def _repair_response(response: httpx2.Response) -> None:
    """Make the package read a response's body repaired."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "text/event-stream") or "content-encoding" in response.headers:
        return
    stream = cast("httpx2.AsyncByteStream", response.stream)
    request_id = _request_id(response.request)
    if kind == "application/json":
        response.stream = _Body(stream, request_id)
    else:
        response.stream = _RepairedEvents(stream, request_id)


def _request_id(request: httpx2.Request) -> bytes:
    """Return the id of a request as JSON; empty for one without."""
    try:
        message: Any = msgspec.json.decode(request.content)
    except (msgspec.DecodeError, httpx2.RequestNotRead):
        return b""
    request_id = None
    if isinstance(message, dict):
        request_id = cast("dict[str, Any]", message).get("id")
    if request_id is None:
        return b""
    return msgspec.json.encode(request_id)


class _Body(httpx2.AsyncByteStream):
    """A body of JSON; an error replaces one that is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream, request_id: bytes) -> None:
        self._stream = stream
        self._request_id = request_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = bytearray()
        async for chunk in self._stream:
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                yield error_line(self._request_id or b"null", TOO_LONG).encode()
                return
        yield repair_line(bytes(body))

    async def aclose(self) -> None:
        await self._stream.aclose()


class _RepairedEvents(httpx2.AsyncByteStream):
    """A stream of events, whose lines of data are repaired."""

    def __init__(self, stream: httpx2.AsyncByteStream, request_id: bytes) -> None:
        self._stream = stream
        self._decoder = RepairingDecoder(prefix=b"data:", request_id=request_id)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield self._decoder.decode(chunk).encode()
        yield self._decoder.decode(b"", final=True).encode()

    async def aclose(self) -> None:
        await self._stream.aclose()
