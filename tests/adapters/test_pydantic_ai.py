"""Agents of Pydantic AI with `NexusContext`: budget, loss, failures, users, and every kind of message that it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, NativeOutput, PromptedOutput, Tool
from pydantic_ai import messages as pa
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

import nexus
from nexus.adapters.pydantic_ai import NexusContext
from nexus.adapters.pydantic_ai_messages import own_messages, result_of, units_of
from nexus.cli import cli
from nexus.testing.model_server import fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, check_ledger, run_figures, said, words

TURNS = 20


def picture(shade: int) -> BinaryContent:
    """Return a small image of one color."""
    data = BytesIO()
    Picture.new("RGB", (64, 64), (shade, 0, 0)).save(data, "PNG")
    return BinaryContent(data.getvalue(), media_type="image/png")


def talk(url: str, work: Callable[[OpenAIChatModel], Awaitable[Any]]) -> Any:
    """Run something with a model, and close its client."""

    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
            return await work(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client)))

    return asyncio.run(run())


def lookup(query: str) -> str:
    """Looks something up."""
    if query.startswith("cache"):
        raise ModelRetry(f"{query} is locked")
    return words(300, query)


def lookup_agent(model: Any, context: NexusContext, **options: Any) -> Agent[Any, Any]:
    tools = [Tool(lookup, max_retries=50)]
    return Agent(model, instructions="You are careful. " * 20, tools=tools, capabilities=[context], **options)


def neutral(history: list[Any]) -> list[nexus.Message]:
    messages = [unit.message for unit in units_of(history) if unit.message]
    return [message for message in messages if message.role != "system"]


Ask = Callable[[Agent[Any, Any], Any, list[Any]], Awaitable[list[Any]]]


async def plain(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    return (await agent.run(prompt, message_history=history, conversation_id="chat")).all_messages()


async def run_stream(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.run_stream(prompt, message_history=history, conversation_id="chat") as result:
        assert await result.get_output()
    return result.all_messages()


async def run_stream_events(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.run_stream_events(prompt, message_history=history, conversation_id="chat") as stream:
        events = [event async for event in stream]
    return events[-1].result.all_messages()


async def iterate(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.iter(prompt, message_history=history, conversation_id="chat") as run:
        async for _ in run:
            pass
    return run.result.all_messages()


@pytest.mark.parametrize("ask", [plain, run_stream, run_stream_events, iterate])
def test_agent_stays_in_budget_and_loses_nothing(ask: Ask, record_property: Callable[..., None]) -> None:
    """Twenty turns with parallel tools that fail now and then, and images."""
    model = AgentModel()

    async def converse(chat: OpenAIChatModel, nx: nexus.Engine) -> list[Any]:
        agent = lookup_agent(chat, NexusContext(nx, budget=BUDGET))
        history: list[Any] = []
        for turn in range(30 if ask is run_stream else TURNS):
            text = f"Turn {turn}: {words(30, str(turn))}"
            prompt = [text, picture(turn)] if turn % 7 == 3 else text
            mode = plain if ask is run_stream and turn % 3 else ask  # it ends with the first text
            history = await mode(agent, prompt, history)
        return history

    with nexus.open(ledger=":memory:") as nx, model_server(model) as server:
        history = talk(server.openai_url, lambda chat: converse(chat, nx))
        assert any(message.role == "tool" and next(message.results()).is_error for message in neutral(history))
        record_property("figures", run_figures(f"pydantic-ai {ask.__name__}", model, nx, neutral(history)))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
ARGUMENTS = st.one_of(st.none(), st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2), st.just("{broken"))
URLS = st.sampled_from(["https://a.example/x.png", "http://a.example/x?y=1", "data:image/png;base64,AAAA"])
FILE_TYPES = st.sampled_from(["text/plain", "application/pdf", "audio/wav", "video/mp4", "image/png"])
FILES = st.one_of(
    st.integers(0, 3).map(picture),
    st.builds(BinaryContent, st.binary(max_size=20).map(b"%s%%".__mod__), media_type=st.just("application/pdf")),
    st.builds(BinaryContent, st.just(b""), media_type=FILE_TYPES),
    st.sampled_from([pa.ImageUrl, pa.AudioUrl, pa.DocumentUrl, pa.VideoUrl]).flatmap(
        lambda kind: st.builds(kind, URLS)
    ),
    st.builds(pa.UploadedFile, file_id=TEXTS, provider_name=st.just("openai")),
)
CONTENTS = st.one_of(TEXTS, st.lists(TEXTS | FILES | st.builds(pa.CachePoint), max_size=4))
DETAILS = st.none() | st.dictionaries(TEXTS, TEXTS, max_size=1)
VALUES = st.one_of(TEXTS, st.integers(), st.none(), st.lists(st.booleans() | FILES), st.dictionaries(TEXTS, TEXTS))
NATIVE = {"tool_name": st.just("web_search"), "tool_call_id": st.just("ws_1")}
REPLY_PARTS = st.lists(
    st.one_of(
        st.builds(pa.TextPart, TEXTS, id=st.none() | TEXTS, provider_details=DETAILS),
        st.builds(pa.ThinkingPart, TEXTS, signature=st.none() | TEXTS, provider_name=st.none() | TEXTS),
        st.builds(pa.NativeToolCallPart, args=ARGUMENTS, **NATIVE),
        st.builds(pa.NativeToolReturnPart, content=VALUES, **NATIVE),
        st.builds(pa.FilePart, st.integers(0, 3).map(picture)),
        st.builds(pa.CompactionPart, content=st.none() | TEXTS, provider_name=st.just("anthropic")),
    ),
    max_size=4,
)
USER_PARTS = [st.builds(pa.UserPromptPart, CONTENTS), st.builds(pa.CompactionPart, content=TEXTS)]
NOTES = [st.builds(pa.SystemPromptPart, TEXTS)]
if hasattr(pa, "RetryFeedbackPart"):  # newer versions
    USER_PARTS.append(st.builds(pa.RetryFeedbackPart, TEXTS, retry=st.just(pa.RetryInfo("no_output"))))
    NOTES.append(st.builds(pa.InstructionDeltaPart, id=st.none(), content=st.none() | TEXTS))
    NOTES.append(st.builds(pa.ToolAvailabilityDeltaPart, tools_added=st.just(["f"])))


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Return messages as runs leave them, with everything that they can hold, and with a request at the end."""
    messages: list[Any] = []
    for turn in range(draw(st.integers(0, 3))):
        prompts = draw(st.lists(st.one_of(*NOTES), max_size=2)) + draw(st.lists(st.one_of(*USER_PARTS), max_size=2))
        messages.append(pa.ModelRequest(prompts, instructions=draw(st.none() | TEXTS), metadata=draw(DETAILS)))
        ids = [f"call_{turn}_{number}" for number in range(draw(st.integers(0, 3)))]
        calls = [pa.ToolCallPart("f", draw(ARGUMENTS), call_id, provider_details=draw(DETAILS)) for call_id in ids]
        usage = RequestUsage(input_tokens=draw(st.integers(0, 9)))
        messages.append(pa.ModelResponse([*draw(REPLY_PARTS), *calls], usage=usage, provider_details=draw(DETAILS)))
        if calls:
            outcomes = st.sampled_from(["success", "failed", "denied"])
            answers = [
                pa.ToolReturnPart("f", draw(VALUES), i, metadata=draw(DETAILS), outcome=draw(outcomes)) for i in ids
            ]
            messages += [pa.ModelRequest(answers), pa.ModelResponse(draw(REPLY_PARTS))]
    return [*messages, pa.ModelRequest(draw(st.lists(st.one_of(*USER_PARTS), max_size=2)))]


def sent_by(nx: nexus.Engine, messages: list[Any], **options: Any) -> tuple[nexus.AssembledContext, list[Any]]:
    """Return the messages that a model gets for a list."""
    units = [*units_of(messages)]
    ctx = nx.mirror([unit.message for unit in units if unit.message], model="gpt-4o", conversation="c", **options)
    return ctx, own_messages(units, ctx.messages)


@settings(max_examples=150, deadline=None)
@given(conversations(), REPLY_PARTS)
def test_every_kind_of_message_is_sent_as_it_is(messages: list[Any], answer: list[Any]) -> None:
    """A list that fits is sent as the same objects, also when the ledger has it."""
    with nexus.open(ledger=":memory:") as nx:
        ctx, sent = sent_by(nx, messages)
        assert [*map(id, sent)] == [*map(id, messages)]
        response = pa.ModelResponse(answer)
        nx.record(ctx, result_of(response, len(neutral(messages))))
        longer = [*messages, response, pa.ModelRequest([pa.UserPromptPart("Go on")])]
        ctx, sent = sent_by(nx, longer)
        assert [*map(id, sent)] == [*map(id, longer)]
        assert ctx.mirrored.action == "append"
        assert ctx.mirrored.missing_count == 1


ANY_REQUEST = st.builds(pa.ModelRequest, st.lists(st.one_of(*NOTES, *USER_PARTS), max_size=3))


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY_REQUEST | st.builds(pa.ModelResponse, REPLY_PARTS), max_size=5), CONTENTS)
def test_no_order_of_messages_breaks_a_run(messages: list[Any], prompt: Any) -> None:
    messages = [*messages, pa.ModelRequest([pa.UserPromptPart(prompt)])]
    with nexus.open(ledger=":memory:") as nx:
        _, sent = sent_by(nx, messages, budget=40_000)
    assert sent[-1] is messages[-1]


def echo(messages: list[Any], info: AgentInfo) -> pa.ModelResponse:  # noqa: ARG001
    """Answer with the number of messages, and the newest prompt."""
    return pa.ModelResponse([pa.TextPart(f"{len(messages)}: {messages[-1].parts[-1].content}")])


def agent_of(nx: nexus.Engine, function: Any = echo, **options: Any) -> Agent[Any, Any]:
    own = {name: options.pop(name) for name in ("principal", "budget") if name in options}
    return Agent(FunctionModel(function), capabilities=[NexusContext(nx, **own)], **options)


def run_now(agent: Agent[Any, Any], prompt: Any, **options: Any) -> Any:
    return asyncio.run(agent.run(prompt, **options))


def stored(nx: nexus.Engine) -> dict[str, list[Any]]:
    return {session.label: said(nx.history(session.label)) for session in nx.sessions()}


def test_runs_without_a_conversation_never_meet() -> None:
    with nexus.open(ledger=":memory:") as nx:
        agent = agent_of(nx)
        results = [run_now(agent, "Hello") for _ in range(2)]
        again = run_now(agent, "And now?", message_history=results[0].all_messages())
        assert again.output == "3: And now?"
        assert sorted(map(len, stored(nx).values())) == [2, 4]


def test_conversations_with_the_same_words_never_meet() -> None:
    with nexus.open(ledger=":memory:") as nx:
        agent = agent_of(nx)
        for name in ("ann", "bob"):
            assert run_now(agent, "Hello", conversation_id=name).output == "1: Hello"
        assert {label.partition("~")[0] for label in stored(nx)} == {"pydantic-ai/ann", "pydantic-ai/bob"}


def test_users_with_the_same_conversation_never_meet() -> None:
    with nexus.open(ledger=":memory:") as nx:
        agent = agent_of(nx, principal=lambda ctx: ctx.deps, deps_type=str)
        for user in ("ann", "bob", "ann"):
            run_now(agent, "Hello", conversation_id="chat", deps=user)
        assert [len(history) for history in stored(nx).values()] == [2, 2]
        with pytest.raises(nexus.NotAllowed):
            run_now(agent, "Hello", deps="")


def test_edited_history_is_a_fork() -> None:
    with nexus.open(ledger=":memory:") as nx:
        agent = agent_of(nx)
        history: list[Any] = []
        for text in ("One", "Two", "Three"):
            history = run_now(agent, text, message_history=history, conversation_id="chat").all_messages()
        edited = [*history[:2], pa.ModelRequest([pa.UserPromptPart("Second")]), *history[3:4]]
        fork = run_now(agent, "Four", message_history=edited, conversation_id="chat").all_messages()
        back = run_now(agent, "Again", message_history=history[:2], conversation_id="chat").all_messages()
        assert sorted(stored(nx).values()) == sorted(said(neutral(each)) for each in (history, fork, back))


def test_failed_call_leaves_nothing_and_the_next_one_is_right() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(fail(500, "down"), reply("Hi.")) as server:

        async def converse(chat: OpenAIChatModel) -> list[Any]:
            agent = Agent(chat, capabilities=[NexusContext(nx)])
            with pytest.raises(ModelHTTPError):
                await agent.run("Hello", conversation_id="chat")
            assert nx.sessions() == []
            return await plain(agent, "Hello", [])

        check_ledger(nx, neutral(talk(server.openai_url, converse)))


def test_stream_that_is_left_leaves_nothing_and_the_next_call_is_right() -> None:
    with nexus.open(ledger=":memory:") as nx, model_server(reply(words(50, "long")), reply("Yes.")) as server:

        async def converse(chat: OpenAIChatModel) -> list[Any]:
            agent = Agent(chat, capabilities=[NexusContext(nx)])
            async with agent.run_stream("Hello", conversation_id="chat") as result:
                async for _ in result.stream_text(debounce_by=None):
                    break
            assert nx.sessions() == []
            return await plain(agent, "Go on", result.all_messages())

        check_ledger(nx, neutral(talk(server.openai_url, converse)))


def test_calls_in_flight_keep_their_conversations() -> None:
    async def slow(messages: list[Any], info: AgentInfo) -> pa.ModelResponse:
        await asyncio.sleep(0.01)
        return echo(messages, info)

    async def converse(agent: Agent[Any, Any], name: str) -> list[Any]:
        history: list[Any] = []
        for turn in range(3):
            run = await agent.run(f"{turn} of {name}", message_history=history, conversation_id=name)
            history = run.all_messages()
        return history

    async def both(agent: Agent[Any, Any]) -> list[list[Any]]:
        return await asyncio.gather(*(converse(agent, name) for name in ("a", "b", "a", "c")))

    with nexus.open(ledger=":memory:") as nx:
        histories = asyncio.run(both(agent_of(nx, slow)))
        assert {len(said(neutral(history))) for history in histories} == {6}
        assert sorted(stored(nx).values()) == sorted(
            said(neutral(history)) for history in (histories[i] for i in (0, 1, 3))
        )


def test_message_over_the_budget_is_not_sent() -> None:
    with nexus.open(ledger=":memory:") as nx:
        agent = agent_of(nx, lambda *_: pytest.fail("sent"), budget=300)
        with pytest.raises(nexus.BudgetTooSmall, match="nothing was sent"):
            run_now(agent, words(900, "long"))
        assert nx.sessions() == []


def test_tools_and_output_types_count_and_stay() -> None:
    class Answer(BaseModel):
        """The answer."""

        number: int

    def answer(messages: list[Any], info: AgentInfo) -> pa.ModelResponse:  # noqa: ARG001
        if info.output_tools:
            return pa.ModelResponse([pa.ToolCallPart(info.output_tools[0].name, {"number": 7})])
        return pa.ModelResponse([pa.TextPart('{"number": 7}')])

    def used_tokens(**options: Any) -> int:
        with nexus.open(ledger=":memory:") as nx:
            result = run_now(agent_of(nx, answer, **options), "Hello")
            again = run_now(agent_of(nx, answer, **options), "More", message_history=result.all_messages())
            assert result.output == again.output
            (session,) = nx.sessions()
            return nx.ledger.store.assemblies(nx.ledger.store.session(session.label).thread, 0)[0].manifest["base"]

    plain_tokens = used_tokens()
    assert all(
        used_tokens(output_type=kind) > plain_tokens + 20
        for kind in (Answer, NativeOutput(Answer), PromptedOutput(Answer))
    )
    assert used_tokens(tools=[Tool(lookup)]) > plain_tokens + 20


def test_usage_and_stop_reason_are_recorded() -> None:
    step = reply("Hi.", input_tokens=900, output_tokens=7, cache_read_tokens=600, reasoning_tokens=3, stop="length")
    with nexus.open(ledger=":memory:") as nx, model_server(step) as server:
        agent = partial(Agent, capabilities=[NexusContext(nx)])
        history = talk(server.openai_url, lambda chat: plain(agent(chat), "Hello", []))
        (session,) = nx.sessions()
        (turn,) = nx.ledger.turns(session.label)
        (entry,) = [entry for entry in nx.ledger.entries(session.label) if entry.body.get("usage")]
    read = history[-1].usage  # early versions read none of unknown providers
    assert read.input_tokens in (0, 900)
    assert entry.body["usage"] == {
        "input_tokens": read.input_tokens,
        "output_tokens": read.output_tokens,
        "cache_read_tokens": read.cache_read_tokens,
        "cache_write_tokens": 0,
        "reasoning_tokens": 3,
    }
    assert turn.stop_reason == "max_tokens"


def test_run_goes_on_if_its_call_cannot_be_recorded(caplog: pytest.LogCaptureFixture) -> None:
    with nexus.open(ledger=":memory:") as nx:

        def answer(messages: list[Any], info: AgentInfo) -> pa.ModelResponse:
            nx.close()
            return echo(messages, info)

        assert run_now(agent_of(nx, answer), "Hello").output == "1: Hello"
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("nexus.adapters.pydantic_ai", logging.WARNING)


def test_files_count_and_are_cut_with_their_message() -> None:
    pdf = BinaryContent(b"%PDF" + bytes(90_000), media_type="application/pdf")
    seen: list[list[Any]] = []

    def answer(messages: list[Any], info: AgentInfo) -> pa.ModelResponse:
        seen.append(messages)
        return echo(messages, info)

    with nexus.open(ledger=":memory:") as nx:
        agent, history = agent_of(nx, answer, budget=6_000), list[Any]()
        for turn in range(8):
            prompt = [f"Turn {turn}", pdf] if turn % 2 else f"Turn {turn}: {words(300, str(turn))}"
            history = run_now(agent, prompt, message_history=history).all_messages()
    parts = [[part for message in messages for part in message.parts] for messages in seen]
    shown = [sum(part.content[1] is pdf for part in some if isinstance(part.content, list)) for some in parts]
    assert shown[1] == 1
    assert max(shown) * 1_500 <= 6_000 / 2
    assert seen[-1][-1].parts[-1].content[1] is pdf


def test_commands_show_recorded_calls(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with nexus.open(ledger=path) as nx:
        agent, history = agent_of(nx, budget=1_000), list[Any]()
        for turn in range(6):
            history = run_now(agent, f"Turn {turn}: {words(120, str(turn))}", message_history=history).all_messages()
        (session,) = nx.sessions()
    for command in (["explain"], ["context"], ["cache", "show"], ["history"]):
        result = CliRunner().invoke(cli, [*command, "--ledger", str(path), session.label])
        assert result.exit_code == 0, (command, result.output)
        assert result.output.strip()
