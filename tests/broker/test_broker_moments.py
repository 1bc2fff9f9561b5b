"""What arrives at a broker at an unlucky moment: between two steps of a turn, at its end, while the ledger fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, WorkerLimits
from nexus.broker import Broker, QueueMode
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import LedgerBusy, LedgerFull, ModelCallFailed
from nexus.types.stream_events import StreamError
from support.scripted_agent import Scenario, said

REPORT = "[Report of worker w]\nDone."


def run(work: Callable[[AsyncEngine], Any], ledger: str | Path = ":memory:") -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=ledger, model="gpt-4o") as nx:
            await asyncio.wait_for(work(nx), 60)

    asyncio.run(main())


def event(text: str) -> Event:
    return Event((Text(text),), id=text)


def asked(ctx: AssembledContext) -> str:
    texts = (message.text() for message in ctx.current if message.role == "user")
    return "+".join(texts)


def answer(ctx: AssembledContext) -> list[Any]:
    return said(f"Answer to {asked(ctx)}.")


def look_first(ctx: AssembledContext) -> list[Any]:
    if asked(ctx) == "one" and not any(list(message.results()) for message in ctx.current):
        return said("", ToolCall("c", "look", "{}"))
    return answer(ctx)


def answers(nx: AsyncEngine, session: str = "main") -> list[str]:
    return [message.text() for message in nx.engine.history(session) if message.role == "assistant"]


def act_before(nx: AsyncEngine, name: str, act: Callable[[], Awaitable[Any]]) -> None:
    """Have `act` awaited before the engine first runs a function of this name."""
    original = nx.run
    is_done = False

    async def acting(function: Any, /, *args: Any, **options: Any) -> Any:
        nonlocal is_done
        if not is_done and getattr(function, "func", function).__name__ == name:
            is_done = True
            await act()
        return await original(function, *args, **options)

    nx.run = acting


def fail_once(monkeypatch: pytest.MonkeyPatch, store: Any, name: str, error: Exception) -> None:
    """Have the store raise an error at the next call of a method."""
    original = getattr(store, name)

    def failing(*_: Any, **__: Any) -> Any:
        monkeypatch.setattr(store, name, original)
        raise error

    monkeypatch.setattr(store, name, failing)


@pytest.mark.parametrize("mode", ["followup", "collect", "steer", "steer-backlog", "interrupt"])
def test_event_between_the_end_of_a_turn_and_its_settling_has_the_next_turn(mode: QueueMode) -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer)), mode=mode, collect_s=0.0) as broker:
            act_before(nx, "stored_turns", lambda: broker.submit(event(REPORT), session="main"))
            await broker.submit(event("one"), mode="followup")
            one, report = await broker.result("one"), await broker.result(REPORT)
            assert (one.event.state, one.event.turn, one.text) == ("done", 1, "Answer to one.")
            assert (report.event.state, report.event.turn, report.text) == ("done", 2, f"Answer to {REPORT}.")

    run(work)


class Held(Scenario):
    """A scenario whose replies wait for an event."""

    def __init__(self, reply: Any, gate: asyncio.Event) -> None:
        super().__init__(reply)
        self._gate = gate

    async def stream(self, ctx: AssembledContext) -> Any:
        await self._gate.wait()
        async for item in super().stream(ctx):
            yield item


def test_report_between_the_end_of_a_turn_and_its_settling_is_answered() -> None:
    def spawning(ctx: AssembledContext) -> list[Any]:
        if asked(ctx) == "go" and ctx.role != "worker":
            return said("", ToolCall("w", "spawn_worker", '{"task": "count", "wait": false}'))
        return answer(ctx)

    async def work(nx: AsyncEngine) -> None:
        is_ended, is_reported = asyncio.Event(), asyncio.Event()
        agent = Agent(nx, Scenario(spawning), workers=WorkerLimits())
        async with Broker(agent, mode="steer") as broker:
            original = nx.run

            async def ordered(function: Any, /, *args: Any, **options: Any) -> Any:
                name = getattr(function, "func", function).__name__
                if name == "stored_turns" and args[0] == "boss" and not is_ended.is_set():
                    is_ended.set()
                    await is_reported.wait()
                if name == "stored_turns" and args[0] != "boss":
                    await is_ended.wait()
                done = await original(function, *args, **options)
                if name == "accept" and args[0].event.id.endswith(":report"):
                    is_reported.set()
                return done

            nx.run = ordered
            await broker.submit(event("go"), session="boss")
            assert (await broker.result("go")).event.turn == 1
            await broker.join()
        assert answers(nx, "boss")[-1].startswith("Answer to [Report of worker worker:boss.1.")
        assert {row.state for row in nx.engine.ledger.store.queued_events(None, ("done", "failed", "dropped"))} == {
            "done"
        }

    run(work)


def test_steering_event_has_the_next_turn_when_canceled_before_its_message_is_added() -> None:
    async def work(nx: AsyncEngine) -> None:
        async def look() -> str:
            """Look."""
            await broker.submit(event("two"))
            return "seen"

        async with Broker(Agent(nx, Scenario(look_first), tools=[look]), mode="steer") as broker:

            async def interrupt() -> None:
                (row,) = nx.engine.ledger.store.events_with_id("two")
                assert row.state == "running"
                await broker.submit(event("stop"), mode="interrupt")
                await asyncio.Event().wait()

            act_before(nx, "add", interrupt)
            await broker.submit(event("one"))
            one, two, stop = [await broker.result(id_) for id_ in ("one", "two", "stop")]
            assert (one.event.state, one.event.reason) == ("failed", "interrupted by event stop")
            assert (two.event.state, two.event.turn, stop.event.turn) == ("done", 2, 2)
            assert two.text == stop.text == "Answer to two+stop."

    run(work)


def test_interrupt_behind_the_last_reply_leaves_the_turn_answered() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            act_before(nx, "stored_turns", lambda: broker.submit(event("stop"), mode="interrupt"))
            await broker.submit(event("one"))
            assert (await broker.result("one")).text == "Answer to one."
            assert (await broker.result("stop")).text == "Answer to stop."
        assert [turn.status for turn in nx.engine.ledger.turns("main")] == ["completed", "completed"]

    run(work)


@pytest.mark.parametrize("moment", ["_fail_unless_completed", "stored_turns"])
def test_interrupt_behind_a_failure_leaves_its_reason(moment: str) -> None:
    def failing(ctx: AssembledContext) -> list[Any]:
        return [ModelCallFailed("no credit", "auth")] if asked(ctx) == "one" else answer(ctx)

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(failing))) as broker:
            act_before(nx, moment, lambda: broker.submit(event("stop"), mode="interrupt"))
            await broker.submit(event("one"))
            one = (await broker.result("one")).event
            assert (one.state, one.reason) == ("failed", "no credit")
            assert (await broker.result("stop")).event.state == "done"

    run(work)


@pytest.mark.parametrize("error", [LedgerFull("disk full"), LedgerBusy("ledger locked")])
@pytest.mark.parametrize("method", ["take_lease", "queued_events", "update_events"])
def test_queue_stops_says_so_and_goes_on_after_a_ledger_error(
    method: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexus.broker.session_tasks._RETRY_S", 0.05)

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            watched = broker.watch("main")
            fail = partial(fail_once, monkeypatch, nx.engine.ledger.store, method, error)
            act_before(nx, "accept" if method == "take_lease" else "take_lease", lambda: asyncio.to_thread(fail))
            await broker.submit(event("one"))
            item = await anext(watched)
            assert isinstance(item.event, StreamError)
            assert item.event.retryable
            assert item.event.text == f"queue of session 'main' stopped, and goes on in 0.05 s: {error}"
            await broker.join()
            (row,) = nx.engine.ledger.store.events_with_id("one")
            assert row.state == "done", "who joins waits for the queue that stopped"
        assert answers(nx) == ["Answer to one."]

    run(work)


def test_locked_ledger_stops_the_queue_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import apsw

    path = tmp_path / "l.db"
    monkeypatch.setattr("nexus.broker.session_tasks._RETRY_S", 0.05)
    monkeypatch.setattr("nexus.ledger.sqlite.connection.BUSY_TIMEOUT_MS", 100)

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            watched, other = broker.watch("main"), apsw.Connection(str(path))
            act_before(nx, "take_batch", lambda: asyncio.to_thread(other.execute, "BEGIN IMMEDIATE"))
            await broker.submit(event("one"))
            item = await anext(watched)
            assert "stopped, and goes on" in getattr(item.event, "text", "")
            await asyncio.to_thread(other.execute, "ROLLBACK")
            assert (await broker.result("one")).text == "Answer to one."
            await asyncio.to_thread(other.close)

    run(work, path)


def test_canceled_waiter_leaves_the_others_and_nothing_behind() -> None:
    async def work(nx: AsyncEngine) -> None:
        gate = asyncio.Event()

        async with Broker(Agent(nx, Held(answer, gate))) as broker:
            await broker.submit(event("one"))
            waiters = [asyncio.ensure_future(broker.result("one")) for _ in range(3)]
            await asyncio.sleep(0.02)
            waiters[0].cancel()
            with pytest.raises(TimeoutError):
                await broker.result("one", timeout_s=0.01)
            gate.set()
            results = await asyncio.gather(*waiters, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError)
            assert [getattr(result, "text", "") for result in results[1:]] == ["Answer to one."] * 2
            assert not broker._waiters

    run(work)


def test_broker_that_was_stopped_during_turns_is_started_again() -> None:
    async def work(nx: AsyncEngine) -> None:
        is_held = True

        def held(ctx: AssembledContext) -> list[Any]:
            return [*said("Half an")[:2], 60] if is_held else answer(ctx)

        broker = Broker(Agent(nx, Scenario(held)))
        async with broker:
            watched = broker.watch()
            for number in range(3):
                await broker.submit(event(f"{number}"), session=f"s{number}")
                await broker.submit(event(f"{number} later"), session=f"s{number}")
            count = 0
            async for item in watched:
                count += getattr(item.event, "text", "") == " an"
                if count == 3:
                    break
        is_held = False
        async with broker:
            last = [item async for item in watched]
            assert {item.session for item in last} == {"s0", "s1", "s2"}
            assert all(isinstance(item.event, StreamError) for item in last), "who watched until the stop is not behind"
            for number in range(3):
                assert (await broker.result(f"{number} later")).text == f"Answer to {number} later."
                assert answers(nx, f"s{number}") == [f"Answer to {number}.", f"Answer to {number} later."]

    run(work)


def test_event_behind_an_earlier_turn_delivered_again_has_one_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.db"

    async def first(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            for text in ("one", "two"):
                await broker.submit(event(text))
                await broker.result(text)
            fail_once(monkeypatch, nx.engine.ledger.store, "accept_events", LedgerFull("disk full"))
            with pytest.raises(LedgerFull):
                await broker.submit(event("other two"), turn=1)
            rows = [await broker.submit(event("other two"), turn=1) for _ in range(2)]
            assert rows[0] == rows[1]

    async def again(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            await broker.submit(event("three"))
            row = await broker.submit(event("other two"), turn=1)
            await broker.result("three")
            assert (await broker.result("other two")).text == "Answer to other two."
            assert (await broker.submit(event("other two"), turn=1)).state == "done"
            await broker.join()
            assert sorted(info.label for info in nx.engine.sessions()) == [row.session, "main"]
            assert answers(nx, row.session) == ["Answer to one.", "Answer to other two."]
        assert answers(nx) == ["Answer to one.", "Answer to two.", "Answer to three."]

    run(first, path)
    run(again, path)


def test_dropped_events_are_summarized_once_when_a_stop_comes_behind_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nexus.broker.session_tasks._RETRY_S", 0.05)

    async def work(nx: AsyncEngine) -> None:
        gate = asyncio.Event()

        async with Broker(Agent(nx, Held(answer, gate)), cap=1, drop="summarize") as broker:
            await broker.submit(event("one"))
            await asyncio.sleep(0.05)
            for text in ("two", "three"):
                await broker.submit(event(text))
            original = nx.run

            async def failing(function: Any, /, *args: Any, **options: Any) -> Any:
                (three,) = nx.engine.ledger.store.events_with_id("three")
                if getattr(function, "func", function).__name__ == "left_out" and three.state == "done":
                    nx.run = original
                    raise LedgerFull("disk full")
                return await original(function, *args, **options)

            nx.run = failing
            gate.set()
            assert (await broker.result("three")).event.turn == 2
            await broker.submit(event("four"))
            assert (await broker.result("four")).event.state == "done"
            two = (await broker.result("two")).event
            assert (two.state, two.turn) == ("dropped", 2)
        texts = [message.text() for message in nx.engine.history("main") if message.role == "user"]
        assert sum("- two]" in text for text in texts) == 1

    run(work)


def test_submission_that_is_canceled_while_it_is_stored_runs_all_the_same() -> None:
    """A turn that is interrupted while it spawns a worker, or a client that hangs up."""

    async def work(nx: AsyncEngine) -> None:
        stored, goes_on = threading.Event(), threading.Event()
        original = nx.engine.ledger.store.accept_events

        def wait_once_stored(*args: Any) -> Any:
            accepted = original(*args)
            stored.set()
            goes_on.wait(30)
            return accepted

        nx.engine.ledger.store.accept_events = wait_once_stored
        async with Broker(Agent(nx, Scenario(answer))) as broker:
            submission = asyncio.ensure_future(broker.submit(event("one"), session="main"))
            await asyncio.to_thread(stored.wait, 30)
            submission.cancel()
            goes_on.set()
            await asyncio.wait([submission])
            assert submission.cancelled()
            assert (await broker.result("one", timeout_s=30)).text == "Answer to one."

    run(work)
