"""Agents of Microsoft's agent-framework with the middleware, against a model that judges every request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    prepend_instructions_to_messages,
    tool,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import nexus
from adapters.test_langchain import DATA, JSON, SENTENCES, TEXTS, Steps, png
from cli.running import run
from nexus.adapters.agent_framework import NexusChatMiddleware
from nexus.adapters.agent_framework_messages import neutral_message, restored_message
from nexus.testing.model_server import fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, words

TURNS = 20


def chat_message(message: Message) -> Iterator[dict[str, Any]]:
    """Yield a message as chat completions have it, with the author's name as the framework's own client sends it."""
    results = [content for content in message.contents if content.type == "function_result"]
    for result in results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.result}
    if results:
        return
    item: dict[str, Any] = {"role": message.role, "content": []}
    if message.author_name and message.role != "tool":
        item["name"] = message.author_name
    for content in message.contents:
        if content.type == "text":
            item["content"].append({"type": "text", "text": content.text})
        elif content.type in ("data", "uri"):
            item["content"].append({"type": "image_url", "image_url": {"url": content.uri}})
        elif content.type == "function_call":
            function = {"name": content.name, "arguments": content.arguments}
            item.setdefault("tool_calls", []).append({"id": content.call_id, "type": "function", "function": function})
    yield item if item["content"] else {**item, "content": None}


def contents_of(text: str | None, calls: Any) -> list[Content]:
    contents = [Content.from_text(text)] if text else []
    return contents + [
        Content.from_function_call(c.id, c.function.name, arguments=c.function.arguments) for c in calls or ()
    ]


def usage_of(usage: Any) -> Any:
    details = usage.prompt_tokens_details
    return {
        "input_token_count": usage.prompt_tokens,
        "output_token_count": usage.completion_tokens,
        "cache_read_input_token_count": details.cached_tokens if details else 0,
    }


class LoopbackClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[type-arg]
    """A chat client of the framework for chat completions."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.model = "gpt-4o"
        self.url = url

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Any:
        listed = prepend_instructions_to_messages(list(messages), options.get("instructions"))
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [item for message in listed for item in chat_message(message)],
        }
        if tools := options.get("tools"):
            body["tools"] = [one.to_json_schema_spec() for one in tools]
        if stream:
            return self._build_response_stream(self._stream(body))
        return self._answer(body)

    async def _answer(self, body: dict[str, Any]) -> ChatResponse:
        async with openai.AsyncOpenAI(base_url=self.url, api_key="k", max_retries=0) as client:
            done = await client.chat.completions.create(**body)
        message = Message("assistant", contents_of(done.choices[0].message.content, done.choices[0].message.tool_calls))
        return ChatResponse(
            messages=[message],
            model=done.model,
            finish_reason=done.choices[0].finish_reason,  # type: ignore[arg-type]
            usage_details=usage_of(done.usage),
        )

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[ChatResponseUpdate]:
        async with openai.AsyncOpenAI(base_url=self.url, api_key="k", max_retries=0) as client:
            calls: dict[int, Any] = {}
            more = {"stream": True, "stream_options": {"include_usage": True}}
            async for chunk in await client.chat.completions.create(**body, **more):
                if chunk.usage:
                    yield ChatResponseUpdate(contents=[Content.from_usage(usage_of(chunk.usage))], role="assistant")
                for choice in chunk.choices:
                    for part in choice.delta.tool_calls or ():
                        if part.index in calls:
                            calls[part.index].function.arguments += part.function.arguments or ""
                        else:
                            calls[part.index] = part
                    reason: Any = choice.finish_reason
                    contents = contents_of(choice.delta.content, calls.values() if reason else ())
                    yield ChatResponseUpdate(contents=contents, role="assistant", finish_reason=reason, model="gpt-4o")


@contextmanager
def clients(model: Any) -> Iterator[LoopbackClient]:
    with model_server(model) as server:
        yield LoopbackClient(server.openai_url)


@tool(approval_mode="never_require")
def lookup(query: str) -> str:
    """Look something up."""
    if len(query) % 7 == 0:
        raise ValueError("The index is away.")
    return words(300, query)


def stored(nx: nexus.Engine, label: str) -> list[dict[str, Any]]:
    return [plain(restored_message(message)) for message in nx.history(label)]


def plain(message: Message) -> dict[str, Any]:
    """Return a message without what the agent adds after the call: its name, and ids of its own for calls."""
    fields = message.to_dict()
    fields.pop("author_name", None)
    for content in fields["contents"]:
        content.pop("id", None)
    return fields


def session_messages(session: AgentSession) -> list[Message]:
    return session.state["in_memory"]["messages"]


@pytest.mark.parametrize("mode", ["plain", "streamed"])
def test_twenty_turns_are_valid_in_budget_and_lossless(
    mode: str, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    model = AgentModel()
    ledger = tmp_path / "ledger.db"

    async def converse(nx: nexus.Engine, client: LoopbackClient) -> None:
        middleware = [NexusChatMiddleware(nx, budget=BUDGET)]
        agent = Agent(client, "You are careful. " * 20, name="Ann", tools=[lookup], middleware=middleware)
        session = agent.create_session()

        async def ask(message: Message) -> None:
            if mode == "plain":
                await agent.run(message, session=session)
            else:
                stream = agent.run(message, session=session, stream=True)
                assert [update async for update in stream]

        for turn in range(TURNS):
            contents: list[Any] = [f"Turn {turn}: {words(30, str(turn))}"]
            if turn % 6 == 3:
                contents.append(Content.from_uri(f"data:image/png;base64,{png(str(turn))}", media_type="image/png"))
            await ask(Message("user", contents))
        before = [plain(message) for message in session_messages(session)]
        (first,) = nx.sessions()
        assert stored(nx, first.label) == before
        figures = {"calls": len(model.bodies), "extended": model.extended, "largest request": max(model.tokens)}
        assert figures["extended"] > figures["calls"] * 0.7
        results = [c for m in session_messages(session) for c in m.contents if c.type == "function_result"]
        assert any(result.exception for result in results)
        last = max(index for index, message in enumerate(before) if message["role"] == "user")
        del session_messages(session)[last:]
        await ask(Message("user", ["Another end."]))
        fork = next(other.label for other in nx.sessions() if other.label != first.label)
        assert stored(nx, fork) == [plain(message) for message in session_messages(session)]
        assert stored(nx, first.label) == before
        figures |= {"messages stored once": len(before), "failed results": sum(bool(r.exception) for r in results)}
        record_property("figures", {f"agent-framework {mode}: {what}": count for what, count in figures.items()})

    with nexus.open(ledger=ledger) as nx, clients(model) as client:
        asyncio.run(converse(nx, client))
        label = nx.sessions()[-1].label
    model.check_requests()
    for command in (("explain",), ("context",), ("cache", "show"), ("history",)):
        done = run(*command, "--session", label, "--ledger", str(ledger), folder=tmp_path)
        assert done.code == 0 and done.out.strip(), (command, done.err)


def run_agents(nx: nexus.Engine, model: Any, *runs: Any, **options: Any) -> None:
    """Run an agent for each (text, session) at the same time."""

    async def converse(client: LoopbackClient) -> None:
        agent = Agent(client, name="Ann", middleware=[NexusChatMiddleware(nx, **options)])
        await asyncio.gather(*(agent.run(text, session=session) for text, session in runs))

    with clients(model) as client:
        asyncio.run(converse(client))


def test_sessions_users_and_runs_with_the_same_words_are_apart() -> None:
    with nexus.open(ledger=":memory:") as nx:
        sessions = [AgentSession(session_id="a/b"), AgentSession(session_id="a")]
        run_agents(nx, reply("Yes."), *(("Hello", session) for session in sessions))
        assert len(nx.sessions()) == 2
        run_agents(nx, reply("Yes."), ("Hello", None), ("Hello", None))
        assert len(nx.sessions()) == 4
        for user in ("ann", "bob"):
            run_agents(nx, reply("Yes."), ("Hello", AgentSession(session_id="x")), principal=lambda _, user=user: user)
        assert [len(nx.history(session.label)) for session in nx.sessions()] == [2] * 6
        with pytest.raises(nexus.NotAllowed):
            run_agents(nx, reply("Yes."), ("Hello", None), principal=lambda _: "")


def test_messages_of_a_client_without_an_agent_go_on_from_their_replies() -> None:
    async def converse(nx: nexus.Engine, client: LoopbackClient) -> None:
        middleware = NexusChatMiddleware(nx)
        messages = [Message("user", ["One"])]
        for text in ("Two", "Three"):
            response = await client.get_response(messages, client_kwargs={"middleware": [middleware]})
            messages += [*response.messages, Message("user", [text])]

    with nexus.open(ledger=":memory:") as nx, clients(reply("Yes.")) as client:
        asyncio.run(converse(nx, client))
        (session,) = nx.sessions()
        assert [message.text() for message in nx.history(session.label)] == ["One", "Yes.", "Two", "Yes."]


def test_failed_call_leaves_a_right_history() -> None:
    with nexus.open(ledger=":memory:") as nx:
        session = AgentSession(session_id="s")
        with pytest.raises(openai.InternalServerError):
            run_agents(nx, fail(500, "down"), ("One", session))
        assert not nx.sessions()
        run_agents(nx, Steps(reply("Yes."), reply("Sure.")), ("One", session))
        run_agents(nx, reply("Sure."), ("Two", session))
        (stored_session,) = nx.sessions()
        assert [m.text() for m in nx.history(stored_session.label)] == ["One", "Yes.", "Two", "Sure."]


def test_message_over_the_budget_is_refused_before_anything_is_sent() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx:
        with pytest.raises(nexus.BudgetTooSmall):
            run_agents(nx, model, (words(6_000, "long"), None), budget=BUDGET)
        assert not model.bodies and not nx.sessions()


def test_usage_and_stop_reason_are_recorded() -> None:
    with nexus.open(ledger=":memory:") as nx:
        run_agents(nx, reply("Hi.", input_tokens=90, cache_read_tokens=64), ("Hello", None))
        (entry,) = [e for e in nx.entries(nx.sessions()[0].label) if "usage" in e.body]
        assert (entry.body["usage"]["input_tokens"], entry.body["usage"]["cache_read_tokens"]) == (90, 64)
        assert entry.body["stop_reason"] == "end_turn"


def test_structured_output_counts_and_is_kept() -> None:
    class Verdict(BaseModel):
        text: str

    async def converse(nx: nexus.Engine, client: LoopbackClient) -> None:
        agent = Agent(client, middleware=[NexusChatMiddleware(nx)])
        response = await agent.run("Is it?", options={"response_format": Verdict})
        assert response.value == Verdict(text="yes")

    with nexus.open(ledger=":memory:") as nx, clients(reply('{"text": "yes"}')) as client:
        asyncio.run(converse(nx, client))
        assert nx.replay(nx.sessions()[0].label, 1).tools


def test_failure_to_record_is_logged_and_the_answer_given(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    nx = nexus.open(ledger=tmp_path / "ledger.db")

    def step(request: Any) -> Any:
        nx.close()
        return reply("There.")(request)

    with caplog.at_level(logging.WARNING, "nexus.adapters.agent_framework"):
        run_agents(nx, step, ("Hello", None))
    assert "call not recorded" in caplog.text


CONTENTS = st.one_of(
    st.builds(Content.from_text, TEXTS),
    st.builds(Content.from_text_reasoning, text=TEXTS, protected_data=st.none() | TEXTS),
    st.sampled_from([png("1"), png("2")]).map(
        lambda data: Content.from_uri(f"data:image/png;base64,{data}", media_type="image/png")
    ),
    st.just(Content.from_uri("https://example.org/a.png", media_type="image/png")),
    DATA.map(lambda data: Content.from_uri(f"data:audio/wav;base64,{data}", media_type="audio/wav")),
    DATA.map(lambda data: Content.from_uri(f"data:application/pdf;base64,{data}", media_type="application/pdf")),
    st.builds(Content.from_hosted_file, TEXTS),
    st.builds(Content.from_error, message=TEXTS),
)
CALL_IDS = st.text("abcxyz_0123", min_size=1, max_size=12)
CALLS = st.builds(
    Content.from_function_call, CALL_IDS, SENTENCES, arguments=TEXTS | st.dictionaries(TEXTS, JSON, max_size=3)
)
RESULTS = st.builds(
    Content.from_function_result,
    CALL_IDS,
    result=TEXTS | st.lists(CONTENTS, max_size=3) | JSON,
    exception=st.none() | st.just("failed"),
)
COMMON: dict[str, Any] = {
    "author_name": st.none() | SENTENCES,
    "message_id": st.none() | CALL_IDS,
    "additional_properties": st.dictionaries(st.text("abc", max_size=3), JSON, max_size=2),
}
MESSAGES = st.one_of(
    st.builds(Message, st.sampled_from(["user", "system"]), st.lists(CONTENTS, max_size=4), **COMMON),
    st.builds(Message, st.just("assistant"), st.lists(CONTENTS | CALLS, max_size=4), **COMMON),
    st.builds(Message, st.just("tool"), st.lists(RESULTS, min_size=1, max_size=3), **COMMON),
)


@settings(max_examples=60)
@given(st.lists(MESSAGES, max_size=5))
def test_ledger_has_every_message_as_it_was(messages: list[Message]) -> None:
    with nexus.open(ledger=":memory:") as nx:
        if messages:
            nexus.add_messages(nx, [neutral_message(message) for message in messages], session="s")
            restored = [restored_message(message).to_dict() for message in nx.history("s")]
            assert json.dumps(restored, sort_keys=True) == json.dumps([m.to_dict() for m in messages], sort_keys=True)
