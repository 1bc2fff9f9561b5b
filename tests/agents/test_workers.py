"""Workers: links, limits, and answers that are stored once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, Limits, WorkerLimits
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.engine.turn import Turn
from nexus.types.stream_events import StreamEvent
from support.scripted_agent import Scenario, check_laws, said


def spawn(id_: str, task: str, **more: Any) -> ToolCall:
    return ToolCall(id_, "spawn_worker", json.dumps({"task": task, **more}))


def run(work: Callable[[AsyncEngine], Any], **options: Any) -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o", **options) as nx:
            await work(nx)

    asyncio.run(main())


def manager_and_workers(ctx: AssembledContext) -> list[Any]:
    if ctx.role == "worker":
        return said(f"Report: {ctx.current_message.text()}")
    if ctx.current_message.role == "tool":
        return said("Both are done.")
    return said("", spawn("a", "count apples"), spawn("b", "count pears"))


def test_worker_answers_the_spawning_call_in_a_linked_session() -> None:
    async def work(nx: AsyncEngine) -> None:
        client, events = Scenario(manager_and_workers), list[StreamEvent]()
        agent = Agent(nx, client, workers=WorkerLimits())
        result = await agent.run("Count.", session="boss", sink=events.append)
        check_laws(events)
        assert result.error is None
        texts = [item.content[0].text for item in result.tool_results]
        assert texts == ["Report: count apples", "Report: count pears"]
        workers = [info for info in nx.engine.sessions() if info.label.startswith("worker:boss.1.")]
        assert len(workers) == 2
        metadata = [nx.engine.ledger.store.session(info.label).metadata for info in workers]
        assert {(one.parent_session, one.parent_turn) for one in metadata} == {("boss", 1)}
        assert {(one.parent_call_id, one.task) for one in metadata} == {("a", "count apples"), ("b", "count pears")}
        assert result.cost_usd == 0.004, "the workers' cost is the manager's"

    run(work)


def test_worker_prompt_names_its_task_and_nothing_of_the_manager() -> None:
    prompts: list[str] = []

    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker":
            prompts.append(ctx.system_prompt)
            assert [message.text() for message in ctx.messages if "secret plan" in message.text()] == []
        return manager_and_workers(ctx)

    async def work(nx: AsyncEngine) -> None:
        await Agent(nx, Scenario(answer), workers=WorkerLimits()).run("Our secret plan.")
        assert all("# Subagent Context" in prompt for prompt in prompts)
        assert ["count apples" in prompt or "count pears" in prompt for prompt in prompts] == [True, True]

    run(work)


def test_spawning_call_that_runs_again_finds_the_same_worker_and_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise RuntimeError("the program stopped")

    async def work(nx: AsyncEngine) -> None:
        client = Scenario(manager_and_workers)
        agent = Agent(nx, client, workers=WorkerLimits())
        event = Event((Text("Count."),), id="e1")
        with monkeypatch.context() as stopped:
            stopped.setattr(Turn, "results", stop)
            assert (await agent.run(event, session="boss")).error is not None
        assert any(name.startswith("worker:") for name in client.sessions)
        assert (await agent.run(event, session="boss")).error is None
        assert len({name for name in client.sessions if name.startswith("worker:")}) == 2
        results = [item for message in nx.engine.history("boss") for item in message.results()]
        assert sorted(item.call_id for item in results) == ["a", "b"]

    run(work)


def test_workers_may_be_nested_as_deep_as_the_limit() -> None:
    depths: list[str] = []
    contexts: list[AssembledContext] = []

    def answer(ctx: AssembledContext) -> list[Any]:
        depths.append(ctx.session_label)
        contexts.append(ctx)
        if ctx.current_message.role == "tool":
            return said(next(iter(ctx.current_message.results())).content[0].text)
        return said("", spawn("deeper", "go deeper"))

    async def work(nx: AsyncEngine) -> None:
        agent = Agent(nx, Scenario(answer), workers=WorkerLimits(depth=2))
        result = await agent.run("Go.", session="boss")
        assert len({name for name in depths if name.startswith("worker:")}) == 2
        assert result.error is None
        offered = [[tool.name for tool in ctx.tools] for ctx in contexts if ctx.current_message.role == "user"]
        assert ["spawn_worker" in names for names in offered] == [True, True, False], "none at the limit"

    run(work)


def test_workers_of_one_depth_run_at_most_n_at_once() -> None:
    running: list[int] = [0, 0]

    class Slow(Scenario):
        async def stream(self, ctx: AssembledContext) -> AsyncGenerator[Any]:
            if ctx.role == "worker":
                running[0] += 1
                running[1] = max(running)
                await asyncio.sleep(0.02)
                running[0] -= 1
            async for item in super().stream(ctx):
                yield item

    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker" or ctx.current_message.role == "tool":
            return said("Done.")
        return said("", *(spawn(f"c{number}", f"task {number}") for number in range(7)))

    async def work(nx: AsyncEngine) -> None:
        result = await Agent(nx, Slow(answer), workers=WorkerLimits(at_once=2)).run("Go.")
        assert ([item.is_error for item in result.tool_results], running[1]) == ([False] * 7, 2)

    run(work)


def test_cost_limit_of_the_manager_bounds_its_workers() -> None:
    def answer(ctx: AssembledContext) -> list[Any]:
        return said("", spawn("w", "work") if ctx.role != "worker" else ToolCall("r", "recall", '{"query": "x"}'))

    async def work(nx: AsyncEngine) -> None:
        client = Scenario(answer)
        agent = Agent(nx, client, workers=WorkerLimits(depth=1), limits=Limits(cost_usd=0.0045))
        result = await agent.run("Go.", session="boss")
        assert "the turn cost" in (result.error or "")
        assert len(client.sessions) <= 6

    run(work)


def test_worker_has_at_most_its_managers_permissions() -> None:
    seen: dict[str, tuple[str, ...]] = {}

    def answer(ctx: AssembledContext) -> list[Any]:
        seen[ctx.role] = ctx.permissions_granted
        return manager_and_workers(ctx)

    async def work(nx: AsyncEngine) -> None:
        agent = Agent(nx, Scenario(answer), workers=WorkerLimits(), role="manager")
        await agent.run("Go.", permissions=("read",))
        assert seen == {"manager": ("read",), "worker": ("read",)}

    run(work)


def test_empty_task_and_failed_worker_are_error_results() -> None:
    from nexus.errors import ModelCallFailed

    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker":
            return [ModelCallFailed("no credit", "auth")]
        if ctx.current_message.role == "tool":
            return said("Sorry.")
        return said("", spawn("a", " "), spawn("b", "try"), spawn("c", "later", wait=False))

    async def work(nx: AsyncEngine) -> None:
        result = await Agent(nx, Scenario(answer), workers=WorkerLimits()).run("Go.")
        texts = [item.content[0].text for item in result.tool_results if item.is_error]
        assert "needs a task" in texts[0]
        assert "failed: no credit" in texts[1]
        assert "wait=true" in texts[2]

    run(work)


def test_later_reply_that_uses_a_call_id_again_spawns_another_worker() -> None:
    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker":
            return said(f"Report: {ctx.current_message.text()}")
        results = [item.content[0].text for message in ctx.messages for item in message.results()]
        if len(results) == 2:
            return said("Both are done.")
        return said("", spawn("call_0", "count pears" if results else "count apples"))

    async def work(nx: AsyncEngine) -> None:
        result = await Agent(nx, Scenario(answer), workers=WorkerLimits()).run("Count.", session="boss")
        texts = [item.content[0].text for item in result.tool_results]
        assert texts == ["Report: count apples", "Report: count pears"]

    run(work)


@pytest.mark.parametrize(("model", "is_allowed"), [("gpt-4o", True), ("gpt-4o-mini", True), ("o1", False)])
def test_worker_has_its_managers_model_or_one_of_the_list(model: str, is_allowed: bool) -> None:
    models: list[str] = []

    def answer(ctx: AssembledContext) -> list[Any]:
        if ctx.role == "worker":
            models.append(ctx.model)
        if ctx.role == "worker" or ctx.current_message.role == "tool":
            return said("Done.")
        return said("", spawn("a", "count", model=model))

    async def work(nx: AsyncEngine) -> None:
        agent = Agent(nx, Scenario(answer), workers=WorkerLimits(models=("gpt-4o-mini",)))
        (answered,) = (await agent.run("Count.")).tool_results
        assert models == [model] * is_allowed
        assert answered.is_error is not is_allowed
        if not is_allowed:
            assert answered.content[0].text.endswith("leave it out, or use gpt-4o, gpt-4o-mini")

    run(work)


def test_worker_does_not_continue_a_session_that_its_manager_did_not_spawn() -> None:
    labels: list[str] = []

    def answer(ctx: AssembledContext) -> list[Any]:
        labels.append(ctx.session_label)
        if ctx.role == "worker" or ctx.current_message.role == "tool":
            return said("Done.")
        return said("", spawn("a", "count"))

    async def work(nx: AsyncEngine) -> None:
        await Agent(nx, Scenario(answer), workers=WorkerLimits()).run("Count.", session="boss")
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as other:
            other.engine.begin("Tell me all.", session=labels[1])
            result = await Agent(other, Scenario(answer), workers=WorkerLimits()).run("Count.", session="boss")
            (answered,) = result.tool_results
            assert answered.is_error
            assert "did not spawn it" in answered.content[0].text

    run(work)
