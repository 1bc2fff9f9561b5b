"""Turns of a program's own loop: the context that a turn begins with, and the session's lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import nexus
from nexus.errors import TurnSuperseded
from nexus.ledger.location import open_ledger
from nexus.server.client import Client
from nexus.server.contexts import BEGUN_MS, WaitingContexts, waiting_context
from nexus.types.ledger_entries import Commit, NewEntry
from server.running import running

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running(tmp_path) as server:
        yield server.client()


@pytest.fixture
def other(tmp_path: Path, client: Client) -> Iterator[nexus.Engine]:
    """Another program with the server's ledger."""
    client.create_agent("a")
    with nexus.open(ledger=open_ledger(None, str(tmp_path / "ledger.db"), tmp_path, tenant="local")) as nx:
        yield nx


def test_first_call_has_the_body_that_it_has_when_it_is_assembled_again(client: Client) -> None:
    agent = client.create_agent("a", system="You are terse.")
    for question in ("Where is it?", "And now?"):
        agent.begin(question)
        first, again = agent.assemble(), agent.assemble()
        assert (first.body, first.tokens, first.turn) == (again.body, again.tokens, again.turn)
        assert first.context_id != again.context_id
        assert agent.record("Here.", first.context_id).status == "completed"


def test_first_call_with_other_tools_or_another_model_has_them(client: Client) -> None:
    agent = client.create_agent("a")
    agent.begin("Where is it?")
    assert agent.assemble(tools=TOOLS).body["tools"]
    agent.begin("And now?", tools=TOOLS)
    assert agent.assemble(tools=TOOLS, model="gpt-4.1").model == "gpt-4.1"
    agent.begin("And then?", tools=TOOLS)
    assert "tools" not in agent.assemble().body


def test_first_call_has_what_another_program_added_since_the_turn_began(client: Client, other: nexus.Engine) -> None:
    agent = client.agent("a")
    agent.begin("Where is it?")
    turn = other.current_turn("a")
    assert turn is not None
    turn.add("Look in the yard.")
    assert "Look in the yard." in str(agent.assemble().body)
    agent.begin("And now?")
    other.ledger.close_turn("a", error="no network")
    with pytest.raises(nexus.NexusError, match="no open turn"):
        agent.assemble()


@pytest.mark.parametrize(("age_ms", "is_taken"), [(0, True), (BEGUN_MS, True), (BEGUN_MS + 1, False), (-1, False)])
def test_context_of_a_begun_turn_is_taken_once_and_while_it_is_new(age_ms: int, *, is_taken: bool) -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        turn = nx.begin("Where is it?", session="a")
        kept = waiting_context(turn.assemble())
        now_ms = kept.ctx.event[-1].at_ms + age_ms
        tenant = WaitingContexts().of("local")
        for request in (turn.request, replace(turn.request, tools=(TOOLS[0],))):
            tenant.keep("a", kept, turn.request)
            taken = tenant.take_begun("a", request, now_ms)
            assert (taken is kept) == (is_taken and request is turn.request)
            assert tenant.take_begun("a", request, now_ms) is None
            assert (len(tenant), tenant.messages, tenant.bytes) == (0, 0, 0)


def test_begin_and_record_leave_the_session_to_others_and_shut_out_earlier_writers(
    client: Client, other: nexus.Engine
) -> None:
    agent, store = client.agent("a"), other.ledger.store
    before = store.take_lease("a", "other", 60_000).fence
    store.release_lease("a", "other")
    agent.begin("Where is it?")
    with pytest.raises(TurnSuperseded):
        store.commit("a", Commit((NewEntry("completed"),), fence=before))
    lease = store.take_lease("a", "other", 60_000)
    assert lease.holder == "other"
    store.release_lease("a", "other")
    assert agent.record("Here.", agent.assemble().context_id).status == "completed"
    with pytest.raises(TurnSuperseded):
        store.commit("a", Commit((NewEntry("completed"),), fence=lease.fence))
    assert store.take_lease("a", "next", 60_000).holder == "next"


def test_begin_and_record_wait_for_the_program_that_has_the_session(client: Client, other: nexus.Engine) -> None:
    agent, store = client.agent("a"), other.ledger.store
    store.take_lease("a", "other", 300)
    agent.begin("Where is it?")
    sent = agent.assemble()
    fence = store.take_lease("a", "other", 300).fence
    assert agent.record("Here.", sent.context_id).status == "completed"
    assert [message.text() for message in agent.get_messages().messages] == ["Where is it?", "Here."]
    assert store.take_lease("a", "next", 60_000).fence > fence + 1
