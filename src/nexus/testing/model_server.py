"""Scripted model server on loopback for OpenAI chat completions and Anthropic messages.

Every request is recorded and answered by the next step of a script. The last step answers all further requests.

    with model_server(reply("Hello.")) as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="test")
        client = anthropic.Anthropic(base_url=server.anthropic_url, api_key="test")

A step is a function from `ModelRequest` to `Response`. The functions of this module make steps that answer in the
format of the request, to a streaming request with a stream of events.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from nexus.testing import WordCounter
from nexus.types.message import ToolCall

Format: TypeAlias = Literal["openai", "anthropic"]
StopReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

_FORMATS: dict[str, Format] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
"""Anthropic's names of errors by HTTP status (docs.anthropic.com/en/api/errors)."""


class ModelRequest(Struct, frozen=True):
    """Request that the server received. Names of headers are in lower case."""

    format: Format
    headers: dict[str, str]
    data: bytes
    body: dict[str, Any]


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
    missing_bytes: int = 0
    """Bytes that are announced and never sent, before the connection is closed."""


Step: TypeAlias = Callable[[ModelRequest], Response]


class ModelServer:
    """Running server: its URLs, its script, and its requests. Without a script it answers `ok`."""

    def __init__(self, url: str, steps: tuple[Step, ...]) -> None:
        self.openai_url, self.anthropic_url = f"{url}/v1", url
        self.requests: list[ModelRequest] = []
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
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step(request)


def reply(
    text: str | None,
    *tool_calls: ToolCall,
    stop: StopReason | None = None,
    model: str = "",
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    byte_interval_s: float = 0.0,
    **message: Any,
) -> Step:
    """Return a step that answers with a text and tool calls.

    `model` defaults to the requested one, token counts to words. `message` adds fields to the message of a chat
    completion.
    """
    reason = stop or ("tool_calls" if tool_calls else "stop")

    def step(request: ModelRequest) -> Response:
        count = WordCounter().count
        prompt_count = count(request.data.decode()) if input_tokens is None else input_tokens
        answered = count(text or "") if output_tokens is None else output_tokens
        name = model or str(request.body.get("model", ""))
        if request.format == "anthropic":
            content = [{"type": "text", "text": text}] if text else []
            calls = [
                {"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.arguments)} for c in tool_calls
            ]
            body: dict[str, Any] = {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": name,
                "content": [*content, *calls],
                "stop_reason": _STOP_REASONS[reason],
                "stop_sequence": None,
                "usage": {"input_tokens": prompt_count, "output_tokens": answered},
            }
        else:
            functions = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in tool_calls
            ]
            calls_field = {"tool_calls": functions} if functions else {}
            choice = {"role": "assistant", "content": text, **calls_field, **message}
            body = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": name,
                "choices": [{"index": 0, "finish_reason": reason, "message": choice}],
                "usage": {
                    "prompt_tokens": prompt_count,
                    "completion_tokens": answered,
                    "total_tokens": prompt_count + answered,
                },
            }
        if request.body.get("stream"):
            events = _anthropic_events(body) if request.format == "anthropic" else _chat_events(body, request)
            headers = {"Content-Type": "text/event-stream"}
            return Response(body="".join(events).encode(), headers=headers, byte_interval_s=byte_interval_s)
        return Response(body=json.dumps(body).encode(), byte_interval_s=byte_interval_s)

    return step


def _chat_events(body: dict[str, Any], request: ModelRequest) -> Iterator[str]:
    """Yield a chat completion as its stream: texts by word, arguments in two pieces, usage if it was asked for."""
    message = dict(body["choices"][0]["message"])
    text, calls = message.pop("content") or "", message.pop("tool_calls", [])
    deltas: list[dict[str, Any]] = [{**message, "content": ""}]
    deltas += [{"content": word} for word in _words(text)]
    for index, call in enumerate(calls):
        function, half = call["function"], len(call["function"]["arguments"]) // 2
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in (function["arguments"][:half], function["arguments"][half:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    ends = [None] * len(deltas) + [body["choices"][0]["finish_reason"]]
    chunk = {name: body[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta, end in zip([*deltas, {}], ends, strict=True):
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        yield f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"
    options: dict[str, Any] = request.body.get("stream_options") or {}
    if options.get("include_usage"):
        yield f"data: {json.dumps({**chunk, 'choices': [], 'usage': body['usage']})}\n\n"
    yield "data: [DONE]\n\n"


def _anthropic_events(body: dict[str, Any]) -> Iterator[str]:
    """Yield a message of Anthropic as its stream: texts by word, inputs in two pieces."""
    usage = {**body["usage"], "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**body, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(body["content"]):
        if block["type"] == "text":
            empty: dict[str, Any] = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": word} for word in _words(block["text"])]
        else:
            arguments = json.dumps(block["input"])
            empty, half = block | {"input": {}}, len(arguments) // 2
            pieces = (arguments[:half], arguments[half:])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ends = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ends, "usage": {"output_tokens": body["usage"]["output_tokens"]}})
    events.append({"type": "message_stop"})
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def fail(status: int, message: str, **error: Any) -> Step:
    """Return a step that answers with an error. `error` adds fields to it, for example `code`.

    The answer tells a client that retries by itself to do so without waiting.
    """

    def step(request: ModelRequest) -> Response:
        if request.format == "anthropic":
            kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
            body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message, **error}}
        else:
            fields = {"message": message, "type": "error", "param": None, "code": None, **error}
            body = {"error": fields}
        return Response(status, json.dumps(body).encode(), {"retry-after-ms": "1"})

    return step


def overflow(limit_tokens: int, prompt_tokens: int) -> Step:
    """Return a step that rejects the prompt as too long, in the words of OpenAI or Anthropic."""

    def step(request: ModelRequest) -> Response:
        if request.format == "anthropic":
            return fail(400, f"prompt is too long: {prompt_tokens} tokens > {limit_tokens} maximum")(request)
        text = (
            f"This model's maximum context length is {limit_tokens} tokens. However, your messages resulted in "
            f"{prompt_tokens} tokens. Please reduce the length of the messages."
        )
        return fail(400, text, type="invalid_request_error", param="messages", code="context_length_exceeded")(request)

    return step


def respond(status: int, body: Any, **headers: str) -> Step:
    """Return a step that sends bytes as they are and anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
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
    closed = Event()

    class ModelRequests(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            path = self.path.partition("?")[0]  # a client with a proxy sends the whole URL
            format_: Format | None = next((name for end, name in _FORMATS.items() if path.endswith(end)), None)
            headers = {name.lower(): value for name, value in self.headers.items()}
            response = Response(404, b'{"error": {"message": "no such path"}}')
            if format_ is not None:
                response = server.answer(ModelRequest(format_, headers, data, json.loads(data)))
            try:
                self._send(response)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _send(self, response: Response) -> None:
            closed.wait(response.delay_s)
            if response.status:
                self.send_response(response.status)
                length = str(len(response.body) + response.missing_bytes)
                headers = {"Content-Type": "application/json", "Content-Length": length, **response.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
            size = 1 if response.byte_interval_s else max(len(response.body), 1)
            for at in range(0, len(response.body), size):
                self.wfile.write(response.body[at : at + size])
                self.wfile.flush()
                if response.byte_interval_s and closed.wait(response.byte_interval_s):
                    return
            if not response.status or response.missing_bytes:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - name in the base class
            """Write no log."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), ModelRequests)
    http.daemon_threads = True
    server = ModelServer(f"http://127.0.0.1:{http.server_port}", steps)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        closed.set()
        http.shutdown()
        http.server_close()
        thread.join(1)
