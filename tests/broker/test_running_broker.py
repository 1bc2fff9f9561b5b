"""The running broker: acceptance, order, queue modes, restarts, watching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.broker import Broker
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadSetting, LedgerUnavailable, NotAccepted
from nexus.ledger.sqlite import SqliteLedger
from support.scripted_agent import Scenario, check_laws, said, streamed_text


class Model(Scenario):
    """Answers with the texts of the current messages. `gate` holds it, `started` says that it was called."""

    def __init__(self, answer: Callable[[AssembledContext], list[Any]] | None = None) -> None:
        super().__init__(answer or (lambda ctx: said(f"Answer to {asked(ctx)}.")))
        self.gate, self.started = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def stream(self, ctx: AssembledContext) -> Any:
        self.started.set()
        await self.gate.wait()
        async for item in super().stream(ctx):
            yield item


def asked(ctx: AssembledContext) -> str:
    texts = (
        part.text
        for message in ctx.current
        if message.role == "user"
        for part in message.parts
        if isinstance(part, Text)
    )
    return "+".join(texts)


def run(work: Callable[[AsyncEngine], Any], ledger: str | Path = ":memory:") -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=ledger, model="gpt-4o") as nx:
            await asyncio.wait_for(work(nx), 300)

    asyncio.run(main())


def event(text: str, id_: str = "") -> Event:
    return Event((Text(text),), id=id_ or text)


def answers(nx: AsyncEngine, session: str = "main") -> list[str]:
    return [message.text() for message in nx.engine.history(session) if message.role == "assistant"]


def test_accepted_event_is_in_the_ledger_and_is_answered() -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        model.gate.clear()
        async with Broker(Agent(nx, model)) as broker:
            watched = broker.watch()
            row = await broker.submit("Hello", session="s")
            assert (row.session, row.state) == ("s", "queued")
            assert nx.engine.ledger.store.queued_event(row.key) == row
            await model.started.wait()
            assert (broker.state("s"), broker.state("other")) == ("processing", "idle")
            model.gate.set()
            result = await broker.result(row.id)
            assert (result.event.state, result.event.turn, result.text) == ("done", 1, "Answer to Hello.")
            await broker.join()
            assert broker.state("s") == "idle"
        events = [item async for item in watched]
        assert {(item.session, item.event_ids) for item in events} == {("s", (row.id,))}
        check_laws([item.event for item in events])
        assert streamed_text([item.event for item in events]) == "Answer to Hello."

    run(work)


def test_event_delivered_again_adds_nothing() -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        async with Broker(Agent(nx, model)) as broker:
            first = await broker.submit(event("Hello", "e1"))
            again = await broker.submit(event("Hello", "e1"))
            assert again.number == first.number
            await broker.result("e1")
            assert (await broker.submit(event("Hello", "e1"))).state == "done"
            await broker.join()
        assert (answers(nx), len(model.sessions)) == (["Answer to Hello."], 1)

    run(work)


MODES = {
    "followup": ["Answer to one.", "Answer to two.", "Answer to three.", "Answer to four."],
    "collect": ["Answer to one.", "Answer to two+three+four."],
    "steer": ["Answer to one.", "Answer to two+three+four."],
    "steer-backlog": ["Answer to one.", "Answer to two.", "Answer to three.", "Answer to four."],
}


@pytest.mark.parametrize("mode", MODES)
def test_events_that_arrive_while_a_turn_without_tools_runs(mode: Any) -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        model.gate.clear()
        async with Broker(Agent(nx, model), mode=mode, collect_s=0.0) as broker:
            await broker.submit(event("one"))
            await model.started.wait()
            for text in ("two", "three", "four"):
                await broker.submit(event(text))
            model.gate.set()
            results = [await broker.result(text) for text in ("one", "two", "three", "four")]
            assert {result.event.state for result in results} == {"done"}
        assert answers(nx) == MODES[mode]
        users = [message for message in nx.engine.history("main") if message.role == "user"]
        assert [message.text() for message in users] == ["one", "two", "three", "four"], "separate messages"

    run(work)


@pytest.mark.parametrize("mode", ["steer", "steer-backlog"])
def test_steering_event_joins_the_running_turn_after_its_tool_results(mode: Any) -> None:
    async def work(nx: AsyncEngine) -> None:
        gate, called = asyncio.Event(), asyncio.Event()

        async def look() -> str:
            """Look."""
            called.set()
            await gate.wait()
            return "seen"

        def answer(ctx: AssembledContext) -> list[Any]:
            if any(list(message.results()) for message in ctx.current):
                return said(f"Seen, and {asked(ctx)}.")
            return said("", ToolCall("c", "look", "{}"))

        async with Broker(Agent(nx, Model(answer), tools=[look]), mode=mode) as broker:
            await broker.submit(event("one"))
            await called.wait()
            await broker.submit(event("two"))
            await broker.submit(event("three"))
            gate.set()
            results = [await broker.result(text) for text in ("one", "two", "three")]
            assert [(result.event.state, result.event.turn) for result in results] == [("done", 1)] * 3
        roles = [message.role for message in nx.engine.history("main")]
        assert roles == ["user", "assistant", "tool", "user", "user", "assistant"]
        assert answers(nx)[-1] == "Seen, and two+three."
        for provider in ("to_openai", "to_anthropic", "to_gemini", "to_responses"):
            getattr(nx.engine.assemble("next"), provider)()

    run(work)


def test_interrupting_event_ends_the_turn_and_begins_one_with_the_backlog() -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model(
            lambda ctx: [*said("Half an")[:2], 60] if asked(ctx) == "one" else said(f"Answer to {asked(ctx)}.")
        )
        async with Broker(Agent(nx, model)) as broker:
            watched = broker.watch()
            await broker.submit(event("one"))
            async for item in watched:
                if getattr(item.event, "text", "") == " an":
                    break
            await broker.submit(event("two"))
            await broker.submit(event("stop"), mode="interrupt")
            first = await broker.result("one")
            assert (first.event.state, first.event.reason) == ("failed", "interrupted by event stop")
            assert (await broker.result("stop")).text == "Answer to two+stop."
            assert (await broker.result("two")).event.turn == 2
        assert [turn.status for turn in nx.engine.ledger.turns("main")] == ["interrupted", "completed"]
        assert answers(nx) == ["Half an", "Answer to two+stop."]

    run(work)


@pytest.mark.parametrize(
    ("drop", "dropped", "answered"),
    [("old", ["2", "3"], "1 4 5"), ("new", ["4", "5"], "1 2 3"), ("summarize", ["2", "3"], "1 4 5")],
)
def test_full_queue_drops_with_a_reason(drop: Any, dropped: list[str], answered: str) -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        model.gate.clear()
        async with Broker(Agent(nx, model), cap=2, drop=drop) as broker:
            await broker.submit(event("1"))
            await model.started.wait()
            for text in ("2", "3", "4", "5"):
                await broker.submit(event(text))
            model.gate.set()
            rows = [(await broker.result(text)).event for text in ("1", "2", "3", "4", "5")]
            assert [row.id for row in rows if row.state == "dropped"] == dropped
            assert all("queue full" in row.reason for row in rows if row.state == "dropped")
            assert " ".join(row.id for row in rows if row.state == "done") == answered
        texts = [message.text() for message in nx.engine.history("main") if message.role == "user"]
        left_out = [text for text in texts if "2 earlier messages were left out" in text]
        assert len(left_out) == (drop == "summarize")
        if left_out:
            assert "- 2\n- 3]" in left_out[0]

    run(work)


def test_broker_goes_on_after_a_restart(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"

    async def stop_in_the_middle(nx: AsyncEngine) -> None:
        model = Model(lambda _: [*said("Half an")[:2], 60])
        async with Broker(Agent(nx, model)) as broker:
            watched = broker.watch()
            for text in ("one", "two"):
                await broker.submit(event(text))
            await broker.submit(event("three"), session="other")
            count = 0
            async for item in watched:
                count += getattr(item.event, "text", "") == " an"
                if count == 2:
                    break

    async def go_on(nx: AsyncEngine) -> None:
        states = {row.id: row.state for row in nx.engine.ledger.store.queued_events()}
        assert states == {"one": "running", "two": "queued", "three": "running"}
        async with Broker(Agent(nx, Model())) as broker:
            assert [(await broker.result(text)).text for text in ("one", "two", "three")] == [
                "Answer to one.",
                "Answer to two.",
                "Answer to three.",
            ]
        assert answers(nx) == ["Answer to one.", "Answer to two."]
        assert [turn.status for turn in nx.engine.ledger.turns("main")] == ["completed", "completed"]

    run(stop_in_the_middle, ledger)
    run(go_on, ledger)


def test_two_brokers_share_a_ledger_and_run_a_session_once_at_a_time(tmp_path: Path) -> None:
    running: list[int] = [0, 0]

    class Counted(Model):
        async def stream(self, ctx: AssembledContext) -> Any:
            running[0] += 1
            running[1] = max(running)
            try:
                await asyncio.sleep(0.002)
                async for item in super().stream(ctx):
                    yield item
            finally:
                running[0] -= 1

    async def work(nx: AsyncEngine) -> None:
        async with (
            nexus.open_async(ledger=tmp_path / "l.db", model="gpt-4o") as other,
            Broker(Agent(nx, Counted())) as one,
            Broker(Agent(other, Counted())) as two,
        ):
            for number in range(10):
                await (one if number % 2 else two).submit(event(str(number)))
            results = [await one.result(str(number)) for number in range(10)]
            assert [result.event.state for result in results] == ["done"] * 10
        assert running[1] == 1
        assert sorted(answers(nx)) == sorted(f"Answer to {number}." for number in range(10))

    run(work, tmp_path / "l.db")


def test_event_for_an_earlier_turn_goes_to_a_fork() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Model())) as broker:
            for text in ("one", "two"):
                await broker.submit(event(text))
                await broker.result(text)
            row = await broker.submit(event("other two"), turn=1)
            assert row.session.startswith("fork:main@1.")
            assert (await broker.submit(event("other too", "other two, later"), turn=1)).session != row.session
            assert (await broker.submit(event("other two"), turn=1)).number == row.number
            await broker.result("other two")
            assert answers(nx, row.session) == ["Answer to one.", "Answer to other two."]
            assert answers(nx) == ["Answer to one.", "Answer to two."]

    run(work)


def test_event_that_cannot_run_fails_with_the_reason_and_the_queue_goes_on() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Model())) as broker:
            await broker.submit(event("bad"), budget=10)
            await broker.submit(event("good"))
            bad, good = await broker.result("bad"), await broker.result("good")
            assert bad.event.state == "failed"
            assert "budget" in bad.event.reason
            assert good.text == "Answer to good."

    run(work)


def test_wrong_use_of_a_broker_is_a_clear_error() -> None:
    async def work(nx: AsyncEngine) -> None:
        broker = Broker(Agent(nx, Model()))
        with pytest.raises(NotAccepted, match="not running"):
            await broker.submit("Hi")
        with pytest.raises(BadSetting, match="queue mode 'later' unknown"):
            Broker(Agent(nx, Model()), mode="later")  # pyright: ignore[reportArgumentType]
        async with broker:
            with pytest.raises(BadSetting, match="JSON values"):
                await broker.submit("Hi", blocks={"a": object()})  # pyright: ignore[reportArgumentType]
            with pytest.raises(NotAccepted, match="never accepted"):
                await broker.result("unknown")

    run(work)


def test_worker_without_wait_reports_to_its_manager_as_an_event() -> None:
    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker":
            return said("42 apples.")
        if "Report of worker" in asked(ctx):
            return said("Thanks.")
        if any(list(message.results()) for message in ctx.current):
            return said("Started.")
        return said("", ToolCall("w", "spawn_worker", '{"task": "count", "wait": false}'))

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Model(answer), workers=WorkerLimits())) as broker:
            await broker.submit(event("go"), session="boss")
            await broker.result("go")
            await broker.join()
        assert answers(nx, "boss")[1:] == ["Started.", "Thanks."]
        report = nx.engine.history("boss")[-2].text()
        assert "42 apples." in report
        assert "worker:boss.1." in report

    run(work)


def test_worker_that_runs_later_is_linked_to_the_turn_that_spawned_it() -> None:
    def answer(ctx: AssembledContext) -> list[Any]:
        if asked(ctx) != "go" or ctx.role == "worker":
            return said("Done.")
        return said("", ToolCall("w", "spawn_worker", '{"task": "count", "wait": false}'))

    async def work(nx: AsyncEngine) -> None:
        model = Model(answer)
        model.gate.clear()
        async with Broker(Agent(nx, model, workers=WorkerLimits()), at_once=1) as broker:
            for text in ("go", "next"):
                await broker.submit(event(text), session="boss")
            model.gate.set()
            await broker.join()
        assert model.sessions[:3] == ["boss"] * 3, "the worker runs behind the next turn"
        (info,) = nx.engine.ledger.sessions.spawned("boss")
        metadata = nx.engine.ledger.sessions.metadata(info.label)
        assert (metadata.parent_turn, metadata.parent_call_id, metadata.task) == (1, "w", "count")
        assert answers(nx, info.label) == ["Done."]

    run(work)


def test_events_of_a_process_that_stopped_are_run_by_another_one_that_looks(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "ledger.db"
        async with nexus.open_async(ledger=path, model="gpt-4o") as nx, nexus.open_async(ledger=path) as other:
            left = Broker(Agent(nx, Model()))
            ended: list[str] = []
            async with Broker(
                Agent(other, Model(), model="gpt-4o"), look_s=0.01, on_end=lambda row: ended.append(row.id)
            ) as broker:
                async with left:
                    left._slots = asyncio.Semaphore(0)  # it accepts, and runs nothing
                    await left.submit(event("Hi"), session="main")
                assert (await broker.result("Hi")).text == "Answer to Hi."
                await broker.join()
            assert ended == ["Hi"]

    asyncio.run(asyncio.wait_for(main(), 120))


def test_look_leaves_a_session_alone_that_another_process_runs(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "ledger.db"
        async with nexus.open_async(ledger=path, model="gpt-4o") as nx, nexus.open_async(ledger=path) as other:
            model, unused = Model(), Model()
            model.gate.clear()
            async with Broker(Agent(nx, model)) as runs, Broker(Agent(other, unused), look_s=0.01, at_once=1) as looks:
                await runs.submit(event("Hi"), session="main")
                await model.started.wait()
                for _ in range(20):  # it looks meanwhile
                    await asyncio.sleep(0.01)
                assert not unused.started.is_set()
                assert not looks._slots.locked()
                model.gate.set()
                assert (await runs.result("Hi")).text == "Answer to Hi."

    asyncio.run(asyncio.wait_for(main(), 120))


def test_queued_event_is_canceled_as_dropped_and_a_running_one_as_failed() -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        model.gate.clear()
        ended: list[str] = []
        async with Broker(Agent(nx, model), on_end=lambda row: ended.append(row.id)) as broker:
            await broker.submit(event("first"), session="main")
            await broker.submit(event("second"), session="main")
            await model.started.wait()
            assert await broker.cancel("second")
            assert await broker.cancel("first")
            states = {id_: (await broker.result(id_)).event for id_ in ("first", "second")}
            assert [(row.state, row.reason) for row in states.values()] == [
                ("failed", "canceled"),
                ("dropped", "canceled"),
            ]
            assert not await broker.cancel("first")
            with pytest.raises(NotAccepted):
                await broker.current("third")
        assert ended == ["second", "first"]

    run(work)


@pytest.mark.parametrize("place", range(6))
def test_ledger_that_cannot_be_reached_for_a_moment_fails_no_event(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, commits = SqliteLedger.commit, list[str]()

    def interrupted_commit(store: SqliteLedger, session: str, *args: Any) -> Any:
        commits.append(session)
        if len(commits) == place + 1:
            raise LedgerUnavailable("the database cannot be reached")
        return commit(store, session, *args)

    def look() -> str:
        """Look."""
        return "seen"

    def reply(ctx: AssembledContext) -> list[Any]:
        has_result = any(message.role == "tool" for message in ctx.current)
        return said("It is there.") if has_result else said("Looking.", ToolCall("a", "look", "{}"))

    async def work(nx: AsyncEngine) -> None:
        agent = Agent(nx, Model(reply))
        agent._registry.register(look, repeatable=True)
        async with Broker(agent) as broker:
            monkeypatch.setattr(SqliteLedger, "commit", interrupted_commit)
            row = await broker.submit(event("Where is it?"), session="s")
            result = await broker.result(row.id)
        assert (result.event.state, result.text) == ("done", "It is there.")
        assert answers(nx, "s") == ["Looking.", "It is there."]
        assert [message.text() for message in nx.engine.history("s") if message.role == "user"] == ["Where is it?"]

    run(work)
