"""Tools of the user's MCP servers for agents of `nexus serve`, and secrets of these servers, which no answer has."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nexus.testing.model_server import model_server, reply
from nexus.types.message import ToolCall
from server.running import TOKEN
from server.test_restart import served

EXAMPLE = Path(__file__).parents[1] / "agents" / "mcp_example_server.py"
SECRET = "tok-92745-sesame"
BROKEN_SECRET = "tok-31337-mellon"
MARKER = "nothing else"


def write_servers(folder: Path) -> None:
    """Give the user one MCP server that works and one that writes its secret and ends."""
    home = folder / "home"
    home.mkdir()
    example = {"command": sys.executable, "args": [str(EXAMPLE)], "env": {"API_TOKEN": SECRET}}
    broken = {**example, "args": [str(EXAMPLE), "--broken"], "env": {"API_TOKEN": BROKEN_SECRET}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"example": example, "broken": broken}}), "utf-8")


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(f"call-{name}", f"mcp__example__{name}", json.dumps(arguments))


def test_secrets_of_mcp_servers_are_in_no_answer(tmp_path: Path) -> None:
    write_servers(tmp_path)
    steps = (
        reply("", call("variable", key="API_TOKEN"), call("refuse", why="refused")),
        reply(f"{MARKER}."),
        reply("", call("die")),
        reply("It stopped."),
    )
    answers: list[Any] = []
    with model_server(*steps) as model, served(tmp_path, model, "--yes") as (process, client, _):
        agent = client.create_agent("a")
        stream = agent.events()
        answers.append(next(stream))
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(lambda: [next(stream) for _ in range(12)])
            answers += [agent.send("Look.", "r1"), agent.send("Die.", "r2")]
            answers.append(reading.result())
        stream.close()
        answers += [agent.get_messages(), agent.get_tokens(), agent.explain(), agent.explain(1), client.discover()]
        text = "\n".join(message.text() for message in agent.get_messages().messages)
        process.terminate()
        assert process.wait() == 0
        assert process.stderr is not None
        errors = process.stderr.read()
    assert f"{MARKER}." in text and "stopped during this call" in str(answers)
    assert "broken" in errors and "no license for key" in errors, "a server that fails is a warning"
    sent = json.dumps(model.bodies)
    assert "mcp__example__variable" in sent and "refused" in sent
    for place in (str(answers), errors, sent, text):
        assert SECRET not in place and BROKEN_SECRET not in place


def test_tools_that_are_not_read_only_are_declined_without_yes(tmp_path: Path) -> None:
    write_servers(tmp_path)
    steps = (reply("", call("echo", text=MARKER)), reply("I may not."))
    with model_server(*steps) as model, served(tmp_path, model) as (_, client, _printed):
        agent = client.create_agent("a")
        assert agent.send("Echo.").content == "I may not."
        (result,) = [str(message) for message in agent.get_messages().messages if message.role == "tool"]
        assert "needs a person's confirmation" in result and MARKER not in result


@pytest.mark.parametrize("tenants", [1, 2])
def test_mcp_servers_are_for_a_server_of_one_tenant(tmp_path: Path, tenants: int) -> None:
    write_servers(tmp_path)
    file = tmp_path / "tokens"
    file.write_text("".join(f"{TOKEN}-{number} tenant-{number}\n" for number in range(tenants)), "utf-8")
    file.chmod(0o600)
    options = ("--token-file", str(file))
    with model_server(reply("Hello.")) as model, served(tmp_path, model, *options) as (_, client, _printed):
        client.create_agent("a").send("Hi")
        assert ("mcp__example__echo" in json.dumps(model.bodies)) == (tenants == 1)
