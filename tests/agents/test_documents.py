"""Document 002's AssembledContext and AgentResult: every field is filled by a real run of an agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nexus
from nexus import Event, Text, ToolCall
from nexus.agents import Agent, Limits
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.models import Models, open_client
from nexus.testing.model_server import fail, model_server, overflow, reply
from nexus.types.request import AgentResult
from nexus.types.stream_events import StreamEvent, StreamStart, ToolStatus
from support.scripted_agent import check_laws


def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: The city.
    """
    return f"Sunny in {city}. " * 40


CALL = ToolCall("c1", "weather", '{"city": "Rome"}')
FIELDS = (
    "systemPrompt history currentMessage tools model provider modelConfig tokenBudget sessionLabel parentTurnId role "
    "toolsetName permissionsGranted sourceEventId workspacePath"
)


def run_agent(
    workspace: Path, url: str, *, turns: int = 2, **agent: object
) -> tuple[Engine, list[AgentResult], list[StreamEvent]]:
    events: list[StreamEvent] = []

    async def main() -> tuple[Engine, list[AgentResult]]:
        async with (
            Models({"gpt-4o": open_client(base_url=url)}) as models,
            nexus.open_async(workspace, model="gpt-4o") as nx,
        ):
            runner = Agent(nx, models, tools=[weather], temperature=0.5, **agent)  # pyright: ignore[reportArgumentType]
            results = [
                await runner.run(
                    Event((Text("Weather in Rome?"),), id=f"mail-{number}", timezone="Europe/Rome", platform="mail"),
                    session="dm:ann",
                    role="manager",
                    toolset="all",
                    permissions=("read",),
                    sink=events.append,
                )
                for number in range(turns)
            ]
        return nexus.open(workspace, model="gpt-4o"), results

    nx, results = asyncio.run(main())
    return nx, results, events


def test_every_field_of_context_and_result_is_filled_by_a_real_run(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    contexts: list[AssembledContext] = []
    with model_server(reply("Let me look.", CALL), reply("Sunny."), reply("Still sunny.")) as server:
        nx, results, _ = run_agent(tmp_path, server.openai_url)
    with nx:
        contexts = [nx.replay("dm:ann", 2)]
        saved = contexts[0].to_json()
    assert [name for name in FIELDS.split() if saved[name] in ("", None, [], {})] == []
    assert saved["modelConfig"]["temperature"] == 0.5
    budget = saved["tokenBudget"]
    assert min(*budget["used"].values(), *(budget[name] for name in ("modelLimit", "available", "remaining"))) > 0
    first = results[0]
    assert [message.role for message in first.messages] == ["assistant", "tool", "assistant"]
    (call,) = first.tool_call_records
    assert (call.name, call.status, call.result is not None, call.answered_ms >= call.asked_ms) == (
        "weather",
        "completed",
        True,
        True,
    )
    assert (first.usage.input_tokens > 0, first.usage.output_tokens > 0, first.stop_reason) == (True, True, "end_turn")
    assert first.cost_usd
    (tmp_path / "other").mkdir()
    with model_server(fail(401, "no such key")) as server:
        failed = run_agent(tmp_path / "other", server.openai_url, turns=1)[1][0]
    assert "no such key" in (failed.error or "")


def test_overflow_in_the_middle_of_a_turn_does_not_reach_the_user(tmp_path: Path) -> None:
    steps = [reply("Let me look.", CALL), overflow(3_000, 3_200), reply("It is sunny.")]
    with model_server(*[reply(f"Answer {number}. " * 60) for number in range(12)], *steps) as server:
        nx, results, events = run_agent(tmp_path, server.openai_url, turns=13)
        sizes = [len(request.data) for request in server.requests]
    assert [result.error for result in results] == [None] * 13
    assert results[-1].messages[-1].text() == "It is sunny."
    assert sizes[-1] < sizes[-2], "the call that overflowed was made again with less"
    starts = [index for index, event in enumerate(events) if isinstance(event, StreamStart)]
    check_laws(events[starts[-1] :])
    with nx:
        assert [turn.status for turn in nx.ledger.turns("dm:ann")] == ["completed"] * 13
        for wire in ("to_openai", "to_responses", "to_anthropic", "to_gemini"):
            getattr(nx.assemble("next", session="dm:ann"), wire)()


def test_large_result_is_stored_whole_and_shortened_in_view(tmp_path: Path) -> None:
    def log(lines: int) -> str:
        """Return a log."""
        return "\n".join(f"line {number} of the log" for number in range(lines))

    async def main() -> None:
        call = ToolCall("big", "log", '{"lines": 20000}')
        with model_server(reply("", call), reply("Long.")) as server:
            models = Models({"gpt-4o": open_client(base_url=server.openai_url)})
            async with models, nexus.open_async(tmp_path, model="gpt-4o", max_tool_result_tokens=1_000) as nx:
                result = await Agent(nx, models, tools=[log], limits=Limits(steps=3)).run(
                    "Show the log.", budget=20_000
                )
                assert result.error is None
                (stored,) = [item for message in nx.engine.history("main") for item in message.results()]
                assert stored.content[0].text == log(20_000)
                sent = server.bodies[-1]["messages"][-1]["content"]
                assert len(sent) < 8_000
                assert "recall" in sent or "nexus history" in sent

    asyncio.run(main())


def test_tool_status_events_name_the_call_and_its_arguments(tmp_path: Path) -> None:
    with model_server(reply("", CALL), reply("Sunny.")) as server:
        *_, events = run_agent(tmp_path, server.openai_url, turns=1)
    started, completed = [event for event in events if isinstance(event, ToolStatus)]
    assert (started.call_id, started.text, started.status) == ("c1", '{"city": "Rome"}', "started")
    assert (completed.status, completed.text.startswith("Sunny in Rome.")) == ("completed", True)
