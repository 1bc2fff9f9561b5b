"""How many statements and transactions each way in needs. They are no luck: a ceiling is today's number, it may only fall."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.agents import Agent
from nexus.ledger.sqlite.connection import SqliteDatabase
from nexus.server.service import Service
from nexus.server.tenants import Tenants
from nexus.types.message import ToolCall
from support.scripted_agent import ScriptedClient, said

REPLY = nexus.AgentResult((nexus.assistant("Yes."),), model="gpt-4o")


class Statements(list[str]):
    """The statements of all connections, in order."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of statements and of transactions since the last call, and forget them."""
        numbers = (len(self), sum(sql.startswith("BEGIN") for sql in self))
        self.clear()
        return numbers


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    found = Statements()
    open_database = SqliteDatabase.__init__

    def trace(_cursor: object, sql: str, _values: object) -> bool:
        found.append(sql)
        return True

    def open_traced(self: SqliteDatabase, *args: Any, **options: Any) -> None:
        open_database(self, *args, **options)
        self._db.exec_trace = trace

    monkeypatch.setattr(SqliteDatabase, "__init__", open_traced)
    return found


@pytest.fixture
def nx(statements: Statements, tmp_path: Path) -> Iterator[nexus.Engine]:
    assert not statements  # they are traced from the first connection on
    with nexus.open(ledger=tmp_path / "ledger.db", home=tmp_path, model="gpt-4o") as nx:
        yield nx


def assemble(nx: nexus.Engine) -> None:
    nx.assemble("And then?", session="main").to_openai()


def call(nx: nexus.Engine) -> None:
    nexus.call(nx, "And then?", lambda _: REPLY, session="main")


def use_turn(nx: nexus.Engine) -> None:
    turn = nx.begin("And then?", session="main")
    turn.assemble()
    turn.record(REPLY)


def mirror(nx: nexus.Engine) -> None:
    """A list that goes on behind the reply to the one before."""
    messages = [{"role": "user", "content": "Is it?"}]
    nx.record(nx.mirror(messages, provider="openai"), REPLY)
    messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
    nx.record(nx.mirror(messages, provider="openai"), REPLY)


def check(counts: tuple[int, int], ceiling: tuple[int, int]) -> None:
    assert counts[0] <= ceiling[0], "statements"
    assert counts[1] <= ceiling[1], "transactions"


@pytest.mark.parametrize(
    ("use", "ceiling"),
    [(assemble, (8, 1)), (call, (35, 3)), (use_turn, (34, 3)), (mirror, (97, 18))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_warm_use_of_the_engine(
    use: Callable[[nexus.Engine], None], ceiling: tuple[int, int], nx: nexus.Engine, statements: Statements
) -> None:
    for _ in range(5):
        call(nx)
        use(nx)
    statements.clear()
    use(nx)
    check(statements.counts(), ceiling)


def test_number_of_statements_does_not_grow_with_the_history(nx: nexus.Engine, statements: Statements) -> None:
    numbers: list[tuple[int, int]] = []
    for _ in range(60):
        statements.clear()
        call(nx)
        numbers.append(statements.counts())
    assert numbers[5] == numbers[-1]


def test_warm_turn_of_an_agent_with_a_tool(nx: nexus.Engine, statements: Statements) -> None:
    def look(place: str) -> str:
        """Look at a place."""
        return f"{place} is empty."

    turn = [said("", ToolCall("c1", "look", '{"place": "yard"}')), said("It is empty.")]

    async def run() -> tuple[int, int]:
        async with nexus.AsyncEngine(nx) as engine:
            agent = Agent(engine, ScriptedClient(*turn, *turn, *turn), tools=[look], builtin=False)
            for _ in range(3):
                statements.clear()
                assert (await agent.run("Is somebody there?", session="main")).error is None
            return statements.counts()

    check(asyncio.run(run()), (89, 10))


def test_warm_send_of_the_server(statements: Statements, tmp_path: Path) -> None:
    """101 to 109: the lease of the send before may be released meanwhile."""

    async def run() -> tuple[int, int]:
        tenants = Tenants(
            lambda _: nexus.open(ledger=tmp_path / "server.db", home=tmp_path, model="gpt-4o"),
            ScriptedClient(*[said("Yes.")] * 3),
        )
        service = Service(tenants)
        await service.call("local", "create_agent", {"agent_id": "a"})
        for _ in range(3):
            statements.clear()
            await service.call("local", "send", {"content": "Is it?"}, agent_id="a")
        numbers = statements.counts()
        await tenants.close()
        return numbers

    check(asyncio.run(run()), (109, 15))


def test_warm_turn_of_a_loop_beside_the_server(statements: Statements, tmp_path: Path) -> None:
    """Three requests: begin, assemble and record, each of which looks up its agent."""

    async def run() -> tuple[int, int]:
        tenants = Tenants(
            lambda _: nexus.open(ledger=tmp_path / "server.db", home=tmp_path, model="gpt-4o"), ScriptedClient()
        )
        service = Service(tenants)
        await service.call("local", "create_agent", {"agent_id": "a"})

        async def call_method(method: str, **params: Any) -> Any:
            return await service.call("local", method, params, agent_id="a")

        for _ in range(4):
            statements.clear()
            await call_method("begin", content="Is it?")
            sent = await call_method("assemble", format="openai")
            await call_method("record", reply="Yes.", context_id=sent.context_id)
        numbers = statements.counts()
        await tenants.close()
        return numbers

    check(asyncio.run(run()), (45, 4))
