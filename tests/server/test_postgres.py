"""Two servers that share a ledger in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
        agent = one.client().create_agent("a", system_prompt="You are terse.")
        same = two.client().agent("a")
        assert agent.send("Hi", "r1").content == "From one."
        assert same.send("Hi", "r1").content == "From one.", "the same request is answered once"
        assert same.send("And now?", "r2").content == "From two."
        assert [message.text() for message in agent.get_messages().messages][1::2] == ["From one.", "From two."]
        assert two.client(OTHER).list_agents() == ()
        assert len(one.model.bodies) == len(two.model.bodies) == 1
