"""OpenTelemetry spans of calls that go through a proxy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from nexus.testing.model_server import fail, model_server, overflow, reply
from proxy.running import running_proxy
from proxy.test_cache_misses import asked
from proxy.test_formats import FORMATS, ask, request_of

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
SECRETS = ("4711", "Hello", "Be brief", "secret-key")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Set up OpenTelemetry in this process for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def calls_of(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if "nexus.call.id" in (span.attributes or {})]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("format_", FORMATS)
def test_call_is_one_span_with_its_usage(format_: str, spans: InMemorySpanExporter) -> None:
    path, body = request_of(format_, ["Hello 4711."])
    step = reply("Hello to you.", input_tokens=900, output_tokens=7, cache_read_tokens=300)
    with model_server(step) as provider, running_proxy(provider, mode="heal") as running:
        call = asked(running, provider, body, step, path)
    (span,) = calls_of(spans)
    found = attributes_of(span)
    operation = "generate_content" if format_ == "gemini" else "chat"
    model = call["model"]
    assert span.name == f"{operation} {model}"
    assert span.kind is trace.SpanKind.CLIENT
    assert found["gen_ai.operation.name"] == operation
    assert found["gen_ai.provider.name"] == {"gemini": "gcp.gemini", "anthropic": "anthropic"}.get(format_, "openai")
    assert found["gen_ai.request.model"] == model
    assert found["gen_ai.usage.input_tokens"] == 900
    assert found["gen_ai.usage.output_tokens"] == 7
    assert found["gen_ai.usage.cache_read.input_tokens"] == 300
    assert found["nexus.call.id"] == call["id"]
    assert found["nexus.outcome"] == call["outcome"]
    assert (found["http.response.status_code"], found["server.address"]) == (200, "127.0.0.1")
    assert span.status.status_code is StatusCode.UNSET
    everything = " ".join(found_span.to_json() for found_span in spans.get_finished_spans())
    assert not any(text in everything for text in SECRETS)


def test_traceparent_of_the_client_is_the_parent_and_goes_on_unchanged(spans: InMemorySpanExporter) -> None:
    path, body = request_of("anthropic", ["Hello."])
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    with model_server() as provider, running_proxy(provider) as running:
        for sent in (headers, {}, {"traceparent": "no-parent"}):
            httpx.post(running.url + path, json=body, headers=sent, trust_env=False, timeout=60)
        received = [request.headers.get("traceparent") for request in provider.requests]
    first, second, third = calls_of(spans)
    assert received == [PARENT, None, "no-parent"]
    assert first.parent is not None
    assert (f"{first.context.trace_id:x}", f"{first.parent.span_id:x}") == ("a" * 32, "b" * 16)
    assert (second.parent, third.parent) == (None, None)
    assert second.context.trace_id != third.context.trace_id


def test_failures_have_their_kind_and_no_text(spans: InMemorySpanExporter) -> None:
    path, body = request_of("anthropic", ["Hello."])
    with model_server(fail(429, "key 4711 is over its limit")) as provider, running_proxy(provider) as running:
        ask(running, path, body)
    with running_proxy("http://127.0.0.1:9") as running:
        ask(running, path, body)
    path, large = request_of("anthropic", ["Hello. " * 5_000])
    with model_server(overflow(2_000)) as provider, running_proxy(provider, mode="fit", budget=2_000) as running:
        ask(running, path, large)
    found = [attributes_of(span) for span in calls_of(spans)]
    assert [values["error.type"] for values in found] == ["429", "upstream_not_reached", "refused"]
    assert found[2]["nexus.budget"] == 2_000
    assert {span.status.status_code for span in calls_of(spans)} == {StatusCode.ERROR}
    everything = " ".join(span.to_json() for span in spans.get_finished_spans())
    assert not any(text in everything for text in SECRETS)


def test_own_pages_and_other_paths_have_no_span(spans: InMemorySpanExporter) -> None:
    with model_server() as provider, running_proxy(provider) as running:
        running.get("/nexus/status")
        running.get("/v1/models")
    assert calls_of(spans) == []


def test_nothing_of_opentelemetry_is_imported_without_it() -> None:
    code = (
        "import sys\n"
        "from nexus.proxy.reports import CallReport\n"
        "from nexus.proxy.spans import call_span\n"
        "report = CallReport(id='1', at_ms=0, client='x', path='/', format='anthropic')\n"
        "with call_span(report, '00-a-b-01'):\n"
        "    pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "[]\n"
