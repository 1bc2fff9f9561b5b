"""ContextBuilder and LLMService on the bus: the printed request and response, errors, references and lost processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import nexus
from nexus.bus import Bus, MemoryBus, Message
from nexus.bus.message import ERROR_TYPE
from nexus.errors import BadSetting, BusDeadlineExceeded, BusNoResponder, BusRequestFailed, ModelCallFailed
from nexus.models import ModelReply
from nexus.services import ContextBuilder, LLMService, NexusBus, Run, RunMetadata, Topics
from nexus.services import bus_models as remote
from nexus.services.bus_models import BusModels
from nexus.services.messages import request_again
from nexus.testing.model_server import fail, overflow, reply
from nexus.tools import ToolRegistry
from nexus.types.message import ToolCall
from nexus.types.stream_events import Retry, Token
from services.running import Services, run, services
from support.scripted_agent import ScriptedClient, said

ROWS = [
    {"role": "human", "content": "What now?", "run_id": "r2", "timestamp": "2025-12-10T07:59:00Z"},
    {"role": "ai", "content": "Hello.", "run_id": "r1", "timestamp": "2025-12-10T07:30:01Z"},
    {"role": "human", "content": "Hi", "run_id": "r1", "timestamp": "2025-12-10T07:30:00Z"},
]
REQUEST = {
    "run": {
        "id": "r2",
        "owner_key": "ada",
        "user_profile": {"friends_profile": {"content": "I like maps."}},
        "current_input": "What now?",
    },
    "metadata": {"client_timestamp_utc": "2025-12-10T08:00:00Z", "client_timezone_offset": -480},
}


class Rows:
    async def get_history(self, owner_key: str, limit: int) -> list[dict[str, Any]]:
        assert owner_key == "ada"
        return ROWS[:limit]


async def abandoned(running: Services) -> None:
    """Wait until the model server has noticed that a client left."""
    for _ in range(6_000):
        if running.server.abandoned:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody left")


def web_search(query: str) -> str:
    """Search the web for information."""
    return query


def test_builder_has_the_printed_constructor_and_answers_the_printed_message() -> None:
    async def main() -> None:
        bus: NexusBus = MemoryBus()
        builder = ContextBuilder(bus, ToolRegistry([web_search]), {}, Rows())
        await builder.start()
        responses: list[Message] = []

        async def receive(message: Message) -> None:
            responses.append(message)

        await bus.subscribe(Topics.CONTEXT_BUILD_RESPONSE, receive)
        request = Message(Topics.CONTEXT_BUILD_REQUEST, REQUEST)
        answer = await bus.request(request)
        assert await builder.handle_build_request(request) is None
        await bus.close()
        assert len(responses) == 2
        for message in (answer, *responses):
            assert (message.correlation_id, message.causation_id) == (request.id, request.id)
            content = message.content
            assert set(content) == {"messages", "tools", "warnings", "omitted"}
            assert content["tools"][0]["function"]["name"] == "web_search"
            tags = ["# You are Nexus", "[CAPABILITIES]", "[SHARED_MEMORY count=2]", "[FRIENDS_INFO]", "[THIS_MOMENT]"]
            assert [text["content"].partition("\n")[0] for text in content["messages"]] == tags
            texts = "\n".join(text["content"] for text in content["messages"][1:])
            assert texts.count("What now?") == 1
            assert "2025-12-10 16:00:00+08:00" in texts

    run(main)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"run": {"owner_key": "ada"}}, "BadBusMessage"),
        ({"run": {"owner_key": "ada", "current_input": 7}}, "BadBusMessage"),
        ("What now?", "BadBusMessage"),
    ],
)
def test_bad_request_is_answered_with_an_error_envelope(content: object, kind: str) -> None:
    async def main() -> None:
        bus = MemoryBus()
        builder, responses = ContextBuilder(bus), list[Message]()

        async def receive(message: Message) -> None:
            responses.append(message)

        await bus.subscribe(Topics.CONTEXT_BUILD_RESPONSE, receive)
        await builder.start()
        with pytest.raises(BusRequestFailed) as raised:
            await bus.request(Message(Topics.CONTEXT_BUILD_REQUEST, content))
        await bus.publish(Message(Topics.CONTEXT_BUILD_REQUEST, content))
        await builder.stop()
        await bus.close()
        assert raised.value.kind == kind
        assert [(message.type, message.content["kind"]) for message in responses] == [(ERROR_TYPE, kind)] * 2

    run(main)


def test_failing_service_behind_the_builder_is_an_error_envelope() -> None:
    class Broken:
        def get_history(self, owner_key: str, limit: int) -> list[dict[str, Any]]:
            raise OSError(f"no history of {owner_key} ({limit})")

    async def main() -> None:
        bus = MemoryBus()
        await ContextBuilder(bus, persistence_service=Broken()).start()
        with pytest.raises(BusRequestFailed, match="OSError: no history of ada"):
            await bus.request(Message(Topics.CONTEXT_BUILD_REQUEST, REQUEST))
        await bus.close()

    run(main)


def test_builder_without_a_bus_cannot_start() -> None:
    with pytest.raises(BadSetting, match="no bus"):
        asyncio.run(ContextBuilder().start())


def test_llm_service_answers_plain_messages_and_keeps_the_kind_of_failures() -> None:
    async def main() -> None:
        async with services(reply("Paris."), fail(429, "slow down", retry_after_s=7.0)) as running:
            content = {"messages": [{"role": "user", "content": "Capital of France?"}], "model": "gpt-4o"}
            answer = await running.bus.request(Message(Topics.LLM_REQUEST, content))
            assert answer.content["reply"]["result"]["messages"][0]["parts"][0]["text"] == "Paris."
            with pytest.raises(BusRequestFailed) as raised:
                await running.bus.request(Message(Topics.LLM_REQUEST, content))
            assert raised.value.kind == "ModelCallFailed"
            assert raised.value.details == {
                "failure_kind": "rate_limit", "retryable": True, "status": 429, "retry_after_s": 7.0
            }  # fmt: skip
            with pytest.raises(BusRequestFailed, match="needs one of"):
                await running.bus.request(Message(Topics.LLM_REQUEST, {"model": "gpt-4o"}))

    run(main)


def test_client_on_the_bus_raises_the_failure_of_the_model() -> None:
    async def main() -> None:
        async with services(fail(429, "slow down", retry_after_s=7.0)) as running:
            ctx = await running.nx.assemble("Hi", session="s")
            with pytest.raises(ModelCallFailed) as raised:
                await running.orchestrator.models.complete(ctx)
            error = raised.value
            assert (error.kind, error.retryable, error.status, error.retry_after_s) == ("rate_limit", True, 429, 7.0)

    run(main)


async def read(page: str) -> str:
    """Read a page."""
    return f"{page} " * 3_000


def test_overflow_is_recovered_through_the_bus() -> None:
    async def main() -> None:
        steps = reply("", ToolCall("c", "read", '{"page": "one"}')), overflow(5_000, 9_000), reply("Done.")
        async with services(*steps, tools=[read]) as running:
            end = await running.client.run(Run("ada", "Read it.", "r1"))
            assert (end.state, end.text) == ("done", "Done.")
            assert len(str(running.server.bodies[2])) < len(str(running.server.bodies[1]))

    run(main)


def test_deadline_of_the_message_bounds_the_call() -> None:
    async def main() -> None:
        async with services(reply("word " * 5_000, event_interval_s=0.05)) as running:
            content = {"messages": [{"role": "user", "content": "Hi"}], "model": "gpt-4o"}
            with pytest.raises(BusDeadlineExceeded):
                await running.bus.request(Message(Topics.LLM_REQUEST, content), timeout_s=0.5)
            await abandoned(running)

    run(main)


@pytest.mark.parametrize("limit", [0, 256 * 1024], ids=["reference", "context"])
def test_large_contexts_are_assembled_from_the_ledger(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_CONTEXT_BYTES", limit)

    async def main() -> None:
        async with services(reply("One."), reply("Two."), watches=[Topics.LLM_REQUEST]) as running:
            for number, text in enumerate(("One.", "Two."), 1):
                end = await running.client.run(Run("ada", f"Question {number}", f"r{number}"), RunMetadata())
                assert end.text == text
            requests = running.contents(Topics.LLM_REQUEST)
            assert [("context" in content, "call" in content) for content in requests] == [(bool(limit), not limit)] * 2
            assert "Question 1" in running.server.bodies[1]["messages"][2]["content"]
            ctx = await running.nx.run(running.nx.engine.replay, "dm:ada", 2)
            assert ctx.to_openai()["messages"] == running.server.bodies[1]["messages"]

    run(main)


def test_call_is_made_again_if_its_service_falls_silent() -> None:
    async def main() -> None:
        bus, model = MemoryBus(), ScriptedClient([Token("Hello"), asyncio.Event()], said("Hello there."))
        client = BusModels(bus, silence_s=0.05)
        await client.start()
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
            async with LLMService(bus, model, heartbeat_s=60.0):  # pyright: ignore[reportArgumentType]
                items = [item async for item in client.stream(await nx.assemble("Hi"))]
            retries = [number for number, item in enumerate(items) if isinstance(item, Retry)]
            texts = [item.text for item in items[retries[-1] :] if isinstance(item, Token)]
            assert "".join(texts) == "Hello there."
            assert isinstance(items[-1], ModelReply)
            assert len(model.contexts) == 2
        await client.aclose()
        await bus.close()

    run(main)


def test_canceled_call_ends_at_the_service() -> None:
    async def main() -> None:
        async with services(reply("word " * 5_000, event_interval_s=0.05)) as running:
            stream = running.orchestrator.models.stream(await running.nx.assemble("Hi"))
            assert isinstance(await anext(stream), Token)
            await stream.aclose()
            await abandoned(running)

    run(main)


def test_same_call_is_made_once() -> None:
    async def main() -> None:
        async with services(reply("Hello.")) as running:
            ctx = await running.nx.assemble("Hi")
            models = running.orchestrator.models
            first, second = await asyncio.gather(models.complete(ctx), models.complete(ctx))
            third = await models.complete(ctx)
            assert first.result == second.result == third.result
            assert len(running.server.requests) == 1

    run(main)


def test_request_waits_for_a_service_that_starts_later() -> None:
    async def main() -> None:
        bus: Bus = MemoryBus()
        message = Message(Topics.CONTEXT_BUILD_REQUEST, REQUEST)
        with pytest.raises(BusNoResponder):
            await request_again(bus, message, try_s=1.0, total_s=0.2)
        with pytest.raises(BusNoResponder):
            await request_again(bus, message, try_s=1.0, total_s=600.0, absent_s=0.1)
        asking = asyncio.ensure_future(request_again(bus, message, try_s=5.0, total_s=60.0))
        await asyncio.sleep(0)
        builder = ContextBuilder(bus)
        await builder.start()
        assert len((await asking).content["messages"]) == 5
        await bus.close()

    run(main)
