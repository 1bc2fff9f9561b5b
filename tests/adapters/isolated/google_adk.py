"""An agent of Google ADK with the plugin, and the session service.

`test_versions` runs this in an environment of its own: ADK needs older packages than the other tests.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.adk.models import LlmRequest
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.adapters.google_adk import NexusPlugin
from nexus.adapters.google_adk_sessions import NexusSessionService
from nexus.testing.model_server import fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, run_figures, said, words

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

TURNS = 20
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def lookup(query: str) -> dict[str, str]:
    """Looks something up; some lookups fail."""
    if sum(map(ord, query)) % 5 == 0:
        return {"error": "the index is gone"}
    return {"result": words(300, query)}


class Chat:
    """A session of an agent whose model is a scripted server."""

    def __init__(self, nx: nexus.Engine, url: str, service: BaseSessionService | None = None, **options: Any) -> None:
        agent = LlmAgent(
            name="helper",
            model=Gemini(model="gemini-2.5-pro", base_url=url),
            instruction="You are careful. " * 20,
            tools=[lookup],
        )
        app = App(name="app", root_agent=agent, plugins=[NexusPlugin(nx, **{"budget": BUDGET, **options})])
        self.service = service or InMemorySessionService()
        self.runner = Runner(app=app, session_service=self.service, auto_create_session=True)

    async def say(
        self, *parts: str | types.Part, user: str = "ada", session: str = "s1", stream: bool = False
    ) -> list[Event]:
        own = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
        run = self.runner.run_async(
            user_id=user,
            session_id=session,
            new_message=types.Content(role="user", parts=own),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE),
        )
        return [event async for event in run]

    async def messages(self) -> list[nexus.Message]:
        session = await self.service.get_session(app_name="app", user_id="ada", session_id="s1")
        assert session is not None
        contents = [event.content for event in session.events if event.content]
        return nexus.read_messages([as_json(content) for content in contents], "gemini")


def as_json(content: types.Content) -> dict[str, Any]:
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "k")


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[nexus.Engine]:
    with nexus.open(ledger=tmp_path / "ledger.db") as engine:
        yield engine


@pytest.mark.parametrize("service", ["in memory", "nexus"])
@pytest.mark.parametrize("mode", ["plain", "streamed"])
def test_agent_stays_in_budget_and_loses_nothing(
    mode: str, service: str, nx: nexus.Engine, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    model = AgentModel()
    with model_server(model) as server:
        chat = Chat(nx, server.gemini_url, NexusSessionService(nx) if service == "nexus" else None)

        async def converse() -> list[nexus.Message]:
            for turn in range(TURNS):
                image = types.Part(inline_data=types.Blob(mime_type="image/png", data=PIXEL))
                parts = [f"Turn {turn}: {words(30, str(turn))}", *([image] if turn in (3, 17) else [])]
                assert await chat.say(*parts, stream=mode == "streamed")
            return await chat.messages()

        messages = asyncio.run(converse())
        record_property("figures", run_figures(f"google-adk {mode}, {service}", model, nx, messages))
    assert "the index is gone" in str(said(messages))
    assert str(said(messages)).count("'image'") == 2
    (session,) = nx.sessions()
    ledger = tmp_path / "ledger.db"
    for command in ("history", "explain", "context", "cache show"):
        result = run(*command.split(), session.label, "--ledger", ledger, folder=tmp_path)
        assert (result.code, bool(result.out)) == (0, True), result


def test_users_and_sessions_are_never_mixed(nx: nexus.Engine) -> None:
    model = AgentModel()
    with model_server(model) as server:
        chat = Chat(nx, server.gemini_url)

        async def converse() -> None:
            for text in ("Hello", "Tell me more."):
                for user, session in (("ada", "s1"), ("ada", "s2"), ("bob", "s1")):
                    await chat.say(text, user=user, session=session)

        asyncio.run(converse())
    assert not model.problems
    histories = [said(nx.history(info.label)) for info in nx.sessions()]
    assert len(histories) == 3
    assert histories[0] == histories[1] == histories[2]
    assert len({body["contents"][0]["parts"][0]["text"] for body in model.bodies}) == 1


def test_two_runs_in_flight_are_recorded_each_in_its_session(nx: nexus.Engine) -> None:
    model = AgentModel(byte_interval_s=0.0002)
    with model_server(model) as server:
        chat = Chat(nx, server.gemini_url)

        async def converse() -> None:
            for turn in range(3):
                await asyncio.gather(
                    *(chat.say(f"{name} {turn}", user=name, session=name) for name in ("ada", "bob", "cy"))
                )

        asyncio.run(converse())
    for info in nx.sessions():
        texts = [message.text() for message in nx.history(info.label) if message.role == "user"]
        assert len({text.partition(" ")[0] for text in texts if text}) == 1
        assert len([text for text in texts if text]) == 3
    assert len(nx.sessions()) == 3


def test_failed_call_leaves_the_history_right(nx: nexus.Engine) -> None:
    with model_server(reply("One."), fail(400, "no"), reply("Three.")) as server:
        chat = Chat(nx, server.gemini_url)

        async def converse() -> None:
            await chat.say("first")
            try:
                await chat.say("second")
            except Exception as error:  # noqa: BLE001 - which one is the version's choice
                assert "400" in str(error)
            await chat.say("third")

        asyncio.run(converse())
    (session,) = nx.sessions()
    assert [message.text() for message in nx.history(session.label)] == ["first", "One.", "second", "third", "Three."]


def test_message_over_the_budget_is_not_sent(nx: nexus.Engine) -> None:
    model = AgentModel()
    with model_server(model) as server, pytest.raises(Exception, match="budget") as caught:
        asyncio.run(Chat(nx, server.gemini_url, budget=800).say(words(5_000, "x")))
    causes = [caught.value, caught.value.__cause__]
    assert any(isinstance(error, nexus.BudgetTooSmall) for error in causes)
    assert not model.bodies


def test_full_ledger_leaves_the_agent_its_answer(
    nx: nexus.Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise nexus.LedgerError("disk full")

    monkeypatch.setattr(nx, "record", refuse)
    with model_server(reply("One.")) as server, caplog.at_level(logging.WARNING, "nexus.adapters.google_adk"):
        events = asyncio.run(Chat(nx, server.gemini_url).say("first"))
    assert events[-1].content is not None
    assert "disk full" in caplog.text


def test_rewind_is_a_fork(nx: nexus.Engine) -> None:
    with model_server(*(reply(f"Answer {number}.") for number in range(4))) as server:
        chat = Chat(nx, server.gemini_url)

        async def converse() -> None:
            await chat.say("first")
            second = await chat.say("second")
            await chat.runner.rewind_async(
                user_id="ada", session_id="s1", rewind_before_invocation_id=second[0].invocation_id
            )
            await chat.say("other second")

        asyncio.run(converse())
    histories = sorted([message.text() for message in nx.history(info.label)] for info in nx.sessions())
    assert histories == [
        ["first", "Answer 0.", "other second", "Answer 2."],
        ["first", "Answer 0.", "second", "Answer 1."],
    ]


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20)
VALUES = st.recursive(st.none() | st.booleans() | st.integers(-99, 99) | TEXTS, lambda of: st.lists(of, max_size=2))
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=2)
IMAGES = st.sampled_from([PIXEL + bytes([255, 239, 190]), PIXEL])
BLOBS = st.builds(types.Blob, data=IMAGES, mime_type=st.just("image/png")) | st.builds(
    types.Blob, data=st.binary(min_size=1, max_size=8), mime_type=st.sampled_from(["audio/wav", "application/pdf"])
)
FILES = st.builds(types.FileData, file_uri=st.just("https://example.com/a.pdf"), mime_type=st.just("application/pdf"))
ASKED = st.lists(
    st.builds(types.Part, text=TEXTS)
    | st.builds(types.Part, inline_data=BLOBS)
    | st.builds(types.Part, file_data=FILES),
    min_size=1,
    max_size=3,
)
ANSWERED = st.builds(types.Part, text=TEXTS) | st.builds(
    types.Part, text=TEXTS, thought=st.just(True), thought_signature=st.none() | st.binary(min_size=1, max_size=6)
)
CALLS = st.lists(st.builds(types.FunctionCall, name=st.just("lookup"), args=ARGUMENTS), min_size=1, max_size=3)


@st.composite
def contents(draw: st.DrawFn) -> list[types.Content]:
    """A conversation that Gemini takes: questions, answers, calls with their results in order."""
    made = list[types.Content]()
    for _ in range(draw(st.integers(1, 3))):
        made.append(types.Content(role="user", parts=draw(ASKED)))
        if draw(st.booleans()):
            calls = draw(CALLS)
            made.append(types.Content(role="model", parts=[types.Part(function_call=call) for call in calls]))
            results = [types.FunctionResponse(name=call.name, response=draw(ARGUMENTS)) for call in calls]
            made.append(types.Content(role="user", parts=[types.Part(function_response=own) for own in results]))
        made.append(types.Content(role="model", parts=[draw(ANSWERED), types.Part(text=draw(TEXTS))]))
    return [*made, types.Content(role="user", parts=draw(ASKED))]


@settings(max_examples=100)
@given(contents())
def test_what_fits_is_sent_as_the_same_objects(own: list[types.Content]) -> None:
    session = SimpleNamespace(app_name="app", user_id="ada", id="s1")
    context: Any = SimpleNamespace(session=session, agent_name="helper", invocation_id="i1")
    request = LlmRequest(model="gemini-2.5-pro", contents=own)
    with nexus.open(ledger=":memory:") as engine:
        asyncio.run(NexusPlugin(engine).before_model_callback(callback_context=context, llm_request=request))
    assert [id(content) for content in request.contents] == [id(content) for content in own]


def test_session_service_keeps_what_adks_own_does(nx: nexus.Engine) -> None:
    names = {"app_name": "app", "user_id": "ada"}

    async def use(service: BaseSessionService) -> list[Any]:
        seen = list[Any]()
        state = {"app:a": 1, "user:b": 2, "c": 3, "temp:d": 4}
        session = await service.create_session(**names, session_id="s1", state=dict(state))
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**names, session_id="s1")
        for number in range(5):
            delta = {"app:a": number, "c": [number], "temp:e": 5}
            content = types.Content(role="user", parts=[types.Part(text=f"text {number}")])
            event = Event(
                author="user", content=content, timestamp=100.0 + number, actions=EventActions(state_delta=delta)
            )
            await service.append_event(session, event)
            await service.append_event(session, Event(author="helper", partial=True, content=content))
        await service.create_session(app_name="app", user_id="bob", session_id="s1")
        other = await service.create_session(**names, session_id="s2")
        seen.append(other.state)
        for config in (None, GetSessionConfig(num_recent_events=2), GetSessionConfig(after_timestamp=103.0)):
            found = await service.get_session(**names, session_id="s1", config=config)
            assert found is not None
            shown = [(event.content.parts[0].text, event.timestamp) for event in found.events if event.content]
            seen.append((found.id, found.state, shown))
        seen.append(await service.get_session(**names, session_id="none"))
        for user in ("ada", None):
            listed = await service.list_sessions(app_name="app", user_id=user)
            seen.append(sorted((one.user_id, one.id, len(one.events)) for one in listed.sessions))
        await service.delete_session(**names, session_id="s1")
        seen.append(await service.get_session(**names, session_id="s1"))
        return seen

    assert asyncio.run(use(NexusSessionService(nx))) == asyncio.run(use(InMemorySessionService()))


def test_sessions_of_a_user_are_erased(nx: nexus.Engine) -> None:
    service = NexusSessionService(nx)

    async def create(user: str) -> None:
        await service.create_session(app_name="app", user_id=user, session_id="s", state={"user:secret": "apple"})

    async def found(user: str) -> tuple[bool, dict[str, Any]]:
        session = await service.get_session(app_name="app", user_id=user, session_id="s")
        return session is not None, await service.get_user_state(app_name="app", user_id=user)

    for user in ("ada", "bob"):
        asyncio.run(create(user))
    nx.ledger.upkeep.erase_principal("ada")
    assert asyncio.run(found("ada")) == (False, {})
    assert asyncio.run(found("bob")) == (True, {"secret": "apple"})
