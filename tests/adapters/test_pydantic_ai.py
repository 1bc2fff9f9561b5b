"""Agents of Pydantic AI with `NexusContext`: budget, loss, failures, users, and every kind of message that it has."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Picture
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, DocumentUrl, ImageUrl, ModelRetry, NativeOutput, PromptedOutput, Tool
from pydantic_ai import messages as pa
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

import nexus
from nexus.adapters._pydantic_ai_messages import own_messages, units_of
from nexus.adapters.pydantic_ai import NexusContext
from nexus.cli import main
from nexus.testing.model_server import fail, model_server, reply
from support.agent_model import BUDGET, AgentModel, check_ledger, run_figures, said, words

TURNS = 20


def picture(shade: int) -> BinaryContent:
    """Return a small image of one color."""
    from io import BytesIO

    data = BytesIO()
    Picture.new("RGB", (64, 64), (shade, 0, 0)).save(data, "PNG")
    return BinaryContent(data.getvalue(), media_type="image/png")


def talk(url: str, work: Callable[[OpenAIChatModel], Awaitable[Any]]) -> Any:
    """Run something with a model, and close its client."""

    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
            return await work(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client)))

    return asyncio.run(run())


def lookup(query: str) -> str:
    """Looks something up."""
    if query.startswith("cache"):
        raise ModelRetry(f"{query} is locked")
    return words(300, query)


def lookup_agent(model: Any, context: NexusContext, **options: Any) -> Agent[Any, Any]:
    tools = [Tool(lookup, max_retries=50)]
    return Agent(model, instructions="You are careful. " * 20, tools=tools, capabilities=[context], **options)


def neutral(history: list[Any]) -> list[nexus.Message]:
    return [unit.message for unit in units_of(history) if unit.message]


Ask = Callable[[Agent[Any, Any], Any, list[Any]], Awaitable[list[Any]]]


async def plain(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    return (await agent.run(prompt, message_history=history, conversation_id="chat")).all_messages()


async def run_stream(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.run_stream(prompt, message_history=history, conversation_id="chat") as result:
        assert await result.get_output()
    return result.all_messages()


async def run_stream_events(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.run_stream_events(prompt, message_history=history, conversation_id="chat") as stream:
        events = [event async for event in stream]
    return events[-1].result.all_messages()


async def iterate(agent: Agent[Any, Any], prompt: Any, history: list[Any]) -> list[Any]:
    async with agent.iter(prompt, message_history=history, conversation_id="chat") as run:
        async for _ in run:
            pass
    return run.result.all_messages()


@pytest.mark.parametrize("ask", [plain, run_stream, run_stream_events, iterate])
def test_agent_stays_in_budget_and_loses_nothing(ask: Ask, record_property: Callable[..., None]) -> None:
    """Twenty turns with parallel tools that fail now and then, and images."""
    model = AgentModel()

    async def converse(chat: OpenAIChatModel, nx: nexus.Engine) -> list[Any]:
        agent = lookup_agent(chat, NexusContext(nx, budget=BUDGET))
        history: list[Any] = []
        for turn in range(TURNS):
            text = f"Turn {turn}: {words(30, str(turn))}"
            prompt = [text, picture(turn)] if turn % 7 == 3 else text
            mode = plain if ask is run_stream and turn % 3 else ask  # it ends with the first text
            history = await mode(agent, prompt, history)
        return history

    with nexus.open(ledger=":memory:") as nx, model_server(model) as server:
        history = talk(server.openai_url, lambda chat: converse(chat, nx))
        assert any(message.role == "tool" and next(message.results()).is_error for message in neutral(history))
        record_property("figures", run_figures(f"pydantic-ai {ask.__name__}", model, nx, neutral(history)))
