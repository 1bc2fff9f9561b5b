"""The scripted model server, through the providers' own clients and over plain HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import anthropic
import openai
import pytest

import nexus
from nexus.testing import FixedClock, WordCounter
from nexus.testing.model_server import ModelServer, fail, model_server, overflow, reply

PROMPT: Any = [{"role": "user", "content": "hello there"}]
CALL = nexus.ToolCall("call_1", "look", '{"path": "a"}')


def chat(server: ModelServer, **fields: Any) -> Any:
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        return client.chat.completions.create(**{"model": "little", "messages": PROMPT, **fields})


def message(server: ModelServer, **fields: Any) -> Any:
    with anthropic.Anthropic(base_url=server.anthropic_url, api_key="test", max_retries=0) as client:
        return client.messages.create(**{"model": "little", "messages": PROMPT, "max_tokens": 9, **fields})


def test_one_script_answers_both_provider_formats() -> None:
    with model_server(reply("Good morning.", CALL, input_tokens=7)) as server:
        results = [nexus.read_reply(reply) for reply in (chat(server), message(server))]
    assert [request.format for request in server.requests] == ["openai", "anthropic"]
    for result in results:
        assert (result.messages[-1].text(), result.messages[-1].model) == ("Good morning.", "little")
        assert [(c.id, c.name, json.loads(c.arguments)) for c in result.tool_calls] == [
            ("call_1", "look", {"path": "a"})
        ]
        assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 2)


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
    with model_server(reply("Good  morning,\nall.", CALL, other, input_tokens=7)) as server:
        streams = {"openai": chat_chunks(server, stream_options={"include_usage": True})}
        streams["anthropic"] = message_events(server)
        whole = {"openai": chat(server), "anthropic": message(server)}
    for name, events in streams.items():
        reader = nexus.StreamReader(name)  # pyright: ignore[reportArgumentType]
        assert len([*reader.read(events)]) > 9
        assert reader.reply() == nexus.read_reply(whole[name])


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
