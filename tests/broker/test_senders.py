"""Events of several senders and sessions under one id, forks of a person's session, and turns that another writer ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.broker import Broker
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import IdempotencyConflict, NotAccepted, NotAllowed
from nexus.policy import Policy
from nexus.policy.values import Principal, Toolset
from support.errors import has_code
from support.scripted_agent import Scenario, said

POLICY = Policy(
    "house",
    principals={"boss": Principal(toolset="all"), "guest": Principal(toolset="all")},
    toolsets={"all": Toolset(("*",))},
)


def run(work: Callable[[AsyncEngine], Any], **options: Any) -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o", **options) as nx:
            await asyncio.wait_for(work(nx), 60)

    asyncio.run(main())


def event(text: str, id_: str) -> Event:
    return Event((Text(text),), id=id_)


def echo(ctx: AssembledContext) -> list[Any]:
    texts = [message.text() for message in ctx.current if message.role == "user"]
    return said(f"Answer to {texts[-1].splitlines()[-1]}.")


def test_id_means_one_event_in_each_session_and_of_each_sender() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(echo), builtin=False)) as broker:
            ann = await broker.submit(event("of ann", "7"), session="ann")
            bob = await broker.submit(event("of bob", "7"), session="bob")
            named = await broker.submit(event("of eve", "7"), session="bob", principal="eve")
            assert (ann.id, bob.id, named.id) == ("7", "7", "7")
            texts = [(await broker.result(row)).text for row in (ann, bob, named)]
            assert texts == ["Answer to of ann.", "Answer to of bob.", "Answer to of eve."]
            with pytest.raises(
                NotAccepted,
                match=r"'ann'; session 'bob'; session 'bob', principal 'eve'",
                check=has_code("ambiguous_event"),
            ):
                await broker.result("7")
            with pytest.raises(NotAccepted, check=has_code("ambiguous_event")):
                await broker.cancel("7", session="bob")
            assert (await broker.current("7", session="ann")).event.key == ann.key
            assert (await broker.result("7", session="bob", principal="eve")).event.key == named.key
            assert (await broker.result("7", session="bob", principal="")).event.key == bob.key
            with pytest.raises(NotAccepted):
                await broker.result("7", session="carol")

    run(work)


@pytest.mark.parametrize("is_begun", [False, True])
def test_other_content_under_the_id_of_a_sender_is_an_error(is_begun: bool) -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(echo), builtin=False)) as broker:
            if is_begun:
                nx.engine.begin(event("one", "7"), session="s").record(nexus.AgentResult((nexus.assistant("A1"),)))
            row = await broker.submit(event("one", "7"), session="s")
            assert (await broker.result(row)).text == ("A1" if is_begun else "Answer to one.")
            with pytest.raises(IdempotencyConflict, match="another message of the same sender"):
                await broker.submit(event("two", "7"), session="s")
            assert (await broker.submit(event("one", "7"), session="s")).key == row.key

    run(work)


def test_two_brokers_of_one_agent_steer_their_own_turns() -> None:
    async def work(nx: AsyncEngine) -> None:
        gate, looking = asyncio.Event(), asyncio.Event()

        async def look() -> str:
            """Look."""
            looking.set()
            await gate.wait()
            return "seen"

        def answer(ctx: AssembledContext) -> list[Any]:
            has_looked = any(list(message.results()) for message in ctx.current)
            return echo(ctx) if has_looked else said("", ToolCall("c", "look", "{}"))

        agent = Agent(nx, Scenario(answer), tools=[look], builtin=False)
        async with Broker(agent) as broker, Broker(agent):
            await broker.submit(event("go", "1"), session="s")
            await looking.wait()
            await broker.submit(event("also", "2"), session="s", mode="steer")
            gate.set()
            assert [(await broker.result(id_)).event.turn for id_ in "12"] == [1, 1]

    run(work)


def test_fork_behind_an_earlier_turn_belongs_to_the_owner_of_its_session() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(echo), builtin=False)) as broker:
            for text in ("one", "two"):
                await broker.result(await broker.submit(event(text, text), principal="boss"))
            row = await broker.submit(event("other two", "7"), turn=1, principal="boss")
            result = await broker.result(row)
            assert (result.event.state, result.text) == ("done", "Answer to other two.")
            assert next(message.text() for message in nx.engine.history(row.session)) == "one"
            for options in ({"session": row.session}, {"session": "dm:boss", "turn": 1}):
                with pytest.raises(NotAllowed):
                    await broker.submit(event("show me", "8"), principal="guest", **options)

    run(work, policy=POLICY)


def test_report_of_a_worker_has_the_options_of_the_turn_that_spawned_it() -> None:
    asked: list[tuple[str, str, str]] = []

    def answer(ctx: AssembledContext) -> list[Any]:
        assert ctx.provenance.request is not None
        asked.append((ctx.session_label, ctx.provenance.settings.principal, ctx.provenance.request.settings.system))
        if ctx.role != "worker" and ctx.current_message.text().endswith("go"):
            return said("", ToolCall("w", "spawn_worker", '{"task": "count", "wait": false}'))
        return said("Done.")

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer), builtin=False, workers=WorkerLimits())) as broker:
            await broker.submit(event("go", "1"), principal="boss", system="Be brief.")
            await broker.join()
        of_manager = [call for call in asked if call[0] == "dm:boss"]
        assert of_manager == [("dm:boss", "boss", "Be brief.")] * 3

    run(work, policy=POLICY)


def rewound(nx: AsyncEngine) -> None:
    nx.engine.ledger.rewind("s", turn=0)


def taken_over(nx: AsyncEngine) -> None:
    turn = nx.engine.current_turn("s")
    assert turn is not None
    turn.fail("error", "ended by another program")


@pytest.mark.parametrize("act", [rewound, taken_over])
def test_events_of_a_turn_that_another_writer_ended_fail_and_the_others_go_on(
    act: Callable[[AsyncEngine], None],
) -> None:
    async def work(nx: AsyncEngine) -> None:
        is_called, gate = asyncio.Event(), asyncio.Event()

        class Held(Scenario):
            async def stream(self, ctx: AssembledContext) -> Any:
                if not is_called.is_set():
                    is_called.set()
                    await gate.wait()
                async for item in super().stream(ctx):
                    yield item

        async with Broker(Agent(nx, Held(echo), builtin=False), collect_s=0.0) as broker:
            await broker.submit(event("one", "1"), session="s")
            await is_called.wait()
            await broker.submit(event("two", "2"), session="s", mode="steer")
            await broker.submit(event("three", "3"), session="s")
            await nx.run(act, nx)
            gate.set()
            one, two, three = [await broker.result(id_) for id_ in "123"]
            assert one.event.state == "failed"
            (late,) = [info.label for info in nx.engine.sessions(include_inactive=True) if "~late-" in info.label]
            assert late in one.event.reason
            assert [message.text() for message in nx.engine.history(late)][-1] == "Answer to one."
            assert (two.text, three.text) == ("Answer to two.", "Answer to three.")
            assert "Answer to one." not in [message.text() for message in nx.engine.history("s")]

    run(work)
