"""Sessions that other sessions spawned: whom they act for, what they may do, and what the ledger says of them."""

from __future__ import annotations

from typing import Any

import pytest

import nexus
from nexus.errors import LateReply, NotAllowed
from nexus.policy import Policy
from nexus.policy.values import Default, Principal, Toolset

POLICY = Policy(
    "house",
    principals={
        "ann": Principal(toolset="readers", permissions=("read", "search")),
        "root": Principal(toolset="all", permissions=("read", "search", "write")),
    },
    toolsets={"readers": Toolset(("read_*",)), "all": Toolset(("*",))},
    default=Default("readers"),
)
TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object"}} for name in ("read_file", "write_file")
]
ANSWER = nexus.AgentResult((nexus.assistant("Done."),))


def spawn(nx: nexus.Engine, **options: Any) -> nexus.AssembledContext:
    merged: Any = {"session": "worker:count", "role": "worker", "task": "Count.", "tools": TOOLS, **options}
    return nx.assemble("Begin.", **merged)


def managed(principal: str | None = "ann", **options: Any) -> nexus.Engine:
    """An engine with one turn of a manager in the session `desk`."""
    nx = nexus.open(ledger=":memory:", policy=POLICY)
    merged: Any = {"session": "desk", "tools": TOOLS, "principal": principal, **options}
    nx.record(nx.assemble("Count the files.", **merged), ANSWER)
    return nx


@pytest.mark.parametrize("durable", [False, True])
def test_record_links_a_worker_to_its_manager(durable: bool) -> None:
    with managed() as nx:
        if durable:
            options: Any = {"role": "worker", "task": "Count.", "manager": "desk"}
            nx.begin("Begin.", session="worker:count", **options).record(ANSWER)
        else:
            nx.record(spawn(nx, manager="desk"), ANSWER)
        metadata = nx.ledger.sessions.metadata("worker:count")
        assert (metadata.parent_session, metadata.parent_turn, metadata.task) == ("desk", 1, "Count.")


def test_worker_without_a_known_manager_is_recorded_without_a_link() -> None:
    with managed() as nx:
        nx.record(spawn(nx, manager="nobody", principal="root"), ANSWER)
        assert nx.ledger.sessions.metadata("worker:count").parent_session == ""


def test_worker_has_its_managers_tools_and_permissions_at_most() -> None:
    with managed() as nx:
        ctx = spawn(nx, manager="desk", permissions=["search", "write"])
        assert [tool.name for tool in ctx.tools] == ["read_file"]
        assert ctx.permissions_granted == ("search",)


def test_worker_of_a_worker_has_no_more_than_the_first_manager() -> None:
    with managed() as nx:
        nx.record(spawn(nx, manager="desk", permissions=["read"]), ANSWER)
        ctx = spawn(nx, session="worker:deep", manager="worker:count", permissions=["read", "write"])
        assert [tool.name for tool in ctx.tools] == ["read_file"]
        assert ctx.permissions_granted == ("read",)


def test_worker_keeps_its_limits_without_naming_its_manager_again() -> None:
    with managed() as nx:
        nx.record(spawn(nx, manager="desk"), ANSWER)
        for role in ("worker", "unified"):
            assert [tool.name for tool in spawn(nx, role=role).tools] == ["read_file"]


def test_worker_of_another_principal_has_no_more_than_its_manager() -> None:
    with managed() as nx:
        ctx = spawn(nx, manager="desk", principal="root")
        assert [tool.name for tool in ctx.tools] == ["read_file"]
        assert ctx.permissions_granted == ("read", "search")
        assert [tool.name for tool in ctx.provenance.denied_tools] == ["write_file"]
        assert any("write not granted: session 'desk'" in warning.message for warning in ctx.warnings)


def test_permissions_of_a_managers_call_bound_its_workers() -> None:
    with managed(permissions=["read"]) as nx:
        assert spawn(nx, manager="desk", permissions=["read", "search"]).permissions_granted == ("read",)


def test_workers_of_the_program_itself_are_not_limited() -> None:
    with nexus.open(ledger=":memory:") as nx:
        nx.record(nx.assemble("Count the files.", session="desk"), ANSWER)
        ctx = spawn(nx, manager="desk", permissions=["write"])
        assert ctx.permissions_granted == ("write",)
        assert len(ctx.tools) == 2


def test_replay_of_a_worker_keeps_its_limits_when_the_managers_change() -> None:
    with managed() as nx:
        ctx = spawn(nx, manager="desk")
        nx.record(ctx, ANSWER)
        nx.record(nx.assemble("More.", session="desk", principal="ann", permissions=["read"]), ANSWER)
        assert nx.replay("worker:count", 1).to_openai() == ctx.to_openai()


@pytest.mark.parametrize("is_stored", [False, True])
def test_session_of_a_worker_belongs_to_the_owner_of_its_managers_session_at_any_depth(is_stored: bool) -> None:
    with managed("ann", session="dm:ann") as nx:
        if is_stored:
            nx.record(spawn(nx, manager="dm:ann", principal="ann"), ANSWER)
            nx.record(spawn(nx, session="worker:deep", manager="worker:count", principal="ann"), ANSWER)
            nx.ledger.fork("copy", "worker:deep")
            for session in ("worker:count", "worker:deep", "copy"):
                assert spawn(nx, session=session, role="unified", principal="ann").session_label == session
                with pytest.raises(NotAllowed, match="'dm:ann' not allowed for 'root'"):
                    spawn(nx, session=session, role="unified", principal="root")
        else:
            with pytest.raises(NotAllowed, match="'dm:ann' not allowed for 'root'"):
                spawn(nx, manager="dm:ann", principal="root")


def test_late_reply_belongs_to_the_owner_of_its_session() -> None:
    with managed("ann", session="dm:ann") as nx:
        turn = nx.begin("More.", session="dm:ann", principal="ann")
        ctx = turn.assemble()
        nx.ledger.rewind("dm:ann", turn=0)
        with pytest.raises(LateReply) as late:
            turn.record(ANSWER, ctx)
        label = late.value.stored_as
        assert nx.assemble("What?", session=label, principal="ann").session_label == label
        with pytest.raises(NotAllowed):
            nx.assemble("What?", session=label, principal="root")
