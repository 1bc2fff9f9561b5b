"""The MCP server: every tool through the package's client, and an agent that searches its own sessions through it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents.mcp import MCPServerStdio
from mcp import Client

import nexus
from adapters.mcp_adapter import server
from adapters.test_openai_agents import TURNS, converse
from nexus.adapters.openai_agents import NexusSession
from nexus.testing.model_server import model_server
from support.agent_model import BUDGET, AgentModel, run_figures
from support.validity import recount

ADAPTER = Path(__file__).parent / "mcp_adapter.py"
TOOLS_TOKENS = 500
"""More than the definitions of the server's tools, which the session's filter is not told."""


def test_agent_searches_the_sessions_that_it_stores(tmp_path: Path, record_property: Callable[..., None]) -> None:
    model = AgentModel()

    async def run(url: str, memory: NexusSession) -> list[Any]:
        params: Any = {"command": sys.executable, "args": [str(ADAPTER), str(tmp_path)], "env": {**os.environ}}
        async with MCPServerStdio(params, cache_tools_list=True, client_session_timeout_seconds=30) as tools:
            return await converse(url, memory, TURNS, mcp_servers=[tools])

    with nexus.open(tmp_path, model="gpt-4o") as nx, model_server(model) as provider:
        memory = NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET, reserve=TOOLS_TOKENS)
        items = asyncio.run(run(provider.openai_url, memory))
        record_property("figures", run_figures("mcp", model, nx, nexus.read_messages(items, "responses")))
    assert recount({"tools": model.bodies[0]["tools"]}) < TOOLS_TOKENS
    outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
    assert any("chat~" in json.dumps(output) for output in outputs)


def test_client_stores_finds_reads_and_assembles() -> None:
    async def use(app: Any) -> None:
        async with Client(app) as client:

            async def call(name: str, **arguments: Any) -> Any:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, result.content
                content: Any = result.structured_content
                return content.get("result", content)

            assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["search_history", "list_sessions"]
            assert await call("store_turn", message="Which index?", reply="A GIN index.", session="db") == 1
            assert await call("list_sessions") == [{"session": "db", "title": "", "turns": 1}]
            assert (await call("search_history", query="GIN"))[0]["role"] == "assistant"
            assert await call("read_session", session="db", first=1) == [
                {"role": "assistant", "content": "A GIN index."}
            ]
            request = await call("next_request", message="Why?", session="db")
            *_, answer, question = [message["content"] for message in request["messages"]]
            assert (answer, question[-4:]) == ("A GIN index.", "Why?")

    with nexus.open(ledger=":memory:") as nx:
        asyncio.run(use(server(nx)))


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read_session", {"session": "nowhere"}, "nowhere"),
        ("next_request", {"message": "Hello", "budget": 10}, "10"),
    ],
)
def test_errors_are_named(name: str, arguments: dict[str, Any], error: str) -> None:
    async def use(app: Any) -> Any:
        async with Client(app) as client:
            return await client.call_tool(name, arguments)

    with nexus.open(ledger=":memory:") as nx:
        result = asyncio.run(use(server(nx)))
    assert result.is_error
    assert error in str(result.content)
