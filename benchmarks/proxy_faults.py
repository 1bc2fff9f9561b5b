"""What a client sees of faults through proxies: one script, the same faults, and a plain upstream server on loopback."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from benchmarks.proxies import LIGHTFOOT, Proxy, bare_proxy, lightfoot, megabytes, nexus_proxy
from benchmarks.report import NotRun, Outcome, Table, Target

PATH = "/v1/messages"
WAIT_S = 8.0
"""Seconds after which a client gives up that has not sent all, and an upstream server that waits for a client's end."""
PATIENCE_S = 60.0
"""Seconds after which every other client gives up."""
FSIZE = 50_000
"""Bytes of a file that a proxy may write, in place of a full disk."""
LARGE = 20_000_000
UNREAD = 48_000_000
"""Bytes of an answer that a client does not read."""

Headers: TypeAlias = dict[str, str]
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": {**REPLY, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


def event(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


STREAM = [event(body) for body in EVENTS]
ERROR = event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def body_of(text: str = "Hello.", **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages, **fields}).encode()


@dataclass
class Upstream:
    """A server whose next answers are a function of the connection."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list[bytes])
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when a proxy closes its connection before the answer's end."""
    answer: Callable[[socket.socket], None] = lambda _: None

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection."""
        with connection, suppress(OSError, ValueError), connection.makefile("rb") as reader:
            while line := reader.readline():
                lengths = [0]
                chunked = False
                while (header := reader.readline()) not in (b"\r\n", b""):
                    name, _, value = header.lower().partition(b":")
                    if name == b"content-length":
                        lengths.append(int(value))
                    chunked |= name == b"transfer-encoding" and b"chunked" in value
                body = _chunks(reader) if chunked else reader.read(lengths[-1])
                if not line.startswith(b"POST"):
                    connection.sendall(_head(404, {"content-length": "0"}))
                    continue
                self.bodies.append(body)
                self.answer(connection)

    def hold(self, connection: socket.socket) -> None:
        """Wait until the other side closes the connection."""
        connection.settimeout(WAIT_S)
        with suppress(TimeoutError):
            if not connection.recv(1):
                self.gone.set()


def _chunks(reader: Any) -> bytes:
    body = b""
    while size := int(reader.readline(), 16):
        body += reader.read(size)
        reader.readline()
    reader.readline()
    return body


def _head(status: int, headers: Headers) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode()


def plain(status: int, body: bytes, headers: Headers | None = None) -> Callable[[socket.socket], None]:
    """Return an answer with a length."""
    named = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    return lambda connection: connection.sendall(_head(status, named) + body)


def stream(pieces: list[bytes], *, is_ended: bool = True, pause_s: float = 0) -> Callable[[socket.socket], None]:
    """Return an answer of chunks; without an end its connection is closed."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        for piece in pieces:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(pause_s)
        if is_ended:
            connection.sendall(b"0\r\n\r\n")
        else:
            connection.shutdown(socket.SHUT_RDWR)

    return answer


OK = plain(200, json.dumps(REPLY).encode())


@contextmanager
def running_upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        upstream.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=upstream.serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield upstream
        listener.shutdown(socket.SHUT_RDWR)


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    broke: str = ""
    """Why it is not whole."""
    first_s: float = 0.0

    @property
    def form(self) -> str:
        """Whether an error of the proxy is in the form of the request's provider, and says more than its status."""
        try:
            error = json.loads(self.body)
            is_own = error["type"] == "error" and bool(error["error"]["type"]) and bool(error["error"]["message"])
        except (ValueError, TypeError, KeyError):
            is_own = False
        if is_own:
            return "error in Anthropic's form"
        return "error in another form" if self.body.startswith(b"{") else "plain text"


def ask(url: str, data: bytes, headers: Headers | None = None) -> Answer:
    """Send a request and read the answer."""
    import httpx

    answer = Answer()
    sent = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "k", **(headers or {})}
    begun = time.perf_counter()
    try:
        with (
            httpx.Client(trust_env=False, timeout=PATIENCE_S) as client,
            client.stream("POST", url + PATH, content=data, headers=sent) as got,
        ):
            answer.status = got.status_code
            answer.headers = dict(got.headers)
            for piece in got.iter_raw():
                answer.first_s = answer.first_s or time.perf_counter() - begun
                answer.body += piece
    except httpx.TimeoutException:
        answer.broke = f"nothing for {PATIENCE_S:.0f} s"
    except httpx.HTTPError as error:
        answer.broke = type(error).__name__
    return answer


def ask_raw(url: str, data: bytes, wait_s: float = PATIENCE_S) -> str:
    """Send bytes and return the status of the answer in words."""
    host, _, port = urlsplit(url).netloc.partition(":")
    received = b""
    try:
        with socket.create_connection((host, int(port)), timeout=wait_s) as connection:
            with suppress(ConnectionError):
                connection.sendall(data)
            while chunk := connection.recv(65_536):
                received += chunk
                if b"0\r\n\r\n" in received or received.endswith(b"}"):
                    break
    except TimeoutError:
        return received[9:12].decode() or f"nothing for {wait_s:.0f} s"
    except ConnectionError:
        return received[9:12].decode() or "connection reset"
    return received[9:12].decode() or "connection closed"


# The faults: each gets the proxy's address, the upstream server and the proxy's process, and says what a client sees.


def _passed(answer: Answer, upstream: Upstream, data: bytes) -> str:
    arrived = (
        "arrives as sent" if data in upstream.bodies else "arrives changed" if upstream.bodies else "does not arrive"
    )
    return f"{answer.status or answer.broke}, {arrived}"


def bad_json(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(400, b'{"error":{"message":"no JSON"}}')
    return _passed(ask(url, b'{"model": '), upstream, b'{"model": ')


def body_list(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(400, b'{"error":{"message":"no object"}}')
    return _passed(ask(url, b"[1, 2]"), upstream, b"[1, 2]")


def too_many(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(429, b'{"type":"error","error":{"message":"slow"},"new":[1]}', {"retry-after": "1"})
    return _error(ask(url, body_of()), upstream, "retry-after", "1")


def server_error(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(500, b'{"type":"error","error":{"message":"oops"},"new":[1]}', {"x-new": "yes"})
    return _error(ask(url, body_of()), upstream, "x-new", "yes")


def _error(answer: Answer, upstream: Upstream, header: str, value: str) -> str:
    kept = header if answer.headers.get(header) == value else f"{header} lost"
    fields = "unknown field" if b'"new"' in answer.body else "unknown field lost"
    return f"{answer.status or answer.broke}, {kept}, {fields}, {len(upstream.bodies)} sent"


def web_page(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(200, b"<html>Log in</html>", {"content-type": "text/html"})
    answer = ask(url, body_of())
    is_same = answer.body == b"<html>Log in</html>" and answer.headers.get("content-type") == "text/html"
    return f"{answer.status}, {'the same' if is_same else 'changed'}"


def _cut(url: str, upstream: Upstream, pieces: list[bytes], *, is_ended: bool) -> str:
    upstream.answer = stream(pieces, is_ended=is_ended)
    answer = ask(url, body_of(stream=True))
    expected = b"".join(pieces)
    if answer.body == expected:
        what = "all that was sent"
    elif expected.startswith(answer.body):
        what = f"{len(answer.body)} of {len(expected)} bytes"
    else:
        what = "changed"
    return f"{what}, {'broken off' if answer.broke else 'ended as if whole'}"


def cut_between(url: str, upstream: Upstream, _process: int) -> str:
    return _cut(url, upstream, STREAM[:3], is_ended=False)


def cut_within(url: str, upstream: Upstream, _process: int) -> str:
    return _cut(url, upstream, [*STREAM[:2], STREAM[2][:30]], is_ended=False)


def cut_quietly(url: str, upstream: Upstream, _process: int) -> str:
    return _cut(url, upstream, STREAM[:4], is_ended=True)


def error_event(url: str, upstream: Upstream, _process: int) -> str:
    return _cut(url, upstream, [*STREAM[:3], ERROR], is_ended=True)


def short_answer(url: str, upstream: Upstream, _process: int) -> str:
    data = json.dumps(REPLY).encode()

    def answer(connection: socket.socket) -> None:
        connection.sendall(
            _head(200, {"content-type": "application/json", "content-length": str(len(data) + 9)}) + data
        )
        connection.shutdown(socket.SHUT_RDWR)

    upstream.answer = answer
    got = ask(url, body_of())
    return f"{got.status or got.broke}, {'broken off' if got.broke else 'ended as if whole'}"


def gone_before(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = upstream.hold
    return _leave(url, upstream)


def gone_within(url: str, upstream: Upstream, _process: int) -> str:
    def answer(connection: socket.socket) -> None:
        head = _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        connection.sendall(head + b"%x\r\n%s\r\n" % (len(STREAM[0]), STREAM[0]))
        upstream.hold(connection)

    upstream.answer = answer
    return _leave(url, upstream)


def _leave(url: str, upstream: Upstream) -> str:
    host, _, port = urlsplit(url).netloc.partition(":")
    data = body_of(stream=True)
    head = f"POST {PATH} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01"
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(f"{head}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
        for _ in range(200):
            if upstream.bodies:
                break
            time.sleep(0.02)
        time.sleep(0.3)
    begun = time.perf_counter()
    if upstream.gone.wait(WAIT_S - 2):
        return f"upstream closed after {time.perf_counter() - begun:.1f} s"
    return f"upstream open after {WAIT_S - 2:.0f} s"


def large(url: str, upstream: Upstream, process: int) -> str:
    upstream.answer = OK
    data = body_of("word " * (LARGE // 5))
    before = megabytes(process) or 0
    begun = time.perf_counter()
    answer = ask(url, data)
    took = time.perf_counter() - begun
    return f"{_passed(answer, upstream, data)}, {took:.1f} s, {(megabytes(process) or 0) - before:+d} MB after it"


def compressed(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = gzip.compress(body_of())
    return _passed(ask(url, data, {"content-encoding": "gzip"}), upstream, data)


def unknown_compression(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = b"\x28\xb5\x2f\xfd" * 50
    return _passed(ask(url, data, {"content-encoding": "zstd"}), upstream, data)


def slow_upstream(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = stream(STREAM, pause_s=0.4)
    answer = ask(url, body_of(stream=True))
    return f"{answer.status or answer.broke}, first event after {answer.first_s:.1f} s of 2.4 s"


def slow_reader(url: str, upstream: Upstream, process: int) -> str:
    piece = event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 100_000}})
    upstream.answer = stream([*STREAM[:2], *[piece] * (UNREAD // len(piece)), *STREAM[3:]])
    host, _, port = urlsplit(url).netloc.partition(":")
    data = body_of(stream=True)
    head = f"POST {PATH} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\nanthropic-version: 2023-06-01"
    before = megabytes(process) or 0
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        connection.connect((host, int(port)))
        connection.sendall(f"{head}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
        time.sleep(3)
        grown = (megabytes(process) or 0) - before
    return f"{grown:+d} MB in the proxy for {UNREAD // 1_000_000} MB unread"


def http_1_0(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = body_of()
    head = f"POST {PATH} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return f"{ask_raw(url, head.encode() + data)}, {'arrives' if data in upstream.bodies else 'does not arrive'}"


def chunked_request(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = body_of()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = ask_raw(url, head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
    return f"{answer}, {'arrives' if data in upstream.bodies else 'does not arrive'}"


def two_lengths(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = body_of()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = ask_raw(url, head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
    return f"{answer}, {'arrives' if upstream.bodies else 'does not arrive'}"


def short_request(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{{"
    return f"{ask_raw(url, head.encode(), WAIT_S)}, {'arrives' if upstream.bodies else 'does not arrive'}"


def closed_connection(url: str, upstream: Upstream, _process: int) -> str:
    def answer(connection: socket.socket) -> None:
        OK(connection)
        time.sleep(0.05)
        connection.shutdown(socket.SHUT_RDWR)

    upstream.answer = answer
    statuses: list[str] = []
    for number in range(6):
        got = ask(url, body_of(f"Hello {number}."))
        statuses.append(str(got.status or got.broke))
        time.sleep(0.1)
    return f"{statuses.count('200')} of 6 answered"


def many_headers(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = OK
    data = body_of()
    lines = "".join(f"x-{number}: y\r\n" for number in range(10_000))
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(data)}\r\n\r\n"
    return f"{ask_raw(url, head.encode() + data)}, {'arrives' if upstream.bodies else 'does not arrive'}"


def many_answer_headers(url: str, upstream: Upstream, _process: int) -> str:
    upstream.answer = plain(200, json.dumps(REPLY).encode(), {f"x-{number}": "y" * 1_000 for number in range(500)})
    answer = ask(url, body_of())
    if answer.status >= 400:
        return f"{answer.status}, {answer.form}"
    return f"{answer.status or answer.broke}"


def full_disk(url: str, upstream: Upstream, process: int) -> str:
    import resource

    upstream.answer = OK
    resource.prlimit(process, resource.RLIMIT_FSIZE, (FSIZE, FSIZE))
    statuses = [
        str((got := ask(url, body_of(f"{number} " + "word " * 20_000))).status or got.broke) for number in range(4)
    ]
    return f"{statuses.count('200')} of 4 answered"


FAULTS: dict[str, Callable[[str, Upstream, int], str]] = {
    "request that is no JSON": bad_json,
    "request that is a list": body_list,
    "429 with retry-after and an unknown field": too_many,
    "500 with an unknown header and field": server_error,
    "web page in place of an answer": web_page,
    "stream cut off between events": cut_between,
    "stream cut off within an event": cut_within,
    "stream that ends without its last event": cut_quietly,
    "error event within a stream": error_event,
    "answer shorter than its length": short_answer,
    "client gone before the answer": gone_before,
    "client gone within a stream": gone_within,
    "request in gzip": compressed,
    "request in an unknown compression": unknown_compression,
    "slow upstream server": slow_upstream,
    "request of HTTP/1.0": http_1_0,
    "request in chunks": chunked_request,
    "request with two lengths": two_lengths,
    "request shorter than its length": short_request,
    "connections closed by the upstream server": closed_connection,
    "request with 10,000 headers": many_headers,
    "answer with 500 kB of headers": many_answer_headers,
    "client that does not read": slow_reader,
    "request of 20 MB": large,
    "no file may grow (in place of a full disk)": full_disk,
}


def _down(proxy: Proxy) -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with proxy(address) as (url, _):
        begun = time.perf_counter()
        answer = ask(url, body_of())
        return f"{answer.status or answer.broke} after {time.perf_counter() - begun:.1f} s, {answer.form}"


def seen_through(proxy: Proxy) -> list[str]:
    """Return what a client sees of each fault through a proxy, the missing server first."""
    cells = [_down(proxy)]
    with running_upstream() as upstream, proxy(upstream.url) as (url, process):
        for fault in FAULTS.values():
            upstream.bodies.clear()
            upstream.gone.clear()
            try:
                cells.append(fault(url, upstream, process))
            except OSError as error:
                cells.append(f"connection failed: {type(error).__name__}")
    return cells


def run() -> Outcome:
    """Try all faults through each proxy."""
    proxies: dict[str, Proxy] = {"bare proxy": bare_proxy, "nexus proxy": nexus_proxy()}
    try:
        proxies[LIGHTFOOT.replace("==", " ")] = lightfoot()
    except NotRun as reason:
        print(f"(Lightfoot is not measured: {reason})\n", flush=True)
    columns = [seen_through(proxy) for proxy in proxies.values()]
    names = ("upstream server down", *FAULTS)
    rows = tuple(zip(names, *columns, strict=True))
    table = Table(
        "Proxy: what a client sees of faults",
        "python -m benchmarks proxy_faults",
        "one call of Anthropic's format for each fault; a plain server and a plain client on loopback",
        ("fault", *proxies),
        rows,
        (
            f"Clients give up after {PATIENCE_S:.0f} s without a byte, after {WAIT_S:.0f} s if they have not sent all. sent: requests that the upstream server gets.",
            "all that was sent: every byte of the stream until the fault.",
        ),
    )
    own = dict(zip(names, columns[1], strict=True))
    is_broken = all(
        own[name].endswith("broken off") for name in ("stream cut off between events", "stream cut off within an event")
    )
    return Outcome(
        (table,),
        (Target("streams that break are broken for the client, nexus proxy", "all", str(is_broken), is_broken),),
    )
