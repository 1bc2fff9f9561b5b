"""Conversations for the tests of the services: turns with tools, stored by an engine as programs store them."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

import nexus
from nexus.engine.async_engine import AsyncEngine
from nexus.types.message import ToolCall

NOW = 1_765_353_600_000
"""2025-12-10T08:00:00Z."""

SEARCH = {
    "name": "web_search",
    "description": "Search the web for information",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}


class Round(Struct, frozen=True):
    """A reply with one tool call, and its result."""

    text: str
    query: str
    result: str


class Exchange(Struct, frozen=True):
    """A user's message, rounds of tools, and the reply; without a reply the turn stays open."""

    text: str
    rounds: tuple[Round, ...] = ()
    reply: str | None = "Done."


@asynccontextmanager
async def opened(ledger: Path | str = ":memory:", **options: Any) -> AsyncIterator[AsyncEngine]:
    """An engine whose clock adds a second with each reading."""
    ticks = itertools.count(NOW, 1_000)
    async with nexus.open_async(ledger=ledger, clock_ms=lambda: next(ticks), **options) as nx:
        yield nx


async def store(nx: AsyncEngine, exchanges: Iterable[Exchange], session: str = "dm:ada", first: int = 1) -> None:
    """Store the exchanges as turns of runs `run-1`, `run-2`, …"""
    for number, exchange in enumerate(exchanges, first):
        event = nexus.Event((nexus.Text(exchange.text),), id=f"run-{number}")
        turn = await nx.begin(event, session=session, profile="tagged", tools=[SEARCH])
        for at, part in enumerate(exchange.rounds):
            call = ToolCall(f"call-{number}-{at}", "web_search", json.dumps({"query": part.query}))
            await turn.assemble()
            await turn.record(nexus.AgentResult((nexus.assistant(part.text, call),)))
            await turn.result(call.id, part.result, name="web_search")
        if exchange.reply is not None:
            await turn.assemble()
            await turn.record(nexus.AgentResult((nexus.assistant(exchange.reply),)))


def sent(body: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    """Role and content of each message of a request body."""
    return [(message["role"], message["content"]) for message in body["messages"]]
