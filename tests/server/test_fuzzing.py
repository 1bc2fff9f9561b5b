"""Generated requests in every state of a few agents: each is answered, and no answer is a failure of the server.

Each example has a server of its own, so that a failure repeats and shrinks. The model's script is chosen by the message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from contracts.modules import ROOT
from nexus.engine import Engine, open_engine
from nexus.ledger.location import open_ledger
from nexus.models import Models, open_client
from nexus.server import forms
from nexus.server.app import HttpLimits
from nexus.server.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, REFUSALS
from nexus.server.methods import METHODS
from nexus.server.openrpc import openrpc, schemas
from nexus.server.service import Service
from nexus.server.stdio import StdioServer
from nexus.server.tenants import ServeOptions, Tenants
from nexus.testing.model_server import ModelRequest, Response, fail, model_server, reply
from nexus.types.message import ToolCall
from server.rpc_requests import CONTEXT, MARK, NAMES, RARELY, Message, mostly, scripts
from server.running import MODEL, TOKEN, Running, running

TOKENS = {TOKEN: "local", "token-of-another-tenant": "other"}
MARKS = ("text-of-the-local-tenant", "text-of-the-other-tenant")
"""Texts of the two tenants: an answer to one never has the other's."""
LIMITS = HttpLimits(per_second=1e6, burst=1_000_000)
OPTIONS = ServeOptions(builtin=False, grace_s=5.0)
TIMEOUT_S = 60.0


def answer_by_message(request: ModelRequest) -> Response:
    """Answer as the newest message asks: late, with an error, with a tool call, or with the message itself."""
    last = request.body["messages"][-1]
    text = json.dumps(last.get("content"), ensure_ascii=False)
    if last["role"] != "user":
        return reply("Ready.")(request)
    if "slow" in text:
        response = reply("One two.")(request)
        return Response(response.status, response.body, response.headers, delay_s=0.05)
    if "fail" in text:
        return fail(400, "bad request")(request)
    if "tool" in text:
        return reply("I look.", ToolCall("c1", "look", "{}"))(request)
    return reply(f"You wrote {text[-200:]}")(request)


# laws ----------------------------------------------------------------------------------------------------------------


def camel_schema(value: Any) -> Any:
    """Return a schema with the names of its structs in camelCase."""
    if isinstance(value, list):
        return [camel_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: camel_schema(item) for key, item in value.items()}
    if "properties" in value:
        schema["properties"] = {forms.camel(name): row for name, row in schema["properties"].items()}
        schema["required"] = [forms.camel(name) for name in value.get("required", [])]
    return schema


@cache
def result_validator(method: str, *, is_camel: bool) -> Draft202012Validator:
    names = camel_schema(schemas()) if is_camel else schemas()
    reference = f"#/components/schemas/{METHODS[method].result.__name__}"
    return Draft202012Validator({"$ref": reference, "components": {"schemas": names}})


def check_text(text: str, tenant: int, folder: Path) -> None:
    """Check that an answer has no token, no path, no traceback and no other tenant's text."""
    secrets = (*TOKENS, MARKS[1 - tenant], str(folder), str(ROOT), sys.prefix, "Traceback", 'File \\"', "site-packages")
    assert [secret for secret in secrets if secret in text] == []


def check_response(response: Any, request: Any, *, is_camel: bool, counts: Counter[str]) -> None:
    """Check the form of one response, and the result by the schema of its method."""
    assert isinstance(response, dict), response
    assert set(response) in ({"jsonrpc", "result", "id"}, {"jsonrpc", "error", "id"}), response
    assert response["jsonrpc"] == "2.0"
    sent = request if isinstance(request, dict) else {}
    if "error" in response:
        error = response["error"]
        assert isinstance(error["code"], int) and error["code"] != INTERNAL_ERROR, (error, request)
        assert isinstance(error["message"], str) and error["message"], error
        assert set(error) == {"code", "message", "data"}
        is_number = isinstance(sent.get("id"), (str, int, float)) and not isinstance(sent["id"], bool)
        assert response["id"] == (sent["id"] if is_number else None), (response, request)
        kind = error["data"]["code"]
        assert isinstance(kind, str) and kind, error
        counts[f"error {error['code']} {kind}"] += 1
        return
    assert response["id"] == sent["id"], (response, request)
    method = sent["method"]
    counts[f"result {method}"] += 1
    if method == "rpc.discover":
        assert response["result"] == json.loads(json.dumps(openrpc()))
        return
    errors = [error.message for error in result_validator(method, is_camel=is_camel).iter_errors(response["result"])]
    assert errors == [], (method, response["result"])


def read_message(body: bytes) -> Any:
    """Return the value of a message's bytes, by a strict reader; ValueError if it has none."""

    def refuse(text: str) -> Any:
        raise ValueError(text)

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


def read_line(body: bytes) -> bytes:
    """Return a line as the server reads it: without a byte order mark, invalid bytes and lone surrogates replaced."""
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        value = json.loads(text, strict=False, parse_constant=float)
        return re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(value, ensure_ascii=False, allow_nan=False)).encode()
    except (ValueError, RecursionError):
        return body


def check_answer(message: Message, body: bytes, counts: Counter[str]) -> None:
    """Check the answer to a message: none to notifications alone, else a response to each other request, in order."""
    counts["messages"] += 1
    answer = json.loads(body) if body else None
    if isinstance(answer, dict) and answer.get("error", {}).get("code") in (PARSE_ERROR, INVALID_REQUEST):
        check_response(
            answer, None if answer["id"] is None else read_message(message.body), is_camel=False, counts=counts
        )
        return
    value = read_message(message.body)
    requests = value if isinstance(value, list) else [value]
    awaited = [item for item in requests if not is_notification(item)]
    counts["requests"] += len(requests)
    assert isinstance(answer, list) == (isinstance(value, list) and bool(awaited)), body
    responses = answer if isinstance(answer, list) else [answer] if body else []
    assert len(responses) == len(awaited), (responses, value)
    for response, request in zip(responses, awaited, strict=True):
        check_response(response, request, is_camel=message.is_camel, counts=counts)


def is_notification(request: Any) -> bool:
    return (
        isinstance(request, dict)
        and request.get("jsonrpc") == "2.0"
        and isinstance(request.get("method"), str)
        and isinstance(request.get("params", {}), (dict, list))
        and "id" not in request
    )


@contextmanager
def no_errors_logged() -> Iterator[None]:
    """Check that nothing is logged at ERROR while the block runs."""
    records: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(self.format(record))

    recorder, loggers = Recorder(logging.ERROR), [logging.getLogger(name) for name in ("nexus", "uvicorn", "asyncio")]
    for logger in loggers:
        logger.addHandler(recorder)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(recorder)
    assert records == [], records


# transports ----------------------------------------------------------------------------------------------------------

Exchange = Callable[[Sequence[Message]], list[bytes]]


class Placeholders:
    """Replaces the placeholders of messages: the tenant's own text, and the id of its newest context."""

    def __init__(self) -> None:
        self._context_ids = ["1-0", "1-0"]

    def fill(self, message: Message) -> Message:
        body = message.body.replace(MARK.encode(), MARKS[message.tenant].encode())
        body = body.replace(CONTEXT.encode(), self._context_ids[message.tenant].encode())
        return Message(body, message.agent_id, message.is_camel, message.tenant)

    def learn(self, message: Message, body: bytes) -> None:
        for context_id in re.findall(rb'"context_?[iI]d": ?"([^"]+)"', body):
            self._context_ids[message.tenant] = context_id.decode()


def run_over_http(script: Sequence[Sequence[Message]], counts: Counter[str]) -> None:
    """Send groups of messages over HTTP; those of a group at the same time."""
    names, holders = list(TOKENS), Placeholders()
    with tempfile.TemporaryDirectory(prefix="fuzz-folder-") as name, no_errors_logged():
        folder = Path(name)
        with running(folder, answer_by_message, tokens=TOKENS, limits=LIMITS, options=OPTIONS) as server:

            def post(message: Message) -> tuple[int, str, bytes]:
                path = "/rpc" if message.agent_id is None else f"/agent/{quote(message.agent_id)}"
                case = {"Nexus-Case": "camel"} if message.is_camel else {}
                headers = {"Authorization": f"Bearer {names[message.tenant]}", **case}
                status, answered, body = server.http("POST", path, message.body, headers)
                return status, answered.get("content-type", ""), body

            with ThreadPoolExecutor(4) as pool:
                for group in script:
                    filled = [holders.fill(message) for message in group]
                    for message, (status, kind, body) in zip(filled, pool.map(post, filled), strict=True):
                        check_text(body.decode(), message.tenant, folder)
                        assert status in (200, 204, 400, 404, 413), (status, body)
                        assert (kind == "application/json") == bool(body) == (status != 204)
                        counts[f"status {status}"] += 1
                        if status in (404, 413):
                            assert json.loads(body)["error"]["data"] == {
                                "code": "no_such_agent" if status == 404 else REFUSALS[status],
                                "status": status,
                            }
                        else:
                            check_answer(message, body, counts)
                        holders.learn(message, body)
            assert server.http("GET", "/health")[0] == 200
            for token in TOKENS:
                assert "Hello" in server.client(token).create_agent("fresh").send("Hello").content


def run_over_lines(script: Sequence[Sequence[Message]], counts: Counter[str]) -> None:
    """Send messages one after the other to a server of standard input and output in this process."""
    holders, fresh = Placeholders(), b'{"jsonrpc": "2.0", "id": 1, "method": "%s", "params": {"agent_id": "fresh"%s}}'
    sent = [message for group in script for message in group]
    sent += [
        Message(fresh % (b"create_agent", b"")),
        Message(fresh % (b"watch", b"")),
        Message(fresh % (b"send", b', "content": "Hello"')),
    ]
    with tempfile.TemporaryDirectory(prefix="fuzz-folder-") as name, no_errors_logged():
        folder = Path(name)

        def engine(tenant: str) -> Engine:
            return open_engine(ledger=open_ledger(None, str(folder / "ledger.db"), folder, tenant=tenant), model=MODEL)

        async def main(url: str) -> list[bytes]:
            waiting, output, current = list(sent), list[bytes](), list[tuple[Message, int]]()

            def check_current() -> None:
                for message, start in current:
                    lines = [line for line in output[start:] if b'"method":"event"' not in line]
                    assert len(lines) <= 1 and all(line.count(b"\n") == 1 for line in output), lines
                    check_text(b"".join(lines).decode(), 0, folder)
                    if b"watch" not in message.body:
                        check_answer(replace(message, body=read_line(message.body)), b"".join(lines), counts)
                    holders.learn(message, b"".join(lines))
                current.clear()

            async def read() -> bytes:
                while server._running:
                    await asyncio.gather(*server._running)
                check_current()
                if not waiting:
                    return b""
                message = waiting.pop(0)
                message = holders.fill(Message(message.body.replace(b"\n", b" ")))
                if message.body.strip():
                    current.append((message, len(output)))
                return message.body + b"\n"

            async def write(line: bytes) -> None:
                output.append(line)

            async with Models({MODEL: open_client(base_url=url)}) as models:
                tenants = Tenants(engine, models, options=OPTIONS)
                server = StdioServer(Service(tenants), read, write)
                await server.run(asyncio.Event())
            return output

        with model_server(answer_by_message) as model:
            output = asyncio.run(asyncio.wait_for(main(model.openai_url), 10 * TIMEOUT_S))
        (last,) = [line for line in output[-8:] if b'"result":{"request_id"' in line]
        assert "Hello" in json.loads(last)["result"]["content"]


# raw HTTP ------------------------------------------------------------------------------------------------------------

_METHODS = st.sampled_from([b"GET", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"PRI", b"post", b"P\0ST", b""])
_TARGETS = st.sampled_from(
    [b"/", b"/agent/a", b"/agent/a/events", b"/agent/%00", b"/agent/%ff%fe", b"/agent/..%2fa", b"/agent/a/../b", b"/health",
     b"/ready", b"/metrics", b"*", b"http://127.0.0.1/rpc", b"//rpc", b"/rpc?x=%zz", b"/rpc#a", b"/\xff", b"/a b", b"",
     b"/" + b"x" * 70_000, b"/agent/" + b"%41" * 9_000, b"/agent/%5c..%5c", b"/agent/%252e%252e"]
)  # fmt: skip
_VERSIONS = st.sampled_from([b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/9", b""])
_HEADERS = st.sampled_from(
    [b"Content-Length: -1", b"Content-Length: 0", b"Content-Length: 9999999999999999999999", b"Content-Length: 5, 5", b"Content-Length: x",
     b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Expect: 100-continue",
     b"Content-Type: text/html", b"Content-Type: application/json; charset=\xff", b"Content-Encoding: gzip", b"Host: evil", b"Host:",
     b"Connection: upgrade, close", b"Connection: keep-alive", b"Upgrade: h2c", b"Upgrade: websocket", b"X: " + b"y" * 70_000,
     b"Nexus-Case: camel", b"Nexus-Case: \xff", b"traceparent: 00-x", b"traceparent: 00-" + b"f" * 32 + b"-" + b"f" * 16 + b"-01",
     b"Last-Event-ID: \xff", b"Last-Event-ID: 0.1", b"Origin: http://[::1", b"Origin: \xff", b"Origin: http://localhost", b"Origin: //[::",
     b"Authorization: Bearer \xff\xfe", b"Authorization: Bearer", b"no colon", b": empty", b" folded", b"X\0: y", b"X: a\0b", b"X:"]
)  # fmt: skip
_BODIES = st.sampled_from(
    [b"", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffff\r\n", b"-1\r\n", b"5;x=\xff\r\nhello\r\n0\r\nX: y\r\n\r\n",
     b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"[" * 5_000, b"\xff\xfe", b"\x1f\x8b\x08", b"\xef\xbb\xbf{}"]
)  # fmt: skip
_LIST = b'{"jsonrpc": "2.0", "id": 1, "method": "list_agents"}'


@st.composite
def http_requests(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a request that a careful client would not send: most of it is as it should be."""
    body = draw(mostly(st.just(_LIST), _BODIES | st.binary(max_size=60), 3))
    lines = [b"Host: localhost", b"Authorization: Bearer " + TOKEN.encode(), b"Content-Type: application/json"]
    lines = [line for line in (*lines, b"Content-Length: %d" % len(body)) if not draw(RARELY)]
    lines += draw(st.lists(mostly(_HEADERS, st.binary(max_size=30), 9), max_size=2))
    first = [
        draw(mostly(st.just(b"POST"), _METHODS | st.binary(max_size=9), 4)),
        draw(mostly(st.just(b"/rpc"), mostly(_TARGETS, st.binary(max_size=40), 9), 2)),
        draw(mostly(st.just(b"HTTP/1.1"), _VERSIONS, 9)),
    ]
    lines = [b" ".join(first), *draw(st.permutations(lines)), b""]
    line_end = draw(mostly(st.just(b"\r\n"), st.sampled_from([b"\n", b"\r", b"\r\n\r\n"]), 12))
    return line_end.join([*lines, body])


_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: (\d+)", re.MULTILINE)
_WAIT_S = 0.2
"""Seconds without a byte after which a request is one that the server waits for the rest of."""


def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes and return what comes back until the connection ends or nothing comes any more."""
    received = b""
    with (
        socket.create_connection(address, timeout=TIMEOUT_S) as connection,
        contextlib.suppress(ConnectionError, TimeoutError),
    ):
        connection.sendall(data)
        connection.settimeout(_WAIT_S)
        while chunk := connection.recv(65_536):
            received += chunk
            head, _, body = received.partition(b"\r\n\r\n")
            lengths = _LENGTH.findall(head)
            if any(len(body) >= int(length) for length in lengths):
                break
            if lengths and not data.startswith(b"HEAD"):
                connection.settimeout(TIMEOUT_S)  # the rest of the body comes
    return received


def check_http(server: Running, data: bytes, folder: Path, counts: Counter[str]) -> None:
    """Check what comes back for the bytes of a request: no failure of the server, no secret, and JSON from Nexus."""
    host, _, port = urlsplit(server.url).netloc.partition(":")
    received = exchange((host, int(port)), data)
    statuses = [int(status) for status in _STATUS.findall(received)]
    counts.update(f"HTTP {status}" for status in statuses or ["without an answer"])
    assert all(status < 500 for status in statuses), received
    assert bool(statuses) == bool(received), received
    check_text(received.decode("latin-1"), 0, folder)
    head, _, body = received.partition(b"\r\n\r\n")
    if b"application/json" in head and not data.startswith(b"HEAD"):
        (length,) = _LENGTH.findall(head)
        assert isinstance(json.loads(body[: int(length)]), dict)


# tests ---------------------------------------------------------------------------------------------------------------

_SETTINGS: dict[str, Any] = {
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "phases": [Phase.generate, Phase.shrink],
    "deadline": None,
    "report_multiple_bugs": False,
}
EXAMPLES = {"http": 16, "lines": 30, "bytes": 300}
"""Examples in `make test`."""
RANDOM_EXAMPLES = {"http": 150, "lines": 300, "bytes": 1_000}
"""Examples of random rounds in `make test-all`."""


def fuzz(kind: str, examples: int, counts: Counter[str], folder: Path) -> None:
    """Run examples of a kind and count what comes back."""
    limited = settings(max_examples=examples, **_SETTINGS)
    if kind != "bytes":
        run = run_over_http if kind == "http" else run_over_lines
        limited(given(scripts(has_path=kind == "http"))(lambda script: run(script, counts)))()
        return
    with (
        running(folder, answer_by_message, tokens=TOKENS, limits=LIMITS, options=OPTIONS) as server,
        no_errors_logged(),
    ):
        server.client().create_agent("a").send("Hi")
        limited(given(http_requests())(lambda data: check_http(server, data, folder, counts)))()
        assert server.http("GET", "/health")[0] == 200
        assert "Hello" in server.client().agent("a").send("Hello").content


@pytest.mark.parametrize("kind", EXAMPLES)
def test_generated_requests_never_make_the_server_fail(kind: str, tmp_path: Path) -> None:
    counts = Counter[str]()
    fuzz(kind, EXAMPLES[kind], counts, tmp_path)
    if kind == "bytes":
        assert sum(counts.values()) >= EXAMPLES[kind] and {"HTTP 200", "HTTP 400", "HTTP 404"} <= set(counts)
        return
    answered = {name.split()[1] for name in counts if name.startswith("result")}
    assert counts["requests"] > 8 * EXAMPLES[kind] and len(answered) >= len(NAMES) - 6, counts
    assert "shutdown_server" not in answered


@pytest.mark.slow
@pytest.mark.parametrize("kind", RANDOM_EXAMPLES)
def test_random_requests_never_make_the_server_fail(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    counts = Counter[str]()
    fuzz(kind, RANDOM_EXAMPLES[kind], counts, tmp_path)
    sent = counts["requests"] or sum(counts.values())
    record_property("figures", {f"generated requests ({kind})": sent})
