"""An agent of LangChain with the middleware, against a model that judges every request; and the message history."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ModelFallbackMiddleware, ModelRequest, ModelResponse
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import ToolException, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

import nexus
from cli.running import run
from nexus.adapters.langchain import NexusChatMessageHistory, NexusMiddleware
from nexus.adapters.langchain_messages import restored_messages
from nexus.testing.model_server import fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, said, words

TURNS = 20


def png(seed: str) -> str:
    """Return an image of its own, in base64."""
    file = io.BytesIO()
    PIL.Image.frombytes("RGB", (40, 40), random.Random(seed).randbytes(4_800)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@tool
def lookup(query: str) -> str:
    """Looks something up."""
    if len(query) % 7 == 0:
        raise ToolException("The index is away.")
    return words(300, query)


lookup.handle_tool_error = True


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@contextmanager
def chats(model: Any, **options: Any) -> Iterator[ChatOpenAI]:
    with model_server(model) as server:
        yield ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="k", max_retries=0, **options)  # type: ignore[arg-type]


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def whole(nx: nexus.Engine, label: str) -> list[BaseMessage]:
    return [own for message in nx.history(label) for own in restored_messages(message)]


def request_for(messages: list[Any], **changes: Any) -> Any:
    chat = ChatOpenAI(model=changes.pop("name", "gpt-4o"), api_key="k")  # type: ignore[arg-type]
    fields: dict[str, Any] = {"tools": [], "tool_choice": None, "response_format": None, "runtime": None}
    return ModelRequest(
        **{**fields, "model": chat, "messages": messages, "system_prompt": None, "state": {"messages": []}, **changes}
    )


def answer(text: str = "Done.", **fields: Any) -> Callable[[Any], ModelResponse]:
    return lambda _: ModelResponse(result=[AIMessage(text, **fields)])


# whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "async", "streamed"])
def test_twenty_turns_are_valid_in_budget_and_lossless(
    mode: str, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    model = AgentModel()
    config = thread("t1")
    ledger = tmp_path / "ledger.db"
    with nexus.open(ledger=ledger) as nx, chats(model, stream_usage=True) as chat:
        agent: Any = create_agent(
            chat,
            [lookup],
            system_prompt="You are careful. " * 20,
            middleware=[NexusMiddleware(nx, budget=BUDGET)],
            checkpointer=InMemorySaver(),
        )

        async def converse() -> None:
            for turn in range(TURNS):
                content: Any = f"Turn {turn}: {words(30, str(turn))}"
                if turn % 6 == 3:
                    image = {"type": "image", "base64": png(str(turn)), "mime_type": "image/png"}
                    content = [{"type": "text", "text": content}, image]
                event = {"messages": [HumanMessage(content)]}
                match mode:
                    case "plain":
                        agent.invoke(event, config)
                    case "async":
                        await agent.ainvoke(event, config)
                    case _:
                        assert sum(1 for _ in agent.stream(event, config, stream_mode="messages")) > 60

        asyncio.run(converse())
        before = agent.get_state(config).values["messages"]
        (session,) = nx.sessions()
        assert whole(nx, session.label) == before
        last = next(index for index in reversed(range(len(before))) if before[index].type == "human")
        start = next(s for s in agent.get_state_history(config) if len(s.values["messages"]) == last + 1)
        edited = agent.update_state(start.config, {"messages": [HumanMessage("Another end.", id=before[last].id)]})
        after = agent.invoke(None, edited)["messages"]
        assert after[:last] == before[:last]
        fork = next(other.label for other in nx.sessions() if other.label != session.label)
        assert whole(nx, fork) == after
        assert whole(nx, session.label) == before
        figures = {"calls": len(model.bodies), "extended": model.extended, "largest request": max(model.tokens)}
        failed = sum(message.type == "tool" and message.status == "error" for message in before)
        parallel = sum(message.type == "ai" and len(message.tool_calls) > 1 for message in before)
        assert failed and parallel
        figures |= {"messages stored once": len(before), "failed results": failed, "parallel calls": parallel}
        record_property("figures", {f"langchain {mode}: {what}": count for what, count in figures.items()})
    model.check_requests()
    at = ("--ledger", str(ledger))
    for command in (
        ("explain", "--session", session.label, *at),
        ("context", "--session", session.label, *at),
        ("cache", "show", "--session", session.label, *at),
        ("history", "--session", session.label, *at),
    ):
        done = run(*command, folder=tmp_path)
        assert done.code == 0 and done.out.strip(), (command, done.err)


def test_threads_with_the_same_words_are_sessions_of_their_own() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx, chats(model) as chat:
        middleware = NexusMiddleware(nx, budget=BUDGET)
        agent: Any = create_agent(chat, [lookup], middleware=[middleware], checkpointer=InMemorySaver())
        for text in ("Hello", "Go on."):
            for name in ("a", "b"):
                agent.invoke({"messages": [("user", text)]}, thread(name))
        first, second = nx.sessions()
        labels = {label.partition("~")[0] for label in (first.label, second.label)}
        assert labels == {"langchain/a", "langchain/b"}
        assert said(nx.history(first.label)) == said(nx.history(second.label))
    assert not model.problems


def test_principals_with_the_same_words_are_sessions_of_their_own() -> None:
    with nexus.open(ledger=":memory:") as nx, chats(reply("Yes.")) as chat:
        middleware = NexusMiddleware(nx, principal=lambda request: request.runtime.context)
        agent: Any = create_agent(chat, [], middleware=[middleware], checkpointer=InMemorySaver())
        for user in ("ann", "bob"):
            agent.invoke({"messages": [("user", "Hello")]}, thread(f"{user}-1"), context=user)
        same: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx, conversation="x", principal="ann")])
        other: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx, conversation="x", principal="bob")])
        for one in (same, other):
            one.invoke({"messages": [("user", "Hello")]})
        assert [len(nx.history(session.label)) for session in nx.sessions()] == [2, 2, 2, 2]
        nobody: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx, principal=lambda _: "")])
        with pytest.raises(nexus.NotAllowed):
            nobody.invoke({"messages": [("user", "Hello")]})


def test_run_without_a_thread_is_a_conversation_of_its_own() -> None:
    """Also where two users are given the same message object; a run that brings a reply back goes on from it."""
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx, chats(model) as chat:
        agent: Any = create_agent(chat, [lookup], middleware=[NexusMiddleware(nx, budget=BUDGET)])
        greeting = HumanMessage("Hello")
        first = agent.invoke({"messages": [greeting]})["messages"]
        second = agent.invoke({"messages": [greeting]})["messages"]
        assert len(nx.sessions()) == 2
        more = agent.invoke({"messages": [*first, ("user", "Go on.")]})["messages"]
        assert sorted(len(nx.history(s.label)) for s in nx.sessions()) == sorted((len(more), len(second)))


def test_calls_in_flight_of_one_thread_lose_nothing() -> None:
    model = AgentModel(byte_interval_s=0.00005)
    with nexus.open(ledger=":memory:") as nx, chats(model) as chat:
        agent: Any = create_agent(chat, [lookup], middleware=[NexusMiddleware(nx, budget=BUDGET)])

        def ask(number: int) -> list[BaseMessage]:
            return agent.invoke({"messages": [("user", f"Question {number % 3}")]}, thread(f"t{number % 2}"))[
                "messages"
            ]

        with ThreadPoolExecutor(6) as pool:
            runs = [*pool.map(ask, range(12))]
        stored = [whole(nx, session.label) for session in nx.sessions()]
        texts = [[(m.type, m.content) for m in messages] for messages in stored]
        assert all([(m.type, m.content) for m in messages] in texts for messages in runs)
    assert not model.problems


# messages --------------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
IDS = st.none() | st.text("abcxyz_0123", min_size=1, max_size=12)
DATA = st.binary(min_size=1, max_size=60).map(lambda data: base64.b64encode(data).decode())
IMAGES = st.sampled_from([png("1"), png("2")])


def block(kind: str, **fields: Any) -> Any:
    return st.fixed_dictionaries({"type": st.just(kind), **fields}, optional={"id": TEXTS, "extras": OBJECTS})


def blocks_of(texts: Any) -> Any:
    return st.one_of(
        texts,
        block("text", text=texts),
        block("text", text=texts, annotations=st.lists(OBJECTS, max_size=1)),
        block("image", base64=IMAGES, mime_type=st.just("image/png")),
        block("image", url=st.just("https://example.org/a.png")),
        block("image", file_id=TEXTS),
        block("image_url", image_url=st.fixed_dictionaries({"url": st.just("https://example.org/b.png")})),
        block(
            "image",
            source=st.fixed_dictionaries(
                {"type": st.just("base64"), "media_type": st.just("image/png"), "data": IMAGES}
            ),
        ),
        *(block(kind, base64=DATA, mime_type=st.just("x/y")) for kind in ("audio", "file", "video")),
        block("text-plain", text=texts, mime_type=st.just("text/plain")),
        block("non_standard", value=OBJECTS),
    )


def reply_blocks_of(texts: Any) -> Any:
    summary = st.lists(st.fixed_dictionaries({"text": TEXTS}), max_size=2)
    return st.one_of(
        blocks_of(texts),
        block("reasoning", reasoning=TEXTS),
        block("reasoning", summary=summary, encrypted_content=TEXTS),
        block("thinking", thinking=TEXTS, signature=TEXTS),
        block("server_tool_call", name=TEXTS, args=OBJECTS),
    )


COMMON = {"id": IDS, "name": st.none() | TEXTS, "additional_kwargs": OBJECTS, "response_metadata": OBJECTS}
CALL = st.fixed_dictionaries({"id": IDS, "name": TEXTS, "args": OBJECTS})
INVALID = st.fixed_dictionaries(
    {"id": IDS, "name": st.none() | TEXTS, "args": st.none() | TEXTS, "error": st.none() | TEXTS}
)
USAGE = st.none() | st.just(
    {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_token_details": {"audio": 1}}
)


def message(kind: Any, blocks: Any, **fields: Any) -> Any:
    return st.builds(kind, content=TEXTS | st.lists(blocks, max_size=4), **{**COMMON, **fields})


BLOCKS = blocks_of(TEXTS)
REPLY_BLOCKS = reply_blocks_of(TEXTS)
MESSAGES = st.one_of(
    message(HumanMessage, BLOCKS),
    message(SystemMessage, BLOCKS),
    message(ChatMessage, BLOCKS, role=st.sampled_from(["user", "assistant", "critic"])),
    message(
        AIMessage,
        REPLY_BLOCKS,
        tool_calls=st.lists(CALL, max_size=3),
        invalid_tool_calls=st.lists(INVALID, max_size=2),
        usage_metadata=USAGE,
    ),
    message(
        ToolMessage,
        BLOCKS,
        tool_call_id=TEXTS,
        artifact=JSON,
        status=st.sampled_from(["success", "error"]),
    ),
)


@settings(max_examples=60)
@given(st.lists(MESSAGES, max_size=6))
def test_history_returns_every_message_as_it_was(messages: list[BaseMessage]) -> None:
    with nexus.open(ledger=":memory:") as nx:
        history = NexusChatMessageHistory(nx, "s")
        history.add_messages(messages)
        assert history.messages == messages
        assert [type(message) for message in history.messages] == [type(message) for message in messages]


SENTENCES = st.text(min_size=1, max_size=30).filter(str.strip)
"""Providers refuse a blank text, so it is not sent as it is."""


def spoken(kind: Any, blocks: Any, **fields: Any) -> Any:
    content = SENTENCES | st.lists(blocks(SENTENCES), max_size=3).map(lambda some: ["Well.", *some])
    return st.builds(kind, content=content, **{**COMMON, **fields})


@st.composite
def conversations(draw: Any) -> list[BaseMessage]:
    """Valid conversations: every call has its result."""
    messages: list[BaseMessage] = [draw(spoken(HumanMessage, blocks_of))]
    for turn in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 3))
        calls = [{"id": f"c{turn}_{number}", "name": "lookup", "args": draw(OBJECTS)} for number in range(count)]
        messages.append(draw(spoken(AIMessage, reply_blocks_of, tool_calls=st.just(calls))))
        for call in calls:
            result = spoken(ToolMessage, blocks_of, tool_call_id=st.just(call["id"]), artifact=JSON)
            messages.append(draw(result))
        if not calls:
            messages.append(draw(spoken(HumanMessage, blocks_of)))
    return messages


@settings(max_examples=60)
@given(conversations(), st.sampled_from(["gpt-4o", "claude-sonnet-5-5", "gemini-2.5-pro", "some-local-model"]))
def test_unchanged_messages_are_sent_as_the_same_objects(messages: list[BaseMessage], name: str) -> None:
    sent: list[Any] = []
    with nexus.open(ledger=":memory:") as nx:
        middleware = NexusMiddleware(nx, conversation="c")
        request = request_for(messages, name=name)
        middleware.wrap_model_call(request, lambda fitted: sent.append(fitted) or answer()(fitted))
        assert [id(message) for message in sent[0].messages] == [id(message) for message in messages]
        (session,) = nx.sessions()
        assert whole(nx, session.label)[:-1] == messages


@pytest.mark.parametrize(
    "block", [{"type": "image", "url": "gs://a/b.png"}, {"type": "image_url", "image_url": {"url": "gs://a/b.png"}}]
)
def test_image_in_the_provider_s_store_is_sent_as_it_is(block: Any) -> None:
    message = HumanMessage([{"type": "text", "text": "What is it?"}, block])
    sent: list[Any] = []
    with nexus.open(ledger=":memory:") as nx:
        NexusMiddleware(nx).wrap_model_call(request_for([message]), lambda r: (sent.extend(r.messages), answer()(r))[1])
        assert sent == [message]
        assert sent[0] is message
        assert whole(nx, nx.sessions()[0].label)[0] == message


def test_broken_calls_of_a_model_are_made_valid() -> None:
    broken = AIMessage("", invalid_tool_calls=[{"id": "c1", "name": "lookup", "args": '{"q": ', "error": "broken"}])
    messages = [HumanMessage("Look."), broken, HumanMessage("And?")]
    sent: list[Any] = []
    with nexus.open(ledger=":memory:") as nx:
        middleware = NexusMiddleware(nx, conversation="c")
        middleware.wrap_model_call(request_for(messages), lambda fitted: sent.append(fitted) or answer()(fitted))
        assert whole(nx, nx.sessions()[0].label)[:-1] == messages
    assert [message.type for message in sent[0].messages] == ["human", "ai", "tool", "human"]
    assert sent[0].messages[1].tool_calls[0]["args"] == {"_unparsed": '{"q": '}
    assert sent[0].messages[0] is messages[0] and sent[0].messages[3] is messages[2]


def test_system_messages_and_replies_at_the_end_are_sent_as_they_are() -> None:
    """Another agent of the graph may have spoken last."""
    messages = [SystemMessage("Be brief."), HumanMessage("Plan it."), AIMessage("Planned.", name="planner")]
    sent: list[Any] = []
    with nexus.open(ledger=":memory:") as nx:
        middleware = NexusMiddleware(nx, conversation="c", budget=1_000)
        middleware.wrap_model_call(request_for(messages), lambda fitted: sent.append(fitted) or answer()(fitted))
        assert [id(message) for message in sent[0].messages] == [id(message) for message in messages]
        (session,) = nx.sessions()
        assert [m.content for m in whole(nx, session.label)] == ["Plan it.", "Planned.", "Done."]
        more = request_for([*messages, AIMessage("Done."), HumanMessage("Thanks.")])
        middleware.wrap_model_call(more, answer("Gladly."))
        assert len(nx.history(session.label)) == 5 and len(nx.sessions()) == 1


# calls -----------------------------------------------------------------------------------------------------------


def test_usage_stop_reason_and_model_are_recorded() -> None:
    used = {"input_tokens": 900, "output_tokens": 20, "total_tokens": 920}
    details = {
        "cache_read": 500,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 100,
        "ephemeral_1h_input_tokens": 50,
    }
    usage = {**used, "input_token_details": details, "output_token_details": {"reasoning": 7}}
    metadata = {"stop_reason": "max_tokens", "model_name": "claude-sonnet-5-5-20260801"}
    with nexus.open(ledger=":memory:") as nx:
        middleware = NexusMiddleware(nx, conversation="c")
        request = request_for([HumanMessage("Hi")], name="claude-sonnet-5-5")
        middleware.wrap_model_call(request, answer(usage_metadata=usage, response_metadata=metadata))
        (entry,) = [e for e in nx.entries(nx.sessions()[0].label) if "usage" in e.body]
        assert entry.body["usage"] == {
            "input_tokens": 900,
            "output_tokens": 20,
            "cache_read_tokens": 500,
            "cache_write_tokens": 150,
            "reasoning_tokens": 7,
            "cache_write_1h_tokens": 50,
        }
        assert entry.body["stop_reason"] == "max_tokens"


def test_model_that_reports_cached_tokens_is_recorded_with_them() -> None:
    with nexus.open(ledger=":memory:") as nx, chats(reply("Hi.", input_tokens=90, cache_read_tokens=64)) as chat:
        agent: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx)])
        agent.invoke({"messages": [("user", "Hello")]}, thread("t"))
        (entry,) = [e for e in nx.entries(nx.sessions()[0].label) if "usage" in e.body]
        assert (entry.body["usage"]["input_tokens"], entry.body["usage"]["cache_read_tokens"]) == (90, 64)
        assert entry.body["stop_reason"] == "end_turn"


def test_message_over_the_budget_is_refused_before_anything_is_sent() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx, chats(model) as chat:
        agent: Any = create_agent(chat, [lookup], middleware=[NexusMiddleware(nx, budget=BUDGET)])
        with pytest.raises(nexus.BudgetTooSmall):
            agent.invoke({"messages": [("user", words(6_000, "long"))]}, thread("t"))
        assert not model.bodies and not nx.sessions()


def test_thread_goes_on_when_a_message_over_the_budget_was_removed() -> None:
    with nexus.open(ledger=":memory:") as nx, chats(AgentModel()) as chat:
        agent: Any = create_agent(
            chat, [], middleware=[NexusMiddleware(nx, budget=BUDGET)], checkpointer=InMemorySaver()
        )
        for text in (words(6_000, "long"), "Short"):  # both wait for an answer, and are never cut
            with pytest.raises(nexus.BudgetTooSmall):
                agent.invoke({"messages": [("user", text)]}, thread("t"))
        long = agent.get_state(thread("t")).values["messages"][0]
        agent.update_state(thread("t"), {"messages": [RemoveMessage(long.id)]}, as_node="__start__")
        assert agent.invoke(None, thread("t"))["messages"][-1].type == "ai"
        assert len(nx.history(nx.sessions()[0].label)) == 2


class Column:
    """Numbers that are compared one by one, as those of NumPy and pandas."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __eq__(self, other: object) -> Any:
        return Column(*(value == other for value in self.values))

    def __ne__(self, other: object) -> Any:
        return Column(*(value != other for value in self.values))

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array is ambiguous.")


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize("artifact", [Column(1.0, 2.0), {(0, 1): 2.0}, CIRCLE], ids=["array", "pairs", "circle"])
def test_artifact_that_is_not_json_does_not_stop_an_agent(artifact: Any) -> None:
    @tool(response_format="content_and_artifact")
    def measure(query: str) -> tuple[str, Any]:
        """Measure something."""
        return f"Measured: {query}.", artifact

    with nexus.open(ledger=":memory:") as nx, chats(AgentModel()) as chat:
        agent: Any = create_agent(chat, [measure], middleware=[NexusMiddleware(nx)])
        messages = agent.invoke({"messages": [("user", "Measure")]})["messages"]
        result = next(message for message in messages if message.type == "tool")
        assert result.artifact is artifact
        stored = whole(nx, nx.sessions()[0].label)
        assert [message.content for message in stored] == [message.content for message in messages]
        assert all(isinstance(message.artifact, str) for message in stored if isinstance(message, ToolMessage))


def test_tools_and_output_schemas_count_for_the_budget() -> None:
    class Plan(BaseModel):
        """A plan of many words."""

        steps: list[str]

    with nexus.open(ledger=":memory:") as nx:
        used: list[int] = []
        for changes in ({}, {"tools": [lookup]}, {"response_format": ToolStrategy(Plan)}, {"response_format": Plan}):
            middleware = NexusMiddleware(nx, conversation=f"c{len(used)}")
            middleware.wrap_model_call(request_for([HumanMessage("Hi")], **changes), answer())
            label = next(s.label for s in nx.sessions() if s.label.startswith(f"langchain/c{len(used)}~"))
            used.append(nx.replay(label, 1).token_budget.used.total)
        assert used[0] < min(used[1:])
        assert used[2] == used[3]


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_structured_output_is_kept(strategy: Any) -> None:
    class Verdict(BaseModel):
        text: str

    call = nexus.ToolCall("c1", "Verdict", '{"text": "yes"}')
    step = reply("", call) if strategy is ToolStrategy else reply('{"text": "yes"}')
    with nexus.open(ledger=":memory:") as nx, chats(step) as chat:
        agent: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx)], response_format=strategy(Verdict))
        done = agent.invoke({"messages": [("user", "Is it?")]}, thread("t"))
        assert done["structured_response"] == Verdict(text="yes")
        stored = whole(nx, nx.sessions()[0].label)
        assert [(m.type, m.content) for m in stored] == [(m.type, m.content) for m in done["messages"]]


def test_failed_call_leaves_a_right_history() -> None:
    with nexus.open(ledger=":memory:") as nx, chats(Steps(fail(500, "down"), reply("Yes."), reply("Sure."))) as chat:
        agent: Any = create_agent(chat, [], middleware=[NexusMiddleware(nx)], checkpointer=InMemorySaver())
        with pytest.raises(Exception, match="down"):
            agent.invoke({"messages": [("user", "One")]}, thread("t"))
        assert not nx.sessions()
        agent.invoke(None, thread("t"))
        done = agent.invoke({"messages": [("user", "Two")]}, thread("t"))["messages"]
        (session,) = nx.sessions()
        assert whole(nx, session.label) == done and len(done) == 4


class Steps:
    """Answers each request with the next step."""

    def __init__(self, *steps: Any) -> None:
        self.steps = [*steps]

    def __call__(self, request: Any) -> Any:
        return (self.steps.pop(0) if len(self.steps) > 1 else self.steps[0])(request)


@pytest.mark.parametrize("is_outside", [True, False])
def test_fallback_to_another_model_is_recorded_once(is_outside: bool) -> None:
    with nexus.open(ledger=":memory:") as nx, chats(Steps(fail(500, "down"), reply("Yes."))) as chat:
        other = chat.model_copy(update={"model_name": "gpt-4o-mini"})
        pair: list[Any] = [NexusMiddleware(nx), ModelFallbackMiddleware(other)]
        if not is_outside:
            pair.reverse()
        agent: Any = create_agent(chat, [], middleware=[*pair, ModelCallLimitMiddleware(run_limit=3)])
        done = agent.invoke({"messages": [("user", "One")]}, thread("t"))["messages"]
        (session,) = nx.sessions()
        assert whole(nx, session.label) == done
        assert len([e for e in nx.entries(session.label) if "usage" in e.body]) == 1


def test_failure_to_record_is_logged_and_the_answer_given(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    nx = nexus.open(ledger=tmp_path / "ledger.db")
    middleware = NexusMiddleware(nx, conversation="c")
    with caplog.at_level(logging.WARNING, "nexus.adapters.langchain"):
        response = middleware.wrap_model_call(
            request_for([HumanMessage("Hi")]), lambda fitted: nx.close() or answer("There.")(fitted)
        )
    assert response.result[0].content == "There."
    assert "call not recorded" in caplog.text


# history ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
def test_history_of_a_runnable_is_kept_in_the_ledger(tmp_path: Path) -> None:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    for number in range(2):  # the second time another program
        with nexus.open(ledger=tmp_path / "ledger.db") as nx, chats(reply(f"Answer {number}.")) as chat:
            chain = RunnableWithMessageHistory(
                prompt | chat,
                lambda session_id, nx=nx: NexusChatMessageHistory(nx, session_id),
                input_messages_key="question",
                history_messages_key="history",
            )
            for name in ("a/b", "a"):
                chain.invoke({"question": f"Question {number}"}, {"configurable": {"session_id": name}})
            assert len(NexusChatMessageHistory(nx, "a").messages) == 2 + 2 * number
            assert not NexusChatMessageHistory(nx, "b", principal="a").messages
            assert [m.text() for m in nx.history(NexusChatMessageHistory(nx, "a").session)][-1] == f"Answer {number}."


def test_cleared_history_begins_anew_and_loses_nothing() -> None:
    async def converse(nx: nexus.Engine) -> None:
        history = NexusChatMessageHistory(nx, "s", principal="ann")
        await history.aclear()
        await history.aadd_messages([HumanMessage("One"), AIMessage("Yes.")])
        await history.aclear()
        assert await history.aget_messages() == []
        await history.aadd_messages([AIMessage("Hello!"), HumanMessage("Two")])
        assert [message.content for message in await history.aget_messages()] == ["Hello!", "Two"]
        assert [message.text() for message in nx.history(history.session)] == ["One", "Yes.", "Hello!", "Two"]

    with nexus.open(ledger=":memory:") as nx:
        asyncio.run(converse(nx))
