"""A reply to an accepted event is never lost, and never paid twice, when the ledger fails as it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

import nexus
from nexus import Event, Text
from nexus.agents import Agent
from nexus.broker import Broker
from nexus.bus import MemoryBus
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import LedgerError, ServerCallFailed
from nexus.models import Models, open_client
from nexus.server.client import AgentClient, Client
from nexus.server.http import open_socket, serve_http, url_of
from nexus.server.security import Tokens
from nexus.server.tenants import ServeOptions, Tenants
from nexus.services import Run, RunClient
from nexus.services.serve import serve
from nexus.testing.model_server import model_server, reply
from support.paid_replies import CAUSES, PAID, refusing

Ask: TypeAlias = Callable[[], Awaitable[str]]
Way: TypeAlias = Callable[[AsyncEngine, Models], AbstractAsyncContextManager[Ask]]

TOKEN = "token-of-the-local-tenant"


@asynccontextmanager
async def by_broker(nx: AsyncEngine, models: Models) -> AsyncGenerator[Ask]:
    async with Broker(Agent(nx, models, builtin=False)) as broker:

        async def ask() -> str:
            return (await broker.result(await broker.submit(Event((Text("A question?"),), id="e1"), session="s"))).text

        yield ask


@asynccontextmanager
async def agent_of_server(nx: AsyncEngine, models: Models) -> AsyncGenerator[AgentClient]:
    listener, started, stopping = open_socket("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
    tenants = Tenants(lambda _: nx.engine, models, options=ServeOptions(builtin=False, grace_s=0.0))
    serving = asyncio.ensure_future(
        serve_http(tenants, Tokens({TOKEN: "local"}), listener, started=started.set, stopping=stopping)
    )
    await started.wait()
    client = Client(url_of(listener), TOKEN)
    try:
        if not await asyncio.to_thread(client.list_agents):
            await asyncio.to_thread(client.create_agent, "s")
        yield client.agent("s")
    finally:
        stopping.set()
        await serving


@asynccontextmanager
async def by_server(nx: AsyncEngine, models: Models) -> AsyncGenerator[Ask]:
    async with agent_of_server(nx, models) as agent:

        async def ask() -> str:
            return (await asyncio.to_thread(agent.send, "A question?", "r1")).content

        yield ask


@asynccontextmanager
async def by_services(nx: AsyncEngine, models: Models) -> AsyncGenerator[Ask]:
    bus = MemoryBus()
    async with serve(bus, nx, models, grace_s=0.0):

        async def ask() -> str:
            return (await RunClient(bus).run(Run("ann", "A question?", "e1"))).text

        yield ask
    await bus.close()


@pytest.mark.parametrize("way", [by_broker, by_server, by_services])
@pytest.mark.parametrize("error", CAUSES)
@pytest.mark.parametrize("restarts", [True, False])
def test_no_queue_loses_a_reply_or_pays_twice(
    way: Way, error: type[LedgerError], restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue tries again while the ledger still fails. Then its program is stopped, or it has no file for replies."""
    monkeypatch.setattr("nexus.broker.session_tasks._RETRY_S", 0.05)
    open_engine = partial(nexus.open_async, model="gpt-4o", ledger=tmp_path / "ledger.db", home=tmp_path)
    answers: list[str] = []

    async def fail(nx: AsyncEngine, models: Models) -> str:
        with ExitStack() as failing:
            refused = failing.enter_context(refusing(nx.engine, error, monkeypatch))
            if not restarts:
                nx.engine.unrecorded.path = None
            async with way(nx, models) as ask:
                asking = asyncio.ensure_future(ask())
                await refused.wait_for(12)  # at most three by the model's call, and two by each further try
                if not restarts:
                    failing.close()
                    answers.extend([await ask(), await asking])
                asking.cancel()
        return refused.session

    async def main() -> None:
        with model_server(reply(PAID)) as server:
            async with Models({"gpt-4o": open_client(base_url=server.openai_url)}) as models:
                async with open_engine() as nx:
                    session = await asyncio.wait_for(fail(nx, models), 60)
                if restarts:
                    async with open_engine() as nx, way(nx, models) as ask:
                        answers.append(await asyncio.wait_for(ask(), 60))
        assert len(server.requests) == 1
        assert set(answers) == {PAID}
        check_stored(tmp_path, session)

    asyncio.run(main())


def check_stored(folder: Path, session: str) -> None:
    with nexus.open(ledger=folder / "ledger.db", home=folder) as nx:
        assert [message.text() for message in nx.history(session)] == ["A question?", PAID]
        assert not nx.ledger.upkeep.late_replies(session)
        assert nx.unrecorded.count() == 0


@pytest.mark.parametrize("error", CAUSES)
def test_server_records_the_reply_of_another_loop_once(
    error: type[LedgerError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        opened = nexus.open_async(model="gpt-4o", ledger=tmp_path / "ledger.db", home=tmp_path)
        async with opened as nx, agent_of_server(nx, Models({})) as agent:
            await asyncio.to_thread(agent.begin, "A question?", "r1")
            context_id = (await asyncio.to_thread(agent.assemble)).context_id
            with refusing(nx.engine, error, monkeypatch):
                for call in (lambda: agent.record(PAID, context_id), agent.assemble):
                    with pytest.raises(ServerCallFailed) as failed:
                        await asyncio.to_thread(call)
                    assert failed.value.code == error.code
            recorded = await asyncio.to_thread(agent.record, PAID, context_id)
            assert (recorded.turn, recorded.status) == (1, "completed")
            assert (await asyncio.to_thread(agent.begin, "A question?", "r1")).status == "completed"
        check_stored(tmp_path, "s")

    asyncio.run(main())
