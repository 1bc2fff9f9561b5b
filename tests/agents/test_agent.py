"""Turns of an agent: the tool loop, its durability, its limits, and the laws of its events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, Limits
from nexus.agents.tool_calls import run_calls
from nexus.engine.async_engine import AsyncEngine, AsyncTurn
from nexus.engine.turn import Turn
from nexus.errors import BadEvent, ModelCallFailed
from nexus.tools import ToolRegistry
from nexus.types.message import ToolResult
from nexus.types.stream_events import Retry, StreamEnd, StreamError, StreamEvent, ToolStatus
from support.scripted_agent import ScriptedClient, check_laws, said, streamed_text


def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: The city.
    """
    return f"Sunny in {city}."


def run(work: Callable[[AsyncEngine], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o", **options) as nx:
            return await work(nx)

    return asyncio.run(main())


CALL = ToolCall("c1", "weather", '{"city": "Rome"}')


def stored_text(nx: AsyncEngine, session: str = "main") -> str:
    return "".join(message.text() for message in nx.engine.history(session) if message.role == "assistant")


def test_tool_that_ends_the_turn_needs_no_further_reply() -> None:
    """Unless its call failed: the model then goes on."""

    async def work(nx: AsyncEngine) -> None:
        registry = ToolRegistry()

        @registry.tool(ends_turn=True)
        def finish(note: str) -> str:
            """End the turn."""
            return note

        wrong, right = ToolCall("c1", "finish", "{}"), ToolCall("c2", "finish", '{"note": "done"}')
        events = list[StreamEvent]()
        agent = Agent(nx, ScriptedClient(said("", wrong), said("Again.", right), said("Hi.")), tools=registry)
        result = await agent.run("Weather in Rome?", sink=events.append)
        assert (result.stop_reason, result.error, result.calls) == ("end_turn", None, 2)
        assert [message.role for message in result.messages] == ["assistant", "tool", "assistant", "tool"]
        assert nx.engine.ledger.turns("main")[0].status == "completed"
        check_laws(events)
        assert (await agent.run("And now?")).messages[-1].text() == "Hi."

    run(work)


def test_agent_runs_tools_until_the_model_answers() -> None:
    async def work(nx: AsyncEngine) -> None:
        client, events = ScriptedClient(said("Let me look.", CALL), said("It is sunny.")), list[StreamEvent]()
        agent = Agent(nx, client, tools=[weather])
        result = await agent.run("Weather in Rome?", sink=events.append)
        assert [message.role for message in result.messages] == ["assistant", "tool", "assistant"]
        assert (result.stop_reason, result.error, result.calls, result.usage.input_tokens) == ("end_turn", None, 2, 20)
        assert result.cost_usd == pytest.approx(0.002)
        (record,) = result.tool_call_records
        assert (record.status, record.result is not None) == ("completed", True)
        check_laws(events)
        assert streamed_text(events) == stored_text(nx) == "Let me look.It is sunny."
        assert [event.status for event in events if isinstance(event, ToolStatus)] == ["started", "completed"]
        assert nx.engine.ledger.turns("main")[0].status == "completed"
        assert [tool.name for tool in client.contexts[0].tools] == ["compact", "recall", "weather"]

    run(work)


def test_agent_stream_yields_the_events_and_closing_it_interrupts_the_turn() -> None:
    async def work(nx: AsyncEngine) -> None:
        agent = Agent(nx, ScriptedClient(said("One two three."), [*said("Four five")[:2], 60]))
        events = [event async for event in agent.stream("Count.")]
        check_laws(events)
        assert streamed_text(events) == "One two three."
        stream = agent.stream("Go on.")
        async for event in stream:
            if getattr(event, "text", "") == " five":
                break
        await stream.aclose()
        assert nx.engine.ledger.turns("main")[-1].status == "interrupted"
        assert nx.engine.history("main")[-1].text() == "Four five"

    run(work)


def test_calls_of_one_reply_run_at_the_same_time_and_each_result_is_durable_as_it_arrives() -> None:
    async def work(nx: AsyncEngine) -> None:
        first_done = asyncio.Event()

        async def slow() -> str:
            """Wait."""
            await first_done.wait()
            stored = [row.status for row in nx.engine.ledger.calls("main")]
            return ",".join(sorted(stored))

        async def fast() -> str:
            """Return."""
            asyncio.get_running_loop().call_later(0.05, first_done.set)
            return "fast"

        calls = (ToolCall("a", "slow", "{}"), ToolCall("b", "fast", "{}"))
        agent = Agent(nx, ScriptedClient(said("", *calls), said("Done.")), tools=[slow, fast], builtin=False)
        result = await agent.run("Go.")
        assert [r.content[0].text for r in result.tool_results] == ["completed,pending", "fast"]

    run(work)


def test_failed_tool_unknown_tool_and_slow_tool_are_error_results() -> None:
    async def work(nx: AsyncEngine) -> None:
        async def forever() -> str:
            """Never return."""
            await asyncio.sleep(3_600)
            return ""

        def broken() -> str:
            """Fail."""
            raise ValueError("no such thing")

        calls = tuple(ToolCall(name, name, "{}") for name in ("forever", "broken", "missing"))
        client, events = ScriptedClient(said("", *calls), said("Sorry.")), list[StreamEvent]()
        agent = Agent(nx, client, tools=[forever, broken], limits=Limits(tool_seconds=0.05), builtin=False)
        result = await agent.run("Go.", sink=events.append)
        texts = [item.content[0].text for item in result.tool_results]
        assert all(item.is_error for item in result.tool_results)
        assert "did not end within 0.05 seconds" in texts[0]
        assert "ValueError: no such thing" in texts[1]
        assert "there is no tool 'missing'" in texts[2]
        check_laws(events)

    run(work)


def test_dangerous_tool_needs_confirmation() -> None:
    async def work(nx: AsyncEngine) -> None:
        done: list[str] = []
        registry = ToolRegistry()

        @registry.tool(needs_confirmation=True)
        def delete(name: str) -> str:
            """Delete."""
            done.append(name)
            return "deleted"

        asked: list[str] = []

        async def confirm(call: ToolCall) -> bool:
            asked.append(call.id)
            return call.id == "yes"

        calls = (ToolCall("yes", "delete", '{"name": "a"}'), ToolCall("no", "delete", '{"name": "b"}'))
        agent = Agent(nx, ScriptedClient(said("", *calls), said("Ok.")), tools=registry, confirm=confirm)
        result = await agent.run("Go.")
        assert (done, sorted(asked)) == (["a"], ["no", "yes"])
        assert [item.is_error for item in result.tool_results] == [False, True]
        agent = Agent(nx, ScriptedClient(said("", calls[0]), said("Ok.")), tools=registry)
        assert (await agent.run("Go.")).tool_results[0].is_error, "nobody to ask: declined"

    run(work)


def test_model_failure_is_a_failed_turn_that_the_same_event_continues() -> None:
    async def work(nx: AsyncEngine) -> None:
        broken = ModelCallFailed("the provider is overloaded", "overloaded", retryable=True)
        client, events = ScriptedClient([*said("Half an")[:2], broken], said("Whole.")), list[StreamEvent]()
        agent = Agent(nx, client)
        event = Event((Text("Hello."),), id="e1")
        result = await agent.run(event, sink=events.append)
        assert result.error == "the provider is overloaded"
        check_laws(events)
        assert isinstance(events[-1], StreamError)
        assert events[-1].kind == "overloaded"
        assert streamed_text(events) == stored_text(nx) == "Half an"
        events.clear()
        assert (await agent.run(event, sink=events.append)).error is None
        assert stored_text(nx) == "Whole."
        assert [turn.status for turn in nx.engine.ledger.turns("main")] == ["completed"]
        events.clear()
        again = await agent.run(event, sink=events.append)
        assert [message.text() for message in again.messages] == ["Whole."]
        check_laws(events)
        assert streamed_text(events) == "Whole."
        assert len(client.contexts) == 2, "no third call"

    run(work)


def test_fallback_model_assembles_again_for_its_window_and_format() -> None:
    async def work(nx: AsyncEngine) -> None:
        broken = ModelCallFailed("gone", "overloaded", retryable=True)
        client = ScriptedClient([*said("Half")[:1], broken], said("", CALL), said("Sunny."))
        events: list[StreamEvent] = []
        agent = Agent(nx, client, tools=[weather], fallbacks=["claude-sonnet-4-5"])
        result = await agent.run("Weather?", sink=events.append)
        assert (result.error, result.model) == (None, "claude-sonnet-4-5")
        assert [ctx.provider for ctx in client.contexts] == ["openai", "anthropic", "anthropic"]
        assert [event.kind for event in events if isinstance(event, Retry)] == ["overloaded"]
        check_laws(events)
        assert streamed_text(events) == stored_text(nx) == "Sunny."

    run(work)


@pytest.mark.parametrize(("limits", "calls"), [(Limits(steps=3), 3), (Limits(cost_usd=0.0015), 2)])
def test_turn_that_reaches_a_limit_fails_and_keeps_its_steps(limits: Limits, calls: int) -> None:
    async def work(nx: AsyncEngine) -> None:
        steps = [said("", ToolCall(f"c{number}", "weather", '{"city": "Rome"}')) for number in range(9)]
        client, events = ScriptedClient(*steps), list[StreamEvent]()
        result = await Agent(nx, client, tools=[weather], limits=limits).run("Loop.", sink=events.append)
        assert result.error is not None
        assert isinstance(events[-1], StreamError)
        assert events[-1].kind == "limit"
        assert len(client.contexts) == calls
        assert len(nx.engine.history("main")) == 1 + 2 * calls
        assert nx.engine.ledger.turns("main")[0].status == "failed"
        client.steps = [said("Enough.")]
        assert (await Agent(nx, client, tools=[weather]).run("Stop.")).error is None

    run(work)


def test_cancel_event_stops_model_and_tools_and_keeps_what_was_said() -> None:
    async def work(nx: AsyncEngine) -> None:
        cancel, events = asyncio.Event(), list[StreamEvent]()

        async def wait() -> str:
            """Wait."""
            cancel.set()
            await asyncio.sleep(3_600)
            return ""

        client = ScriptedClient(said("Waiting.", ToolCall("w", "wait", "{}")), said("Never."))
        result = await Agent(nx, client, tools=[wait]).run("Go.", sink=events.append, cancel=cancel)
        assert (result.stop_reason, result.error) == ("aborted", "canceled")
        check_laws(events)
        assert isinstance(events[-1], StreamError)
        assert events[-1].kind == "aborted"
        assert nx.engine.ledger.turns("main")[0].status == "interrupted"
        client.steps = [said("Fine.")]
        again = await Agent(nx, client).run("Again.")
        assert again.error is None
        nx.engine.assemble("valid?").to_anthropic()

    run(work)


def test_timeout_of_a_turn_keeps_the_partial_reply() -> None:
    async def work(nx: AsyncEngine) -> None:
        events: list[StreamEvent] = []
        client = ScriptedClient([*said("Slow start")[:2], 3_600])
        result = await Agent(nx, client, limits=Limits(seconds=0.2)).run("Go.", sink=events.append)
        assert (result.stop_reason, nx.engine.ledger.turns("main")[0].failure_kind) == ("timeout", "limit")
        assert streamed_text(events) == stored_text(nx) == "Slow start"
        check_laws(events)

    run(work)


def test_calls_of_an_interrupted_turn_are_answered_before_it_goes_on() -> None:
    async def work(nx: AsyncEngine) -> None:
        registry, runs = ToolRegistry(), list[str]()

        @registry.tool(repeatable=True)
        def look() -> str:
            """Look."""
            runs.append("look")
            return "seen"

        @registry.tool
        def pay() -> str:
            """Pay."""
            runs.append("pay")
            return "paid"

        turn = await nx.begin(Event((Text("Go."),), id="e1"), tools=registry)
        await turn.record(
            (said("", ToolCall("a", "look", "{}"), ToolCall("b", "pay", "{}"))[-1]).result, await turn.assemble()
        )
        client = ScriptedClient(said("Done."))
        result = await Agent(nx, client, tools=registry, builtin=False).run(Event((Text("Go."),), id="e1"))
        assert (result.error, runs) == (None, ["look"])
        history = nx.engine.history("main")
        assert [message.role for message in history] == ["user", "assistant", "tool", "tool", "assistant"]
        results = sorted((item for message in history for item in message.results()), key=lambda item: item.call_id)
        assert [item.is_error for item in results] == [False, True]
        assert "may have had its effect" in results[1].content[0].text
        assert len(nx.engine.ledger.turns("main")) == 1

    run(work)


def test_tool_may_ask_for_compaction_before_the_next_call() -> None:
    async def work(nx: AsyncEngine) -> None:
        for number in range(30):
            nx.engine.record(
                nx.engine.assemble(f"Question {number} " * 40), nexus.AgentResult((nexus.assistant("Answer. " * 60),))
            )
        client, events = ScriptedClient(said("", ToolCall("c", "compact", "{}")), said("Done.")), list[StreamEvent]()
        await Agent(nx, client).run("Make room.", sink=events.append)
        check_laws(events)
        assert [type(event).__name__ for event in events].count("CompactionStart") == 1
        assert len(client.contexts[1].messages) < len(client.contexts[0].messages)

    run(work)


def test_end_event_has_usage_cost_and_calls() -> None:
    async def work(nx: AsyncEngine) -> None:
        events: list[StreamEvent] = []
        await Agent(nx, ScriptedClient(said("Hi.", thinking="Hm."))).run("Hello.", sink=events.append)
        end = events[-1]
        assert isinstance(end, StreamEnd)
        assert (end.usage.output_tokens, end.cost_usd, end.calls, end.stop_reason) == (5, 0.001, 1, "end_turn")

    run(work)


def look(number: int) -> str:
    """Return what is at a number.

    Args:
        number: The number.
    """
    return f"{number} is even" if number % 2 == 0 else f"{number} is odd"


def looks(count: int) -> list[ToolCall]:
    return [ToolCall(f"c{number}", "look", f'{{"number": {number}}}') for number in range(count)]


def test_calls_beyond_the_limit_of_a_reply_are_not_run_and_say_so() -> None:
    async def work(nx: AsyncEngine) -> None:
        agent = Agent(
            nx, ScriptedClient(said("", *looks(5)), said("Done.")), tools=[look], limits=Limits(calls_per_reply=3)
        )
        result = await agent.run("Look.")
        texts = [result.content[0].text for result in result.tool_results]
        assert texts[:3] == ["0 is even", "1 is odd", "2 is even"]
        assert all("not run: a reply may make 3 calls, and this one made 5" in text for text in texts[3:])
        assert [row.is_error for row in result.tool_results] == [False] * 3 + [True] * 2

    run(work)


def test_another_session_waits_for_a_few_results_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has one thread: what a turn with many calls has it do must not stand in a row before other turns."""
    waiting: list[int] = []
    run_on_thread = AsyncEngine.run

    async def counted(nx: AsyncEngine, *args: Any, **options: Any) -> Any:
        waiting.append(nx._threads._work_queue.qsize())  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        return await run_on_thread(nx, *args, **options)

    monkeypatch.setattr(AsyncEngine, "run", counted)

    async def work(nx: AsyncEngine) -> None:
        limits = Limits(calls_per_reply=400)
        agent = Agent(nx, ScriptedClient(said("", *looks(400)), said("Done.")), tools=[look], limits=limits)
        result = await agent.run("Look.")
        assert [row.content[0].text for row in result.tool_results] == [look(number) for number in range(400)]
        assert max(waiting) <= 40

    run(work)


def test_limit_of_a_reply_counts_its_own_calls_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and third of five calls were not stored: of these two, the limit of two allows the second alone."""

    async def work(nx: AsyncEngine) -> None:
        def stop(*_: Any, **__: Any) -> None:
            raise RuntimeError("the program stopped")

        registry = ToolRegistry()
        registry.register(look, repeatable=True)
        agent = Agent(
            nx, ScriptedClient(said("", *looks(5)), said("Done.")), tools=registry, limits=Limits(calls_per_reply=2)
        )
        event = Event((Text("Look."),), id="e1")
        with monkeypatch.context() as stopped:
            stopped.setattr(Turn, "results", stop)
            stopped.setattr(Turn, "fail_if_open", lambda *_, **__: False)
            with suppress(RuntimeError):
                await agent.run(event, session="main")
        turn = nx.engine.current_turn("main")
        assert turn is not None and len(turn.calls) == 5
        turn.results(*(nexus.tool(f"c{number}", "stored") for number in (0, 3, 4)))
        await agent.run(event, session="main")
        results = {item.call_id: item for message in nx.engine.history("main") for item in message.results()}
        assert results["c1"].content[0].text == "1 is odd"
        assert results["c2"].is_error and "may make 2 calls, and this one made 5" in results["c2"].content[0].text

    run(work)


def test_result_that_cannot_be_stored_takes_no_other_with_it() -> None:
    async def work(nx: AsyncEngine) -> None:
        turn = nx.engine.begin("Look.", session="main")
        turn.assemble()
        turn.record(nexus.AgentResult((nexus.assistant("", *looks(3)),)))
        events: list[StreamEvent] = []

        async def answer(call: ToolCall) -> ToolResult:
            name = "stranger" if call.id == "c1" else call.id
            return ToolResult(name, () if name == "stranger" else (Text("even"),), "look")

        broken = {"c1": "no content at all"}
        results = Turn.results

        def refusing(self: Turn, *given: ToolResult) -> Any:
            if any(result.call_id == "stranger" for result in given):
                raise BadEvent(broken["c1"])
            return results(self, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Turn, "results", refusing)
            with pytest.raises(BadEvent, match="no content"):
                await run_calls(looks(3), answer, AsyncTurn(nx, turn), events.append)
        assert [call.id for call in turn.calls] == ["c1"]

    run(work)
