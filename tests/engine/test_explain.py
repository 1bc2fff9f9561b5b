"""Explanations of recorded calls: each message once, with what became of it."""

from __future__ import annotations

import nexus
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, ToolCall, assistant, tool


def test_late_result_is_explained_as_the_text_that_shows_it() -> None:
    """B's result comes after the model has gone on without it: the prefix stays, and the result is shown as text."""
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        events: list[str | list[Message]] = [
            "go",
            [tool("A", "1", "run")],
            [tool("B", "2", "run"), tool("C", "3", "run")],
        ]
        replies = [(assistant("", _call("A"), _call("B")),), (assistant("", _call("C")),), (assistant("done"),)]
        for event, reply in zip(events, replies, strict=True):
            nx.record(nx.assemble(event, profile="bare"), nexus.AgentResult(reply))
        nx.record(nx.assemble("Next.", profile="bare"), nexus.AgentResult((assistant("Fine."),)))
        lines = nx.explain("main", 2).lines
        late = [line for line in lines if line.place == MessageRef(3, 0)]
        assert [(line.state, line.tokens) for line in late] == [("included", 0)]
        assert late[0].reason.startswith("late result")
        assert sum(line.tokens for line in lines) == nx.replay("main", 2).token_budget.used.total


def _call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "run", '{"x":1}')


def test_messages_before_the_conversation_are_in_the_preamble() -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o", profile="tagged") as nx:
        nexus.call(nx, "Is it?", lambda _: nexus.AgentResult((assistant("Yes."),)))
        assert {line.slot for line in nx.explain("main").lines} == {"system", "preamble", "history", "current"}
