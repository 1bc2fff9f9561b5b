"""The session's first task and pinned messages stay verbatim, whatever is cut or summarised."""

from __future__ import annotations

import pytest

import nexus
from nexus.engine import Engine
from nexus.types.ledger_entries import Compaction, MessageRef
from nexus.types.message import Message, ToolCall, assistant, tool, user
from support.replay import append

BUDGET = 2_000
WORDS = "one two three four five six seven eight nine ten "


def opened(*, pin_first_message: bool = True) -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000, pin_first_message=pin_first_message)


def talk(nx: Engine, turns: int) -> None:
    """A session whose turn 3 holds a call with its result."""
    for number in range(turns):
        if number == 3:
            call = ToolCall("call_3", "look", "{}")
            append(
                nx, "s", user("question 3"), assistant("", call), tool("call_3", "PORT=5433", "look"), assistant("ok")
            )
        else:
            append(nx, "s", user(f"question {number}: {WORDS}"), assistant(f"answer {number}: {WORDS * 5}"))


def shown(nx: Engine, budget: int = BUDGET) -> list[Message]:
    ctx = nx.assemble("and now", session="s", budget=budget, profile="bare")
    nx.record(ctx, nexus.AgentResult((assistant("noted"),)))
    return ctx.messages


def test_first_message_stays_verbatim_through_cuts() -> None:
    with opened() as nx:
        talk(nx, 60)
        for _ in range(30):
            append(nx, "s", assistant(WORDS * 20))
            messages = shown(nx)
            assert messages[0] == user(f"question 0: {WORDS}")
            assert sum(message.text().startswith("[Earlier messages left out") for message in messages) == 1
            assert sum(message.text() == messages[0].text() for message in messages) == 1


def test_first_message_is_cut_without_pin_first_message() -> None:
    with opened(pin_first_message=False) as nx:
        talk(nx, 60)
        assert not any("question 0:" in message.text() for message in shown(nx))


def test_pinned_result_is_shown_with_its_call_while_pinned() -> None:
    with opened() as nx:
        talk(nx, 60)
        assert not any("PORT" in str(message) for message in shown(nx))
        nx.ledger.pin("s", MessageRef(4, 2))
        ctx = nx.assemble("and now", session="s", budget=BUDGET, profile="bare")
        assert "the pinned messages among those left out changed" in ctx.accounting.prefix.causes
        messages = ctx.messages
        at = next(index for index, message in enumerate(messages) if list(message.calls()))
        assert [call.id for call in messages[at].calls()] == ["call_3"]
        assert [result.call_id for result in messages[at + 1].results()] == ["call_3"]
        assert {item.name for item in ctx.accounting.token_breakdown if item.slot == "history"} >= {
            "first task and pinned messages"
        }
        nx.ledger.unpin("s", MessageRef(4, 2))
        assert not any("PORT" in str(message) for message in shown(nx))


def test_fork_inherits_pins_and_keeps_its_own() -> None:
    with opened() as nx:
        talk(nx, 60)
        nx.ledger.pin("s", MessageRef(4, 2))
        nx.ledger.fork("branch", "s")
        nx.ledger.pin("branch", MessageRef(11, 0))
        ctx = nx.assemble("x", session="branch", budget=BUDGET, profile="bare")
        assert "PORT" in str(ctx.messages) and "question 10:" in str(ctx.messages)
        assert "question 10:" not in str(nx.assemble("x", session="s", budget=BUDGET, profile="bare").messages)


def test_pins_follow_the_summary_once_after_a_compaction() -> None:
    with opened() as nx:
        talk(nx, 30)
        nx.ledger.pin("s", MessageRef(4, 2))
        nx.ledger.compact("s", Compaction(1, 25, 26, "They talk about numbers."), after_checkpoint=31)
        messages = nx.assemble("x", session="s", budget=100_000, profile="bare").messages
        assert messages[0].text() == "[Previous conversation summary]\nThey talk about numbers."
        assert [message.text() for message in messages[1:3]] == [f"question 0: {WORDS}", ""]
        nx.ledger.undo("s")
        back = nx.assemble("x", session="s", budget=100_000, profile="bare").messages
        assert len(back) == len(nx.history("s")) + 1


def test_pins_over_budget_are_named_in_the_error() -> None:
    with opened() as nx:
        append(nx, "s", user("hi"), assistant("hello"))
        append(nx, "s", user(WORDS * 300), assistant("long"))
        talk(nx, 20)
        nx.ledger.pin("s", MessageRef(2, 0))
        with pytest.raises(nexus.BudgetTooSmall) as caught:
            shown(nx)
        assert caught.value.parts["pinned messages"] > 2_500
