"""The repair: whatever the ledger holds, what is sent is valid for every provider, and grows only at its end."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.fit import repair
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
from nexus.types.sanitize import arguments_as_object
from support.hostile import HISTORIES, PIXEL
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
def test_any_history_gives_valid_bodies_on_all_four_wires(history: list[Message], model: str) -> None:
    with opened() as nx:
        for message in history:
            append(nx, "s", message)
        ctx = nx.assemble("What now?", session="s", model=model)
        for wire, body in BODIES.items():
            assert CHECKS[wire](body(ctx)) == []


@LAWS
@given(HISTORIES, st.sets(st.integers(0, 14)))
def test_a_window_extended_step_by_step_equals_one_made_anew(history: list[Message], looks: set[int]) -> None:
    with opened() as nx:
        for index, message in enumerate(history):
            append(nx, "s", message)
            if index in looks:
                nx.assemble("look", session="s", model="gpt-4o")
        warm = nx.assemble("What now?", session="s", model="gpt-4o")
        cold = Engine(None, nx.store, clock_ms=nx.clock_ms).assemble("What now?", session="s", model="gpt-4o")
        assert list(warm.history) == list(cold.history)
        assert warm.token_budget == cold.token_budget
        assert [body(warm) for body in BODIES.values()] == [body(cold) for body in BODIES.values()]


@LAWS
@given(HISTORIES, st.integers(300, 3_000))
def test_a_cut_leaves_the_same_bytes_warm_cold_and_as_stored(history: list[Message], budget: int) -> None:
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
        cold = Engine(None, nx.store, clock_ms=nx.clock_ms).assemble(
            "And now?", session="s", model="gpt-4o", budget=10 * budget // 9
        )
        assert [body(warm) for body in BODIES.values()] == [body(cold) for body in BODIES.values()]
        if warm.cut is None and warm.provenance.manifest.view == ctx.provenance.manifest.view:
            before = json.dumps(ctx.to_openai()["messages"])[:-1]
            assert json.dumps(warm.to_openai()["messages"]).startswith(before)


@LAWS
@given(HISTORIES)
def test_what_is_shown_of_a_history_starts_with_what_is_shown_of_its_beginning(history: list[Message]) -> None:
    fold, seen = repair.Fold(), list[Message]()
    for message in history:
        before = [*seen]
        try:
            seen.extend(view for view, _, _ in repair.step(fold, message, plain=False))
        except repair.NotAppend:
            return
        assert seen[: len(before)] == before


def test_a_result_without_a_call_is_left_out() -> None:
    assert [m.role for m in shown(user("hi"), tool("nobody", "x"), assistant("yes"))] == ["user", "assistant"]


def test_a_second_result_for_a_call_is_left_out() -> None:
    call = ToolCall("a", "look", "{}")
    seen = shown(user("hi"), assistant("", call), tool("a", "one"), tool("a", "two"))
    assert [part.content[0].text for m in seen for part in m.parts if isinstance(part, ToolResult)] == ["one"]  # type: ignore[union-attr]


def test_a_call_that_was_never_answered_is_closed_when_the_user_speaks() -> None:
    seen = shown(user("hi"), assistant("", ToolCall("a", "look", "{}")), user("stop"))
    assert [m.role for m in seen] == ["user", "assistant", "tool", "user"]
    assert next(seen[2].results()).content == (Text(repair.INTERRUPTED),)


def test_a_call_id_that_was_used_before_gets_a_number_and_its_result_follows() -> None:
    call = ToolCall("a", "look", "{}")
    seen = shown(user("hi"), assistant("", call), tool("a", "1"), assistant("", call), tool("a", "2"))
    assert [c.id for m in seen for c in m.calls()] == ["a", "a_2"]
    assert [r.call_id for m in seen for r in m.results()] == ["a", "a_2"]


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    seen = shown(user("hi"), assistant("", ToolCall("a", "look", '{"cut": "of')))
    assert json.loads(next(seen[1].calls()).arguments) == {"_unparsed": '{"cut": "of'}


def test_a_history_that_starts_with_the_assistant_gets_a_first_user_message() -> None:
    assert [m.role for m in shown(assistant("Welcome!"))] == ["user", "assistant"]


def test_two_pieces_of_one_assistant_message_are_joined_when_the_history_is_read_anew() -> None:
    with opened() as nx:
        append(nx, "s", user("hi"))
        append(nx, "s", Message("assistant", (Text("I look."),), "m1"))
        nx.assemble("x", session="s")
        append(nx, "s", Message("assistant", (ToolCall("a", "look", "{}"),), "m1"))
        append(nx, "s", tool("a", "seen"))
        messages = nx.assemble("x", session="s", model="gpt-4o").to_openai()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]


def test_arguments_that_nest_too_deeply_are_kept_as_text_and_brackets_in_texts_do_not_count() -> None:
    deep, flat = '{"a": ' + "[" * 64 + "]" * 64 + "}", json.dumps({"a": "[{" * 500, "b": '"}]\\'})
    assert json.loads(arguments_as_object(deep)) == {"_unparsed": deep}
    assert arguments_as_object(flat) == flat
    assert arguments_as_object('{"a": ' + "[" * 63 + "]" * 63 + "}").startswith('{"a"')


def test_a_message_shown_in_part_is_counted_anew() -> None:
    picture = ToolResult("a", (Image("image/png", PIXEL, width=4_000, height=4_000),))
    with opened() as nx:
        append(nx, "s", user("hi"), Message("assistant", (Text("yes"), picture)))
        assert nx.assemble("x", session="s", model="gpt-4o").token_budget.used.history < 100


def test_thinking_of_a_message_that_is_joined_to_an_earlier_one_is_not_sent() -> None:
    thought = Message("assistant", (Thinking("hm", "c2ln"), Text("b")), model="claude-sonnet-4-5")
    with opened() as nx:
        append(nx, "s", user("hi"), assistant("a"), thought)
        body = nx.assemble("x", session="s", model="claude-sonnet-4-5").to_anthropic()
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "text"]
