"""Requests that no careful client sends: each is refused, or goes on as it was, and the proxy goes on.

A user, bert, sends them all, in each mode. Before him anna has said a secret through the same proxy.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import nexus
from nexus.ledger import maintenance
from nexus.server.security import Tokens
from nexus.testing.model_server import model_server, reply
from proxy.running import RunningProxy, running_proxy
from proxy.test_faults import wait_until
from proxy.test_formats import request_of
from proxy.upstream import upstream

ANNA, BERT = "token-of-anna-1234567", "token-of-bert-1234567"
SECRET = "annas-secret-4711"
KEY = "sk-key-of-bert-0815"
MODES: dict[str, dict[str, Any]] = {
    "record": {},
    "heal": {"mode": "heal"},
    "fit": {"mode": "fit", "budget": 30_000},
}
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
HOST = b"Host: localhost"
AUTH = f"x-nexus-token: {BERT}".encode()
KEYS = f"Authorization: Bearer {KEY}".encode()
JSON = b"Content-Type: application/json"
CLOSE = b"Connection: close"
CHAT = b"POST /v1/chat/completions HTTP/1.1"
TALK = "annas-talk"


@dataclass
class Served:
    """A proxy with its upstream server, and what has arrived there."""

    running: RunningProxy
    mode: str
    ledger: Path
    bodies: list[bytes] = field(default_factory=list[bytes])
    lines: list[str] = field(default_factory=list[str])
    heads: list[list[tuple[str, str]]] = field(default_factory=list[list[tuple[str, str]]])
    annas_call: str = ""

    def exchange(self, data: bytes) -> bytes:
        """Return all that comes back for these bytes, until the connection ends."""
        for arrivals in (self.bodies, self.lines, self.heads):
            arrivals.clear()
        host, _, port = urlsplit(self.running.url).netloc.partition(":")
        received = b""
        with (
            socket.create_connection((host, int(port)), timeout=30) as connection,
            contextlib.suppress(ConnectionError),
        ):
            with contextlib.suppress(ConnectionError):  # refused before all was sent
                connection.sendall(data)
            while chunk := connection.recv(65_536):
                received += chunk
        return received


@pytest.fixture(scope="module", params=MODES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    ledger = tmp_path_factory.mktemp("hostile") / "l.db"
    tokens = Tokens({ANNA: "anna", BERT: "bert"})
    served = Served(RunningProxy(""), request.param, ledger)
    with (
        upstream(served.bodies, served.lines, served.heads, status=200, answer=ANSWER) as url,
        running_proxy(url, ledger, tokens=tokens, **MODES[request.param]) as running,
    ):
        served.running = running
        path, body = request_of("openai", [f"My secret is {SECRET}."])
        headers = {"x-nexus-token": ANNA, "x-nexus-conversation": TALK}
        answer = httpx.post(running.url + path, json=body, headers=headers, trust_env=False, timeout=60)
        served.annas_call = answer.headers["x-nexus-call"]
        wait_until(lambda: running.call(served.annas_call)["session"] != "")
        yield served
    assert maintenance.verify(str(ledger)) == []
    written = b"".join(file.read_bytes() for file in ledger.parent.iterdir() if file.is_file())
    assert KEY.encode() not in written
    assert BERT.encode() not in written


def request(
    *lines: bytes, first: bytes = CHAT, body: bytes = b"", usual: tuple[bytes, ...] = (HOST, AUTH, KEYS, JSON, CLOSE)
) -> bytes:
    """Return the bytes of a request with some more header lines."""
    return b"\r\n".join([first, *usual, *lines, b"Content-Length: %d" % len(body), b"", body])


def chunked(*lines: bytes, body: bytes) -> bytes:
    """Return the bytes of a request with a body in one chunk."""
    head = [CHAT, HOST, AUTH, KEYS, JSON, CLOSE, *lines, b"", b""]
    return b"\r\n".join(head) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def get(path: bytes, *lines: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join([b"%s %s HTTP/1.1" % (method, path), HOST, AUTH, KEYS, CLOSE, *lines, b"", b""])


def chat(*contents: Any, **fields: Any) -> bytes:
    """Return a body with one message for each content."""
    messages = [{"role": "user", "content": content} for content in contents or ("Hello.",)]
    return json.dumps({"model": "gpt-4o", "messages": messages, **fields}).encode()


HELLO = chat()
HIDDEN = request(body=HELLO)
"""A whole request, as the body of another one."""

REFUSED: dict[str, tuple[list[int], bytes]] = {
    # two readings of one length
    "length and chunks": ([400], chunked(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=HELLO)),
    "chunks and length": ([400], chunked(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=HELLO)),
    "chunks that hide a request": ([400], request(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN)),
    "two lengths": ([400], request(b"Content-Length: 5", body=HELLO)),
    "length with a sign": ([400], request()[:-5] + b"+9\r\n\r\n" + HELLO),
    "length of 30 digits": ([400], request()[:-5] + b"9" * 30 + b"\r\n\r\n"),
    "length of a terabyte": ([413], request()[:-5] + b"1" + b"0" * 12 + b"\r\n\r\n"),
    "unknown transfer encoding": ([400], chunked(b"Transfer-Encoding: xchunked", body=HELLO)),
    "transfer encoding in front of a space": ([400], chunked(b"Transfer-Encoding : chunked", body=HELLO)),
    "request behind a short length": ([200, 401], request(body=HELLO, usual=(HOST, AUTH, JSON)) + request(usual=(HOST, CLOSE))),
    # headers
    "bare CR in a header": ([400], request(b"X: a\rx-nexus-token: b", body=HELLO)),
    "NUL in the conversation": ([400], request(b"x-nexus-conversation: a\0b", body=HELLO)),
    "101 headers": ([400], request(*[b"X: y"] * 101, body=HELLO)),
    "header of 70,000 bytes": ([400], request(b"X: " + b"y" * 70_000, body=HELLO)),
    # where a request goes
    "absolute address of another server": ([400], request(first=b"POST http://evil.example/v1/chat/completions HTTP/1.1", body=HELLO)),
    "absolute address of its own status": ([400], get(b"http://localhost/nexus/status")),
    "address behind an at sign": ([400], request(first=b"POST @evil.example/v1/chat/completions HTTP/1.1", body=HELLO)),
    "tunnel": ([400], get(b"evil.example:443", method=b"CONNECT")),
    "trace, which would show the key": ([405], get(b"/v1/models", method=b"TRACE")),
    "another host": ([421], request(body=HELLO, usual=(b"Host: evil.example", AUTH, CLOSE))),
    "host behind a user": ([421], request(body=HELLO, usual=(b"Host: localhost@evil.example", AUTH, CLOSE))),
    "two hosts": ([400], request(b"Host: evil.example", body=HELLO)),
    "page of another site": ([403], request(b"Origin: http://localhost.evil.example", body=HELLO)),
    "page of no site": ([403], request(b"Origin: null", body=HELLO)),
    "HTTP/2": ([400, 400], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    "TLS": ([400], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 600),
    # its own pages
    "status": ([403], get(b"/nexus/status")),
    "status by an escape": ([403], get(b"/%6eexus/%73tatus")),
    "status behind a token in the path": ([403], get(b"/nexus/as/" + BERT.encode() + b"/nexus/status")),
    "mode": ([403], request(first=b"POST /nexus/mode HTTP/1.1", body=b'{"mode": "off"}')),
    "folder above a call": ([404], get(b"/nexus/calls/..%2fstatus")),
    "call by a quote": ([404], get(b"/nexus/calls/'%20OR%201=1%20--")),
    "call by a NUL": ([404], get(b"/nexus/calls/%00")),
    # tokens in odd places
    "token as a bearer": ([401], request(b"Authorization: Bearer " + BERT.encode(), body=HELLO, usual=(HOST, CLOSE))),
    "token in the query": ([401], request(first=b"POST /v1/chat/completions?x-nexus-token=" + BERT.encode() + b" HTTP/1.1", body=HELLO, usual=(HOST, CLOSE))),
    "two tokens": ([401], request(b"x-nexus-token: " + ANNA.encode(), body=HELLO, usual=(HOST, b"x-nexus-token: wrong", CLOSE))),
    "token path with escapes": ([400], request(first=b"POST /nexus/%61s/" + BERT.encode() + b"/v1/chat/completions HTTP/1.1", body=HELLO, usual=(HOST, CLOSE))),
    "path in the token": ([401], request(first=b"POST /nexus/as/" + BERT.encode() + b"%2fv1%2fx/v1/chat/completions HTTP/1.1", body=HELLO, usual=(HOST, CLOSE))),
}  # fmt: skip

DEEP = b'{"model": "gpt-4o", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
DEEP_ARGUMENTS = chat(tools=[{"type": "function", "function": {"name": "a", "parameters": {"d": "@"}}}]).replace(
    b'"@"', b'{"a":' * 100_000 + b"1" + b"}" * 100_000
)
METADATA = "http://169.254.169.254/latest/meta-data"

PASSED: dict[str, bytes] = {
    # numbers, texts and shapes
    "NaN": HELLO[:-1] + b', "temperature": NaN}',
    "1e999": HELLO[:-1] + b', "seed": 1e999}',
    "number of 10,000 digits": HELLO[:-1] + b', "seed": ' + b"9" * 10_000 + b"}",
    "lone surrogate": chat("\ud800 and \udc00"),
    "bytes that are no UTF-8": HELLO.replace(b"Hello.", b"\xff\xfe\x80"),
    "NUL in a text": chat("a\0b"),
    "100,000 brackets": DEEP,
    "100,000 objects in a tool": DEEP_ARGUMENTS,
    "model that comes twice": HELLO[:-1] + b', "model": "gpt-5"}',
    "list that comes twice": HELLO[:-1] + b', "messages": [{"role": "user", "content": "Other."}]}',
    "UTF-16": HELLO.decode().encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + HELLO,
    "body that is a list": b"[1, 2]",
    "body that is a text": b'"Hello."',
    "empty body": b"",
    "list that is an object": chat(messages={"role": "user"}),
    "list of anything": chat(messages=[None, 1, "x", [], {"role": ["user"], "content": 7}]),
    "model that is an object": chat(model={"$ne": ""}),
    "model with a line break": chat(model="gpt\r\nX-Evil: 1\r\n\r\n"),
    "model with terminal codes": chat(model="\x1b]0;evil\x07\x1b[2J"),
    "model of a megabyte": chat(model="m" * 1_000_000),
    "conversation of another user": chat(prompt_cache_key=TALK),
    # addresses, which only the provider may fetch
    "image of the cloud's own pages": chat([{"type": "image_url", "image_url": {"url": METADATA}}]),
    "image of a file": chat([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
    "image of this server": chat([{"type": "image_url", "image_url": {"url": "http://localhost/nexus/status"}}]),
    "tool schema at an address": chat(
        tools=[{"type": "function", "function": {"name": "a", "parameters": {"$ref": METADATA}}}]
    ),
}

ODD_HEADS: dict[str, tuple[bytes, bytes]] = {
    "folded header": (HELLO, request(b"X: a\r\n x-nexus-mode: off", body=HELLO)),
    "conversation of another user in a header": (HELLO, request(b"x-nexus-conversation: " + TALK.encode(), body=HELLO)),
    "conversation that is a path": (HELLO, request(b"x-nexus-conversation: ../../etc/passwd", body=HELLO)),
    "conversation with terminal codes": (HELLO, request(b"thread-id: \x1b[2J\xff\xfe", body=HELLO)),
    "conversation of 20,000 bytes": (HELLO, request(b"thread-id: " + b"x" * 20_000, body=HELLO)),
    "headers of the proxy itself": (
        HELLO,
        request(b"x-nexus-call: 1", b"x-nexus-outcome: fitted", b"x-nexus-user: anna", b"X-Nexus-New: 1", body=HELLO),
    ),
    "other server in headers": (
        HELLO,
        request(b"X-Forwarded-Host: evil.example", b"Forwarded: host=evil.example", b"X-Original-URL: /nexus/status", body=HELLO),
    ),
    "host named in Connection": (HELLO, request(b"Connection: host, content-length, via", body=HELLO)),
    "web socket": (HELLO, request(b"Connection: upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: eA==", body=HELLO)),
    "address with two slashes": (HELLO, request(first=b"POST //evil.example/v1/chat/completions HTTP/1.1", body=HELLO)),
    "status above another path": (b"", get(b"/v1/../nexus/status")),
    "line break in a path": (HELLO, request(first=b"POST /v1beta/models/x%0d%0aX-Evil:%201:generateContent HTTP/1.1", body=HELLO)),
    "gzip in gzip": (data := gzip.compress(gzip.compress(HELLO)), request(b"Content-Encoding: gzip, gzip", body=data)),
    "gzip that is cut off": (cut := gzip.compress(HELLO)[:-9], request(b"Content-Encoding: gzip", body=cut)),
    "gzip of 200 MB": (bomb := gzip.compress(b" " * 200_000_000, 1), request(b"Content-Encoding: gzip", body=bomb)),
}  # fmt: skip
"""What must arrive, and the request."""


def answers_in(received: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Return the answers: status, headers and body."""
    answers: list[tuple[int, dict[str, str], bytes]] = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        names = [line.partition(":")[0].lower() for line in lines]
        assert len(set(names)) == len(names), names
        headers = dict(zip(names, (line.partition(":")[2].strip() for line in lines), strict=True))
        size = int(headers.get("content-length", len(received)))
        body, received = received[:size], received[size:]
        if headers.get("transfer-encoding") == "chunked":
            body = _joined(body)
        answers.append((int(first.split(" ")[1]), headers, body))
    return answers


def _joined(chunks: bytes) -> bytes:
    """Return a body of chunks; it must be whole."""
    body = b""
    while True:
        size, _, chunks = chunks.partition(b"\r\n")
        if int(size, 16) == 0:
            return body
        body += chunks[: int(size, 16)]
        chunks = chunks[int(size, 16) + 2 :]


def check(served: Served, received: bytes, log: str) -> None:
    """Check that an answer has nothing of the proxy or of another user, and that the proxy goes on."""
    for text in (SECRET, ANNA, KEY, "Traceback", str(Path(__file__).parents[2])):
        assert text not in received.decode("latin-1")
        assert text not in log
    assert "x-evil" not in {name for _, headers, _ in answers_in(received) for name in headers}
    for body in served.bodies:
        assert SECRET.encode() not in body
    for head in served.heads:
        assert not [name for name, _ in head if name.startswith("x-nexus-") or name == "x-evil"]
    for sent in (served.heads, served.lines):
        assert BERT not in str(sent)
    assert served.running.get("/nexus/health").json() == {"status": "ok", "mode": served.mode}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_request_is_refused_with_a_typed_error(
    served: Served, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    statuses, data = REFUSED[name]
    received = served.exchange(data)
    answers = answers_in(received)
    assert [status for status, _, _ in answers] == statuses, received[:2_000]
    assert len(served.bodies) == statuses.count(200)
    for status, _, body in answers:
        assert status == 200 or json.loads(body)["error"]
    check(served, received, caplog.text)


@pytest.mark.parametrize("name", [*PASSED, *ODD_HEADS])
def test_odd_request_goes_on_as_it_was_or_is_refused(
    served: Served, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if name in PASSED:
        body, data = PASSED[name], request(body=PASSED[name])
    else:
        body, data = ODD_HEADS[name]
    received = served.exchange(data)
    ((status, headers, answer),) = answers_in(received)
    if served.mode == "record" or headers.get("x-nexus-outcome", "refused") != "refused":
        assert (status, answer) == (200, ANSWER), received[:2_000]
        assert len(served.bodies) == 1
        if headers.get("x-nexus-outcome", "unread") in ("unread", "as_received"):
            assert served.bodies == [body]
        else:
            assert json.loads(served.bodies[0]) and served.running.call(headers["x-nexus-call"])["reasons"]
    elif status == 200:
        assert served.bodies == [body]
    else:  # it cannot be known to be within the budget
        assert (status, served.mode, served.bodies) == (400, "fit", [])
        assert json.loads(answer)["error"]["message"]
    check(served, received, caplog.text)
    if "x-nexus-call" in headers:
        assert served.running.call(headers["x-nexus-call"])["user"] == "bert"
        page = served.running.get(f"/nexus/calls/{headers['x-nexus-call']}", accept="text/plain").text
        assert SECRET not in page
        assert not set(page) & {"\x1b", "\r", "\0"}


def test_call_of_another_user_is_not_found(served: Served) -> None:
    for path in (f"/nexus/calls/{served.annas_call}", f"/nexus/as/{BERT}/nexus/calls/{served.annas_call}"):
        ((status, _, body),) = answers_in(served.exchange(get(path.encode())))
        assert (status, SECRET in body.decode()) == (404, False)


def test_call_that_cannot_be_replayed_has_a_page(served: Served) -> None:
    ((_, headers, _),) = answers_in(served.exchange(request(body=chat("Only once.")[:-1] + b', "top_p": NaN}')))
    wait_until(lambda: bool(served.running.call(headers["x-nexus-call"])["session"]))
    assert served.running.call(headers["x-nexus-call"])["not_explained"].startswith("cannot_replay: ")
    page = served.running.get(f"/nexus/calls/{headers['x-nexus-call']}", accept="text/plain").text
    assert "not explained: cannot_replay: " in page


def test_answer_of_an_upstream_names_no_other_call() -> None:
    forged = {"x-nexus-call": "forged", "X-Nexus-Outcome": "fitted"}
    with upstream([], headers=forged) as url, running_proxy(url) as running:
        path, body = request_of("anthropic", ["Hello."])
        answer = httpx.post(running.url + path, json=body, trust_env=False)
        other = httpx.get(f"{running.url}/v1/models", trust_env=False)
    assert answer.headers["x-nexus-outcome"] == "as_received"
    assert "forged" not in str(answer.headers) + str(other.headers)


def test_heads_and_bodies_without_an_end_do_not_block_others(served: Served) -> None:
    host, _, port = urlsplit(served.running.url).netloc.partition(":")
    whole = request(body=HELLO)
    with contextlib.ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(whole[: 1 + number * (len(whole) - 2) // 200])
        ((status, _, _),) = answers_in(served.exchange(whole))
        assert status == 200
        assert served.bodies == [HELLO]


@pytest.mark.parametrize("data", [b"", HIDDEN[:20], HIDDEN[:-5]], ids=["nothing", "half a head", "half a body"])
def test_connection_without_a_whole_request_is_closed(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.server.connections.RECEIVE_S", 0.3)
    with upstream(bodies := []) as url, running_proxy(url) as running:
        served = Served(running, "record", Path())
        assert served.exchange(data) == b""
    assert bodies == []


def test_head_that_comes_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.server.connections.RECEIVE_S", 0.3)
    with upstream([]) as url, running_proxy(url) as running:
        host, _, port = urlsplit(running.url).netloc.partition(":")
        with (
            socket.create_connection((host, int(port)), timeout=30) as connection,
            contextlib.suppress(ConnectionError),
        ):
            for byte in HIDDEN[:20] + b"x" * 1_500:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
            pytest.fail("the connection is still open")


def test_hundred_requests_at_once_to_one_conversation_are_all_answered_and_recorded(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    with model_server(reply("ok")) as provider, running_proxy(provider, ledger) as running:

        def ask(number: int) -> tuple[int, str]:
            path, body = request_of("anthropic", ["Hello.", "ok", f"Question {number}."])
            headers = {"x-claude-code-session-id": "one"}
            answer = httpx.post(running.url + path, json=body, headers=headers, trust_env=False, timeout=120)
            return answer.status_code, answer.headers["x-nexus-call"]

        with ThreadPoolExecutor(100) as pool:
            answers = [*pool.map(ask, range(100))]
    assert {status for status, _ in answers} == {200}
    assert maintenance.verify(str(ledger)) == []
    with nexus.open(ledger=ledger) as nx:
        histories = [[message.text() for message in nx.history(info.label)] for info in nx.sessions()]
        documents = [nx.ledger.store.document("proxy_call", call_id) for _, call_id in answers]
    questions = [text for history in histories for text in history if text.startswith("Question")]
    not_recorded = [document for document in documents if document is not None and not document.body.get("session")]
    assert len({*questions}) + len(not_recorded) >= 100
    assert all(document is not None for document in documents)
    for history in histories:
        assert [text for text in history if text.startswith("Question")] == [history[2]]
