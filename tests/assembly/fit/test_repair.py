"""The repair: whatever the ledger holds, what is sent is valid for every provider, and grows only at its end."""

from __future__ import annotations

import json
from copy import deepcopy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.fit import repair
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
from nexus.types.sanitize import arguments_as_object
from support.hostile import HISTORIES, PIXEL, SPOKEN
from support.replay import append
from support.validity import CHECKS

BODIES = {
    "openai": AssembledContext.to_openai,
    "responses": AssembledContext.to_responses,
    "anthropic": AssembledContext.to_anthropic,
    "gemini": AssembledContext.to_gemini,
}
LAWS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def opened() -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000)


def shown(*messages: Message) -> list[Message]:
    fold = repair.Fold()
    return [view for message in messages for view, _, _ in repair.step(fold, message, plain=False)]


@LAWS
@given(HISTORIES, st.sampled_from(["gpt-4o", "claude-sonnet-4-5"]))
def test_any_history_is_valid_in_all_provider_formats(history: list[Message], model: str) -> None:
    with opened() as nx:
        for message in history:
            append(nx, "s", message)
        ctx = nx.assemble("What now?", session="s", model=model)
        for wire, body in BODIES.items():
            assert CHECKS[wire](body(ctx)) == []


@LAWS
@given(HISTORIES, st.sets(st.integers(0, 14)))
def test_extended_window_equals_full_rebuild(history: list[Message], looks: set[int]) -> None:
    with opened() as nx:
        for index, message in enumerate(history):
            append(nx, "s", message)
            if index in looks:
                nx.assemble("look", session="s", model="gpt-4o")
        warm = nx.assemble("What now?", session="s", model="gpt-4o")
        cold = Engine(None, nx.ledger.store, clock_ms=nx.clock_ms).assemble("What now?", session="s", model="gpt-4o")
        assert list(warm.history) == list(cold.history)
        assert warm.token_budget == cold.token_budget
        assert [body(warm) for body in BODIES.values()] == [body(cold) for body in BODIES.values()]


@LAWS
@given(HISTORIES, st.integers(300, 3_000))
def test_cut_has_same_bytes_warm_cold_and_stored(history: list[Message], budget: int) -> None:
    with opened() as nx:
        for message in history:
            append(nx, "s", message)
        try:
            ctx = nx.assemble("What now?", session="s", model="gpt-4o", budget=budget)
        except nexus.BudgetTooSmall:
            return
        assert ctx.token_budget.remaining >= 0
        nx.record(ctx, nexus.AgentResult((assistant("done"),)))
        warm = nx.assemble("And now?", session="s", model="gpt-4o", budget=10 * budget // 9)
        cold = Engine(None, nx.ledger.store, clock_ms=nx.clock_ms).assemble(
            "And now?", session="s", model="gpt-4o", budget=10 * budget // 9
        )
        assert [body(warm) for body in BODIES.values()] == [body(cold) for body in BODIES.values()]
        if warm.cut is None and warm.provenance.manifest.view == ctx.provenance.manifest.view:
            before = json.dumps(ctx.to_openai()["messages"])[:-1]
            assert json.dumps(warm.to_openai()["messages"]).startswith(before)


@LAWS
@given(HISTORIES)
def test_visible_history_extends_its_own_prefix(history: list[Message]) -> None:
    fold, seen = repair.Fold(), list[Message]()
    for message in history:
        before = [*seen]
        try:
            seen.extend(view for view, _, _ in repair.step(fold, message, plain=False))
        except repair.NotAppend:
            return
        assert seen[: len(before)] == before


@LAWS
@given(st.lists(SPOKEN, max_size=8) | HISTORIES, st.booleans())
def test_step_text_shows_what_step_shows_or_changes_nothing(history: list[Message], plain: bool) -> None:
    fold = repair.Fold()
    for message in history:
        before, quick = deepcopy(fold), deepcopy(fold)
        is_shown = repair.step_text(quick, message)
        try:
            shown_messages = repair.step(fold, message, plain=plain)
        except repair.NotAppend:
            assert not is_shown
            shown_messages = repair.join_last(fold, message, plain=plain)
        if is_shown:
            assert shown_messages == [(message, True, False)]
            assert message.has_content()
        assert quick == (fold if is_shown else before)
        assert list(quick.changes.items()) == list((fold if is_shown else before).changes.items())


def test_result_without_call_is_omitted() -> None:
    assert [m.role for m in shown(user("hi"), tool("nobody", "x"), assistant("yes"))] == ["user", "assistant"]


def test_second_result_for_call_is_omitted() -> None:
    call = ToolCall("a", "look", "{}")
    seen = shown(user("hi"), assistant("", call), tool("a", "one"), tool("a", "two"))
    assert [part.content[0].text for m in seen for part in m.parts if isinstance(part, ToolResult)] == ["one"]  # type: ignore[union-attr]


def test_unanswered_call_gets_result_before_user_message() -> None:
    seen = shown(user("hi"), assistant("", ToolCall("a", "look", "{}")), user("stop"))
    assert [m.role for m in seen] == ["user", "assistant", "tool", "user"]
    assert next(seen[2].results()).content == (Text(repair.NO_RESULT),)


def test_repeated_call_id_is_numbered_with_its_result() -> None:
    call = ToolCall("a", "look", "{}")
    seen = shown(user("hi"), assistant("", call), tool("a", "1"), assistant("", call), tool("a", "2"))
    assert [c.id for m in seen for c in m.calls()] == ["a", "a_2"]
    assert [r.call_id for m in seen for r in m.results()] == ["a", "a_2"]


def test_non_object_arguments_are_kept_as_text() -> None:
    seen = shown(user("hi"), assistant("", ToolCall("a", "look", '{"cut": "of')))
    assert json.loads(next(seen[1].calls()).arguments) == {"_unparsed": '{"cut": "of'}


def test_history_starting_with_assistant_gets_user_message() -> None:
    assert [m.role for m in shown(assistant("Welcome!"))] == ["user", "assistant"]


def test_split_assistant_message_is_joined_on_reread() -> None:
    with opened() as nx:
        append(nx, "s", user("hi"))
        append(nx, "s", Message("assistant", (Text("I look."),), "m1"))
        nx.assemble("x", session="s")
        append(nx, "s", Message("assistant", (ToolCall("a", "look", "{}"),), "m1"))
        append(nx, "s", tool("a", "seen"))
        messages = nx.assemble("x", session="s", model="gpt-4o").to_openai()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]


def test_deeply_nested_arguments_are_kept_as_text() -> None:
    deep, flat = '{"a": ' + "[" * 64 + "]" * 64 + "}", json.dumps({"a": "[{" * 500, "b": '"}]\\'})
    assert json.loads(arguments_as_object(deep)) == {"_unparsed": deep}
    assert arguments_as_object(flat) == flat
    assert arguments_as_object('{"a": ' + "[" * 63 + "]" * 63 + "}").startswith('{"a"')


def test_partly_shown_message_is_recounted() -> None:
    picture = ToolResult("a", (Image("image/png", PIXEL, width=4_000, height=4_000),))
    with opened() as nx:
        append(nx, "s", user("hi"), Message("assistant", (Text("yes"), picture)))
        assert nx.assemble("x", session="s", model="gpt-4o").token_budget.used.history < 100


def test_thinking_of_joined_message_is_not_sent() -> None:
    thought = Message("assistant", (Thinking("hm", "c2ln"), Text("b")), model="claude-sonnet-4-5")
    with opened() as nx:
        append(nx, "s", user("hi"), assistant("a"), thought)
        body = nx.assemble("x", session="s", model="claude-sonnet-4-5").to_anthropic()
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "text"]
