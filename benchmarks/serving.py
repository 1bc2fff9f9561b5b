"""Many clients on one event loop: how late the loop runs, and calls per second, with `open_async` and with the engine itself.

Each client has a session of its own with a history that is over the budget, and makes several calls. The model answers
after a fixed time.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import nexus
from benchmarks.measure import loop_lag, share_of
from benchmarks.report import Cell, Outcome, Table, Target
from nexus.assembly.record import with_sizes
from nexus.types.ledger_entries import Commit, NewEntry

COMMAND = "python -m benchmarks serving"
CLIENTS, CALLS, TURNS, BUDGET = 100, 5, 60, 4_000
MODEL_S = 0.05
MOST_LAG_MS = 10.0
TEXT = "The planner reads the index, the worker writes the report, and the reviewer asks for figures. "


def run() -> Outcome:
    """The lag of the loop and the calls per second: nothing, the engine on the loop, and `open_async`."""
    with tempfile.TemporaryDirectory() as folder:
        idle = asyncio.run(loop_lag(lambda: asyncio.sleep(2.0)))
        rows: list[tuple[Cell, ...]] = [("an idle loop", *_figures(idle, 0))]
        blocking = asyncio.run(_blocking(_ledger(Path(folder) / "blocking.db")))
        rows.append(("engine on the loop", *_figures(*blocking)))
        awaited = asyncio.run(_awaited(_ledger(Path(folder) / "awaited.db"), "own"))
        rows.append(("nexus.open_async", *_figures(*awaited)))
        shared = asyncio.run(_awaited(_ledger(Path(folder) / "shared.db"), "shared"))
        rows.append(("nexus.open_async, 10 clients per session", *_figures(*shared)))
    sizes = f"{2 * TURNS} messages per session, budget {BUDGET:,} tokens"
    notes = (
        f"{CLIENTS} clients with {CALLS} calls each; {sizes}; the model answers after {1000 * MODEL_S:.0f} ms.",
        "Lag: how much later than asked a task wakes that sleeps for 1 ms. Clients of one session wait for each other.",
    )
    header = ("clients", "lag p50 ms", "lag p99 ms", "lag max ms", "calls/s")
    table = Table("Many clients on one event loop", COMMAND, "none", header, tuple(rows), notes)
    lag = share_of(awaited[0][0], 0.99)
    target = Target(
        "lag of the loop with 100 clients, p99", f"under {MOST_LAG_MS:.0f} ms", f"{lag:.1f} ms", lag < MOST_LAG_MS
    )
    return Outcome((table,), (target,))


def _figures(measured: tuple[list[float], float], calls: int) -> tuple[Cell, ...]:
    _, seconds = measured
    rate = calls / seconds if calls else ""
    return (*(share_of(measured[0], share) for share in (0.5, 0.99, 1.0)), rate)


def _ledger(path: Path) -> Path:
    """A ledger with a session for each client."""
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        for client in range(CLIENTS):
            entries: list[NewEntry] = []
            for turn in range(TURNS):
                messages = (nexus.user(f"{turn}. {TEXT * 2}"), nexus.assistant(f"{turn}. {TEXT * 3}"))
                entries.append(NewEntry(messages=with_sizes(messages, nx.counter), starts_turn=True))
                entries.append(NewEntry("completed"))
            nx.ledger.store.commit(f"own{client}", Commit(tuple(entries)))
            if client % 10 == 0:
                nx.ledger.store.commit(f"shared{client}", Commit(tuple(entries)))
    return path


async def _answer(_ctx: nexus.AssembledContext) -> nexus.AgentResult:
    await asyncio.sleep(MODEL_S)
    return nexus.AgentResult((nexus.assistant(TEXT),))


async def _blocking(path: Path) -> tuple[tuple[list[float], float], int]:
    """Each client assembles and records on the loop, as without an asynchronous engine."""
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        nx.warm()

        async def client(number: int) -> None:
            for call in range(CALLS):
                ctx = nx.assemble(f"And {call}?", session=f"own{number}", budget=BUDGET)
                ctx.to_openai()
                nx.record(ctx, await _answer(ctx))

        return await loop_lag(lambda: asyncio.gather(*map(client, range(CLIENTS)))), CLIENTS * CALLS


async def _awaited(path: Path, sessions: str) -> tuple[tuple[list[float], float], int]:
    """Each client awaits `nexus.acall`."""
    async with nexus.open_async(ledger=path, model="gpt-4o") as nx:
        await nx.warm()

        async def client(number: int) -> None:
            session = f"own{number}" if sessions == "own" else f"shared{number - number % 10}"
            for call in range(CALLS):
                await nexus.acall(nx, f"And {call}?", _answer, session=session, budget=BUDGET, wait=300)

        return await loop_lag(lambda: asyncio.gather(*map(client, range(CLIENTS)))), CLIENTS * CALLS
