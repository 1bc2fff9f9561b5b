"""The scripted model server, through the providers' own clients and over plain HTTP."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from typing import Any, get_args

import anthropic
import httpx
import openai
import pytest
from google import genai
from google.genai import errors as gemini_errors

import nexus
from nexus.testing import FixedClock, WordCounter
from nexus.testing.model_server import (
    ModelServer,
    StreamFault,
    break_stream,
    fail,
    hang,
    model_server,
    overflow,
    reply,
)
from nexus.testing.scripted_replies import Format

PROMPT: Any = [{"role": "user", "content": "hello there"}]
CALL = nexus.ToolCall("call_1", "look", '{"path": "a"}')


def chat(server: ModelServer, **fields: Any) -> Any:
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        return client.chat.completions.create(**{"model": "little", "messages": PROMPT, **fields})


def message(server: ModelServer, **fields: Any) -> Any:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="test", max_retries=0) as client:
        return client.messages.create(**{"model": "little", "messages": PROMPT, "max_tokens": 9, **fields})


def responses(server: ModelServer, *, stream: bool = False) -> Any:
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        result: Any = client.responses.create(model="little", input="hello there", stream=stream)
        return [*result] if stream else result


def gemini(server: ModelServer, *, stream: bool = False) -> Any:
    with genai.Client(api_key="test", http_options={"base_url": server.gemini_url}) as client:
        if stream:
            return [*client.models.generate_content_stream(model="little", contents="hello there")]
        return client.models.generate_content(model="little", contents="hello there")


def test_failures_need_no_words() -> None:
    with model_server(fail(429), fail(529), overflow(12_000)) as server:
        with pytest.raises(openai.RateLimitError, match="Too Many Requests"):
            chat(server)
        with pytest.raises(anthropic.APIStatusError, match="529"):
            message(server)
        with pytest.raises(openai.BadRequestError, match=r"12000 tokens.*13200"):
            chat(server)
    with pytest.raises(ValueError, match="status 200"):
        fail(200)


def test_one_script_answers_all_provider_formats() -> None:
    with model_server(reply("Good morning.", CALL, input_tokens=7)) as server:
        replies = (chat(server), responses(server), message(server), gemini(server))
        results = [nexus.read_reply(reply) for reply in replies]
    assert [request.format for request in server.requests] == list(get_args(Format))
    assert {request.model for request in server.requests} == {"little"}
    for result in results:
        assert (result.messages[-1].text(), result.messages[-1].model) == ("Good morning.", "little")
        assert [(c.id, c.name, json.loads(c.arguments)) for c in result.tool_calls] == [
            ("call_1", "look", {"path": "a"})
        ]
        assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 2)


def test_reply_id_tells_replies_apart() -> None:
    with model_server(reply("one", reply_id="a"), reply("two", reply_id="b")) as server:
        assert [message(server).id, message(server).id] == ["msg_a", "msg_b"]
        assert [chat(server).id, responses(server).id] == ["chatcmpl-b", "resp_b"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["tools", "input"])
def test_call_of_custom_tool_has_text(place: str, *, stream: bool) -> None:
    tool: Any = {"type": "custom", "name": "run", "description": "Runs a script."}
    listed: Any = [{"type": "additional_tools", "role": "developer", "tools": [tool]}] if place == "input" else []
    asked: Any = {"input": [*listed, *PROMPT], **({"tools": [tool]} if place == "tools" else {})}
    with (
        model_server(reply("I run it.", nexus.ToolCall("call_1", "run", "text(1)"))) as server,
        openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client,
    ):
        result: Any = client.responses.create(model="little", stream=stream, **asked)
        response = [*result][-1].response if stream else result
    call = response.output[-1]
    assert (call.type, call.name, call.call_id, call.input) == ("custom_tool_call", "run", "call_1", "text(1)")


@pytest.mark.parametrize("stream", [False, True])
def test_gemini_call_without_id_has_none(*, stream: bool) -> None:
    with model_server(reply(None, nexus.ToolCall("", "look", "{}"))) as server:
        result = gemini(server, stream=stream)
    parts = (result[0] if stream else result).candidates[0].content.parts
    assert (parts[0].function_call.name, parts[0].function_call.id) == ("look", None)


def test_last_step_answers_all_further_requests() -> None:
    with model_server(reply("one"), reply("two")) as server:
        texts = [chat(server).choices[0].message.content for _ in range(3)]
        assert texts == ["one", "two", "two"]
        server.script()
        assert message(server).content[0].text == "ok"
    assert len(server.bodies) == 4


def test_errors_are_the_clients_own_classes() -> None:
    with model_server(fail(429, "slow down")) as server:
        with pytest.raises(openai.RateLimitError, match="slow down"):
            chat(server)
        with pytest.raises(anthropic.RateLimitError, match="slow down"):
            message(server)


def chat_chunks(server: ModelServer, **fields: Any) -> list[Any]:
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        return [*client.chat.completions.create(model="little", messages=PROMPT, stream=True, **fields)]


def message_events(server: ModelServer) -> list[Any]:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="test", max_retries=0) as client:
        return [*client.messages.create(model="little", messages=PROMPT, max_tokens=9, stream=True)]


def test_stream_is_the_same_reply_in_pieces() -> None:
    other = nexus.ToolCall("call_2", "wait", "{}")
    counts = {"input_tokens": 70, "cache_read_tokens": 40, "output_tokens": 20, "reasoning_tokens": 9}
    with model_server(reply("Good  morning,\nall.", CALL, other, thinking="It is early.", **counts)) as server:
        streams = {"openai": chat_chunks(server, stream_options={"include_usage": True})}
        streams |= {"anthropic": message_events(server), "gemini": gemini(server, stream=True)}
        streams["responses"] = responses(server, stream=True)
        whole = {"openai": chat(server), "anthropic": message(server), "gemini": gemini(server)}
        whole["responses"] = responses(server)
    for name, events in streams.items():
        reader = nexus.StreamReader(name)  # pyright: ignore[reportArgumentType]
        assert len([*reader.pass_events(events)]) > 5
        assert reader.reply() == nexus.read_reply(whole[name])
        assert reader.reply().usage == nexus.TokenUsage(70, 20, 40, 0, 9)


@pytest.mark.parametrize("fault", get_args(StreamFault))
@pytest.mark.parametrize("format_", get_args(Format))
def test_broken_stream_is_no_complete_reply(format_: Format, fault: StreamFault) -> None:
    whole = reply("one two three four five six")
    streams: dict[str, Any] = {
        "openai": chat_chunks,
        "responses": lambda server: responses(server, stream=True),
        "anthropic": message_events,
        "gemini": lambda server: gemini(server, stream=True),
    }
    with model_server(break_stream(whole, fault, after=4)) as server:
        try:
            events = streams[format_](server)
        except Exception as error:  # noqa: BLE001 - each client has its own
            assert fault != "end", error
            assert not isinstance(error, (AssertionError, KeyError)), error
            return
    reader = nexus.StreamReader(format_)
    assert len([*reader.pass_events(events)]) == 4 + (fault == "error") - (
        format_ == "anthropic"
    )  # pings are not passed on
    assert not reader.is_complete


def test_errors_of_gemini_are_the_clients_own_classes() -> None:
    with model_server(overflow(1_000, 2_000), fail(503, "The model is overloaded.")) as server:
        with pytest.raises(gemini_errors.ClientError, match=r"input token count \(2000\) exceeds"):
            gemini(server)
        with pytest.raises(gemini_errors.ServerError, match="UNAVAILABLE"):
            gemini(server)


def test_server_streams_to_hundreds_of_clients_at_once() -> None:
    async def stream(client: httpx.AsyncClient, url: str, started: asyncio.Barrier) -> str:
        body = {"model": "m", "messages": PROMPT, "stream": True}
        async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
            pieces = response.aiter_text()
            first = await anext(pieces)
            await started.wait()  # until all streams have begun
            return first + "".join([piece async for piece in pieces])

    async def stream_all(url: str) -> set[str]:
        limits, started = httpx.Limits(max_connections=None), asyncio.Barrier(200)
        async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:
            return set(await asyncio.gather(*(stream(client, url, started) for _ in range(200))))

    with model_server(reply("one two three", event_interval_s=0.05)) as server:
        (text,) = asyncio.run(stream_all(server.openai_url))
    assert len(server.requests) == 200
    assert text.endswith("[DONE]\n\n")


@pytest.mark.parametrize("step", [hang(), reply("one two three", event_interval_s=5)])
def test_client_that_closes_its_connection_is_noted(step: Any) -> None:
    body = {"model": "m", "messages": PROMPT, "stream": True}
    with model_server(step) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.openai_url}/chat/completions", json=body, timeout=0.2, trust_env=False)
        for _ in range(500):
            if not server.abandoned:
                time.sleep(0.01)
    assert len(server.abandoned) == 1


def test_chat_stream_has_usage_only_on_request() -> None:
    with model_server(reply("Good morning.")) as server:
        assert [chunk.usage for chunk in chat_chunks(server)] == [None] * 4


def test_other_paths_are_not_found() -> None:
    with model_server() as server:
        request = urllib.request.Request(f"{server.anthropic_url}/v1/other", b"{}")
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(request)
        caught.value.close()
    assert server.requests == []


@pytest.mark.parametrize("format_", ["openai", "anthropic"])
def test_engine_recovers_from_a_scripted_overflow(format_: str) -> None:
    nx = nexus.open(
        ledger=":memory:",
        model="our-model",
        models={"our-model": {"context_tokens": 20_000, "wire": format_}},
        clock_ms=FixedClock(),
        counter=WordCounter(),
    )
    for number in range(6):
        ctx = nx.assemble(f"question {number} " + "word " * 400)
        nx.record(ctx, nexus.AgentResult((nexus.assistant("yes " * 400),)))
    with model_server(overflow(4_000, 5_000), reply("done", input_tokens=3_000)) as server, nx:

        def send(ctx: nexus.AssembledContext) -> Any:
            return chat(server, **ctx.to_openai()) if format_ == "openai" else message(server, **ctx.to_anthropic())

        done = nexus.call(nx, "and now?", send)
    assert (done.result.messages[-1].text(), len(done.attempts), len(server.requests)) == ("done", 2, 2)
    assert len(server.requests[1].data) < len(server.requests[0].data)


def test_clock_changes_only_when_set_or_advanced() -> None:
    clock = FixedClock(5)
    assert (clock(), clock()) == (5, 5)
    clock.advance(10)
    assert clock() == 15


def test_counter_counts_words() -> None:
    assert [WordCounter().count(text) for text in ("", " \n", "two words", "a\tb c")] == [0, 0, 2, 3]
