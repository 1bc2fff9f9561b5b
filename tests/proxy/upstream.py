"""A server that takes any request and refuses it, to see the bytes that arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def upstream(bodies: list[bytes], lines: list[str] | None = None) -> Iterator[str]:
    """Run it until the block ends; it adds each body and request line to the lists."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
            if lines is not None:
                lines.append(f"{self.command} {self.path}")
            self.send_response(400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "15")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b'{"error":"bad"}')

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        setattr(Handler, f"do_{method}", Handler.answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
