"""An agent of Pydantic AI with the capability: plain and streamed runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import nexus
from adapters.pydantic_ai_adapter import NexusContext, neutral, singles
from nexus.testing.model_server import model_server
from support.agent_model import BUDGET, AgentModel, run_figures, words

TURNS = 20


@pytest.mark.parametrize("mode", ["plain", "streamed"])
def test_agent_stays_in_budget_and_loses_nothing(mode: str, record_property: Callable[..., None]) -> None:
    model = AgentModel()

    async def converse(url: str, nx: nexus.AsyncEngine) -> list[Any]:
        client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
        chat = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
        agent = Agent(chat, instructions="You are careful. " * 20, capabilities=[NexusContext(nx, budget=BUDGET)])

        @agent.tool_plain
        def lookup(query: str) -> str:
            """Looks something up."""
            return words(300, query)

        history: list[Any] = []
        for turn in range(TURNS):
            text = f"Turn {turn}: {words(30, str(turn))}"
            if mode == "plain":
                history = (await agent.run(text, message_history=history, conversation_id="chat")).all_messages()
            else:
                async with agent.run_stream_events(text, message_history=history, conversation_id="chat") as stream:
                    events = [event async for event in stream]
                assert len(events) > 60
                history = events[-1].result.all_messages()
        await client.close()
        return history

    with nexus.open(ledger=":memory:") as nx, model_server(model) as server:
        history = asyncio.run(converse(server.openai_url, nexus.AsyncEngine(nx)))
        messages = [neutral(single) for message in history for single in singles(message)]
        record_property("figures", run_figures(f"pydantic-ai {mode}", model, nx, messages))
