"""A server on loopback that speaks chat completions from a script: each request is kept, and answered by the next step.

The last step answers all further requests. Nothing waits longer than a second after the server was closed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Step = Callable[[BaseHTTPRequestHandler, Event], None]


@dataclass
class ChatServer:
    """What was asked so far: the JSON bodies and the headers (names in lower case). `url` is what a client needs."""

    url: str
    steps: list[Step] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def plays(self, *steps: Step) -> ChatServer:
        self.steps = list(steps)
        return self


def completion(text: Any, *, stop: str = "stop", tokens: int = 40, **message: Any) -> dict[str, Any]:
    """A chat completion of one choice, in OpenAI's form."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "little-2026-01-01",
        "choices": [{"index": 0, "finish_reason": stop, "message": {"role": "assistant", "content": text, **message}}],
        "usage": {"prompt_tokens": 500, "completion_tokens": tokens, "total_tokens": 500 + tokens},
    }


def says(text: Any, **fields: Any) -> Step:
    """Answers with a completion."""
    return answers(200, completion(text, **fields))


def answers(status: int, body: Any, **headers: str) -> Step:
    """Answers with a status and a body: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(handler: BaseHTTPRequestHandler, _: Event) -> None:
        _begin(handler, status, len(data), headers)
        handler.wfile.write(data)

    return step


def refuses(status: int, message: str, **error: Any) -> Step:
    """Answers with an error in OpenAI's form; where the package would try again it is told not to wait."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": None, **error}}
    return answers(status, body, **{"retry-after-ms": "1"})


def waits() -> Step:
    """Answers nothing, until the server is closed."""
    return lambda _, closed: bool(closed.wait(600)) and None


def drips(text: str) -> Step:
    """Answers at once and then one byte at a time, so that no single wait is long."""
    data = json.dumps(completion(text)).encode()

    def step(handler: BaseHTTPRequestHandler, closed: Event) -> None:
        _begin(handler, 200, len(data), {})
        for at in range(len(data)):
            handler.wfile.write(data[at : at + 1])
            handler.wfile.flush()
            if closed.wait(0.05):
                return

    return step


def hangs_up(*, after: bytes = b"") -> Step:
    """Ends the connection: before any answer, or after some bytes of one that was to be longer."""

    def step(handler: BaseHTTPRequestHandler, _: Event) -> None:
        if after:
            _begin(handler, 200, len(after) + 100, {})
            handler.wfile.write(after)
            handler.wfile.flush()
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    return step


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """The server, on a free port of loopback, until the block ends."""
    closed = Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            assert self.path.endswith("/v1/chat/completions"), self.path
            kept.raw.append(data)
            kept.bodies.append(json.loads(data))
            kept.headers.append({name.lower(): value for name, value in self.headers.items()})
            step = kept.steps.pop(0) if len(kept.steps) > 1 else kept.steps[0]
            try:
                step(self, closed)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept = ChatServer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        closed.set()
        server.shutdown()
        server.server_close()
        thread.join(1)


def _begin(handler: BaseHTTPRequestHandler, status: int, length: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(length))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
