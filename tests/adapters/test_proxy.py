"""The providers' own clients through the proxy: plain, streamed, in parallel, and gone in the middle of a reply."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import anthropic
import httpx
import openai
import pytest
import uvicorn

import nexus
from adapters.proxy_adapter import CONVERSATION, proxy
from nexus.testing.model_server import ModelServer, fail, model_server
from support.agent_model import BUDGET, AgentModel, check_ledger, run_figures, said, words

TURNS = 20
MOST_CALLS = 6
SYSTEM = "You are careful. " * 20
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


@contextmanager
def proxy_server(nx: nexus.Engine, provider: ModelServer, budget: int = BUDGET) -> Iterator[str]:
    """Run the proxy in a thread and give its URL."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        client = httpx.AsyncClient(base_url=provider.anthropic_url)
        app = proxy(nexus.AsyncEngine(nx), client, budget=budget)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))

        async def serve() -> None:
            async with client:
                await server.serve([listening])

        thread = Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def talk_openai(url: str, *, stream: bool) -> list[Any]:
    """Hold a conversation with the package's client and return its messages."""
    tool: Any = {"type": "function", "function": {"name": "lookup", "description": "Looks up.", "parameters": SCHEMA}}
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"Turn {turn}: {words(30, str(turn))}"})
            for _ in range(MOST_CALLS):
                asked: Any = {"model": "gpt-4o", "messages": messages, "tools": [tool]}
                if stream:
                    with client.chat.completions.stream(**asked) as events:
                        message = events.get_final_completion().choices[0].message
                else:
                    message = client.chat.completions.create(**asked).choices[0].message
                messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
                for call in message.tool_calls or ():
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": words(300, call.id)})
                if not message.tool_calls:
                    break
    while messages[-1]["role"] == "tool":  # results of the last call, which no request has sent
        messages.pop()
    return messages


def talk_anthropic(url: str, *, stream: bool) -> list[Any]:
    """Hold a conversation as Claude Code does: breakpoints on tools, system and the newest message, reminders."""
    tool: Any = {"name": "lookup", "description": "Looks up.", "input_schema": SCHEMA, **BREAKPOINT}
    system: Any = [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": SYSTEM, **BREAKPOINT}]
    messages: list[Any] = []
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        for turn in range(TURNS):
            texts = ("<system-reminder>Be brief.</system-reminder>", f"Turn {turn}: {words(30, str(turn))}")
            messages.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
            for _ in range(MOST_CALLS):
                newest = {**messages[-1], "content": [*messages[-1]["content"]]}
                newest["content"][-1] = {**newest["content"][-1], **BREAKPOINT}
                asked: Any = {
                    "max_tokens": 900,
                    "messages": [*messages[:-1], newest],
                    "tools": [tool],
                    "system": system,
                }
                if stream:
                    with client.messages.stream(model="claude-sonnet-5-5", **asked) as events:
                        message = events.get_final_message()
                else:
                    message = client.messages.create(model="claude-sonnet-5-5", **asked)
                messages.append(
                    {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]}
                )
                calls = [block for block in message.content if block.type == "tool_use"]
                if not calls:
                    break
                results = [{"type": "tool_result", "tool_use_id": c.id, "content": words(300, c.id)} for c in calls]
                messages.append({"role": "user", "content": results})
    if messages[-1]["role"] == "user":  # results of the last call, which no request has sent
        messages.pop()
    return messages


@pytest.mark.parametrize("mode", ["plain", "streamed"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_client_stays_in_budget_and_loses_nothing(client: Any, mode: str, record_property: Callable[..., None]) -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx, model_server(model) as provider:
        talk = talk_openai if client == "openai" else talk_anthropic
        with proxy_server(nx, provider) as url:  # its end waits for the record of the last answer
            messages = nexus.read_messages(talk(url, stream=mode == "streamed"), client)
        record_property("figures", run_figures(f"proxy {client} {mode}", model, nx, messages))


async def ask(client: openai.AsyncOpenAI, messages: list[Any], *, stream: bool = False) -> list[Any]:
    """Send messages and return them with the reply."""
    if not stream:
        completion = await client.chat.completions.create(model="gpt-4o", messages=messages)
        return [*messages, completion.choices[0].message.model_dump(exclude_none=True)]
    reader = nexus.StreamReader("openai")
    async for _ in reader.aread(await client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)):
        pass
    return [*messages, {"role": "assistant", "content": reader.reply().messages[0].text()}]


def test_identical_requests_in_parallel_are_one_session() -> None:
    model = AgentModel()

    async def converse(url: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            messages: list[Any] = []
            for turn in range(4):
                event = {"role": "user", "content": f"Turn {turn}"}
                sent = [ask(client, [*messages, event], stream=bool(number % 2)) for number in range(8)]
                messages, *others = await asyncio.gather(*sent)
                assert all(other == messages for other in others)
            return messages

    with nexus.open(ledger=":memory:") as nx, model_server(model) as provider, proxy_server(nx, provider) as url:
        messages = asyncio.run(converse(url))
        check_ledger(nx, nexus.read_messages(messages, "openai"))
    assert len(model.bodies) == 32


def test_different_requests_in_parallel_are_branches() -> None:
    model = AgentModel()

    async def converse(url: str) -> list[list[Any]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            messages = await ask(client, [{"role": "user", "content": "Hello"}])
            events = [{"role": "user", "content": f"Branch {number}"} for number in range(6)]
            return await asyncio.gather(*(ask(client, [*messages, event]) for event in events))

    with nexus.open(ledger=":memory:") as nx, model_server(model) as provider, proxy_server(nx, provider) as url:
        branches = [said(nexus.read_messages(messages, "openai")) for messages in asyncio.run(converse(url))]
        stored = [said(nx.history(session.label)) for session in nx.sessions()]
        assert sorted(stored) == sorted(branches)


@pytest.mark.parametrize("keeps_text", [False, True])
def test_client_that_leaves_can_ask_again(*, keeps_text: bool) -> None:
    slow, fast = AgentModel(byte_interval_s=0.0005), AgentModel()

    async def leave(client: openai.AsyncOpenAI, messages: list[Any]) -> list[Any]:
        """Return the messages after the client went away: with the text that it has seen, or without."""
        stream, text = await client.chat.completions.create(model="gpt-4o", messages=messages, stream=True), ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if len(text) > 20:
                break
        await stream.close()
        seen = [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        return [*messages, *seen] if keeps_text else messages

    async def converse(url: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            messages: list[Any] = []
            for turn in range(3):
                messages = [*messages, {"role": "user", "content": f"Turn {turn}"}]
                messages = await ask(client, await leave(client, messages), stream=True)
            return messages

    with (
        nexus.open(ledger=":memory:") as nx,
        model_server(*(slow, fast) * 3) as provider,
        proxy_server(nx, provider) as url,
    ):
        messages = asyncio.run(converse(url))
        check_ledger(nx, nexus.read_messages(messages, "openai"))
    assert [len(model.bodies) for model in (slow, fast)] == [3, 3]


def test_conversation_of_the_header_is_a_session_of_its_own() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(AgentModel()) as provider, proxy_server(nx, provider) as url:
        for name in CONVERSATION:
            headers = {name: f"id of {name}"}
            with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, default_headers=headers) as client:
                client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
        labels = {session.label.partition("~")[0] for session in nx.sessions()}
    assert labels == {f"mirror/id of {name}" for name in CONVERSATION}


def test_errors_are_passed_on_and_nothing_is_stored() -> None:
    messages: Any = [{"role": "user", "content": words(100, "long")}]
    with nexus.open(ledger=":memory:") as nx, model_server(fail(429, "slow down")) as provider:
        with (
            proxy_server(nx, provider) as url,
            openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
            pytest.raises(openai.RateLimitError, match="slow down"),
        ):
            client.chat.completions.create(model="gpt-4o", messages=messages)
        with (
            proxy_server(nx, provider, budget=40) as url,
            anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude,
            pytest.raises(anthropic.BadRequestError, match="budget"),
        ):
            claude.messages.create(model="claude-sonnet-5-5", messages=messages, max_tokens=9)
        assert nx.sessions() == []
