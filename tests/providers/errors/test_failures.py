"""Kinds of failed calls: the same for every client's errors, and the one that is stored with the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, get_args

import anthropic
import httpx
import openai
import pytest
from google.genai import errors
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine
from nexus.errors import MODEL_CALL_KINDS, LedgerBusy, ModelCallFailed, NoCredential
from nexus.providers.errors.failures import RETRYABLE, FailureKind
from nexus.testing.model_server import ModelServer, Step, disconnect, fail, hang, model_server, overflow, respond
from nexus.testing.scripted_replies import error_event

STEPS: list[tuple[Step, FailureKind, int]] = [
    (fail(429, "slow down"), "rate_limit", 429),
    (fail(401, "invalid x-api-key"), "auth", 401),
    (fail(403, "no access to this model"), "auth", 403),
    (fail(400, "messages: field required"), "bad_request", 400),
    (fail(404, "no such model"), "bad_request", 404),
    (fail(500, "internal error"), "overloaded", 500),
    (fail(503, "unavailable"), "overloaded", 503),
    (fail(529, "overloaded"), "overloaded", 529),
    (overflow(1_000, 2_000), "overflow", 400),
    (fail(400, "filtered", code="content_filter"), "content", 400),
    (disconnect(), "connection", 0),
    (hang(), "timeout", 0),
]
EVENT = nexus.Event((nexus.Text("Hi."),), id="update-1")


def send_openai(server: ModelServer) -> Callable[[nexus.AssembledContext], Any]:
    def send(ctx: nexus.AssembledContext) -> Any:
        with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0, timeout=0.4) as client:
            return client.chat.completions.create(**ctx.to_openai())

    return send


def send_anthropic(server: ModelServer) -> Callable[[nexus.AssembledContext], Any]:
    def send(ctx: nexus.AssembledContext) -> Any:
        with anthropic.Anthropic(base_url=server.anthropic_url, api_key="test", max_retries=0, timeout=0.4) as client:
            return client.messages.create(**ctx.to_anthropic())

    return send


@pytest.fixture
def nx() -> Iterator[Engine]:
    with nexus.open(ledger=":memory:", model="gpt-4o") as opened:
        yield opened


@pytest.mark.parametrize("sender", [send_openai, send_anthropic])
@pytest.mark.parametrize(("step", "kind", "status"), STEPS)
def test_errors_of_clients_have_one_kind_and_keep_their_class(
    nx: Engine, sender: Callable[[ModelServer], Any], step: Step, kind: FailureKind, status: int
) -> None:
    classes = (openai.OpenAIError, anthropic.AnthropicError, nexus.ContextOverflow)
    with model_server(step) as server, pytest.raises(classes) as raised:
        nexus.call(nx, EVENT, sender(server), session="s")
    failure = nexus.failure_of(raised.value)
    assert (failure.kind, failure.retryable) == (kind, kind in RETRYABLE)
    assert failure.status in (status, 0 if kind == "overflow" else status)
    assert nx.ledger.entries("s")[-1].body["kind"] == kind
    (turn,) = nx.ledger.turns("s")
    assert (turn.status, turn.failure_kind) == ("failed", kind)
    assert turn.stop_reason == ("timeout" if kind == "timeout" else "error")


def test_seconds_to_wait_are_read_from_the_response(nx: Engine) -> None:
    body = {"error": {"message": "slow down", "type": "rate_limit"}}
    for header, value, seconds in (
        ("retry-after", "7", 7.0),
        ("retry-after-ms", "250", 0.25),
        ("retry-after", "soon", None),
    ):
        with (
            model_server(respond(429, body, **{header: value})) as server,
            pytest.raises(openai.RateLimitError) as raised,
        ):
            send_openai(server)(nx.assemble("Hi."))
        assert nexus.failure_of(raised.value).retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "auth"), (404, "bad_request"), (429, "rate_limit"), (529, "overloaded")]
)
def test_error_within_a_stream_has_the_kind_of_its_code(nx: Engine, status: int, kind: FailureKind) -> None:
    """The HTTP status of the stream is 200."""

    def send(ctx: nexus.AssembledContext) -> Any:
        body = error_event("anthropic", status, "no").encode()
        with (
            model_server(respond(200, body, **{"content-type": "text/event-stream"})) as server,
            anthropic.Anthropic(base_url=server.anthropic_url, api_key="test", max_retries=0) as client,
        ):
            return list(client.messages.create(**ctx.to_anthropic(), stream=True))

    with pytest.raises(anthropic.APIStatusError) as raised:
        send(nx.assemble("Hi.", model="claude-sonnet-5-5"))
    assert raised.value.status_code == 200
    assert nexus.failure_of(raised.value).kind == kind


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (TimeoutError(), "timeout", True),
        (ConnectionResetError("reset"), "connection", True),
        (httpx.ConnectError("no route"), "connection", True),
        (httpx.ReadTimeout("slow"), "timeout", True),
        (asyncio.CancelledError(), "aborted", False),
        (KeyboardInterrupt(), "aborted", False),
        (nexus.errors.BadReply("reply is empty"), "bad_reply", False),
        (nexus.errors.BadReply("no end event", code="incomplete_stream"), "connection", True),
        (NoCredential("no key"), "auth", False),
        (ModelCallFailed("closed", "connection", retryable=True), "connection", True),
        (nexus.ContextOverflow((), "too large"), "overflow", False),
        (nexus.SessionBusy("s", "", 1), "error", True),
        (LedgerBusy("locked"), "error", True),
        (KeyError("usage"), "error", False),
    ],
)
def test_other_errors_have_a_kind(error: BaseException, kind: FailureKind, retryable: bool) -> None:
    failure = nexus.failure_of(error)
    assert (failure.kind, failure.retryable) == (kind, retryable)


def test_every_kind_of_failure_has_a_kind_of_model_call() -> None:
    assert set(MODEL_CALL_KINDS) == set(get_args(FailureKind))


def test_seconds_to_wait_are_read_from_the_error_of_gemini() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
    body = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": [info]}}
    assert nexus.failure_of(errors.ClientError(429, body)).retry_after_s == 37.5


def test_cause_decides_for_wrapped_errors() -> None:
    wrapper = RuntimeError("call failed")
    wrapper.__cause__ = TimeoutError("no answer")
    assert nexus.failure_of(wrapper).kind == "timeout"


@given(st.integers(-5, 999), st.text(max_size=30), st.dictionaries(st.text(max_size=12), st.text(max_size=12)))
def test_any_status_and_header_has_a_kind(status: int, text: str, headers: dict[str, str]) -> None:
    class Response:
        pass

    class ProviderError(Exception):
        pass

    error = ProviderError(text)
    response = Response()
    response.headers = {**headers, "Retry-After": text}  # type: ignore[attr-defined]
    error.status_code, error.response = status, response  # type: ignore[attr-defined]
    failure = nexus.failure_of(error)
    assert failure.kind in get_args(FailureKind)
    assert failure.retryable == (failure.kind in RETRYABLE)


def test_failed_turn_is_continued_by_its_event(nx: Engine) -> None:
    with model_server(fail(529, "overloaded")) as server:
        with pytest.raises(openai.InternalServerError):
            nexus.call(nx, EVENT, send_openai(server), session="s")
        server.script()
        assert nexus.call(nx, EVENT, send_openai(server), session="s").committed.turn == 1
    (turn,) = nx.ledger.turns("s")
    assert (turn.status, turn.stop_reason, turn.provider_stop_reason) == ("completed", "end_turn", "stop")
    assert (turn.failure_kind, turn.error) == ("", "")
