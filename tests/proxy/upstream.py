"""A server that takes any request and gives one answer, to see the bytes that arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def upstream(
    bodies: list[bytes],
    lines: list[str] | None = None,
    heads: list[list[tuple[str, str]]] | None = None,
    *,
    status: int = 400,
    answer: bytes = b'{"error":"bad"}',
    headers: dict[str, str] | None = None,
) -> Iterator[str]:
    """Run it until the block ends; it adds each body, request line and head to the lists."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
            if lines is not None:
                lines.append(f"{self.command} {self.path}")
            if heads is not None:
                heads.append([(name.lower(), value) for name, value in self.headers.items()])
            self.send_response(status)
            for name, value in {"content-type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        setattr(Handler, f"do_{method}", Handler.answer)

    class Server(ThreadingHTTPServer):
        request_queue_size = 1_024

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
