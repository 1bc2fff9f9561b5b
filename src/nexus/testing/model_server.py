"""Scripted model server on loopback for OpenAI (chat completions and Responses), Anthropic and Gemini.

Every request is recorded and answered by the next step of a script. The last step answers all further requests.

    with model_server(reply("Hello.")) as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="test")
        client = anthropic.Anthropic(base_url=server.anthropic_url, api_key="test")
        client = genai.Client(api_key="test", http_options={"base_url": server.gemini_url})

A step is a function from `ModelRequest` to `Response`. The functions of this module make steps that answer in the
format of the request, to a streaming request with a stream of events. All connections are served by one event loop, so
steps must not block; `Response` has the pauses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.client import responses
from threading import Thread
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.providers.errors.bodies import error_body, overflow_message
from nexus.providers.received import items_of
from nexus.testing.fakes import WordCounter
from nexus.testing.scripted_replies import (
    Format,
    ScriptedReply,
    StopReason,
    error_event,
    reply_body,
    reply_events,
)
from nexus.types.message import ToolCall
from nexus.types.request import TokenUsage

__all__ = [
    "ModelRequest",
    "ModelServer",
    "Response",
    "Step",
    "StreamFault",
    "break_stream",
    "custom_tool_names",
    "disconnect",
    "fail",
    "hang",
    "model_server",
    "overflow",
    "reply",
    "respond",
]

_FORMATS: dict[str, Format] = {
    "/chat/completions": "openai",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}


class ModelRequest(Struct, frozen=True):
    """Request that the server received. Names of headers are in lower case."""

    format: Format
    headers: dict[str, str]
    data: bytes
    body: dict[str, Any]
    path: str = ""

    @property
    def is_stream(self) -> bool:
        """True if a stream of events was asked for; Gemini's is another path."""
        return bool(self.body.get("stream")) or self.path.endswith(":streamGenerateContent")

    @property
    def model(self) -> str:
        """Name of the requested model; Gemini's is in the path."""
        if self.format == "gemini":
            return self.path.rpartition("/models/")[2].partition(":")[0]
        return str(self.body.get("model", ""))


class Response(Struct, frozen=True):
    """Answer to one request."""

    status: int = 200
    """HTTP status; 0 closes the connection without an answer."""
    body: bytes = b""
    headers: dict[str, str] = {}
    delay_s: float = 0.0
    """Seconds before the answer. Closing the server ends the wait."""
    byte_interval_s: float = 0.0
    """Seconds after each byte of the body; 0 sends the body at once."""
    event_interval_s: float = 0.0
    """Seconds after each event of a stream."""
    missing_bytes: int = 0
    """Bytes that are announced and never sent, before the connection is closed."""


Step: TypeAlias = Callable[[ModelRequest], Response]
StreamFault: TypeAlias = Literal["disconnect", "malformed", "error", "end"]


class ModelServer:
    """Running server: its URLs, its script, and its requests. Without a script it answers `ok`."""

    def __init__(self, url: str, steps: tuple[Step, ...]) -> None:
        self.openai_url = f"{url}/v1"
        self.anthropic_url = url
        self.gemini_url = url
        self.requests: list[ModelRequest] = []
        self.abandoned: list[ModelRequest] = []
        """Requests whose client closed the connection before the answer's end."""
        self.script(*steps)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies of all requests."""
        return [request.body for request in self.requests]

    def script(self, *steps: Step) -> None:
        """Replace the remaining steps."""
        self._steps = list(steps) or [reply("ok")]

    def answer(self, request: ModelRequest) -> Response:
        """Record a request and return the next step's response."""
        self.requests.append(request)
        if len(self._steps) > 1:
            step = self._steps.pop(0)
        else:
            step = self._steps[0]
        return step(request)


def reply(
    text: str | None,
    *tool_calls: ToolCall,
    thinking: str = "",
    stop: StopReason | None = None,
    model: str = "",
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    reasoning_tokens: int = 0,
    cache_write_1h_tokens: int = 0,
    byte_interval_s: float = 0.0,
    event_interval_s: float = 0.0,
    reply_id: str = "1",
    **message: Any,
) -> Step:
    """Return a step that answers with a text and tool calls.

    `model` defaults to the requested one, token counts to words. `input_tokens` includes cache reads and writes,
    `output_tokens` reasoning, `cache_write_tokens` those that are kept for an hour. `reply_id` is the end of the reply's
    id. `message` adds fields to the message of a chat completion.

    The arguments of a custom tool of the Responses API are its text. A call without an id has none in Gemini's format.
    """
    reason = stop or ("tool_calls" if tool_calls else "stop")

    def step(request: ModelRequest) -> Response:
        count = WordCounter().count
        if input_tokens is None:
            prompt_count = count(request.data.decode())
        else:
            prompt_count = input_tokens
        if output_tokens is None:
            answered = count(text or "")
        else:
            answered = output_tokens
        cached = cache_read_tokens, cache_write_tokens
        usage = TokenUsage(prompt_count, answered, *cached, reasoning_tokens, cache_write_1h_tokens)
        name = model or request.model
        if request.format == "responses":
            custom_tools = custom_tool_names(request.body)
        else:
            custom_tools = frozenset[str]()
        scripted = ScriptedReply(text, tool_calls, thinking, reason, name, usage, message, reply_id, custom_tools)
        body = reply_body(request.format, scripted)
        if not request.is_stream:
            return Response(body=json.dumps(body).encode(), byte_interval_s=byte_interval_s)
        options: dict[str, Any] = request.body.get("stream_options") or {}
        events = reply_events(request.format, body, usage=bool(options.get("include_usage")))
        return Response(
            body="".join(events).encode(),
            headers={"Content-Type": "text/event-stream"},
            byte_interval_s=byte_interval_s,
            event_interval_s=event_interval_s,
        )

    return step


def custom_tool_names(body: dict[str, Any]) -> frozenset[str]:
    """Return the names of the custom tools that a request of the Responses API offers, in its list too."""
    items = items_of(body.get("input"))
    groups: list[Any] = [body, *(item for item in items if item.get("type") == "additional_tools")]
    tools = [tool for group in groups for tool in group.get("tools") or ()]
    tools += [tool for namespace in tools for tool in namespace.get("tools") or ()]
    return frozenset(tool["name"] for tool in tools if tool.get("type") == "custom")


def break_stream(step: Step, fault: StreamFault, *, after: int, message: str = "overloaded") -> Step:
    """Return a step whose stream breaks after some events. A reply without a stream, or a shorter one, is unchanged.

    Args:
        step: Makes the whole stream.
        fault: `disconnect` closes the connection, `malformed` sends half a chunk, `error` an error event with `message`,
            and `end` nothing: the stream ends as if it were complete.
        after: Number of whole events.
        message: Text of the error event.
    """

    def broken(request: ModelRequest) -> Response:
        response = step(request)
        events = _events_of(response.body)
        if not request.is_stream or len(events) <= after:
            return response
        pieces = events[:after]
        if fault == "malformed":
            pieces.append(events[after][: len(events[after]) // 2] + b"\n\n")
        if fault == "error":
            pieces.append(error_event(request.format, 529, message).encode())
        missing = 100 if fault == "disconnect" else 0
        return replace(response, body=b"".join(pieces), missing_bytes=missing)

    return broken


def _events_of(body: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in body.split(b"\n\n") if event]


def fail(status: int, message: str = "", *, retry_after_s: float = 0.001, **error: Any) -> Step:
    """Return a step that answers with an error.

    Args:
        status: Its HTTP status, 400 to 599.
        message: Its text; without one the status's own, such as `Too Many Requests`.
        retry_after_s: Seconds that it asks a client to wait.
        **error: Further fields, for example `code`.

    Raises ValueError for a status that is not an error's.
    """
    if not 400 <= status <= 599:
        raise ValueError(f"status {status} is not an error's (use 400 to 599)")
    text = message or responses.get(status, f"status {status}")

    def step(request: ModelRequest) -> Response:
        body = error_body(request.format, status, text, **error)
        return Response(status, json.dumps(body).encode(), {"retry-after-ms": f"{retry_after_s * 1_000:.0f}"})

    return step


def overflow(limit_tokens: int, prompt_tokens: int = 0) -> Step:
    """Return a step that rejects the prompt as too long, in the words of the request's provider.

    The text says that the prompt has `prompt_tokens`; without them, a tenth more than the limit.
    """
    tokens = prompt_tokens or limit_tokens + max(limit_tokens // 10, 1)

    def step(request: ModelRequest) -> Response:
        message, fields = overflow_message(request.format, limit_tokens, tokens)
        return fail(400, message, **fields)(request)

    return step


def respond(status: int, body: Any, **headers: str) -> Step:
    """Return a step that sends bytes as they are and anything else as JSON."""
    if isinstance(body, bytes):
        data = body
    else:
        data = json.dumps(body).encode()
    return lambda _: Response(status, data, headers)


def hang() -> Step:
    """Return a step that never answers; closing the server ends the connection."""
    return lambda _: Response(0, delay_s=3_600)


def disconnect(*, after: bytes = b"") -> Step:
    """Return a step that closes the connection, either at once or after the first bytes of a longer body."""
    return lambda _: Response(200 if after else 0, after, missing_bytes=100)


@contextmanager
def model_server(*steps: Step) -> Generator[ModelServer]:
    """Run a server on a free port of loopback until the block ends."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ModelServer("", steps)

    async def listen() -> asyncio.Server:
        return await loop.create_server(lambda: _ClientConnection(server), "127.0.0.1", 0, backlog=1_024)

    async def close(listening: asyncio.Server) -> None:
        listening.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    listening = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server.openai_url = f"{url}/v1"
    server.anthropic_url = url
    server.gemini_url = url
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(close(listening), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _ClientGone(Exception):
    """The client closed the connection before the answer's end."""


class _ClientConnection(asyncio.StreamReaderProtocol):
    """One connection of a client: its requests, one after the other."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._gone = asyncio.Event()
        super().__init__(asyncio.StreamReader(), self._serve)

    def eof_received(self) -> bool | None:
        """Note that the client is gone: clients of models do not close one direction alone."""
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the client is gone."""
        self._gone.set()
        super().connection_lost(exc)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A task that ends as cancelled is reported as an error by the protocol of Python 3.11.
            with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
                while await self._serve_request(reader, writer):
                    pass
        finally:
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the next request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        path = first.split(" ")[1].partition("?")[0]  # a client with a proxy sends the whole URL
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        format_: Format | None = next((name for end, name in _FORMATS.items() if path.endswith(end)), None)
        if format_ is None:
            await self._send(writer, Response(404, b'{"error": {"message": "no such path"}}'))
            return True
        request = ModelRequest(format_, headers, data, json.loads(data), path)
        response = self._server.answer(request)
        try:
            await self._send(writer, response)
        except (_ClientGone, ConnectionError):
            self._server.abandoned.append(request)
            return False
        is_whole = response.status and not response.missing_bytes
        return bool(is_whole) and headers.get("connection", "").lower() != "close"

    async def _send(self, writer: asyncio.StreamWriter, response: Response) -> None:
        await self._pause(response.delay_s)
        if not response.status:
            return
        reason = responses.get(response.status, "Error")
        length = str(len(response.body) + response.missing_bytes)
        headers = {"Content-Type": "application/json", "Content-Length": length, **response.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {response.status} {reason}\r\n{lines}\r\n".encode("latin-1"))
        pieces = [response.body]
        interval_s = response.event_interval_s or response.byte_interval_s
        if response.event_interval_s:
            pieces = _events_of(response.body)
        elif response.byte_interval_s:
            pieces = [response.body[at : at + 1] for at in range(len(response.body))]
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await self._pause(interval_s)

    async def _pause(self, seconds: float) -> None:
        """Wait; raise `_ClientGone` if the client closes the connection meanwhile."""
        if seconds:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), seconds)
                raise _ClientGone
