"""Document 000's data flow on the bus: runs, their tool loop, errors, redelivery and commands."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nexus.bus import MemoryBus, Message
from nexus.bus.message import now_ms
from nexus.errors import BusRequestFailed, LedgerUnavailable
from nexus.services import Run, RunClient, RunMetadata, Topics
from nexus.services.context.builder import ContextBuilder
from nexus.services.orchestrator import CANCEL_S, RunState
from nexus.testing.model_server import fail, reply
from nexus.types.message import ToolCall
from nexus.types.stream_events import Token
from services.running import run, services
from support.scripted_agent import check_laws

METADATA = RunMetadata("2025-12-10T08:00:00Z", -480)
LOOK = ToolCall("c1", "look", '{"place": "shelf"}')


async def look(place: str) -> str:
    """Look at a place."""
    return f"seen: {place}"


def test_run_goes_through_all_three_services() -> None:
    async def main() -> None:
        async with services(
            reply("Paris."),
            watches=(Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_BUILD_RESPONSE, Topics.LLM_REQUEST, Topics.RUN_END),
        ) as running:
            profile = {"friends_profile": {"content": "I like maps."}}
            end = await running.client.run(Run("ada", "What's the capital of France?", "r1", profile), METADATA)
            assert (end.state, end.text, end.session, end.turn) == ("done", "Paris.", "dm:ada", 1)
            await running.seen(Topics.RUN_END, 1)
            topics = [message.topic for message in running.messages]
            assert topics == [
                Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_BUILD_RESPONSE, Topics.LLM_REQUEST, Topics.RUN_END
            ]  # fmt: skip
            response = running.messages[1]
            assert response.causation_id == running.messages[0].id
            system, capabilities, memory, friend, moment = running.server.bodies[0]["messages"]
            assert response.content["messages"] == running.server.bodies[0]["messages"]
            assert system["role"] == "system"
            assert system["content"].startswith("# You are Nexus")
            assert capabilities["content"].startswith("[CAPABILITIES]")
            assert memory["content"].startswith("[SHARED_MEMORY count=0]")
            assert friend["content"] == "[FRIENDS_INFO]\nAbout this friend:\n\nI like maps."
            assert moment["content"] == (
                "[THIS_MOMENT]\n<current_time>2025-12-10 16:00:00+08:00</current_time>\n"
                "<human_input>\nWhat's the capital of France?\n</human_input>"
            )

    run(main)


def test_tool_loop_keeps_the_five_messages_and_replays() -> None:
    async def main() -> None:
        async with services(reply("I look.", LOOK), reply("A book."), tools=[look]) as running:
            end = await running.client.run(Run("ada", "What is there?", "r1"), METADATA)
            assert (end.state, end.text) == ("done", "A book.")
            first, second = running.server.bodies
            assert second["messages"][:5] == first["messages"]
            assert [message["role"] for message in second["messages"][5:]] == ["assistant", "tool"]
            assert second["messages"][6]["content"] == "seen: shelf"
            assert first["tools"][0]["function"]["name"] == "look"
            for call, body in enumerate(running.server.bodies, 1):
                ctx = await running.nx.run(partial(running.nx.engine.replay, "dm:ada", 1, call=call))
                assert ctx.to_openai()["messages"] == body["messages"]
            text = json.dumps(second["messages"])
            assert text.count("What is there?") == 1

    run(main)


def test_next_run_has_the_last_one_in_its_memory_and_its_input_once() -> None:
    async def main() -> None:
        async with services(reply("Hello."), reply("Again.")) as running:
            await running.client.run(Run("ada", "Good morning", "r1"), METADATA)
            await running.client.run(Run("ada", "Good morning", "r2"), METADATA)
            memory, moment = (running.server.bodies[1]["messages"][at]["content"] for at in (2, 4))
            assert memory.startswith("[SHARED_MEMORY count=2]")
            assert memory.count("Good morning") == moment.count("Good morning") == 1

    run(main)


def test_redelivered_run_has_no_second_effect() -> None:
    async def main() -> None:
        async with services(reply("Hello.")) as running:
            first = await running.client.run(Run("ada", "Hi", "r1"))
            again = await running.client.run(Run("ada", "Hi", "r1"))
            assert first == again
            assert len(running.server.requests) == 1
            assert len(await running.nx.history("dm:ada")) == 2

    run(main)


def test_run_id_of_another_user_is_another_run() -> None:
    async def main() -> None:
        async with services(reply("Hello, Ada."), reply("Hello, Eve.")) as running:
            ada = await running.client.run(Run("ada", "Hi", "r1"))
            eve = await running.client.run(Run("eve", "Hello", "r1"))
            assert (ada.session, ada.text, eve.session, eve.text) == ("dm:ada", "Hello, Ada.", "dm:eve", "Hello, Eve.")
            with pytest.raises(BusRequestFailed, match="another message of the same sender"):
                await running.client.run(Run("eve", "Bye", "r1"))


def test_run_of_another_user_is_not_found() -> None:
    async def main() -> None:
        async with services(reply("word " * 5_000, event_interval_s=0.02)) as running:
            stream = running.client.stream(Run("ada", "Tell a story", "r1"))
            while not isinstance(await anext(stream), Token):
                pass
            refused = [
                {"command": command, "run_id": "r1", **owner}
                for command in ("result", "cancel")
                for owner in ({"owner_key": "eve"}, {"owner_key": ""}, {})
            ]
            messages = [Message(Topics.COMMANDS, content) for content in refused]
            messages.append(
                Message(Topics.COMMANDS, {"command": "result", "run_id": "r1", "owner_key": "ada"}, tenant="x")
            )
            for message in messages:
                with pytest.raises(BusRequestFailed, match="not found") as raised:
                    await running.bus.request(message)
                assert raised.value.kind == "NotAccepted"
            for content in (*refused[3:], "r1"):
                await running.bus.publish(Message(Topics.RUN_CANCEL, content))
            assert isinstance(await anext(stream), Token)
            assert (await running.client.result("r1", "ada")).state == "running"
            await running.client.cancel("r1", "ada")
            await stream.aclose()

    run(main)


def test_two_users_with_one_run_id_have_a_run_each() -> None:
    async def main() -> None:
        async with services(reply("Hello."), reply("Bye.")) as running:
            ends = [await running.client.run(Run(owner, f"I am {owner}", "r1")) for owner in ("ada", "eve")]
            assert [(end.session, end.text) for end in ends] == [("dm:ada", "Hello."), ("dm:eve", "Bye.")]
            assert await running.client.result("r1", "ada") == ends[0]
            assert "I am ada" not in str(running.server.bodies[1])

    run(main)


def test_run_ends_at_the_largest_number_of_iterations() -> None:
    async def main() -> None:
        async with services(reply("", LOOK), tools=[look]) as running:
            end = await running.client.run(Run("ada", "Go", "r1"))
            assert end.state == "failed"
            assert "10 calls of a model" in end.reason
            assert len(running.server.requests) == 10

    run(main)


def test_failure_of_the_model_is_the_reason_of_the_run_and_its_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with services(fail(401, "bad key")) as running:
            end = await running.client.run(Run("ada", "Go", "r1"))
            assert end.state == "failed"
            assert "bad key" in end.reason
            turn = (await running.nx.run(running.nx.engine.ledger.turns, "dm:ada"))[0]
            assert (turn.status, turn.failure_kind) == ("failed", "auth")

    run(main)
    assert [record.getMessage() for record in caplog.records] == ["run r1 of dm:ada failed: auth"]


@pytest.mark.parametrize("code", ["ledger_unavailable", "outcome_unknown"])
def test_run_goes_on_after_the_builders_database_was_away(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    respond, tries = ContextBuilder._response, list[int]()  # pyright: ignore[reportPrivateUsage]

    async def respond_at_third_try(self: ContextBuilder, message: Message) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise LedgerUnavailable("the server is starting", code=code)
        return await respond(self, message)

    monkeypatch.setattr(ContextBuilder, "_response", respond_at_third_try)

    async def main() -> None:
        async with services(reply("Paris.")) as running:
            end = await running.client.run(Run("ada", "What's the capital of France?", "r1"))
            assert (end.state, end.text, end.turn) == ("done", "Paris.", 1), end.reason
            assert len(running.server.bodies) == 1

    run(main)
    assert len(tries) == 3


def test_ui_events_name_their_run_and_begin_and_end_like_a_turns() -> None:
    async def main() -> None:
        async with services(reply("Good morning."), watches=(Topics.UI_EVENTS,)) as running:
            items = [item async for item in running.client.stream(Run("ada", "Hi", "r1"))]
            *events, end = items
            assert isinstance(end, RunState)
            assert end.text == "Good morning."
            check_laws([event for event in events if not isinstance(event, RunState)])
            for content in running.contents(Topics.UI_EVENTS):
                assert (content["run_ids"], content["session"]) == (["r1"], "dm:ada")

    run(main)


def test_cancellation_has_more_time_than_orchestrator_takes() -> None:
    """An orchestrator waits 5 s for a session that it takes over, then `CANCEL_S` for the end of the run."""

    async def main() -> None:
        bus, times_ms = MemoryBus(), list[int]()

        async def answer(message: Message) -> Message:
            times_ms.append(message.deadline_ms - now_ms())
            return message.reply({"run_id": "r1", "session": "dm:ada", "state": "running"})

        await bus.subscribe(Topics.COMMANDS, answer)
        assert (await RunClient(bus).cancel("r1", "ada")).state == "running"
        assert times_ms[0] > 1000 * (CANCEL_S + 5)
        await bus.close()

    run(main)


def test_running_run_is_canceled_and_keeps_its_partial_reply() -> None:
    async def main() -> None:
        async with services(reply("word " * 5_000, event_interval_s=0.02)) as running:
            stream = running.client.stream(Run("ada", "Tell a story", "r1"))
            while not isinstance(await anext(stream), Token):
                pass
            state = await running.client.cancel("r1", "ada")
            assert (state.state, state.reason) == ("failed", "canceled")
            await stream.aclose()
            assert [message.role for message in await running.nx.history("dm:ada")] == ["user", "assistant"]
            assert await running.client.cancel("r1", "ada") == state

    run(main)


def test_commands_are_answered() -> None:
    async def main() -> None:
        async with services(reply("word " * 400)) as running:
            for number in range(6):
                await running.client.run(Run("ada", f"Question {number} {'word ' * 300}", f"r{number}"))
            assert (await running.client.result("r0", "ada")).state == "done"
            compact = Message(Topics.COMMANDS, {"command": "compact", "owner_key": "ada"})
            done = (await running.bus.request(compact, timeout_s=60)).content
            assert done["session"] == "dm:ada"
            assert done["tokens_after"] <= done["tokens_before"]
            for content, code in (
                ({"command": "result", "run_id": "none", "owner_key": "ada"}, "not_accepted"),
                ({"command": "cancel", "run_id": "none", "owner_key": "ada"}, "not_accepted"),
                ({"command": "compact", "owner_key": "nobody"}, "no_such_session"),
                ({"command": "fly"}, "bad_bus_message"),
            ):
                with pytest.raises(BusRequestFailed) as raised:
                    await running.bus.request(Message(Topics.COMMANDS, content))
                assert raised.value.error_code == code

    run(main)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Message(Topics.RUN_REQUEST, {"run": {"owner_key": "", "current_input": "Hi"}}), "bad_session_key"),
        (Message(Topics.RUN_REQUEST, {"run": {"owner_key": "ada", "current_input": " "}}), "empty_event"),
        (Message(Topics.RUN_REQUEST, {"owner_key": "ada"}), "bad_bus_message"),
        (
            Message(Topics.RUN_REQUEST, {"run": {"owner_key": "ada", "current_input": "Hi"}}, tenant="other"),
            "not_allowed",
        ),
    ],
)
def test_bad_run_request_is_answered_with_an_error(message: Message, code: str) -> None:
    async def main() -> None:
        async with services() as running:
            with pytest.raises(BusRequestFailed) as raised:
                await running.bus.request(message)
            assert raised.value.error_code == code
            assert running.nx.engine.sessions() == []

    run(main)


def test_users_profile_of_the_configuration_is_used() -> None:
    class Identities:
        def get(self, _name: str) -> None:
            return None

        async def get_identity(self, owner_key: str) -> dict[str, Any]:
            return {"owner_key": owner_key, "prompt_overrides": {"friends_profile": "I like trains."}}

    async def main() -> None:
        async with services(reply("Hello."), config_service=Identities()) as running:
            await running.client.run(Run("ada", "Hi", "r1"))
            assert "I like trains." in running.server.bodies[0]["messages"][3]["content"]

    run(main)


def test_accepted_run_survives_its_process(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "ledger.db"
        async with services(reply("word " * 5_000, event_interval_s=0.02), ledger=path) as running:
            stream = running.client.stream(Run("ada", "Hi", "r1"))
            while not isinstance(await anext(stream), Token):
                pass
            await running.orchestrator.stop(grace_s=0.0)
            await stream.aclose()
        async with services(reply("Hello."), ledger=path) as running:
            end = await running.client.run(Run("ada", "Hi", "r1"))
            assert (end.state, end.text) == ("done", "Hello.")
            texts = [message.text() for message in await running.nx.history("dm:ada")]
            assert texts == ["Hi", "Hello."]

    run(main)
