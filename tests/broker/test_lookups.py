"""Document 002's look-ups: `getMessagesByTurnId`, `getCompaction`, `findLatestCompaction`; and whose turn a context is."""

from __future__ import annotations

import pytest

import nexus
from nexus.broker import find_latest_compaction, get_compaction, get_messages_by_turn_id
from nexus.engine import Engine
from nexus.errors import BadReference, NoSuchSession


def talked(turns: int = 6) -> Engine:
    nx = nexus.open(None, ledger=":memory:", model="gpt-4o")
    for number in range(1, turns + 1):
        ctx = nx.assemble(f"Question {number}. " + "It is long. " * 40, session="main")
        asks = nexus.assistant("", nexus.ToolCall(f"c{number}", "read", "{}"))
        nx.record(ctx, nexus.AgentResult((asks,)))
        ctx = nx.assemble([nexus.tool(f"c{number}", "found")], session="main")
        nx.record(ctx, nexus.AgentResult((nexus.assistant(f"Answer {number}."),)))
    return nx


def test_messages_of_one_turn_are_found_by_the_id_that_a_context_has() -> None:
    """Document 002, "Reading from Agents Ledger": `getMessagesByTurnId(turn.id)`."""
    nx = talked()
    ctx = nx.assemble("Next.", session="main")
    assert ctx.parent_turn_id == "1.6"
    roles = [message.role for message in get_messages_by_turn_id(nx, ctx.parent_turn_id)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert get_messages_by_turn_id(nx, "1.2")[-1].text() == "Answer 2."


@pytest.mark.parametrize("turn_id", ["1.7", "1.0", "9.1", "", "main", "1", "1.x", "-1.2"])
def test_unknown_turn_is_rejected_with_the_form_of_ids(turn_id: str) -> None:
    with pytest.raises(BadReference, match="not found"):
        get_messages_by_turn_id(talked(1), turn_id)


def test_a_compaction_is_found_by_session_and_by_id() -> None:
    """Document 002, "Compaction-Aware History": "Find the LATEST compaction", `getCompaction(compaction.id)`."""
    nx = talked()
    assert find_latest_compaction(nx, "main") is None
    assert nx.compact("main", budget=1_000)
    latest = find_latest_compaction(nx, "main")
    assert latest is not None and latest == get_compaction(nx, latest.id) == find_latest_compaction(nx, 1)
    assert "Question 1" in latest.summary and latest.details.trigger == "manual"
    nx.ledger.undo("main")
    assert find_latest_compaction(nx, "main") is None
    assert get_compaction(nx, latest.id) == latest, "it is still in the ledger"
    with pytest.raises(BadReference):
        get_compaction(nx, "1.1")
    with pytest.raises(NoSuchSession):
        find_latest_compaction(nx, "nobody")


def test_session_label_of_a_context_is_the_sessions_own_under_an_alias() -> None:
    """Document 002, "AssembledContext Output": `sessionLabel`, "Which session this turn belongs to"."""
    nx = talked(1)
    nx.ledger.sessions.alias("work", "main")
    ctx = nx.assemble("Next.", session="work")
    assert ctx.session_label == ctx.to_json()["sessionLabel"] == "main"
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Yes."),)))
    assert nx.history("main")[-1].text() == "Yes."
    assert nx.assemble("New.", session="new").session_label == "new"
