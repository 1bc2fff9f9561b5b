"""User turns that had no room at one cut come back when there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nexus
from nexus import assistant
from nexus.assembly.fit import compaction_plan
from nexus.assembly.fit import cut_history as cut

TURNS = 24
BUDGET = 4_000


@pytest.fixture
def nx() -> Iterator[nexus.Engine]:
    with nexus.open(ledger=":memory:", model="gpt-4o", calibrate=False) as engine:
        yield engine


def context(nx: nexus.Engine, text: str, budget: int = BUDGET) -> nexus.AssembledContext:
    return nx.assemble(text, session="s", budget=budget, profile="bare")


def say(nx: nexus.Engine, text: str, reply: str = "Done.") -> nexus.AssembledContext:
    ctx = context(nx, text)
    nx.record(ctx, nexus.AgentResult((assistant(reply),)))
    return ctx


def shown_turns(ctx: nexus.AssembledContext) -> int:
    text = "\n".join(message.text() for message in ctx.messages)
    return sum(request(number) in text for number in range(TURNS))


def request(number: int) -> str:
    return f"Request {number}: please look at part {number} of the plan and tell me whether it holds up."


def evict_turns(nx: nexus.Engine) -> nexus.AssembledContext:
    """Store many turns, then one whose text leaves no room for them; return its context."""
    for number in range(TURNS):
        say(nx, request(number), "answer " * 40)
    return say(nx, "pasted " * (BUDGET - 600))


@pytest.mark.parametrize("compacts", [False, True])
def test_turns_without_room_come_back_with_room(nx: nexus.Engine, *, compacts: bool) -> None:
    crowded = evict_turns(nx)
    assert crowded.cut is not None
    assert shown_turns(crowded) < TURNS / 2
    assert len(crowded.cut.withheld_turns) == crowded.cut.unshown_turns > 0
    for number in range(8):
        say(nx, f"And now {number}?", "answer " * 200)
    if compacts:
        assert nx.compact("s", budget=BUDGET)
    ctx = context(nx, "Last?")
    assert shown_turns(ctx) == TURNS
    assert "not shown" not in "\n".join(message.text() for message in ctx.messages)


def test_turns_beyond_the_limit_are_counted(nx: nexus.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cut, compaction_plan):
        monkeypatch.setattr(module, "MOST_WITHHELD", 2)
    crowded = evict_turns(nx)
    assert crowded.cut is not None and len(crowded.cut.withheld_turns) == 2 < crowded.cut.unshown_turns
    for number in range(8):
        say(nx, f"And now {number}?", "answer " * 200)
    ctx = context(nx, "Last?")
    lost = crowded.cut.unshown_turns - 2
    assert shown_turns(ctx) == TURNS - lost
    assert f"{lost} of the user's turns are not shown" in "\n".join(message.text() for message in ctx.messages)


def test_compaction_keeps_turns_that_have_no_room_for_the_next_one(nx: nexus.Engine) -> None:
    evict_turns(nx)
    last = context(nx, "?")
    assert shown_turns(last) < TURNS
    assert nx.compact("s", budget=2_000)
    small = context(nx, "Small?", 1_000)
    nx.record(small, nexus.AgentResult((assistant("Yes."),)))
    for number in range(8):
        say(nx, f"And now {number}?", "answer " * 200)
    assert shown_turns(context(nx, "Last?")) == TURNS


def test_another_process_sends_the_same_and_brings_turns_back(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    with nexus.open(ledger=ledger, model="gpt-4o") as nx:
        evict_turns(nx)
        before = context(nx, "Next?").body_hash
    with nexus.open(ledger=ledger, model="gpt-4o") as again:
        assert context(again, "Next?").body_hash == before
        for number in range(8):
            say(again, f"And now {number}?", "answer " * 200)
        assert shown_turns(context(again, "Last?")) == TURNS
