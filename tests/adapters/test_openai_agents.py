"""An agent of OpenAI Agents with the session: plain and streamed runs, and the session as the package's own ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, Session, function_tool

import nexus
from nexus.adapters.openai_agents import NexusSession
from nexus.testing.model_server import model_server
from support.agent_model import BUDGET, AgentModel, check_ledger, run_figures, said, words

TURNS = 20


@function_tool
def lookup(query: str) -> str:
    """Looks something up."""
    return words(300, query)


async def converse(url: str, memory: NexusSession, turns: int, *, streamed: bool = False, **agent: Any) -> list[Any]:
    """Return the messages of the conversation as the runner has them."""
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        model = OpenAIChatCompletionsModel("gpt-4o", client)
        helper = Agent("helper", instructions="You are careful. " * 20, model=model, **(agent or {"tools": [lookup]}))
        config = RunConfig(call_model_input_filter=memory, tracing_disabled=True)
        items: list[Any] = []
        for turn in range(turns):
            text = f"Turn {turn}: {words(30, str(turn))}"
            if streamed:
                result: Any = Runner.run_streamed(helper, text, session=memory, hooks=memory, run_config=config)
                assert len([event async for event in result.stream_events()]) > 60
            else:
                result = await Runner.run(helper, text, session=memory, hooks=memory, run_config=config)
            items = [*items, *result.to_input_list()[-len(result.new_items) - 1 :]]
        return items


@pytest.mark.parametrize("mode", ["plain", "streamed"])
def test_agent_stays_in_budget_and_loses_nothing(mode: str, record_property: Callable[..., None]) -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        memory = NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET)
        items = asyncio.run(converse(server.openai_url, memory, TURNS, streamed=mode == "streamed"))
        messages = nexus.read_messages(items, "responses")
        record_property("figures", run_figures(f"openai-agents {mode}", model, nx, messages))


def test_new_object_continues_the_stored_session() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        first, later = (NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET) for _ in range(2))
        asyncio.run(converse(server.openai_url, first, 2))
        assert asyncio.run(later.get_items()) == asyncio.run(first.get_items())
        asyncio.run(converse(server.openai_url, later, 2))
        check_ledger(nx, nexus.read_messages(asyncio.run(later.get_items()), "responses"))


def test_popped_item_is_not_sent_and_stays_in_the_ledger() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx, model_server(model) as server:
        memory = NexusSession("chat", nexus.AsyncEngine(nx), budget=BUDGET)
        assert isinstance(memory, Session)
        items = asyncio.run(converse(server.openai_url, memory, 2))
        assert asyncio.run(memory.pop_item()) == items[-1]
        assert asyncio.run(memory.get_items(limit=1)) == [items[-2]]
        asyncio.run(converse(server.openai_url, memory, 1))
        branch, trunk = nx.sessions()
        assert said(nx.history(trunk.label)) == said(nexus.read_messages(items, "responses"))
        assert said(nx.history(branch.label)) == said(nexus.read_messages(asyncio.run(memory.get_items()), "responses"))
    assert not model.problems
