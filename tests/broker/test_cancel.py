"""An accepted event that is canceled, waiting or running."""

from __future__ import annotations

import asyncio

from broker.test_running_broker import Model, answers, event, run
from nexus.agents import Agent
from nexus.broker import Broker
from nexus.broker.broker import CANCELED
from nexus.engine.async_engine import AsyncEngine


def test_waiting_event_is_dropped_and_running_one_interrupted() -> None:
    async def work(nx: AsyncEngine) -> None:
        model = Model()
        model.gate.clear()
        async with Broker(Agent(nx, model)) as broker:
            for text in ("one", "two", "three"):
                await broker.submit(event(text))
            await model.started.wait()
            assert broker.session_count == 1
            assert await broker.cancel("two")
            assert await broker.cancel("one")
            await broker.result("one")
            model.gate.set()
            results = [(await broker.result(text)).event for text in ("one", "two", "three")]
            assert [(row.state, row.reason) for row in results] == [
                ("failed", CANCELED),
                ("dropped", CANCELED),
                ("done", ""),
            ]
            await broker.join()
            assert broker.session_count == 0
        assert answers(nx) == ["Answer to three."]

    run(work)


def test_event_that_is_unknown_or_has_ended_is_not_canceled() -> None:
    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Model())) as broker:
            await broker.submit(event("one"))
            await broker.result("one")
            assert not await broker.cancel("one")
            assert not await broker.cancel("never sent")

    run(work)


def test_event_is_canceled_at_every_moment_of_its_turn() -> None:
    """However far it is, a canceled event ends once: canceled, or done if its turn was."""

    async def work(nx: AsyncEngine) -> None:
        async with Broker(Agent(nx, Model())) as broker:
            for steps in range(30):
                name = f"e{steps}"
                await broker.submit(event(name), session=name)
                for _ in range(steps):
                    await asyncio.sleep(0)
                canceled = await broker.cancel(name)
                row = (await broker.result(name)).event
                assert row.state == "done" or (canceled and row.reason == CANCELED)

    run(work)


def test_event_that_a_killed_process_ran_is_canceled_while_its_session_is_taken_over() -> None:
    async def work(nx: AsyncEngine) -> None:
        store, model = nx.engine.ledger.store, Model()
        model.gate.clear()
        async with Broker(Agent(nx, model)) as broker:
            await broker.submit(event("one"))
            await model.started.wait()
        lease = await nx.run(lambda: store.take_lease("main", "killed process", 300))
        assert lease.holder == "killed process"
        async with Broker(Agent(nx, model)) as broker:
            assert await broker.cancel("one")
            assert (await broker.result("one")).event.reason == CANCELED
        assert answers(nx) == []

    run(work)


def test_event_of_another_living_process_is_not_canceled() -> None:
    async def work(nx: AsyncEngine) -> None:
        store, model = nx.engine.ledger.store, Model()
        model.gate.clear()
        async with Broker(Agent(nx, model)) as broker:
            await broker.submit(event("one"))
            await model.started.wait()
        await nx.run(lambda: store.take_lease("main", "living process", 60_000))
        async with Broker(Agent(nx, model), look_s=60.0) as broker:
            assert not await broker.cancel("one")

    run(work)
