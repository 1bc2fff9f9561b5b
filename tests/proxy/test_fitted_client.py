"""`nexus.fitted`: client objects of the packages `openai` and `anthropic`, with the same methods, fitted and recorded."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from anthropic.lib.bedrock import AnthropicBedrock
from PIL import Image
from pydantic import BaseModel

import nexus
from cli.running import run as run_command
from nexus.errors import BadSetting
from nexus.testing.model_server import Step, break_stream, disconnect, fail, model_server, overflow, reply
from support.agent_model import BUDGET, AgentModel, check_ledger, said, words

TURNS = 20
OPENAI_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "lookup", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}},
}
ANTHROPIC_TOOL: dict[str, Any] = {"name": "lookup", "description": "Looks up.", "input_schema": {"type": "object"}}
SYSTEM = "You are careful. " * 20


@pytest.fixture(params=["memory", "file"])
def nx(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[nexus.Engine]:
    """An engine with a ledger in memory, and one with a file."""
    ledger = ":memory:" if request.param == "memory" else tmp_path / "ledger.db"
    with nexus.open(ledger=ledger) as opened:
        yield opened


def picture() -> str:
    data = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes the clients of a test."""
    yield
    while OPENED:
        OPENED.pop().close()


def openai_client(url: str, max_retries: int = 0, http_client: Any = None) -> Any:
    OPENED.append(openai.OpenAI(base_url=url, api_key="k", max_retries=max_retries, http_client=http_client))
    return OPENED[-1]


def anthropic_client(url: str) -> Any:
    OPENED.append(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
    return OPENED[-1]


def user_text(turn: int) -> str:
    return f"Turn {turn}: {words(30, str(turn))}"


def openai_turns(client: Any, messages: list[Any], turns: int) -> None:
    """Go on with a conversation as a program without a framework does, with every kind of call in turn."""
    for turn in range(turns):
        parts: list[Any] = [{"type": "text", "text": user_text(turn)}]
        if turn == 2:
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture()}"}})
        messages.append({"role": "user", "content": parts if turn == 2 else user_text(turn)})
        while True:
            options: dict[str, Any] = {
                "model": "gpt-4o",
                "messages": [{"role": "system", "content": SYSTEM}, *messages],
                "tools": [OPENAI_TOOL],
            }
            match turn % 3:
                case 0:
                    message = client.chat.completions.create(**options).choices[0].message
                case 1:
                    with client.chat.completions.stream(**options) as stream:
                        for _ in stream:
                            pass
                        message = stream.get_final_completion().choices[0].message
                case _:
                    message = client.chat.completions.with_raw_response.create(**options).parse().choices[0].message
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            if not message.tool_calls:
                break
            messages.extend(
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": words(300, call.id) if number else "Error: no such index",
                }
                for number, call in enumerate(message.tool_calls)
            )


def anthropic_turns(client: Any, messages: list[Any], turns: int) -> None:
    """The same with Anthropic's methods."""
    for turn in range(turns):
        content: Any = user_text(turn)
        if turn == 2:
            source = {"type": "base64", "media_type": "image/png", "data": picture()}
            content = [{"type": "text", "text": content}, {"type": "image", "source": source}]
        messages.append({"role": "user", "content": content})
        while True:
            options: dict[str, Any] = {
                "model": "claude-opus-5-5",
                "max_tokens": 500,
                "system": SYSTEM,
                "messages": messages,
                "tools": [ANTHROPIC_TOOL],
            }
            if turn % 2:
                with client.messages.stream(**options) as stream:
                    message: Any = stream.get_final_message()
            else:
                message = client.messages.create(**options)
            messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                break
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": words(300, call.id), "is_error": not number}
                for number, call in enumerate(calls)
            ]
            messages.append({"role": "user", "content": results})


def test_twenty_turns_of_openai_are_valid_in_budget_and_lose_nothing(
    nx: nexus.Engine, record_property: Callable[..., None]
) -> None:
    model = AgentModel()
    messages: list[Any] = []
    with model_server(model) as server:
        openai_turns(nexus.fitted(openai_client(server.openai_url), nx, budget=BUDGET), messages, TURNS)
    model.check_requests()
    stored = check_ledger(nx, nexus.read_messages(messages, "openai"))
    record_property("figures", {"calls": len(model.bodies), "largest": max(model.tokens), "stored": stored})


def test_twenty_turns_of_anthropic_are_valid_in_budget_and_lose_nothing(nx: nexus.Engine) -> None:
    model = AgentModel()
    messages: list[Any] = []
    with model_server(model) as server:
        anthropic_turns(nexus.fitted(anthropic_client(server.anthropic_url), nx, budget=BUDGET), messages, TURNS)
    model.check_requests()
    check_ledger(nx, nexus.read_messages(messages, "anthropic"))


def test_edit_of_an_earlier_message_is_a_branch(nx: nexus.Engine) -> None:
    model = AgentModel()
    messages: list[Any] = []
    with model_server(model) as server:
        client = nexus.fitted(openai_client(server.openai_url), nx, budget=BUDGET)
        openai_turns(client, messages, 3)
        kept = messages[: next(at for at, item in enumerate(messages) if item["content"] == user_text(1))]
        edited = [*kept, {"role": "user", "content": "Something else."}]
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "system", "content": SYSTEM}, *edited])
    branch, trunk = nx.sessions()
    assert said(nx.history(trunk.label)) == said(nexus.read_messages(messages, "openai"))
    assert said(nx.history(branch.label))[:-1] == said(nexus.read_messages(edited, "openai"))
    assert not model.problems


def test_request_that_is_valid_and_fits_is_sent_byte_for_byte() -> None:
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.read())
        return httpx2.Response(
            200, json={"object": "response", "output": [], "status": "completed", "id": "r", "model": "m"}
        )

    options: Any = {"model": "gpt-4.1", "input": [{"role": "user", "content": "Grüße"}], "metadata": {"a": "b"}}
    with nexus.open(ledger=":memory:") as nx:
        for wraps in (False, True):
            plain = openai_client("http://provider", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
            client = nexus.fitted(plain, nx, budget=9_000) if wraps else plain
            client.responses.create(**options)
    first, second = bodies
    assert first == second


def test_other_requests_are_unchanged(nx: nexus.Engine) -> None:
    seen: list[tuple[str, bytes]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.path, request.read()))
        return httpx2.Response(200, json={"object": "list", "data": [], "model": "m"})

    plain = openai_client("http://provider", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    for client in (plain, nexus.fitted(plain, nx, budget=10)):
        assert client.embeddings.create(model="m", input="Grüße", encoding_format="float").data == []
        assert [*client.models.list()] == []
    assert seen[:2] == seen[2:]
    assert nx.sessions() == []


class Answer(BaseModel):
    """A structured output."""

    text: str


def test_parsed_and_asynchronous_calls_return_the_packages_own_types(nx: nexus.Engine) -> None:
    async def ask(url: str) -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as plain:
            client = nexus.fitted(plain, nexus.AsyncEngine(nx), conversation="a")
            question: Any = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hello"}]}
            parsed = await client.chat.completions.parse(**question, response_format=Answer)
            assert parsed.choices[0].message.parsed == Answer(text="Hi.")
            question["messages"] += [
                {"role": "assistant", "content": '{"text": "Hi."}'},
                {"role": "user", "content": "More"},
            ]
            chunks = [chunk async for chunk in await client.chat.completions.create(**question, stream=True)]
            assert (
                "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == '{"text": "Hi."}'
            )

    with model_server(reply('{"text": "Hi."}')) as server:
        asyncio.run(ask(server.openai_url))
    (session,) = nx.sessions()
    assert session.turns == 2


def test_request_over_the_budget_raises_the_packages_error_and_is_not_sent(nx: nexus.Engine) -> None:
    with model_server(reply("Yes.")) as server:
        client = nexus.fitted(openai_client(server.openai_url, max_retries=2), nx, budget=500)
        with pytest.raises(openai.BadRequestError, match="maximum context length is 500 tokens") as raised:
            client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": words(900, "a")}])
        assert raised.value.code == "context_length_exceeded"
        claude = nexus.fitted(anthropic_client(server.anthropic_url), nx, budget=500)
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            claude.messages.create(
                model="claude-opus-5-5", max_tokens=9, messages=[{"role": "user", "content": words(900, "a")}]
            )
        assert server.requests == []
    assert nx.sessions() == []


def test_broken_history_is_healed(nx: nexus.Engine) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    broken: list[Any] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": "And?"},
    ]
    model = AgentModel()
    with model_server(model) as server:
        answer = nexus.fitted(openai_client(server.openai_url), nx).chat.completions.with_raw_response.create(
            model="gpt-4o", messages=broken
        )
    assert not model.problems
    assert answer.headers["x-nexus-outcome"] == "healed"


@pytest.mark.parametrize(
    "step",
    [
        fail(500),
        fail(429),
        overflow(100, 900),
        disconnect(),
        break_stream(reply("A long answer that breaks."), "error", after=3),
    ],
)
def test_failed_call_leaves_nothing_and_the_next_one_is_right(nx: nexus.Engine, step: Step) -> None:
    question: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with model_server(step, reply("Hi.")) as server:
        client = nexus.fitted(openai_client(server.openai_url), nx, budget=9_000)
        with pytest.raises((openai.OpenAIError, httpx2.HTTPError)):
            for _ in client.chat.completions.create(**question):
                pass
        assert nx.sessions() == []
        assert [chunk.choices[0].delta.content for chunk in client.chat.completions.create(**question) if chunk.choices]
    (session,) = nx.sessions()
    assert said(nx.history(session.label)) == [("user", "Hello"), ("assistant", "Hi.")]


def test_stream_without_an_end_is_not_recorded(nx: nexus.Engine) -> None:
    question: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with model_server(break_stream(reply("A long answer that breaks."), "end", after=3)) as server:
        client = nexus.fitted(openai_client(server.openai_url), nx, budget=9_000)
        assert [*client.chat.completions.create(**question)]
    assert nx.sessions() == []


def test_packages_own_retries_record_one_call(nx: nexus.Engine) -> None:
    with model_server(fail(500), fail(429), reply("Hi.")) as server:
        client = nexus.fitted(openai_client(server.openai_url, max_retries=2), nx, budget=9_000)
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
        assert len(server.requests) == 3
    (session,) = nx.sessions()
    assert said(nx.history(session.label)) == [("user", "Hello"), ("assistant", "Hi.")]


def test_client_that_stops_reading_closes_the_connection_and_records_nothing(nx: nexus.Engine) -> None:
    with model_server(reply("A long answer. " * 40, event_interval_s=0.01)) as server:
        client = nexus.fitted(openai_client(server.openai_url), nx)
        question: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
        with client.chat.completions.create(**question, stream=True) as stream:
            next(iter(stream))
    assert nx.sessions() == []


def test_conversations_and_users_never_meet(nx: nexus.Engine) -> None:
    question: Any = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
    with model_server(reply("Hi.")) as server:
        plain = openai_client(server.openai_url)
        for principal in ("ann", "bob"):
            for conversation in ("a", "b"):
                client = nexus.fitted(plain, nx, principal=principal, conversation=conversation)
                client.chat.completions.create(**question)
        client = nexus.fitted(plain, nx, principal="ann")
        client.chat.completions.create(**question, extra_headers={"x-nexus-conversation": "c"})
        client.chat.completions.create(**question, prompt_cache_key="d")
        assert all("x-nexus-conversation" not in request.headers for request in server.requests)
    names = sorted(session.label.partition("~")[0] for session in nx.sessions())
    assert names == ["openai/a", "openai/a", "openai/b", "openai/b", "openai/c", "openai/d"]


def test_calls_at_once_of_several_threads_are_all_recorded(nx: nexus.Engine) -> None:
    with model_server(reply("Hi.", event_interval_s=0.002)) as server:
        client = nexus.fitted(openai_client(server.openai_url), nx, budget=9_000)

        def converse(name: str) -> None:
            messages: list[Any] = []
            for turn in range(4):
                messages.append({"role": "user", "content": f"{name} {turn}"})
                answer = client.chat.completions.create(
                    model="gpt-4o", messages=messages, extra_headers={"x-nexus-conversation": name}
                )
                messages.append({"role": "assistant", "content": answer.choices[0].message.content})

        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(converse, [f"user-{number}" for number in range(8)]):
                pass
    histories = [said(nx.history(session.label)) for session in nx.sessions()]
    assert sorted(len(history) for history in histories) == [8] * 8
    for history in histories:
        assert len({text.split()[0] for role, text in history if role == "user"}) == 1


@pytest.mark.parametrize("http", [httpx, httpx2])
def test_own_http_client_is_used_with_its_hooks(nx: nexus.Engine, http: Any) -> None:
    seen: list[str] = []

    def note(request: Any) -> None:
        seen.append(request.url.path)

    with (
        model_server(reply("Hi.")) as server,
        http.Client(event_hooks={"request": [note]}) as own,
    ):
        plain = openai.OpenAI(base_url=server.openai_url, api_key="k", http_client=own)
        with nexus.fitted(plain, nx) as client:
            client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
        assert not own.is_closed
    assert seen == ["/v1/chat/completions"]


def test_answer_arrives_although_it_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with model_server(reply("Hi.")) as server, caplog.at_level(logging.WARNING, "nexus.fitted"):
        nx = nexus.open(ledger=tmp_path / "ledger.db")
        client = nexus.fitted(openai_client(server.openai_url), nx)
        nx.close()
        answer = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
    assert answer.choices[0].message.content == "Hi."
    assert "not recorded" in caplog.text


def test_calls_can_be_explained_and_replayed(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    messages: list[Any] = []
    with nexus.open(ledger=ledger) as nx, model_server(AgentModel()) as server:
        openai_turns(nexus.fitted(openai_client(server.openai_url), nx, budget=BUDGET), messages, 8)
        sent = server.requests[-1].body
        client = nexus.fitted(openai_client(server.openai_url), nx, budget=BUDGET)
        answer = client.chat.completions.with_raw_response.create(
            model="gpt-4o",
            messages=[{"role": "system", "content": SYSTEM}, *messages, {"role": "user", "content": "And?"}],
        )
        sent = server.requests[-1].body
    call_id = answer.headers["x-nexus-call"]
    options = ("--ledger", str(ledger))
    explained = run_command("explain", "--call", call_id, *options, folder=tmp_path)
    assert "over the budget" in explained.out
    replayed = run_command("replay", "--call", call_id, *options, "--json", folder=tmp_path).json
    assert replayed["body"]["messages"] == sent["messages"]
    (label,) = {session.label for session in nexus.open(ledger=ledger).sessions()}
    for command in (("context", label), ("cache", "show", label)):
        assert run_command(*command, *options, folder=tmp_path).code == 0


@pytest.mark.parametrize("client", [object(), AnthropicBedrock(aws_region="x", aws_access_key="k", aws_secret_key="s")])
def test_other_objects_are_refused(nx: nexus.Engine, client: object) -> None:
    with pytest.raises(BadSetting, match=r"use nx\.mirror"):
        nexus.fitted(client, nx)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True])
def test_wrong_budget_is_refused(nx: nexus.Engine, budget: Any) -> None:
    with pytest.raises(BadSetting, match="no number of tokens"):
        nexus.fitted(openai_client("http://provider"), nx, budget=budget)
