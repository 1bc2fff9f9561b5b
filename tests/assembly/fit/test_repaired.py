"""The full pass: valid on every wire, the same as step by step, nothing left to do the second time."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.fit import repair
from nexus.context import AssembledContext, RepairReport
from nexus.engine import Engine
from nexus.types.history import History
from nexus.types.message import Message, Text, ToolCall, ToolResult, Unknown, assistant, tool, user
from support.hostile import HISTORIES
from support.replay import append
from support.validity import CHECKS

BODIES = {
    "openai": AssembledContext.to_openai,
    "responses": AssembledContext.to_responses,
    "anthropic": AssembledContext.to_anthropic,
    "gemini": AssembledContext.to_gemini,
}
LAWS = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def opened() -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000)


@LAWS
@given(HISTORIES)
def test_repair_is_idempotent(history: list[Message]) -> None:
    once, _ = nexus.repaired(history)
    again, report = nexus.repaired(once)
    assert again == once
    assert report == RepairReport()
    assert report.clean


@LAWS
@given(HISTORIES, st.sampled_from(["gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro"]))
def test_repaired_history_is_valid_in_all_provider_formats(history: list[Message], model: str) -> None:
    with opened() as nx:
        ctx = nx.assemble("What now?", model=model)
    shown = dataclasses.replace(ctx, history=History.of(nexus.repaired(history)[0]))
    for wire, body in BODIES.items():
        assert CHECKS[wire](body(shown)) == []


@LAWS
@given(HISTORIES, st.sets(st.integers(0, 14)))
def test_assembled_history_equals_full_repair(history: list[Message], looks: set[int]) -> None:
    with opened() as nx:
        for index, message in enumerate(history):
            append(nx, "s", message)
            if index in looks:
                nx.assemble("look", session="s", model="gpt-4o")
        ctx = nx.assemble("What now?", session="s", model="gpt-4o")
        stored = nx.history("s") if history else []
    opening = 1 if stored and stored[0].role == "system" else 0
    assert list(ctx.history) == nexus.repaired(stored[opening:])[0]


@LAWS
@given(HISTORIES, st.integers(0, 14))
def test_incremental_repair_equals_full_repair(history: list[Message], cut: int) -> None:
    fold, shown = repair.Fold(), list[Message]()
    for message in history[:cut]:
        try:
            shown.extend(view for view, _, _ in repair.step(fold, message, plain=False))
        except repair.NotAppend:
            return
    beginning = [*shown, *repair.closing_messages(fold)]
    for message in history[cut:]:
        try:
            shown.extend(view for view, _, _ in repair.step(fold, message, plain=False))
        except repair.NotAppend:
            return
    lacking = repair.closing_messages(fold)
    whole, report = nexus.repaired(history)
    assert nexus.repaired(history[:cut])[0] == beginning
    assert whole == [*shown, *lacking]
    assert report.total == fold.changes.total() + len(lacking)


def test_repair_changes_are_counted_by_kind() -> None:
    shown, report = nexus.repaired(
        [
            assistant("", ToolCall("a", "look", "{}"), ToolCall("b", "no way!", "")),
            tool("b", "seen"),
            tool("nobody", "?"),
            user(""),
        ]
    )
    assert [message.role for message in shown] == ["user", "assistant", "tool", "tool"]
    assert report.changes == {
        "first message supplied": 1,
        "call id, name or arguments made valid": 1,
        "result without a call left out": 1,
        "empty message left out": 1,
        "unanswered call closed": 1,
    }
    assert report.total == 5
    assert not report.clean
    assert str(report).startswith("5 repaired: call id, name or arguments made valid (1); ")
    assert "\n" not in str(report)


def test_change_in_split_message_is_counted_once() -> None:
    odd = Unknown("video", "{}")
    pieces = [
        Message("assistant", (odd, Text("I look."), ToolCall("a b", "look", "{}")), "m1"),
        Message("assistant", (odd, ToolCall("c", "look", "{}")), "m1"),
    ]
    shown, report = nexus.repaired([user("hi"), assistant("", ToolCall("z", "look", "{}")), *pieces])
    assert [call.id for message in shown for call in message.calls()] == ["z", "a_b", "c"]
    assert report.changes == {
        "unanswered call closed": 3,
        "part of an unknown kind left out": 2,
        "call id, name or arguments made valid": 1,
    }


def test_empty_repair_report_is_clean_and_frozen() -> None:
    report = nexus.repaired([user("hi"), assistant("yes")])[1]
    assert (report.clean, report.total, str(report)) == (True, 0, "nothing to repair")
    with pytest.raises(AttributeError):
        report.changes = {"x": 1}  # type: ignore[misc]


def test_context_reports_repairs_as_value_and_json_counts() -> None:
    with opened() as nx:
        append(nx, "s", user("hi"), Message("tool", (ToolResult("nobody", (Text("x"),)),)), assistant("yes"))
        ctx = nx.assemble("x", session="s")
    assert ctx.repairs == RepairReport({"result without a call left out": 1})
    assert msgspec.to_builtins(ctx.to_json()["nexus"]["repairs"]) == {"result without a call left out": 1}
    assert "Repaired: result without a call left out (1)" in ctx.report
