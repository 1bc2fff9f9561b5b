"""A program of document 001: an agent with its three tools and a live turn log. Arguments: folder, server, model calls.

The number of calls that earlier processes made sets the clock, which gives the entries the times that the document
prints.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import nexus
from nexus.agents import Agent
from nexus.context import AssembledContext
from nexus.models import EndpointClient, StreamItem, open_client
from nexus.turnlog.live import TurnLog
from nexus.turnlog.threads import thread_tools

START_MS = int(datetime(2023, 4, 4, 12, 33, tzinfo=UTC).timestamp() * 1_000)
SYSTEM = "You're a helpful AI assistant named Aya. You help users with content..."
EVENT = nexus.Event((nexus.Text("Suggest lunch options please."),), id="lunch", at_ms=START_MS + 10_000)


class CountingClient:
    """Counts the calls."""

    def __init__(self, client: EndpointClient, calls: int) -> None:
        self.client, self.calls = client, calls

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem]:
        self.calls += 1
        async for item in self.client.stream(ctx):
            yield item

    def clock_ms(self) -> int:
        return START_MS + (10_000 * (self.calls + 1) if self.calls else 0)


async def main(folder: Path, url: str, calls: int) -> None:
    client = CountingClient(open_client(base_url=url), calls)
    async with nexus.open_async(ledger=folder / "ledger.db", model="gpt-4o", clock_ms=client.clock_ms) as nx:
        log = TurnLog(nx.engine, "lunch", folder / "log.json", show=lambda line: print(line, flush=True))
        tools = thread_tools(nx.engine, "lunch", (folder / "posts").write_text)
        agent = Agent(nx, log.watch(client), tools=tools, builtin=False)
        await agent.run(EVENT, session="lunch", sink=log, profile="bare", system=SYSTEM, principal="U1234546")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
