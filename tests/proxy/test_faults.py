"""Faults of clients, upstream servers and of the proxy itself: nothing is in the way, and nothing is made up."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.errors import LedgerFull
from nexus.testing.model_server import ModelRequest, Response, break_stream, hang, model_server, reply, respond
from nexus.types.message import ToolCall
from proxy.running import RunningProxy, running_proxy
from proxy.test_formats import FORMATS, ask, request_of
from proxy.upstream import upstream

MODES: tuple[dict[str, Any], ...] = ({}, {"mode": "heal"}, {"mode": "fit", "budget": 50_000})
all_modes = pytest.mark.parametrize("settings", MODES, ids=["record", "heal", "fit"])


def send(running: RunningProxy, method: str, path: str, data: bytes = b"", **headers: str) -> httpx.Response:
    return httpx.request(method, running.url + path, content=data, headers=headers, trust_env=False, timeout=60)


@pytest.mark.parametrize("format_", FORMATS)
def test_upstream_that_is_down_is_an_error_in_the_providers_form(format_: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with running_proxy(f"http://127.0.0.1:{port}") as running:
        answer = ask(running, *request_of(format_, ["Hello."]))
    assert answer.status_code == 502
    assert f"upstream http://127.0.0.1:{port} not reached" in answer.json()["error"]["message"]
    assert (answer.json().get("type") == "error") == (format_ == "anthropic")
    assert answer.headers["x-nexus-call"] and answer.headers["x-nexus-outcome"] == "as_received"


@all_modes
def test_errors_go_through_with_their_headers_and_unknown_fields(settings: dict[str, Any]) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down", "new_field": [1]}}
    step = respond(429, body, **{"retry-after": "17", "x-new-header": "new"})
    with model_server(step) as provider, running_proxy(provider, **settings) as running:
        answer = ask(running, *request_of("anthropic", ["Hello."]))
        assert len(provider.requests) == 1
    assert (answer.status_code, answer.json()) == (429, body)
    assert answer.headers["retry-after"] == "17"
    assert answer.headers["x-new-header"] == "new"


@all_modes
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"model": 5}',
        b'{"messages": 7, "model": "m"}',
        b"\xff\xfe",
        b'{"a":' * 5000,
    ],
)
def test_bodies_that_are_no_requests_go_upstream_as_they_are(settings: dict[str, Any], data: bytes) -> None:
    received: list[bytes] = []
    with upstream(received) as url, running_proxy(url, **settings) as running:
        answer = send(running, "POST", "/v1/messages", data)
        call = running.call(answer.headers["x-nexus-call"])
    assert (answer.status_code, answer.content) == (400, b'{"error":"bad"}')
    assert received == [data]
    assert not call["session"]


@pytest.mark.parametrize("fault", ["disconnect", "malformed", "end", "error"])
@pytest.mark.parametrize("format_", FORMATS)
def test_stream_that_breaks_is_broken_for_the_client_too(format_: str, fault: Any) -> None:
    step = break_stream(reply("A long answer with many words."), fault, after=3)
    path, body = request_of(format_, ["Hello."], stream=True)
    with model_server(step) as provider, running_proxy(provider) as running:
        pieces: list[bytes] = []
        broke = False
        call_id = ""
        try:
            with httpx.stream("POST", running.url + path, json=body, trust_env=False, timeout=30) as answer:
                call_id = answer.headers["x-nexus-call"]
                pieces += answer.iter_raw()
        except httpx.RemoteProtocolError:
            broke = True
        with httpx.stream("POST", provider.anthropic_url + path, json=body, trust_env=False) as direct:
            expected: list[bytes] = []
            try:
                expected += direct.iter_raw()
            except httpx.RemoteProtocolError:
                assert broke
        assert broke == (fault == "disconnect")
        assert b"".join(pieces) == b"".join(expected)
        call = running.call(call_id)
    assert not call["session"]
    assert call["error"] or call["reasons"]


def test_client_that_goes_away_stops_the_upstream() -> None:
    with model_server(reply("word " * 200, event_interval_s=0.05)) as provider, running_proxy(provider) as running:
        path, body = request_of("anthropic", ["Hello."], stream=True)
        with httpx.stream("POST", running.url + path, json=body, trust_env=False) as answer:
            call_id = answer.headers["x-nexus-call"]
            next(answer.iter_raw())
        wait_until(lambda: len(provider.abandoned) == 1)
        wait_until(lambda: running.call(call_id)["error"] == "client gone")


def test_client_that_goes_away_before_the_answer_stops_the_upstream() -> None:
    with model_server(hang()) as provider, running_proxy(provider) as running:
        path, body = request_of("anthropic", ["Hello."])
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(running.url + path, json=body, trust_env=False, timeout=0.5)
        wait_until(lambda: len(provider.abandoned) == 1)


@all_modes
def test_client_that_goes_away_while_a_stream_only_begins_stops_the_upstream(settings: dict[str, Any]) -> None:
    begun = b'event: response.created\ndata: {"type": "response.created"}\n\n'
    path, body = request_of("responses", ["Hello."], stream=True)

    def step(_: ModelRequest) -> Response:
        return Response(200, begun * 100, {"content-type": "text/event-stream"}, event_interval_s=1)

    with model_server(step) as provider, running_proxy(provider, **settings) as running:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(running.url + path, json=body, trust_env=False, timeout=0.8)
        wait_until(lambda: len(provider.abandoned) == 1)


def test_stream_that_only_begins_reaches_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.proxy.answer_start.HOLD_S", 0.2)
    begun = b'event: response.created\ndata: {"type": "response.created"}\n\n'
    path, body = request_of("responses", ["Hello."], stream=True)

    def step(_: ModelRequest) -> Response:
        return Response(200, begun * 2, {"content-type": "text/event-stream"}, event_interval_s=60)

    with (
        model_server(step) as provider,
        running_proxy(provider, mode="fit", budget=50_000) as running,
        httpx.stream("POST", running.url + path, json=body, trust_env=False, timeout=30) as answer,
    ):
        assert next(answer.iter_raw()) == begun


@all_modes
def test_compressed_request_arrives_as_it_was_sent(settings: dict[str, Any]) -> None:
    path, body = request_of("openai", ["Hello."])
    data = gzip.compress(json.dumps(body).encode())
    received: list[bytes] = []
    with upstream(received) as url, running_proxy(url, **settings) as running:
        answer = send(running, "POST", path, data, **{"content-encoding": "gzip"})
    assert answer.headers["x-nexus-outcome"] == "as_received"
    assert received == [data]


def test_unknown_compression_is_not_sent_over_the_budget_unseen() -> None:
    path, _ = request_of("openai", ["Hello."])
    received: list[bytes] = []
    with upstream(received) as url, running_proxy(url, mode="fit", budget=2_000) as running:
        answer = send(running, "POST", path, b"\x28\xb5\x2f\xfd" * 10_000, **{"content-encoding": "zstd"})
    assert answer.status_code == 400
    assert received == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS"])
def test_other_paths_go_through_untouched(method: str) -> None:
    received: list[bytes] = []
    with upstream(received, seen := []) as url, running_proxy(url, mode="fit", budget=2_000) as running:
        data = b"x" * 50_000 if method in ("PUT", "PATCH") else b""
        answer = send(running, method, "/v1/files/a%2Fb?limit=3&x=%20", data, authorization="Bearer k")
    assert answer.status_code == 400
    assert seen == [f"{method} /v1/files/a%2Fb?limit=3&x=%20"]
    assert received == [data]


def test_token_counting_goes_through_untouched() -> None:
    received: list[bytes] = []
    with upstream(received) as url, running_proxy(url, mode="fit", budget=2_000) as running:
        _, body = request_of("anthropic", ["Hello. " * 9_000])
        send(running, "POST", "/v1/messages/count_tokens", json.dumps(body).encode())
    assert received == [json.dumps(body).encode()]


def test_proxy_that_is_its_own_upstream_says_so() -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider) as inner, running_proxy(inner.url) as outer:
        path, body = request_of("anthropic", ["Hello."])
        assert ask(outer, path, body).status_code == 200  # two proxies in a row are no circle
        (via,) = (request.headers["via"] for request in provider.requests)
        # The server keeps the last of two headers with one name: that of the proxy before it.
        answer = send(inner, "POST", path, json.dumps(body).encode(), via=via)
    assert answer.status_code == 508


def test_compressed_body_does_not_become_gigabytes() -> None:
    packer = zlib.compressobj(9, wbits=31)
    data = b"".join(packer.compress(b" " * 2**20) for _ in range(300)) + packer.flush()
    received: list[bytes] = []
    with upstream(received) as url, running_proxy(url) as running:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = send(running, "POST", "/v1/messages", data, **{"content-encoding": "gzip"})
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (answer.status_code, received) == (400, [data])
    assert grown_kib < 200 * 1024


@all_modes
def test_continued_stored_response_goes_through_and_is_no_session(settings: dict[str, Any]) -> None:
    path, body = request_of("responses", ["And then?"])
    body |= {"previous_response_id": "resp_1", "store": True}
    with model_server(reply("ok")) as provider, running_proxy(provider, **settings) as running:
        call = running.call(ask(running, path, body).headers["x-nexus-call"])
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
    assert call["session"] == ""
    assert any("the provider has the earlier messages" in reason for reason in call["reasons"])


def test_call_that_was_sent_over_the_budget_is_recorded_too() -> None:
    path, body = request_of("anthropic", ["Hello. " * 4_000])
    with (
        model_server(reply("ok")) as provider,
        running_proxy(provider, mode="fit", budget=2_000, fail_open=True) as running,
    ):
        assert running.call(ask(running, path, body).headers["x-nexus-call"])["session"]


def test_call_that_takes_long_to_record_is_recorded_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nx = nexus.open(ledger=":memory:")
    monkeypatch.setattr("nexus.proxy.recording.HOLD_S", 0.05)
    record = nx.record

    def slow(*args: Any) -> Any:
        time.sleep(0.5)
        return record(*args)

    monkeypatch.setattr(nx, "record", slow)
    with model_server(reply("ok")) as provider:
        with running_proxy(provider, nx=nx) as running:
            call_id = ask(running, *request_of("anthropic", ["Hello."])).headers["x-nexus-call"]
            wait_until(lambda: running.call(call_id)["session"] != "")
            wait_until(lambda: running.get("/nexus/status").json()["counts"].get("calls") == 1)
            assert "not recorded" not in running.get("/nexus/status").json()["counts"]
            body = request_of("openai", ["The proxy stops while this is recorded."])
            ask(running, *body)
        assert sorted(len(nx.history(session.label)) for session in nx.sessions()) == [2, 2]
    nx.close()


@pytest.mark.parametrize("format_", FORMATS)
def test_end_of_an_answer_waits_for_a_slow_record(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nx = nexus.open(ledger=":memory:")
    record = nx.record
    recorded: list[bool] = []

    def slow(*args: Any) -> Any:
        time.sleep(0.3)
        committed = record(*args)
        recorded.append(True)
        return committed

    monkeypatch.setattr(nx, "record", slow)
    path, body = request_of(format_, ["Hello."], stream=True)
    # Byte by byte, so that the last event comes in many pieces.
    with model_server(reply("Hi.", byte_interval_s=0.0002)) as provider, running_proxy(provider, nx=nx) as running:
        arrived: list[tuple[bytes, bool]] = []
        with httpx.stream("POST", running.url + path, json=body, trust_env=False, timeout=60) as answer:
            arrived += ((piece, bool(recorded)) for piece in answer.iter_raw())
    before = b"".join(piece for piece, is_recorded in arrived if not is_recorded)
    assert before
    assert b"".join(piece for piece, _ in arrived) != before
    ends = (b"message_stop", b"[DONE]", b"response.completed", b"finishReason")
    assert not any(end in before for end in ends)
    nx.close()


@all_modes
def test_call_that_is_read_slowly_is_one_session_with_the_next(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nx = nexus.open(ledger=":memory:")
    monkeypatch.setattr("nexus.proxy.recording.HOLD_S", 0.05)
    mirror = nx.mirror

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return mirror(*args, **options)

    monkeypatch.setattr(nx, "mirror", slow)
    path, body = request_of("anthropic", ["Look around."])
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    call = {"type": "tool_use", "id": "toolu_1a2b3c", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1a2b3c", "content": "trees"}
    with (
        model_server(reply(None, ToolCall("toolu_1a2b3c", "look", "{}")), reply("A garden.")) as provider,
        running_proxy(provider, nx=nx, **settings) as running,
    ):
        ask(running, path, body)
        body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        ask(running, path, body)
    (session,) = nx.sessions()
    assert [message.role for message in nx.history(session.label)] == ["user", "assistant", "tool", "assistant"]
    nx.close()


def test_large_answer_goes_through_and_is_not_recorded() -> None:
    text = "word " * 8_000_000
    with model_server(reply(text)) as provider, running_proxy(provider) as running:
        answer = ask(running, *request_of("anthropic", ["Hello."]))
        call = running.call(answer.headers["x-nexus-call"])
    assert answer.json()["content"][0]["text"] == text
    assert call["reasons"] == ["not recorded: the answer has more than 32 MiB"]


def test_large_body_goes_through() -> None:
    path, body = request_of("anthropic", ["word " * 4_000_000])
    with model_server(reply("ok")) as provider, running_proxy(provider) as running:
        assert ask(running, path, body).status_code == 200
    assert len(provider.requests[-1].data) > 20_000_000


def test_ledger_that_is_full_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nx = nexus.open(ledger=tmp_path / "l.db")

    def full(*_: Any, **__: Any) -> Any:
        raise LedgerFull("disk full")

    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        path, body = request_of("anthropic", ["Hello."])
        with monkeypatch.context() as patched:
            patched.setattr(nx.ledger.store, "commit", full)
            patched.setattr(nx.ledger.store, "put_document", full)
            answer = ask(running, path, body)
            assert answer.status_code == 200
            call = running.call(answer.headers["x-nexus-call"])
            assert "not recorded: ledger_full" in call["reasons"][0]
            assert running.get("/nexus/status").json()["counts"]["not recorded"] == 1
        assert "call not recorded: ledger_full" in caplog.messages
        body["messages"] += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "Again."}]
        assert running.call(ask(running, path, body).headers["x-nexus-call"])["session"]
    texts = [message.text() for message in nx.history(nx.sessions()[0].label)]
    assert texts == ["Hello.", "ok", "Again.", "ok"]
    nx.close()


@pytest.mark.parametrize("settings", MODES[1:], ids=["heal", "fit"])
def test_fault_of_the_engine_sends_the_request_as_received(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nx = nexus.open(ledger=":memory:")
    monkeypatch.setattr(nx, "mirror", lambda *_, **__: 1 / 0)
    path, body = request_of("anthropic", ["Hello. " * 9_000])
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx, **settings) as running:
        answer = ask(running, path, body)
    assert answer.headers["x-nexus-outcome"] == "unread"
    assert provider.requests[-1].data == json.dumps(body, indent=1).encode()
    nx.close()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does, at most about half a minute."""
    for _ in range(1_500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")
