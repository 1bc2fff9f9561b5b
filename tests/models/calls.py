"""Clients of the four formats at the scripted server, contexts for them, and a clock for their retries."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import nexus
from nexus.models import EndpointClient, ModelReply, RetryPolicy, StreamItem, Timeouts, open_client
from nexus.testing.model_server import ModelServer
from nexus.text.as_received import ReceivedFormat
from nexus.types.stream_events import Reasoning, Retry, Token

FORMATS: dict[ReceivedFormat, str] = {
    "openai": "gpt-4o",
    "responses": "gpt-5",
    "anthropic": "claude-opus-4-5",
    "gemini": "gemini-2.5-flash",
}
"""A model for each format."""

LOOK = {
    "name": "look",
    "description": "Look.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


class Sleeps:
    """A clock that moves only when a client sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.delays_s: list[float] = []

    def clock_s(self) -> float:
        """Return the time."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.delays_s.append(seconds)
        self.now_s += seconds


def address(server: ModelServer, format_: ReceivedFormat) -> str:
    urls = {"anthropic": server.anthropic_url, "gemini": server.gemini_url}
    return urls.get(format_, server.openai_url)


def client_of(
    server: ModelServer, format_: ReceivedFormat, *, sleeps: Sleeps | None = None, api_key: str = "", **limits: Any
) -> EndpointClient:
    """Return a client of a format; with `sleeps` its retries take no time."""
    opened = open_client(format=format_, base_url=address(server, format_), api_key=api_key)
    timeouts, policy = limits.get("timeouts") or Timeouts(), limits.get("retries") or RetryPolicy()
    if sleeps is None:
        return EndpointClient(opened.endpoint, timeouts=timeouts, retries=policy)
    # The clock of the test does not move while the server answers.
    return EndpointClient(
        opened.endpoint, timeouts=timeouts, retries=policy, sleep=sleeps.sleep, clock_s=sleeps.clock_s
    )


def context(format_: ReceivedFormat, text: str = "Good morning", **options: Any) -> nexus.AssembledContext:
    with nexus.open(ledger=":memory:", model=FORMATS[format_]) as nx:
        return nx.assemble(text, **options)


def call(client: EndpointClient, ctx: nexus.AssembledContext) -> list[StreamItem]:
    """Return all items of one call."""

    async def collect() -> list[StreamItem]:
        try:
            async with aclosing(client.stream(ctx)) as items:
                return [item async for item in items]
        finally:
            await client.aclose()

    return asyncio.run(collect())


def failed_call(
    client: EndpointClient, ctx: nexus.AssembledContext
) -> tuple[list[StreamItem], nexus.errors.ModelCallFailed]:
    """Return the items of a call that fails, and its error."""

    async def collect() -> tuple[list[StreamItem], nexus.errors.ModelCallFailed]:
        items: list[StreamItem] = []
        try:
            async for item in client.stream(ctx):
                items.append(item)
        except nexus.errors.ModelCallFailed as error:
            return items, error
        finally:
            await client.aclose()
        raise AssertionError(items)

    return asyncio.run(collect())


def reply_of(items: list[StreamItem]) -> ModelReply:
    """Return the reply, which is the last item and the only one."""
    assert [isinstance(item, ModelReply) for item in items].index(True) == len(items) - 1
    assert isinstance(items[-1], ModelReply)
    return items[-1]


def shown(items: list[StreamItem], kind: type[Token | Reasoning]) -> str:
    """Return the text that a reader of the stream has in the end: a retry withdraws what came before it."""
    text = ""
    for item in items:
        text = "" if isinstance(item, Retry) else text + (item.text if isinstance(item, kind) else "")
    return text
