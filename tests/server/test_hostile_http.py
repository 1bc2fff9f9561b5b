"""Bytes that are no careful client's: each is refused or read as HTTP demands, without effect, and the server goes on."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nexus.server.connections import MAX_HEADERS
from server.running import TOKEN, Running, running
from server.test_fuzzing import no_errors_logged

OTHER = "token-of-another-tenant"
SECRET = "My secret is 4711."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hostile-http")
    with no_errors_logged(), running(folder, tokens={TOKEN: "local", OTHER: "other"}) as server:
        server.client().create_agent("mine").send(SECRET)
        yield server


LIST = b'{"jsonrpc": "2.0", "id": 1, "method": "list_agents"}'
CREATE = b'{"jsonrpc": "2.0", "id": 1, "method": "create_agent", "params": {"agent_id": "made"}}'
AUTH = f"Authorization: Bearer {TOKEN}".encode()
JSON = b"Content-Type: application/json"
HOST = b"Host: localhost"


def request(
    *lines: bytes,
    first: bytes = b"POST /rpc HTTP/1.1",
    body: bytes = CREATE,
    usual: tuple[bytes, ...] = (HOST, AUTH, JSON),
) -> bytes:
    """Return the bytes of a request with some more header lines."""
    return b"\r\n".join([first, *usual, *lines, b"Content-Length: %d" % len(body), b"", body])


def chunked(*lines: bytes, body: bytes = CREATE) -> bytes:
    """Return the bytes of a request with a body in one chunk."""
    head = [b"POST /rpc HTTP/1.1", HOST, AUTH, JSON, *lines, b"", b""]
    return b"\r\n".join(head) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def get(path: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join([b"GET %s HTTP/1.1" % path, HOST, AUTH, *lines, b"", b""])


HIDDEN = request()
"""A whole request, as the body of another one."""

REFUSED: dict[str, tuple[list[int], bytes]] = {
    # lines of headers
    "NUL in a value": ([400], request(b"X: a\0b")),
    "NUL in a name": ([400], request(b"X\0: a")),
    "bare CR in a value": ([400], request(b"X: a\rb")),
    "name with a space": ([400], request(b"X Y: a")),
    "space before the colon": ([400], request(b"X : a")),
    "line without a colon": ([400], request(b"no colon")),
    "empty name": ([400], request(b": a")),
    "folded line at first": ([400], request(usual=(b" folded", HOST, AUTH, JSON))),
    "NUL in traceparent": ([400], request(b"traceparent: 00-\0")),
    "CR in traceparent": ([400], request(b"traceparent: 00-a\rX: b")),
    "NUL in Nexus-Case": ([400], request(b"Nexus-Case: camel\0")),
    "CR in Nexus-Case": ([400], request(b"Nexus-Case: camel\rX: b")),
    "NUL in Last-Event-ID": ([400], get(b"/agent/mine/events", b"Last-Event-ID: 1\0")),
    "CR in Last-Event-ID": ([400], get(b"/agent/mine/events", b"Last-Event-ID: 1\rX: b")),
    "NUL in the token": ([400], request(usual=(HOST, AUTH + b"\0", JSON))),
    "header of 100,000 bytes": ([400], request(b"X: " + b"y" * 100_000)),
    "10,000 headers": ([400], request(*[b"X-%d: y" % number for number in range(10_000)])),
    "one header too many": ([400], request(*[b"X: y"] * (MAX_HEADERS - 3))),
    "10,000 short headers": ([400], request(*[b"a:b"] * 10_000)),
    "head without an end": ([400], request()[:60] + b"X: " + b"y" * 200_000),
    "10,000 headers of HEAD": ([400], request(*[b"a:b"] * 10_000, first=b"HEAD /rpc HTTP/1.1")),
    "length and chunks of HEAD": ([400], request(b"Transfer-Encoding: chunked", first=b"HEAD /health HTTP/1.1")),
    "10,000 headers of a tunnel": ([400], request(*[b"a:b"] * 10_000, first=b"CONNECT localhost:1 HTTP/1.1")),
    # one header that comes twice
    "two hosts": ([400], request(b"Host: evil.example")),
    "two equal hosts": ([400], request(HOST)),
    "two tokens": ([401], request(AUTH)),
    "two tenants' tokens": ([401], request(b"Authorization: Bearer " + OTHER.encode())),
    "two media types": ([415], request(b"Content-Type: text/plain")),
    "two origins": ([403], request(b"Origin: http://localhost", b"Origin: https://evil.example")),
    "folded token": ([401], request(usual=(HOST, b"Authorization: Bearer x\r\n " + TOKEN.encode(), JSON))),
    "folded host": ([421], request(usual=(b"Host: localhost\r\n evil.example", AUTH, JSON))),
    "origin that is no address": ([403], request(b"Origin: http://[::1")),
    # lengths of bodies
    "two lengths": ([400], request(b"Content-Length: 5")),
    "list of lengths": ([400], request(b"Content-Length: 5, 6")),
    "negative length": ([400], b"\r\n".join([b"POST /rpc HTTP/1.1", HOST, AUTH, JSON, b"Content-Length: -1", b"", CREATE])),
    "length with a sign": ([400], b"\r\n".join([b"POST /rpc HTTP/1.1", HOST, AUTH, JSON, b"Content-Length: +85", b"", CREATE])),
    "length of 30 digits": ([400], b"\r\n".join([b"POST /rpc HTTP/1.1", HOST, AUTH, JSON, b"Content-Length: " + b"9" * 30, b"", CREATE])),
    "hexadecimal length": ([400], b"\r\n".join([b"POST /rpc HTTP/1.1", HOST, AUTH, JSON, b"Content-Length: 0x55", b"", CREATE])),
    "length and chunks": ([400], chunked(b"Content-Length: 4", b"Transfer-Encoding: chunked")),
    "chunks and length": ([400], chunked(b"Transfer-Encoding: chunked", b"Content-Length: 4")),
    "length that hides a request": ([400], request(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN)),
    "chunked twice": ([400], chunked(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
    "unknown encoding": ([400], chunked(b"Transfer-Encoding: xchunked")),
    "compressed chunks": ([400], chunked(b"Transfer-Encoding: gzip, chunked")),
    "identity": ([400], request(b"Transfer-Encoding: identity")),
    "encoding with a tab": ([400], chunked(b"Transfer-Encoding: \x0bchunked")),
    "space before the encoding's colon": ([400], chunked(b"Transfer-Encoding : chunked")),
    "body shorter than its length": ([], request()[:-20]),
    "request behind a short length": ([400, 400], request(body=LIST[:10]) + LIST[10:] + b"\r\n\r\n"),
    # request lines and protocols
    "no version": ([400], request(first=b"POST /rpc")),
    "version 0.9": ([400], b"GET /agent/mine\r\n\r\n"),
    "no host": ([400], request(usual=(AUTH, JSON))),
    "HTTP/1.0 without a host": ([421], request(first=b"POST /rpc HTTP/1.0", usual=(AUTH, JSON))),
    "HTTP/1.0 without a token": ([401], request(first=b"POST /rpc HTTP/1.0", usual=(HOST, JSON))),
    "HTTP/2 preface": ([421, 400], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    "TLS": ([400], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 600),
    "TLS with a line": ([400], b"\x16\x03\x01\r\n\r\n"),
    "absolute address of another site": ([404], request(first=b"POST http://evil.example/rpc HTTP/1.1")),
    "absolute address of this site": ([404], request(first=b"POST http://localhost/rpc HTTP/1.1")),
    "tunnel": ([404], request(first=b"CONNECT evil.example:443 HTTP/1.1")),
    "all of the server": ([404], request(first=b"OPTIONS * HTTP/1.1")),
    "trace": ([405], request(first=b"TRACE /rpc HTTP/1.1")),
    "method in lower case": ([405], request(first=b"post /rpc HTTP/1.1")),
    "method with a NUL": ([400], request(first=b"PO\0ST /rpc HTTP/1.1")),
    "path that is not ASCII": ([400], request(first=b"POST /agent/\xff HTTP/1.1")),
    "path with a space": ([400], request(first=b"POST /agent/a b HTTP/1.1")),
    "path of 100,000 bytes": ([400], request(first=b"POST /" + b"x" * 100_000 + b" HTTP/1.1")),
    "two slashes": ([404], request(first=b"POST //rpc HTTP/1.1")),
    "line break in the path": ([404], request(first=b"POST /agent/a%0d%0aX-Evil:%201 HTTP/1.1")),
    # pipelined requests: each one has checks of its own
    "second request without a token": ([200, 401], request(body=LIST) + request(usual=(HOST, JSON))),
    "second request to another host": ([200, 421], request(body=LIST) + request(usual=(b"Host: evil.example", AUTH, JSON))),
    "second request with another token": ([200, 401], request(body=LIST) + request(usual=(HOST, AUTH + b"x", JSON))),
    "second request without HTTP": ([200, 400], request(body=LIST) + b"\0\0\0\0\r\n\r\n"),
    "request behind a refused one": ([400], request(b"X: a\0b") + HIDDEN),
}  # fmt: skip


def exchange(server: Running, *pieces: bytes, count: int = 1, timeout_s: float = 30.0) -> bytes:
    """Send pieces and return what comes back, until there are `count` responses or the connection ends."""
    host, _, port = urlsplit(server.url).netloc.partition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all was sent
            for piece in pieces:
                connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            if pieces[0].endswith(CREATE[:-20]):
                connection.shutdown(socket.SHUT_WR)
            while len(responses(received)) < count and (chunk := connection.recv(65_536)):
                received += chunk
    return received


def responses(received: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the complete responses: status, headers and body."""
    found: list[tuple[int, bytes, bytes]] = []
    while b"\r\n\r\n" in received:
        head, _, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if length is None:
            body, end, received = rest.partition(b"0\r\n\r\n") if b"chunked" in head else (rest, b"", b"")
            if b"chunked" in head and not end:
                break
        else:
            body, received = rest[: int(length[1])], rest[int(length[1]) :]
            if len(body) < int(length[1]):
                break
        found.append((int(head[9:12]), head, body))
    return found


def check_unchanged(server: Running, received: bytes) -> None:
    """Check that nothing of the server is in an answer, and that it has its one agent and goes on."""
    for secret in (TOKEN, OTHER, "4711", "Traceback", str(Path(__file__).parents[2])):
        assert secret.encode() not in received
    assert b"x-evil" not in received.lower().split(b"\r\n\r\n")[0]
    agents = [info.agent_id for info in server.client().list_agents()]
    server.client().destroy_agent("made")  # for the next case
    assert agents == ["mine"]
    assert server.client(OTHER).list_agents() == ()
    assert server.http("GET", "/health", None, {"Authorization": None})[0] == 200


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_bytes_are_refused_without_effect(server: Running, name: str) -> None:
    statuses, data = REFUSED[name]
    received = exchange(server, data, count=max(len(statuses), 1))
    assert [status for status, _, _ in responses(received)] == statuses, received[:2_000]
    for status, _, body in responses(received):
        assert status == 200 or json.loads(body)["error"]["message"]
    check_unchanged(server, received)


ACCEPTED: dict[str, bytes] = {
    "header without a value": request(b"X:", body=LIST),
    "folded header": request(b"X: a\r\n b", body=LIST),
    "control character in a value": request(b"X: a\x01b", body=LIST),
    "header that is not ASCII": request(b"X: \xff\xfe", body=LIST),
    "two equal lengths": request(b"Content-Length: %d" % len(LIST), body=LIST),
    "as many headers as may be": request(*[b"X: y"] * (MAX_HEADERS - 4), body=LIST),
    "HTTP/1.0": request(first=b"POST /rpc HTTP/1.0", body=LIST),
    "chunks": chunked(b"Transfer-Encoding: Chunked", body=LIST),
    "upgrade that is not offered": request(b"Connection: Upgrade", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQA", body=LIST),
    "trace that is none": request(b"traceparent: 00-" + b"z" * 32 + b"-" + b"z" * 16 + b"-01", body=LIST),
    "trace of 10,000 characters": request(b"traceparent: " + b"0" * 10_000, body=LIST),
    "unknown case": request(b"Nexus-Case: camel, snake", body=LIST),
    "case that is not ASCII": request(b"Nexus-Case: \xff", body=LIST),
    "two traces": request(b"traceparent: 00-x", b"traceparent: 00-y", body=LIST),
    "forwarded host": request(b"X-Forwarded-Host: evil.example", b"X-Forwarded-For: 1.2.3.4", b"Forwarded: host=evil", body=LIST),
    "other path in a header": request(b"X-Original-URL: /agent/mine", b"X-HTTP-Method-Override: DELETE", body=LIST),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_header_changes_nothing(server: Running, name: str) -> None:
    received = exchange(server, ACCEPTED[name])
    ((status, _, body),) = responses(received)
    assert status == 200 and (b'"mine"' in body or b"mine" in body), received
    check_unchanged(server, received)


LAST_EVENT_IDS = (b"\xff\xfe", b"1 2", b"0.1, 0.2", b"9" * 10_000, b"../x", b"a\r\n b", b"%00", b"")


@pytest.mark.parametrize("last", LAST_EVENT_IDS)
def test_odd_position_of_a_stream_is_a_gap(server: Running, last: bytes) -> None:
    host, _, port = urlsplit(server.url).netloc.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(get(b"/agent/mine/events", b"Last-Event-ID: " + last))
        received = b""
        while b"\n\n" not in received.partition(b"\r\n\r\n")[2]:
            received += connection.recv(65_536)
    assert received.startswith(b"HTTP/1.1 200 ") and b"event: gap\n" in received
    assert received.count(b"\nevent:") == 1
    check_unchanged(server, received)


def test_chunk_without_a_length_ends_a_stream_that_has_begun(server: Running) -> None:
    """Uvicorn answers 400 to it, which h11 refuses within a response: an error with a traceback in the log."""
    host, _, port = urlsplit(server.url).netloc.partition(":")
    with no_errors_logged(), socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(get(b"/agent/mine/events", b"Transfer-Encoding: chunked"))
        received = b""
        while b"event: open" not in received:
            received += connection.recv(65_536)
        connection.sendall(b"zzz\r\n")
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65_536):
                received += chunk
    assert received.count(b"HTTP/1.1 ") == 1
    check_unchanged(server, received)


def test_heads_without_an_end_do_not_block_others(server: Running) -> None:
    host, _, port = urlsplit(server.url).netloc.partition(":")
    with contextlib.ExitStack() as stack:
        for number in range(100):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(request()[: number + 1])
        check_unchanged(server, b"")


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    bodies = [b'{"jsonrpc": "2.0", "id": %d, "method": "list_agents"}' % number for number in range(20)]
    received = exchange(server, b"".join(request(body=body) for body in bodies), count=20)
    answered = responses(received)
    assert [int(body.rpartition(b":")[2].strip(b"}")) for _, _, body in answered] == list(range(20))
    check_unchanged(server, received)


def test_client_that_sends_and_does_not_read_blocks_no_other(server: Running) -> None:
    host, _, port = urlsplit(server.url).netloc.partition(":")
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        discover = request(body=b'{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}')
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(1_000):
                connection.sendall(discover * 10)
        check_unchanged(server, b"")
