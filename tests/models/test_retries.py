"""One policy of retries for all clients, with a clock that moves only when a client waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.calls import FORMATS, Sleeps, call, client_of, context, failed_call, reply_of
from nexus.errors import BadSetting
from nexus.models import RetryPolicy, Timeouts, open_client
from nexus.testing.model_server import fail, model_server, reply, respond
from nexus.text.as_received import ReceivedFormat
from nexus.types.stream_events import Retry


@pytest.mark.parametrize("format_", FORMATS)
def test_client_waits_as_long_as_the_provider_asks(format_: ReceivedFormat) -> None:
    sleeps = Sleeps()
    body = {"error": {"message": "slow down", "type": "rate_limit_error", "code": 429}}
    with model_server(respond(429, body, **{"retry-after": "17"}), reply("Yes.")) as server:
        items = call(client_of(server, format_, sleeps=sleeps), context(format_))
    assert items[0] == Retry("rate_limit", items[0].text, 17.0)  # type: ignore[union-attr]
    assert (sleeps.delays_s, reply_of(items).tries) == ([17.0], 2)


def test_call_fails_at_once_when_the_provider_asks_for_too_long() -> None:
    sleeps = Sleeps()
    with model_server(fail(429, "slow down", retry_after_s=300)) as server:
        items, error = failed_call(client_of(server, "openai", sleeps=sleeps), context("openai"))
        assert len(server.requests) == 1
    assert (items, sleeps.delays_s) == ([], [])
    assert (error.kind, error.retryable, error.retry_after_s) == ("rate_limit", True, 300.0)
    assert "call again in 300 s; the limit of waits is 60 s" in str(error)


def test_delays_double_up_to_their_limit() -> None:
    sleeps = Sleeps()
    policy = RetryPolicy(max_retries=6, first_delay_s=1, max_delay_s=8)
    with model_server(respond(503, {"error": {"message": "unavailable"}})) as server:
        items, error = failed_call(client_of(server, "openai", sleeps=sleeps, retries=policy), context("openai"))
        assert len(server.requests) == 7
    for delay_s, most_s in zip(sleeps.delays_s, (1, 2, 4, 8, 8, 8), strict=True):
        assert most_s / 2 <= delay_s <= most_s
    assert [item.delay_s for item in items if isinstance(item, Retry)] == sleeps.delays_s
    assert "after 7 tries" in str(error)


def test_no_try_begins_after_the_total_time() -> None:
    sleeps = Sleeps()
    with model_server(fail(529, "overloaded", retry_after_s=40)) as server:
        policy = RetryPolicy(max_retries=9, total_s=100)
        _, error = failed_call(client_of(server, "anthropic", sleeps=sleeps, retries=policy), context("anthropic"))
        assert len(server.requests) == 3
    assert (sleeps.delays_s, error.kind) == ([40.0, 40.0], "model_error")


def test_policy_without_retries_makes_one_call() -> None:
    with model_server(fail(503, "unavailable")) as server:
        items, _ = failed_call(client_of(server, "gemini", retries=RetryPolicy(max_retries=0)), context("gemini"))
        assert (items, len(server.requests)) == ([], 1)


@given(st.integers(1, 2_000), st.floats(0, 1), st.floats(0.01, 100), st.floats(0.01, 100))
def test_law_delay_is_within_its_limits(retry: int, jitter: float, first_s: float, most_s: float) -> None:
    policy = RetryPolicy(first_delay_s=first_s, max_delay_s=most_s)
    assert min(first_s, most_s) / 2 <= policy.delay_s(retry, None, jitter) <= most_s
    assert policy.delay_s(retry, 7.5, jitter) == 7.5


@pytest.mark.parametrize("limits", [{"timeouts": Timeouts(first_event_s=0)}, {"retries": RetryPolicy(max_retries=-1)}])
def test_impossible_limits_are_rejected(limits: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="timeout is not above 0 or retry limit negative"):
        open_client(base_url="http://127.0.0.1:1/v1", **limits)
