"""What notices tell the model about the whole: the tool that it has, a command that runs, or nothing."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run
from nexus.agents.tools.context import ToolContext
from nexus.agents.tools.history import HistoryTools
from nexus.types.config import ImagesConfig
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant

LINE = "2026-01-01 12:00:00 worker finished its part of the work\n"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BUDGET = 6_000


def tool_named(name: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return {"name": name, "description": "A tool.", "parameters": {"type": "object", "properties": properties}}


RECALL = [tool_named("recall", "query", "reference"), tool_named("bash", "command")]
OTHER_RECALL = [tool_named("recall", "product")]
SHELL = [tool_named("bash", "command")]


def fill(nx: nexus.Engine, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Record a session with long results, a long first message and an image, and return the body of a call with cuts."""
    event: Any = "Which worker failed? " + "The log is long. " * 800
    for step in range(6):
        ctx = nx.assemble(event, session="log", tools=tools, budget=BUDGET, profile="bare")
        call = ToolCall(f"call_{step}", "bash", json.dumps({"command": f"cat {step}.log"}))
        nx.record(ctx, nexus.AgentResult((assistant("", call),)))
        content = (
            Text(f"step {step}\n" + LINE * (600 if step == 5 else 100)),
            Image("image/png", PNG, width=1, height=1),
        )
        event = [Message("tool", (ToolResult(f"call_{step}", content, "bash"),))]
    ctx = nx.assemble(event, session="log", tools=tools, budget=BUDGET, profile="bare")
    nx.record(ctx, nexus.AgentResult((assistant("The third one."),)))
    ctx = nx.assemble("And then?", session="log", tools=tools, budget=BUDGET, profile="bare")
    return ctx.to_openai()


def replay_all(nx: nexus.Engine) -> None:
    """Replay each call; one that does not give the recorded bytes raises CannotReplay."""
    for turn in range(1, len(nx.ledger.turns("log")) + 1):
        call = 1
        while True:
            try:
                nx.replay("log", turn, call=call)
            except nexus.errors.BadReference:
                break
            call += 1
        assert call > 1


def opened(folder: Path | None = None) -> nexus.Engine:
    images = nexus.Config(images=ImagesConfig(keep_turns=1))
    return nexus.open(folder, ledger=None if folder else ":memory:", model="gpt-4o", config=images)


def test_model_with_recall_is_told_references_that_recall_opens() -> None:
    with opened() as nx:
        text = json.dumps(fill(nx, RECALL)["messages"], ensure_ascii=False)
        assert "nexus history" not in text
        references = set(re.findall(r'recall\(reference=\\"([^"\\]+)\\"\)', text))
        assert any(reference.startswith("call_") for reference in references)
        assert any(reference[0].isdigit() for reference in references), references
        tools = HistoryTools(ToolContext(nx, "log"))
        for reference in references:
            assert tools.recall(reference=reference).content


@pytest.mark.parametrize("tools", [SHELL, OTHER_RECALL], ids=["shell", "another program's recall"])
def test_model_with_other_tools_is_told_no_command(tools: list[dict[str, Any]]) -> None:
    with opened() as nx:
        text = json.dumps(fill(nx, tools)["messages"], ensure_ascii=False)
    assert "characters left out here …]" in text
    assert "nexus history" not in text
    assert "recall(" not in text


def test_model_without_tools_is_told_commands_that_run(tmp_path: Path) -> None:
    with opened(tmp_path) as nx:
        text = json.dumps(fill(nx, [])["messages"], ensure_ascii=False)
    commands = set(re.findall(r"`nexus ([^`]+)`", text))
    assert any("--call call_5" in command for command in commands), commands
    for command in commands:
        folder = str(tmp_path / "shots")
        ran = run(*shlex.split(command.replace("FOLDER", folder)), folder=tmp_path)
        assert ran.code == 0, (command, ran.err)


def test_tools_that_change_change_the_notices_and_nothing_else_breaks() -> None:
    """A window of one kind is not taken for the other, and both are recorded and replayed."""
    with opened() as nx:
        fill(nx, RECALL)
        for tools, told in ((SHELL, False), (RECALL, True), ([], False), (RECALL, True)):
            ctx = nx.assemble("More?", session="log", tools=tools, budget=BUDGET, profile="bare")
            nx.record(ctx, nexus.AgentResult((assistant("No."),)))
            results = json.dumps(ctx.to_openai()["messages"], ensure_ascii=False)
            assert ("recall(reference=" in results) is told
        replay_all(nx)
