"""Whose a session is, as the ledger says it."""

from __future__ import annotations

import pytest

import nexus
from nexus.errors import NotAllowed
from nexus.policy import Policy
from nexus.policy.link import link_principal
from nexus.policy.values import Default, Principal, Toolset
from nexus.types.message import assistant

HOUSE = Policy(
    "house",
    principals={"telegram:42": Principal("ann"), "ops": Principal(session="desk")},
    toolsets={"all": Toolset(("*",))},
    default=Default("all"),
)


def house(*sessions: str) -> nexus.Engine:
    """An engine with this policy and one turn in each session."""
    nx = nexus.open(policy=HOUSE)
    for session in sessions:
        nx.record(nx.assemble("My PIN is 1234.", session=session), nexus.AgentResult((assistant("Noted."),)))
    return nx


@pytest.mark.parametrize(("source", "owner"), [("dm:ann", "telegram:42"), ("desk", "ops")])
def test_fork_belongs_to_the_owner_of_its_source(source: str, owner: str) -> None:
    with house(source) as nx:
        nx.ledger.fork("copy", source)
        nx.ledger.fork("copy of copy", "copy", turn=1)
        nx.ledger.rewind("copy", turn=0)
        nx.ledger.sessions.alias("shortcut", "copy")
        nx.ledger.sessions.rename("copy of copy", "renamed")
        for session in ("copy", "shortcut", "copy of copy", "renamed"):
            assert nx.assemble("Hi", session=session, principal=owner).session_label
            assert nx.assemble("Hi", session=session).session_label, "the program itself"
            with pytest.raises(NotAllowed, match=f"'{source}' not allowed for 'discord:7'"):
                nx.assemble("Hi", session=session, principal="discord:7")


def test_fork_follows_its_owner_when_a_principal_is_linked() -> None:
    with house("dm:telegram:42") as nx:
        nx.ledger.fork("copy", "dm:telegram:42")
        link_principal(nx.ledger, nx.policies.read(), "telegram:42")
        nx.assemble("Hi", session="copy", principal="telegram:42")
        with pytest.raises(NotAllowed, match="'dm:ann' not allowed"):
            nx.assemble("Hi", session="copy", principal="discord:7")


def test_fork_under_a_persons_label_belongs_to_that_person() -> None:
    """A handoff: the program names the one who goes on."""
    with house("dm:ann") as nx:
        nx.ledger.fork("dm:discord:7", "dm:ann")
        nx.assemble("Hi", principal="discord:7")
        with pytest.raises(NotAllowed):
            nx.assemble("Hi", session="dm:discord:7", principal="telegram:42")


def test_fork_of_a_free_session_stays_open_to_all() -> None:
    with house("main") as nx:
        nx.ledger.fork("copy", "main")
        for principal in ("telegram:42", "discord:7"):
            nx.assemble("Hi", session="copy", principal=principal)
