"""Tool calls of an agent's result and of a turn, with their results, status and times."""

from __future__ import annotations

import nexus
from nexus.testing import FixedClock
from nexus.types.tool_calls import ToolCallRecord

CALLS = nexus.assistant("", nexus.ToolCall("a", "look", "{}"), nexus.ToolCall("b", "look", '{"x":1}'), at_ms=5)


def summary(records: tuple[ToolCallRecord, ...]) -> list[tuple[str, str, str, int]]:
    return [(record.id, record.status, record.error, record.answered_ms) for record in records]


def test_result_lists_its_calls_with_results_and_errors() -> None:
    messages = (CALLS, nexus.tool("a", "fine", at_ms=8), nexus.tool("b", "no such file", is_error=True, at_ms=9))
    records = nexus.AgentResult(messages).tool_call_records
    assert summary(records) == [("a", "completed", "", 8), ("b", "failed", "no such file", 9)]
    assert records[1].arguments == '{"x":1}'
    assert records[0].asked_ms == 5
    assert records[0].result == nexus.ToolResult("a", (nexus.Text("fine"),))


def test_repeated_id_is_another_call() -> None:
    again = nexus.assistant("", nexus.ToolCall("a", "look", "{}"))
    records = nexus.AgentResult((CALLS, nexus.tool("a", "one"), again, nexus.tool("a", "two"))).tool_call_records
    assert [(record.id, record.status) for record in records] == [
        ("a", "completed"), ("b", "pending"), ("a", "completed"),
    ]  # fmt: skip


def test_turn_lists_its_calls_while_results_arrive() -> None:
    clock = FixedClock(1_000)
    with nexus.open(ledger=":memory:", clock_ms=clock) as nx:
        turn = nx.begin("Look.", session="s")
        turn.assemble()
        turn.record(nexus.AgentResult((CALLS,)))
        clock.advance(500)
        turn.result("a", "fine")
        assert [record.status for record in turn.tool_calls] == ["completed", "pending"]
        assert turn.tool_calls[0].answered_ms == 1_500
        turn.fail("timeout", "no answer")
        assert [record.status for record in turn.tool_calls] == ["completed", "interrupted"]
