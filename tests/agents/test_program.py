"""Turns run by another program that speaks JSON lines."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.agents import Agent, AgentProgram, Limits
from nexus.engine.async_engine import AsyncEngine
from nexus.types.stream_events import StreamError, StreamEvent, Token, ToolStatus
from support.scripted_agent import check_laws

OPENING = """
import json, sys, time
def say(**line): print(json.dumps(line), flush=True)
first = json.loads(sys.stdin.readline())
"""


def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: The city.
    """
    return f"Sunny in {city}."


def run_program(
    tmp_path: Path, body: str, work: Callable[[AsyncEngine, Agent, list[StreamEvent]], Any], **limits: Any
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(OPENING + textwrap.dedent(body))

    async def main() -> None:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
            program = AgentProgram(nx, [sys.executable, str(file)], cwd=tmp_path, limits=Limits(**limits))
            await work(nx, Agent(nx, engine=program, tools=[weather]), [])

    asyncio.run(main())


def test_program_gets_the_context_and_its_messages_are_stored(tmp_path: Path) -> None:
    async def work(nx: AsyncEngine, agent: Agent, events: list[StreamEvent]) -> None:
        result = await agent.run("Weather in Rome?", sink=events.append)
        assert [message.role for message in nx.engine.history("main")] == ["user", "assistant", "tool", "assistant"]
        assert (result.error, result.usage.input_tokens, result.stop_reason) == (None, 9, "end_turn")
        assert nx.engine.ledger.turns("main")[0].input_tokens == 9
        assert nx.engine.history("main")[-1].text() == "Sunny in Rome."
        check_laws(events)
        assert "".join(event.text for event in events if isinstance(event, Token)) == "Sunny in Rome."
        assert [event.status for event in events if isinstance(event, ToolStatus)] == ["started", "completed"]

    run_program(
        tmp_path,
        """
        assert first["context"]["sessionLabel"] == "main" and first["request"]["model"] == "gpt-4o"
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        say(type="message", message={"role": "assistant", "content": None, "tool_calls": [call]})
        say(type="tool_call", call_id="c1", name="weather", arguments={"city": "Rome"})
        result = json.loads(sys.stdin.readline())
        say(type="message", message={"role": "tool", "tool_call_id": "c1", "content": result["content"]})
        for word in ("Sunny ", "in ", "Rome."):
            say(type="token", text=word)
        say(type="message", message={"role": "assistant", "content": "Sunny in Rome."})
        say(type="result", stop_reason="end_turn", usage={"input_tokens": 9, "output_tokens": 3})
        """,
        work,
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("sys.exit('out of memory')", "out of memory"),
        ("print('hello', flush=True)", "no event"),
        ("say(type='result', error='no model')", "no model"),
        ("time.sleep(3600)", "Timeout"),
    ],
)
def test_program_that_fails_leaves_a_failed_turn_with_what_it_said(tmp_path: Path, body: str, error: str) -> None:
    async def work(nx: AsyncEngine, agent: Agent, events: list[StreamEvent]) -> None:
        result = await agent.run("Go.", sink=events.append)
        assert error in (result.error or "")
        check_laws(events)
        assert isinstance(events[-1], StreamError)
        assert nx.engine.ledger.turns("main")[0].status == "failed"
        assert [message.text() for message in nx.engine.history("main")][1:] == ["Half."]

    said = "say(type='message', message={'role': 'assistant', 'content': 'Half.'})\n"
    run_program(tmp_path, said + body, work, seconds=2.0 if "sleep" in body else 600.0)


def test_cancel_is_told_to_the_program_which_ends(tmp_path: Path) -> None:
    async def work(nx: AsyncEngine, agent: Agent, events: list[StreamEvent]) -> None:
        cancel = asyncio.Event()

        def sink(event: StreamEvent) -> None:
            events.append(event)
            if isinstance(event, Token):
                cancel.set()

        result = await agent.run("Go.", sink=sink, cancel=cancel)
        assert result.stop_reason == "aborted"
        assert (tmp_path / "line").read_text() == '{"type":"cancel"}\n'
        assert nx.engine.ledger.turns("main")[0].status == "interrupted"
        check_laws(events)

    run_program(tmp_path, "say(type='token', text='Working')\nopen('line', 'w').write(sys.stdin.readline())", work)


def test_program_that_does_not_exist_is_a_clear_error() -> None:
    async def main() -> None:
        async with nexus.open_async(ledger=":memory:", model="gpt-4o") as nx:
            result = await Agent(nx, engine=AgentProgram(nx, ["no-such-program"])).run("Go.")
            assert "'no-such-program' cannot be started: No such file" in (result.error or "")

    asyncio.run(main())


def test_program_gets_no_secrets_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def work(nx: AsyncEngine, agent: Agent, events: list[StreamEvent]) -> None:
        del nx, events
        assert (await agent.run("Go.")).messages[0].text() == "None"

    run_program(
        tmp_path,
        """
        import os
        say(type="message", message={"role": "assistant", "content": str(os.environ.get("OPENAI_API_KEY"))})
        say(type="result")
        """,
        work,
    )
