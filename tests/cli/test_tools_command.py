"""`nexus config tools`: the built-in tools, and those of configured MCP servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cli.running import run

SERVER = Path(__file__).parents[1] / "agents" / "mcp_example_server.py"


def test_tools_lists_the_built_in_tools(tmp_path: Path) -> None:
    shown = run("config", "tools", folder=tmp_path)
    assert shown.code == 0
    assert "read_file" in shown.out
    assert "Read a text file of the workspace" in shown.out
    assert "mcp" not in shown.out
    assert not (tmp_path / ".nexus").exists()


def test_tools_of_servers_are_listed_and_servers_that_are_not_started_are_warnings(tmp_path: Path) -> None:
    (tmp_path / ".nexus").mkdir()
    entry = {"command": sys.executable, "args": [str(SERVER)], "env": {"API_TOKEN": "tok-12345"}}
    (tmp_path / ".nexus" / "mcp.json").write_text(json.dumps({"mcpServers": {"example": entry}}))
    refused = run("config", "tools", "--mcp", folder=tmp_path)
    assert "MCP server 'example' not started: it is the workspace's choice" in refused.err
    value = json.loads(run("config", "tools", "--workspace-servers", "--json", folder=tmp_path).out)
    names = [tool["function"]["name"] for tool in value["tools"]]
    assert {"read_file", "recall", "mcp__example__echo"} <= set(names)
    assert value["warnings"] == []
    assert "tok-12345" not in json.dumps(value)
