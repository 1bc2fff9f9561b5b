"""Spans of a served agent, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from nexus.testing.model_server import fail, model_server, reply
from nexus.types.message import ToolCall
from server.test_restart import environment, served

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Collector:
    """Takes spans as OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.sent = ""

    def add(self, body: bytes) -> None:
        self.sent += body.decode("latin-1")
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                row.value.string_value for row in resource.resource.attributes if row.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def attributes(span: Any) -> dict[str, Any]:
    return {row.key: getattr(row.value, row.value.WhichOneof("value")) for row in span.attributes}


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.add(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as (collector, url):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield collector


def test_request_turn_calls_and_tools_are_one_trace(tmp_path: Path, collector: Collector) -> None:
    calls = reply("", ToolCall("c1", "list_skills", "{}"), ToolCall("c2", "nothing", "{}"))
    with model_server(calls, reply("A GIN index.")) as model, served(tmp_path, model) as (process, client, printed):
        client.create_agent("librarian", system="Be terse.")
        token = Path(printed["token_file"]).read_text("utf-8").split()[0]
        body = {"jsonrpc": "2.0", "id": 1, "method": "send", "params": {"content": "Which 4711 index?"}}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "traceparent": PARENT}
        request = urllib.request.Request(f"{printed['url']}/agent/librarian", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["result"]["content"] == "A GIN index."
        assert client.shutdown_server().success
        assert process.wait() == 0
        assert process.stderr is not None and process.stderr.read() == ""
    (sent,), (turn,) = collector.named("send"), collector.named("invoke_agent")
    first, second = collector.named("chat gpt-4o")
    tools = [*collector.named("execute_tool list_skills"), *collector.named("execute_tool nothing")]
    assert collector.services == {"nexus"}
    assert {span.trace_id.hex() for span in (sent, turn, first, second, *tools)} == {"a" * 32}
    assert (sent.parent_span_id.hex(), turn.parent_span_id) == ("b" * 16, sent.span_id)
    assert {span.parent_span_id for span in (first, second, *tools)} == {turn.span_id}
    assert any(span.parent_span_id == turn.span_id for span in collector.named("nexus.assemble"))
    assert attributes(sent)["rpc.system.name"] == "jsonrpc"
    called = attributes(second)
    assert (called["gen_ai.operation.name"], called["gen_ai.provider.name"]) == ("chat", "openai")
    assert called["gen_ai.request.model"] == "gpt-4o" and called["gen_ai.conversation.id"] == "librarian"
    assert 0 < called["nexus.context.tokens"] <= called["nexus.context.available"]
    assert called["gen_ai.usage.input_tokens"] > 0 and called["gen_ai.response.time_to_first_chunk"] > 0
    assert attributes(turn)["gen_ai.usage.input_tokens"] >= called["gen_ai.usage.input_tokens"]
    assert attributes(tools[-1])["error.type"] == "tool_error"
    assert attributes(tools[-1])["gen_ai.tool.call.id"] == "c2"
    assert not any(text in collector.sent for text in ("4711", "GIN", "terse", token))


def test_failed_call_marks_its_spans_without_the_text_of_the_error(tmp_path: Path, collector: Collector) -> None:
    with model_server(fail(400, "bad key sk-4711")) as model, served(tmp_path, model) as (process, client, _):
        agent = client.create_agent("a")
        with pytest.raises(Exception, match="400"):
            agent.send("Hi")
        client.shutdown_server()
        process.wait()
    (sent,), (turn,), (called,) = (collector.named(name) for name in ("send", "invoke_agent", "chat gpt-4o"))
    assert attributes(called)["error.type"] == "ModelCallFailed"
    assert attributes(turn)["error.type"] == "error"
    assert attributes(sent)["rpc.response.status_code"] == "-32000"
    assert {span.status.code for span in (sent, turn, called)} == {2}
    assert "4711" not in collector.sent


def test_collector_that_is_away_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with model_server(reply("Hello.")) as model, served(tmp_path, model) as (process, client, _):
        assert client.create_agent("a").send("Hi").content == "Hello."
        client.shutdown_server()
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "is no http or https URL"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({}, ""),
    ],
)
def test_setting_that_sends_nothing_is_reported_or_silent(tmp_path: Path, variables: dict[str, str], text: str) -> None:
    command = [
        sys.executable,
        "-m",
        "nexus",
        "serve",
        "--stdio",
        "-w",
        str(tmp_path),
        "--base-url",
        "http://127.0.0.1:9",
    ]
    ended = subprocess.run(
        [*command, "--model", "gpt-4o"],
        input="",
        capture_output=True,
        text=True,
        env={**environment(tmp_path), **variables},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    assert text in ended.stderr and bool(text) == bool(ended.stderr)


def test_program_without_opentelemetry_imports_nothing_of_it(tmp_path: Path) -> None:
    program = "import sys, nexus\nwith nexus.open(ledger=':memory:') as nx: nx.assemble('Hi')\nprint([n for n in sys.modules if 'opentelemetry' in n])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert ended.stdout == "[]\n"
