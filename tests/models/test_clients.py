"""Each client, with the provider's own package, at a server that speaks the provider's format over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexus
from models.calls import FORMATS, LOOK, Sleeps, call, client_of, context, failed_call, reply_of, shown
from nexus.errors import ModelCallFailed
from nexus.models import EndpointClient, ModelReply, RetryPolicy, Timeouts
from nexus.providers.costs import cost_of_reply
from nexus.testing.model_server import (
    ModelServer,
    Step,
    StreamFault,
    break_stream,
    disconnect,
    fail,
    hang,
    model_server,
    overflow,
    reply,
    respond,
)
from nexus.text.as_received import ReceivedFormat
from nexus.types.message import Thinking, ToolCall
from nexus.types.stream_events import Reasoning, Retry, Token

KEY = "sk-proj-Zq8vN2mXw4Lk7Rt1Yb5Hc9Df3Gj6Ps0A"
CALLS = (ToolCall("call_1", "look", '{"path":"a"}'), ToolCall("call_2", "look", '{"path":"b"}'))

each_format = pytest.mark.parametrize("format_", FORMATS)


@each_format
def test_stream_ends_with_the_reply_that_its_tokens_join_to(format_: ReceivedFormat) -> None:
    with model_server(reply("Good morning to you.", thinking="It is early.")) as server:
        items = call(client_of(server, format_), context(format_))
    result = reply_of(items).result
    assert shown(items, Token) == result.messages[-1].text() == "Good morning to you."
    assert shown(items, Reasoning) == "It is early."
    assert len([item for item in items if isinstance(item, Token)]) == 4
    assert result.stop_reason == "end_turn"
    assert [request.is_stream for request in server.requests] == [True]
    assert server.requests[0].model == FORMATS[format_]


@each_format
def test_parallel_tool_calls_arrive_whole(format_: ReceivedFormat) -> None:
    with model_server(reply("Two files.", *CALLS)) as server:
        ctx = context(format_, tools=[LOOK], tool_choice="required")
        result = reply_of(call(client_of(server, format_), ctx)).result
    assert result.tool_calls == CALLS
    assert result.stop_reason == "tool_use"
    assert "look" in str(server.bodies[0]["tools"])


@each_format
def test_usage_has_cache_and_reasoning_and_is_priced(format_: ReceivedFormat) -> None:
    counts = {"input_tokens": 9_000, "cache_read_tokens": 6_000, "output_tokens": 500, "reasoning_tokens": 200}
    if format_ != "gemini":  # its usage has no writes
        counts["cache_write_tokens"] = 1_000
    if format_ == "anthropic":
        counts["cache_write_1h_tokens"] = 600
    ctx = context(format_)
    with model_server(reply("Yes.", **counts)) as server:
        answer = reply_of(call(client_of(server, format_), ctx))
    assert answer.result.usage == nexus.TokenUsage(**counts)
    assert answer.cost_usd == cost_of_reply(answer.result.usage, ctx.accounting.model_info) != 0


@each_format
def test_complete_is_the_reply_of_the_stream(format_: ReceivedFormat) -> None:
    ctx = context(format_)

    async def complete(server: ModelServer) -> ModelReply:
        client = client_of(server, format_, sleeps=Sleeps())
        try:
            return await client.complete(ctx)
        finally:
            await client.aclose()

    with model_server(reply("Yes.", CALLS[0], thinking="Hm.")) as server:
        assert asyncio.run(complete(server)) == reply_of(call(client_of(server, format_, sleeps=Sleeps()), ctx))


@each_format
def test_reply_is_recorded_as_received(format_: ReceivedFormat) -> None:
    with nexus.open(ledger=":memory:", model=FORMATS[format_]) as nx, model_server(reply("Yes.", *CALLS)) as server:
        ctx = nx.assemble("Look at both", session="s", tools=[LOOK])
        nx.record(ctx, reply_of(call(client_of(server, format_), ctx)).result)
        assert nx.history("s")[-1].text() == "Yes."
        assert tuple(nx.history("s")[-1].calls()) == CALLS


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(format_=st.sampled_from(sorted(FORMATS)), text=texts, thinking=texts, calls=st.integers(0, 2))
def test_law_pieces_join_to_the_stored_reply(format_: ReceivedFormat, text: str, thinking: str, calls: int) -> None:
    with model_server(reply(text or None, *CALLS[:calls], thinking=thinking)) as server:
        try:
            items = call(client_of(server, format_, sleeps=Sleeps()), context(format_))
        except ModelCallFailed:  # a reply of nothing at all is no reply in some formats
            assert not text
            return
    messages = reply_of(items).result.messages
    parts = [part for message in messages for part in message.parts]
    assert shown(items, Token) == "".join(message.text() for message in messages)
    assert shown(items, Reasoning) == "\n".join(part.text for part in parts if isinstance(part, Thinking) and part.text)


KINDS: list[tuple[Step, str, bool, int]] = [
    (fail(401, "invalid key"), "auth_failure", False, 401),
    (fail(429, "slow down"), "rate_limit", True, 429),
    (fail(500, "internal error"), "model_error", True, 500),
    (fail(529, "overloaded"), "model_error", True, 529),
    (fail(400, "messages: field required"), "model_error", False, 400),
    (fail(404, "no such model"), "model_error", False, 404),
    (fail(400, "filtered", code="content_filter"), "content", False, 400),
    (overflow(1_000, 2_000), "context_overflow", False, 400),
    (disconnect(), "model_error", True, 0),
    (respond(200, b"<html>gateway</html>"), "model_error", True, 0),
]


@each_format
@pytest.mark.parametrize(("step", "kind", "retryable", "status"), KINDS)
def test_errors_of_all_clients_have_one_kind(
    format_: ReceivedFormat, step: Step, kind: str, retryable: bool, status: int
) -> None:
    with model_server(step) as server:
        items, error = failed_call(client_of(server, format_, sleeps=Sleeps()), context(format_))
        assert len(server.requests) == (5 if retryable else 1)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert error.status in (status, 0 if kind == "context_overflow" else status)
    assert len([item for item in items if isinstance(item, Retry)]) == (4 if retryable else 0)
    assert error.__cause__ is not None
    failure = nexus.failure_of(error)
    assert (failure.kind, failure.retryable) == (error.failure_kind, retryable)


@each_format
def test_call_recovers_from_an_overflow_of_a_client(format_: ReceivedFormat) -> None:
    async def converse(server: ModelServer) -> nexus.engine.overflow_recovery.Answer:
        client = client_of(server, format_)

        async def send(ctx: nexus.AssembledContext) -> nexus.AgentResult:
            return (await client.complete(ctx)).result

        async with await nexus.open_async(ledger=":memory:", model=FORMATS[format_]) as nx:
            for number in range(6):
                ctx = await nx.assemble(f"question {number} " + "word " * 400, session="s")
                await nx.record(ctx, nexus.AgentResult((nexus.assistant("yes " * 400),)))
            answer = await nexus.acall(nx, "and now?", send, session="s")
        await client.aclose()
        return answer

    with model_server(overflow(4_000, 5_000), reply("done", input_tokens=3_000)) as server:
        answer = asyncio.run(converse(server))
    assert (answer.result.messages[-1].text(), len(answer.attempts)) == ("done", 2)
    assert len(server.requests[1].data) < len(server.requests[0].data)


@each_format
@pytest.mark.parametrize("fault", ["disconnect", "malformed", "error", "end"])
def test_broken_stream_is_withdrawn_and_made_again(format_: ReceivedFormat, fault: StreamFault) -> None:
    whole, sleeps = reply("one two three four five six"), Sleeps()
    with model_server(break_stream(whole, fault, after=7 if format_ != "gemini" else 3), whole) as server:
        items = call(client_of(server, format_, sleeps=sleeps), context(format_))
    (place,) = [index for index, item in enumerate(items) if isinstance(item, Retry)]
    assert [item for item in items[:place] if isinstance(item, Token)], "some of it had arrived"
    assert shown(items, Token) == "one two three four five six"
    answer = reply_of(items)
    assert (answer.tries, len(server.requests), len(sleeps.delays_s)) == (2, 2, 1)
    retry = items[place]
    assert isinstance(retry, Retry)
    assert retry.kind in ("overloaded", "connection")
    assert retry.text
    assert retry.delay_s == sleeps.delays_s[0]


@each_format
@pytest.mark.parametrize("whole", [reply("", stop="content_filter"), reply("I can", stop="content_filter")])
def test_withheld_reply_is_a_content_error_with_what_arrived(format_: ReceivedFormat, whole: Step) -> None:
    with model_server(whole) as server:
        items, error = failed_call(client_of(server, format_), context(format_))
    assert (error.kind, error.retryable, len(server.requests)) == ("content", False, 1)
    assert isinstance(error.reply, ModelReply)
    assert shown(items, Token) == "".join(message.text() for message in error.reply.result.messages)
    assert error.reply.result.usage.input_tokens > 0
    assert nexus.failure_of(error).kind == "content"


@each_format
@pytest.mark.parametrize("step", [hang(), reply("one two three", event_interval_s=3_600)])
def test_slow_server_is_a_timeout(format_: ReceivedFormat, step: Step) -> None:
    limits, policy = Timeouts(first_event_s=0.15, between_events_s=0.15), RetryPolicy(max_retries=1)
    with model_server(step) as server:
        client = client_of(server, format_, timeouts=limits, retries=policy, sleeps=Sleeps())
        _, error = failed_call(client, context(format_))
    assert (error.kind, error.retryable, len(server.requests)) == ("timeout", True, 2)
    assert "0.15 s" in str(error)


def test_total_time_of_a_try_is_limited() -> None:
    limits = Timeouts(total_s=0.3)
    with model_server(reply("one two three " * 30, event_interval_s=0.05), reply("whole")) as server:
        client = EndpointClient(client_of(server, "openai").endpoint, timeouts=limits, sleep=Sleeps().sleep)
        items = call(client, context("openai"))
    (retry,) = [item for item in items if isinstance(item, Retry)]
    assert (retry.kind, shown(items, Token)) == ("timeout", "whole")


@each_format
def test_one_client_serves_many_streams_at_once(format_: ReceivedFormat) -> None:
    """Each waits until all have begun, so that a limit of connections below their number would stop them."""
    ctx = context(format_)

    async def stream(client: EndpointClient, begun: asyncio.Barrier) -> str:
        async with aclosing(client.stream(ctx)) as items:
            first = await anext(items)
            await begun.wait()
            return shown([first, *[item async for item in items]], Token)

    async def stream_all(server: ModelServer) -> list[str]:
        client, begun = client_of(server, format_), asyncio.Barrier(150)
        try:
            return await asyncio.gather(*(stream(client, begun) for _ in range(150)))
        finally:
            await client.aclose()

    with model_server(reply("one two three four", event_interval_s=0.02)) as server:
        assert set(asyncio.run(stream_all(server))) == {"one two three four"}


async def _wait_for(requests: list[Any]) -> None:
    """Wait until the server's list has a request."""
    for _ in range(500):
        if requests:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no such request")


@each_format
@pytest.mark.parametrize("step", [hang(), reply("one two three", event_interval_s=3_600)])
def test_cancelled_task_closes_the_connection(format_: ReceivedFormat, step: Step) -> None:
    async def cancel(server: ModelServer) -> None:
        client = client_of(server, format_)
        task = asyncio.create_task(client.complete(context(format_)))
        await _wait_for(server.requests)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _wait_for(server.abandoned)
        await client.aclose()

    with model_server(step) as server:
        asyncio.run(cancel(server))
        assert len(server.requests) == len(server.abandoned) == 1


@each_format
def test_closed_stream_closes_the_connection(format_: ReceivedFormat) -> None:
    async def read_one(server: ModelServer) -> None:
        client = client_of(server, format_)
        async with aclosing(client.stream(context(format_))) as items:
            async for item in items:
                assert isinstance(item, Token)
                break
        await _wait_for(server.abandoned)
        await client.aclose()

    with model_server(reply("one two three " * 200, event_interval_s=0.2)) as server:
        asyncio.run(read_one(server))


@each_format
def test_key_is_in_no_text_but_in_the_request(
    format_: ReceivedFormat, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG", logger="nexus")
    with model_server(fail(401, f"Incorrect API key provided: {KEY}")) as server:
        client = client_of(server, format_, api_key=KEY)
        _, error = failed_call(client, context(format_))
    assert KEY in str(server.requests[0].headers)
    for text in (repr(client), repr(client.endpoint), str(error), repr(error), str(nexus.failure_of(error))):
        assert KEY not in text
    assert KEY not in caplog.text + "".join(capfd.readouterr())


def test_short_key_that_no_pattern_finds_is_not_shown_either() -> None:
    with model_server(fail(401, "wrong: opensesame")) as server:
        _, error = failed_call(client_of(server, "openai", api_key="opensesame"), context("openai"))
    assert "opensesame" not in str(error)


def test_retry_texts_have_no_key() -> None:
    with model_server(fail(500, f"failed for {KEY}"), reply("Yes.")) as server:
        items: list[Any] = call(client_of(server, "openai", api_key=KEY, sleeps=Sleeps()), context("openai"))
    assert KEY not in str(items)
