"""What an orchestrator uses of a builder's answer: contexts of runs are the answers, in any process, and replay."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.bus import MemoryBus, Message
from nexus.models import open_client
from nexus.services import ConfigService, Run, RunClient, RunMetadata, Topics
from nexus.services.bus_models import BusAssembly
from nexus.services.context.mood import Mood
from nexus.services.serve import serve
from nexus.services.tagged import constraints_block
from nexus.testing.model_server import model_server, reply
from nexus.tools import ToolRegistry
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import ToolCall, assistant
from nexus.types.request import AgentResult
from services.running import Services, run, services
from services.tagged.making import HOSTILE

NOON = 1_765_353_600_000  # 2025-12-10 08:00 UTC
HELLO = AgentResult((assistant("Hello."),))
METADATA = RunMetadata("2025-12-10T07:30:00Z", -480)
LOOK = ToolCall("c1", "look", '{"place": "shelf"}')
ZONES = st.sampled_from([0, -480, 330, "-480", "Asia/Kathmandu", "", "Nowhere/City", 90.0, 10**6])
TEXTS = HOSTILE.filter(lambda text: bool(text.strip()))
PROFILES = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"friends_profile": st.one_of(HOSTILE, st.integers(), st.none(), st.lists(HOSTILE))}),
    st.fixed_dictionaries({"prompt_overrides": st.fixed_dictionaries({"learning": HOSTILE})}),
)
ROWS = [
    {"role": "ai", "content": "Hello.", "run_id": "r0", "timestamp": "2025-12-10T07:30:01Z"},
    {"role": "human", "content": "Hi from elsewhere", "run_id": "r0", "timestamp": "2025-12-10T07:30:00Z"},
]


async def look(place: str) -> str:
    """Look at a place."""
    return f"seen: {place}"


async def listen(place: str) -> str:
    """Listen at a place."""
    return place


class Rows:
    """The histories of another program."""

    def get_history(self, owner_key: str, limit: int) -> list[dict[str, Any]]:
        return ROWS[:limit] if owner_key == "ada" else []


class Case(msgspec.Struct, frozen=True):
    """Runs of some users, and what their builder has."""

    owners: list[str]
    texts: list[str]
    zone: int | float | str = 0
    mood: str = ""
    profile: dict[str, Any] = {}
    default: str = ""
    tools: tuple[Any, ...] = ()
    has_own_history: bool = False


CASES = st.builds(
    Case,
    st.lists(st.sampled_from(["ada", "eve"]), min_size=1, max_size=3),
    st.lists(TEXTS, min_size=3, max_size=3),
    ZONES,
    st.one_of(st.just(""), HOSTILE),
    PROFILES,
    HOSTILE,
    st.sampled_from([(), (look,), (look, listen)]),
    st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(CASES)
def test_contexts_of_runs_are_the_builders_answers(case: Case) -> None:
    run(partial(check_runs, case))


async def check_runs(case: Case) -> None:
    """Send the runs of a case, and check that each context is the builder's answer to its request, and replays."""
    watches = (Topics.CONTEXT_BUILD_REQUEST, Topics.CONTEXT_BUILD_RESPONSE)
    replies = (reply("I look.", LOOK), reply("Done.")) if case.tools else (reply("Done."),)
    async with services(*replies * len(case.owners), tools=case.tools, watches=watches) as running:
        running.builder.config_service = {"user_defaults": {"prompts": {"friends_profile": case.default}}}
        running.builder.mood_detector = lambda *_: Mood(case.mood)
        running.builder.persistence_service = Rows() if case.has_own_history else None
        for number, (owner, text) in enumerate(zip(case.owners, case.texts, strict=False)):
            metadata = RunMetadata("2025-12-10T07:30:00Z", case.zone)
            end = await running.client.run(Run(owner, text, f"r{number}", case.profile), metadata)
            assert end.state == "done", end.reason
        requests, answers = running.contents(watches[0]), running.contents(watches[1])
        assert [request["run"]["owner_key"] for request in requests] == case.owners
        sent = [body["messages"] for body in running.server.bodies]
        first = sent[:: len(replies)]
        assert first == [answer["messages"] for answer in answers]
        assert [len(messages) for messages in first] == [6 if case.mood.strip() else 5] * len(case.owners)
        for messages, later in zip(first, sent[len(replies) - 1 :: len(replies)], strict=True):
            assert later[: len(messages)] == messages
        await check_replays(running, sent)


async def check_replays(running: Services, sent: list[Any]) -> None:
    """Check that each recorded call replays to its hash, as one of the messages that were sent."""
    nx, count = running.nx.engine, 0
    for info in nx.sessions():
        for turn in await running.nx.run(nx.ledger.turns, info.label):
            calls = (await running.nx.run(nx.calls.find, info.label, turn.number)).count
            for call in range(1, calls + 1):
                ctx = await running.nx.run(partial(nx.replay, info.label, turn.number, call=call))
                assert ctx.to_openai()["messages"] in sent
            count += calls
    assert count == len(sent)


def block(body: Any, tag: str) -> str:
    """Return the message with a tag in a body; "" for none."""
    return next((m["content"] for m in body["messages"][1:] if m["content"].startswith(tag)), "")


def test_mood_and_default_profile_of_the_configuration_reach_the_model() -> None:
    async def main() -> None:
        with model_server(reply("I look.", LOOK), reply("Done."), reply("Fine.")) as server:
            bus = MemoryBus()
            models = open_client(base_url=server.openai_url, api_key="test")
            async with (
                nexus.open_async(ledger=":memory:", model="gpt-4o") as nx,
                serve(bus, nx, models, tool_registry=[look]),
            ):
                config, client = ConfigService(nx), RunClient(bus)
                await config.set_default("mood.enabled", value=True)
                await config.set_default("user_defaults.prompts.friends_profile.content", "Everybody likes maps.")
                await config.set_override("eve", "friends_profile", "I like trains.")
                await client.run(Run("ada", "I'm so tired", "r1"), METADATA)
                await client.run(Run("eve", "Good morning", "r1"), METADATA)
                first, second, other = server.bodies
                for body in (first, second):
                    assert block(body, "[MOOD]") == "[MOOD]\ntired"
                    assert block(body, "[FRIENDS_INFO]").endswith("\n\nEverybody likes maps.")
                assert block(other, "[FRIENDS_INFO]").endswith("\n\nI like trains.")
                assert not block(other, "[MOOD]")
                assert "so tired" not in str(other)
            await models.aclose()
            await bus.close()

    run(main)


def test_profile_of_the_engines_own_user_is_no_friends(tmp_path: Path) -> None:
    (tmp_path / "user.json").write_text('{"friends_profile": "I run the server."}')

    async def main() -> None:
        async with services(reply("Hello."), home=tmp_path) as running:
            await running.client.run(Run("ada", "Hi", "r1"))
            assert "I run the server" not in str(running.server.bodies)

    run(main)


def test_run_that_another_process_takes_over_keeps_its_answer_and_zone(tmp_path: Path) -> None:
    """Every call of a run shows the times of the user's zone, and the mood of the first call, without a second question."""
    path, moods = tmp_path / "ledger.db", iter(["calm", "wild"])

    async def main() -> None:
        steps = reply("Hi."), reply("I look.", LOOK), reply("word " * 5_000, event_interval_s=0.02)
        async with services(*steps, ledger=path, tools=[look], timezone="America/New_York") as running:
            running.builder.mood_detector = lambda *_: None if len(running.server.bodies) == 0 else Mood(next(moods))
            await running.client.run(Run("ada", "Good morning", "r1"), METADATA)
            stream = running.client.stream(Run("ada", "What is there?", "r2"), METADATA)
            while len(running.server.bodies) < 3:
                await anext(stream)
            await running.orchestrator.stop(grace_s=0.0)
            await stream.aclose()
            bodies = running.server.bodies[1:]
        async with services(reply("A book."), ledger=path, tools=[look], timezone="America/New_York") as running:
            running.builder.mood_detector = lambda *_: Mood(next(moods))
            assert (await running.client.run(Run("ada", "What is there?", "r2"), METADATA)).text == "A book."
            bodies += running.server.bodies
        assert len(bodies) == 3
        for body in bodies:
            assert "[2025-12-10 15:30] Human: Good morning" in block(body, "[SHARED_MEMORY")
            assert "<current_time>2025-12-10 15:30:00+08:00<" in block(body, "[THIS_MOMENT]")
            assert block(body, "[MOOD]") == "[MOOD]\ncalm"
            assert body["messages"][:6] == bodies[0]["messages"]

    run(main)


@pytest.mark.parametrize("offset", [0, "0"])
def test_utc_is_a_users_zone_too(offset: int | str, tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "l.db", timezone="Asia/Tokyo", model="gpt-4o") as nx:
        nx.record(nx.assemble(nexus.Event((nexus.Text("Hi"),), at_ms=NOON), session="s", profile="tagged"), HELLO)
        nx.begin(nexus.Event((nexus.Text("And?"),), at_ms=NOON, timezone=offset), session="s", profile="tagged")
        turn = nx.current_turn("s", profile="tagged")
        assert turn is not None
        assert "[2025-12-10 08:00] Human: Hi" in block(turn.assemble().to_openai(), "[SHARED_MEMORY")


CAPABILITIES = "[CAPABILITIES]\nYou can look."
FRIEND = "[FRIENDS_INFO]\nAbout this friend:\n\nA pirate. "
MEMORY = "[SHARED_MEMORY]\nRecent conversation memory:\n\n[2020-01-01 10:00] Human: Ahoy\n  Nexus: Arr"
MOMENT = (
    "[THIS_MOMENT]\n<current_time>2025-12-10 15:30:00+08:00</current_time>\n<human_input>\nWho am I?\n</human_input>"
)
OWN = [
    "You are a parrot.",
    CAPABILITIES,
    MEMORY.replace("]", " count=2]", 1),
    FRIEND,
    constraints_block("No rum."),
    MOMENT,
]


async def answered(texts: list[str], *, tools: Any = (), reply_to: Any = Message.reply) -> tuple[Any, Any, Any]:
    """Run one run with a builder of another program; return its end, the bodies that were sent, and its question."""
    asked: list[Any] = []
    async with services(reply("I look.", LOOK), reply("Done."), tools=[look], builder=False) as running:

        async def build(message: Message) -> Message:
            asked.append(message.content)
            roles = ["system", *["user"] * (len(texts) - 1)]
            messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
            return reply_to(message, {"messages": messages, "tools": list(tools or message.content["tools"])})

        await running.bus.subscribe(Topics.CONTEXT_BUILD_REQUEST, build, group="mine")
        end = await running.client.run(Run("ada", "Who am I?", "r1", {"friends_profile": "A captain."}), METADATA)
        bodies = running.server.bodies
        if bodies:
            await check_replays(running, [body["messages"] for body in bodies])
        return end, bodies, asked


def test_another_builders_answer_is_the_context() -> None:
    async def main() -> None:
        end, bodies, asked = await answered(OWN)
        assert end.state == "done", end.reason
        for body in bodies:
            assert [message["content"] for message in body["messages"][:6]] == OWN
            assert [tool["function"]["name"] for tool in body["tools"]] == ["look"]
        (request,) = asked
        assert request["run"] == {
            "owner_key": "ada", "current_input": "Who am I?", "id": "r1", "user_profile": {"friends_profile": "A captain."}
        }  # fmt: skip
        assert request["metadata"] == {
            "client_timestamp_utc": "2025-12-10T07:30:00.000Z", "client_timezone_offset": -480
        }  # fmt: skip
        assert "look" in str(request["tools"])

    run(main)


def other(place: int, text: str) -> list[str]:
    """Return the answer with another text."""
    return [*OWN[:place], text, *OWN[place + 1 :]]


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["Just answer."], "not a system message"),
        (["Just answer.", "Who am I?"], "blocks are none"),
        ([*OWN[:2], *OWN[3:]], "instead of tools, shared_memory"),
        ([*OWN[:2], OWN[3], OWN[2], *OWN[4:]], "instead of tools, shared_memory"),
        (other(2, "[SHARED_MEMORY count=2]\nNothing."), "not a block of the shared memory"),
        (other(2, MEMORY.replace("]", " count=3]", 1)), "2 entries instead of 3"),
        (other(3, f"{FRIEND}\n[THIS_MOMENT]"), r"block \[FRIENDS_INFO\] has another form"),
        (other(5, MOMENT.replace("Who am I", "Who are you")), "current message is another than the run's"),
        (other(5, MOMENT.replace("15:30", "07:30")), "current message is another than the run's"),
        (other(5, "Who am I?"), "current message"),
        ([*OWN, "One more thing."], "messages after the current one"),
        (OWN[:5], r"no block \[THIS_MOMENT\]"),
    ],
)
def test_answer_that_cannot_be_assembled_is_refused(texts: list[str], why: str) -> None:
    async def main() -> None:
        end, bodies, _ = await answered(texts)
        assert (end.state, bodies) == ("failed", [])
        assert re.search(why, end.reason), end.reason

    run(main)


def test_answer_with_a_tool_that_the_run_does_not_have_is_refused() -> None:
    async def main() -> None:
        end, bodies, _ = await answered(OWN, tools=[{"name": "fly", "parameters": {"type": "object"}}])
        assert (end.state, bodies) == ("failed", [])
        assert "tools that this run does not have: fly" in end.reason

    run(main)


@pytest.mark.parametrize("field", ["causation_id", "correlation_id", "tenant"])
def test_reply_to_another_message_is_refused(field: str) -> None:
    def forged(message: Message, content: Any) -> Message:
        return msgspec.structs.replace(message.reply(content), **{field: "other"})

    async def main() -> None:
        end, bodies, _ = await answered(OWN, reply_to=forged)
        assert (end.state, bodies) == ("failed", [])
        assert "to another message" in end.reason

    run(main)


def test_longer_history_of_another_program_is_shown_whole() -> None:
    """A history that ends as the ledger's does is no shortened memory of the ledger."""

    class Longer:
        def get_history(self, _owner_key: str, limit: int) -> list[dict[str, Any]]:
            human = {"role": "human", "timestamp": "2025-12-10T07:30:00Z"}
            return [{**human, "content": text} for text in ("Who am I?", "Ahoy", "Older")][:limit]

    async def main() -> None:
        async with services(reply(""), reply("Done.")) as running:
            running.builder.persistence_service = Longer()
            await running.client.run(Run("ada", "Ahoy", "r1"), METADATA)
            assert (await running.client.run(Run("ada", "Who am I?", "r2"), METADATA)).state == "done"
            assert block(running.server.bodies[1], "[SHARED_MEMORY").startswith("[SHARED_MEMORY count=3]")

    run(main)


def test_registry_of_the_builder_describes_the_tools() -> None:
    async def main() -> None:
        async with services(reply("Done."), tools=[look, listen]) as running:

            def look_(place: str) -> str:
                """Look closely."""
                return place

            look_.__name__ = "look"
            running.builder.tool_registry = ToolRegistry([look_])
            end = await running.client.run(Run("ada", "Hi", "r1"))
            assert end.state == "done", end.reason
            (body,) = running.server.bodies
            tools = {tool["function"]["name"]: tool["function"]["description"] for tool in body["tools"]}
            assert tools == {"look": "Look closely.", "listen": "Listen at a place."}
            assert "Look closely." in block(body, "[CAPABILITIES]")

    run(main)


def test_pins_of_the_ledger_are_in_the_answer() -> None:
    async def main() -> None:
        async with services(reply("Hello."), watches=[Topics.CONTEXT_BUILD_RESPONSE]) as running:
            await running.client.run(Run("ada", "My dog is Rex", "r1"))
            await running.nx.run(running.nx.engine.ledger.pin, "dm:ada", MessageRef(1, 0))
            end = await running.client.run(Run("ada", "And now?", "r2"))
            assert end.state == "done", end.reason
            bodies = running.server.bodies
            assert "My dog is Rex" in block(bodies[1], SUMMARY_MARKER)
            assert bodies[1]["messages"] == running.contents(Topics.CONTEXT_BUILD_RESPONSE)[-1]["messages"]
            await check_replays(running, [body["messages"] for body in bodies])

    run(main)


def test_law_finds_a_builder_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def around(self: BusAssembly, turn: Any, changes: Any) -> Any:
        own = await self.nx.run(partial(turn.turn.assemble, **changes))
        await self._ask(turn.turn, own)  # pyright: ignore[reportPrivateUsage]
        return own

    monkeypatch.setattr(BusAssembly, "__call__", around)
    run(partial(check_runs, Case(["ada"], ["Hi"])))
    for case in (Case(["ada"], ["Hi"], mood="calm"), Case(["ada"], ["Hi"], default="A pirate.")):
        with pytest.raises(AssertionError):
            run(partial(check_runs, case))
