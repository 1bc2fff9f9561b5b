"""A program that asks one question in each of some sessions, and waits for each reply of its model until it may go on.

`writing_program.py LEDGER FOLDER WAY NAME CLOCK_S RENEW_S SESSION=EVENT…`: WAY is one of the functions at the end,
CLOCK_S the seconds by which its clock is wrong, and RENEW_S those between two renewals of its leases. Files of FOLDER say how far it is, and let it go on: `NAME.SESSION.STEP`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

ledger, folder, way, name, clock_s, renew_s, *questions = sys.argv[1:]
time_s, time_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: time_s() + int(clock_s), lambda: time_ns() + int(clock_s) * 1_000_000_000

import nexus  # noqa: E402 - with the wrong clock
from nexus.engine.async_engine import AsyncEngine  # noqa: E402
from nexus.ledger import lease  # noqa: E402
from nexus.models import ModelReply  # noqa: E402

lease.LEASE_MS, lease.RENEW_S = 2_500, float(renew_s)
Ask: TypeAlias = Callable[[nexus.Event, str], Awaitable[Any]]


def step(session: str, what: str) -> Path:
    return Path(folder, f"{name}.{session.removeprefix('dm:')}.{what}")


async def send(ctx: nexus.AssembledContext) -> nexus.AgentResult:
    step(ctx.session_label, "called").touch()
    while not step(ctx.session_label, "go").exists():  # noqa: ASYNC110 - another program makes the file
        await asyncio.sleep(0.02)
    question = re.findall(r"Question \w+\?", str(ctx.to_openai()))[-1]
    return nexus.AgentResult((nexus.assistant(f"{name} answers {question}"),), model="gpt-4o")


def send_in_thread(ctx: nexus.AssembledContext) -> nexus.AgentResult:
    return asyncio.run(send(ctx))


class Model:
    async def stream(self, ctx: nexus.AssembledContext) -> AsyncGenerator[ModelReply]:
        yield ModelReply(await send(ctx))


@asynccontextmanager
async def call(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    yield lambda event, session: asyncio.to_thread(
        nexus.call, nx.engine, event, send_in_thread, session=session, wait=20
    )


@asynccontextmanager
async def acall(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    yield lambda event, session: nexus.acall(nx, event, send, session=session, wait=20)


@asynccontextmanager
async def turn(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    def ask(event: nexus.Event, session: str) -> None:
        begun = nx.engine.begin(event, session=session)
        begun.record(send_in_thread(begun.assemble()))

    yield lambda event, session: asyncio.to_thread(ask, event, session)


@asynccontextmanager
async def agent(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    from nexus.agents import Agent

    yield lambda event, session: Agent(nx, Model(), builtin=False).run(event, session=session, wait=20)


@asynccontextmanager
async def broker(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    from nexus.agents import Agent
    from nexus.broker import Broker

    async with Broker(Agent(nx, Model(), builtin=False)) as running:

        async def ask(event: nexus.Event, session: str) -> object:
            return await running.result(await running.submit(event, session=session))

        yield ask


@asynccontextmanager
async def server(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    from nexus.errors import ServerCallFailed
    from nexus.server.client import Client
    from nexus.server.http import open_socket, serve_http, url_of
    from nexus.server.security import Tokens
    from nexus.server.tenants import Tenants

    listener, started, stopping, token = open_socket("127.0.0.1", 0), asyncio.Event(), asyncio.Event(), "t" * 32
    tenants = Tenants(lambda _: nx.engine, Model())
    serving = asyncio.ensure_future(
        serve_http(tenants, Tokens({token: "local"}), listener, started=started.set, stopping=stopping)
    )
    await started.wait()
    client = Client(url_of(listener), token)

    def ask(event: nexus.Event, session: str) -> object:
        try:
            client.create_agent(session)
        except ServerCallFailed as error:
            assert "exists" in str(error)
        return client.agent(session).send(event.content[0].text, event.id)

    try:
        yield lambda event, session: asyncio.to_thread(ask, event, session)
    finally:
        stopping.set()
        await serving


@asynccontextmanager
async def services(nx: AsyncEngine) -> AsyncGenerator[Ask]:
    from nexus.bus import MemoryBus
    from nexus.services import Run, RunClient
    from nexus.services.serve import serve

    bus = MemoryBus()
    async with serve(bus, nx, Model()):
        yield lambda event, session: RunClient(bus).run(Run(session, event.content[0].text, event.id))
    await bus.close()


async def main() -> None:
    async with nexus.open_async(ledger=ledger, home=folder, model="gpt-4o") as nx, globals()[way](nx) as ask:

        async def ask_in(session: str, event: str) -> None:
            step(session, "asked").touch()
            try:
                ending = await ask(nexus.Event((nexus.Text(f"Question {event}?"),), id=event), session)
            except nexus.NexusError as error:
                ending = error
            step(session, "end").write_text(f"{type(ending).__name__} {ending}", "utf-8")

        await asyncio.gather(*(ask_in(*question.split("=")) for question in questions))


asyncio.run(main())
