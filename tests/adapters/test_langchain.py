"""An agent of LangChain with the middleware: plain, asynchronous and streamed calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import convert_to_openai_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

import nexus
from nexus.adapters.langchain import NexusMiddleware
from nexus.testing.model_server import model_server
from support.agent_model import BUDGET, AgentModel, run_figures, said, words

TURNS = 20


@tool
def lookup(query: str) -> str:
    """Looks something up."""
    return words(300, query)


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


def test_threads_with_the_same_words_are_sessions_of_their_own() -> None:
    model = AgentModel()
    with nexus.open(ledger=":memory:") as nx, model_server(model) as server:
        chat = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="k", max_retries=0)
        middleware = NexusMiddleware(nx, budget=BUDGET)
        agent: Any = create_agent(chat, [lookup], middleware=[middleware], checkpointer=InMemorySaver())
        for text in ("Hello", "Go on."):
            for thread in ("a", "b"):
                agent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread}})
        first, second = nx.sessions()
        assert {label.partition("~")[0] for label in (first.label, second.label)} == {"langchain/a", "langchain/b"}
        assert said(nx.history(first.label)) == said(nx.history(second.label))
    assert not model.problems


@pytest.mark.parametrize("mode", ["plain", "async", "streamed"])
def test_agent_stays_in_budget_and_loses_nothing(mode: str, record_property: Callable[..., None]) -> None:
    model = AgentModel()
    config: Any = {"configurable": {"thread_id": "t1"}}
    with nexus.open(ledger=":memory:") as nx, model_server(model) as server:
        chat = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="k", max_retries=0, stream_usage=True)
        middleware = NexusMiddleware(nx, budget=BUDGET)
        prompt = "You are careful. " * 20
        agent: Any = create_agent(
            chat, [lookup], system_prompt=prompt, middleware=[middleware], checkpointer=InMemorySaver()
        )

        async def converse() -> None:
            for turn in range(TURNS):
                event = {"messages": [("user", f"Turn {turn}: {words(30, str(turn))}")]}
                match mode:
                    case "plain":
                        agent.invoke(event, config)
                    case "async":
                        await agent.ainvoke(event, config)
                    case _:
                        assert sum(1 for _ in agent.stream(event, config, stream_mode="messages")) > 60

        asyncio.run(converse())
        messages = nexus.read_messages(convert_to_openai_messages(agent.get_state(config).values["messages"]))
        record_property("figures", run_figures(f"langchain {mode}", model, nx, messages))
