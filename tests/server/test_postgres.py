"""Two servers that share a ledger in PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nexus.errors import ServerCallFailed
from nexus.server.agents import StoredAgents
from nexus.testing.model_server import reply
from server.running import TOKEN, running

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

OTHER = "token-of-another-tenant"


def test_agent_of_one_server_is_there_in_the_other(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url, tokens = postgres_server.new_ledger(), {TOKEN: "local", OTHER: "other"}
    with (
        running(tmp_path, reply("From one."), ledger=url, tokens=tokens) as one,
        running(tmp_path, reply("From two."), ledger=url, tokens=tokens) as two,
    ):
        agent = one.client().create_agent("a", system="You are terse.")
        same = two.client().agent("a")
        assert agent.send("Hi", "r1").content == "From one."
        assert same.send("Hi", "r1").content == "From one.", "the same request is answered once"
        assert same.send("And now?", "r2").content == "From two."
        assert [message.text() for message in agent.get_messages().messages][1::2] == ["From one.", "From two."]
        assert two.client(OTHER).list_agents() == ()
        assert len(one.model.bodies) == len(two.model.bodies) == 1


def test_two_servers_that_create_and_end_an_agent_at_once_agree(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.new_ledger()
    with running(tmp_path, ledger=url) as one, running(tmp_path, ledger=url) as two, ThreadPoolExecutor(8) as pool:
        clients = [server.client() for server in (one, two) for _ in range(4)]

        def create(number: int) -> str:
            try:
                clients[number].create_agent("a", system=f"Number {number}.")
            except ServerCallFailed as error:
                return error.code
            return "created"

        for _ in range(5):
            outcomes = list(pool.map(create, range(8)))
            assert sorted(outcomes) == ["bad_setting"] * 7 + ["created"]
            prompts = {
                StoredAgents(engine).get("a").settings.system
                for server in (one, two)
                for engine in (server.tenants.tenants()[0].nx.engine,)
            }
            assert prompts == {f"Number {outcomes.index('created')}."}
            removed = list(pool.map(lambda client: client.destroy_agent("a"), clients))
            assert removed.count(True) == 1
            assert one.client().list_agents() == two.client().list_agents() == ()


def test_agent_that_one_server_shuts_down_is_closed_in_the_other(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    url = postgres_server.new_ledger()
    with running(tmp_path, ledger=url) as one, running(tmp_path, ledger=url) as two:
        one.client().create_agent("a").send("Hi")
        two.client().agent("a").shutdown()
        with pytest.raises(ServerCallFailed, match="was shut down"):
            one.client().agent("a").send("Hi")
        assert one.client().agent("a").get_messages().total == 2
