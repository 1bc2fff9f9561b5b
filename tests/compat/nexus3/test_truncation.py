"""Truncation by the letter of document 004, and the law that holds for any history, strategy and budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat.nexus3.talks import Clock, call, manager, problems, texts
from nexus.compat.nexus3.context import SimpleTokenCounter, create_summary_message
from nexus.compat.nexus3.context.messages import stored_messages
from nexus.compat.nexus3.context.truncation import (
    flatten_groups,
    identify_message_groups,
    truncate_middle_out,
    truncate_oldest_first,
)
from nexus.tokens.images import UNKNOWN_SIZE_TOKENS, max_image_tokens
from nexus.types.message import Image, Message, Text, ToolCall, assistant, tool, user
from support.hostile import HISTORIES, TEXTS


def sized(*sizes: int) -> list[tuple[Message, ...]]:
    return [(user(f"{number}:{size}"),) for number, size in enumerate(sizes)]


def size_of(group: tuple[Message, ...]) -> int:
    return int(group[0].text().split(":")[1])


def kept(groups: list[tuple[Message, ...]]) -> list[int]:
    return [int(group[0].text().split(":")[0]) for group in groups]


def test_a_group_is_one_message_or_a_call_with_all_its_results() -> None:
    """Document 004, "Atomic Message Groups": "ASSISTANT with tool_calls + all corresponding TOOL result messages"."""
    asks = assistant("I look.", ToolCall("1", "read", "{}"), ToolCall("2", "read", "{}"))
    messages = [user("a"), asks, tool("1", "x"), tool("2", "y"), assistant("b"), user("c")]
    assert [len(group) for group in identify_message_groups(messages)] == [1, 3, 1, 1]
    assert flatten_groups(identify_message_groups(messages)) == messages


def test_messages_without_calls_stand_alone_whoever_says_them() -> None:
    """Document 004, "Atomic Message Groups": "Standalone messages: USER, SYSTEM, or ASSISTANT without tool_calls"."""
    note = Message("system", (Text("A note."),))
    for messages in ([user("a"), note, assistant("b"), user("c")], [note, note, assistant("b"), assistant("c")]):
        assert [len(group) for group in identify_message_groups(messages)] == [1, 1, 1, 1]


def test_results_and_words_in_one_users_message_stay_with_their_call() -> None:
    asks = assistant("", ToolCall("1", "read", "{}"))
    both = Message("user", (*tool("1", "x").parts, *user("And then?").parts))
    assert [len(group) for group in identify_message_groups([user("a"), asks, both, user("b")])] == [1, 2, 1]


def test_what_is_shown_to_nobody_is_no_group_of_its_own() -> None:
    asks = assistant("", ToolCall("1", "read", "{}"))
    messages = [user("a"), tool("gone", "orphan"), asks, user(" "), tool("1", "x"), user("b")]
    assert [len(group) for group in identify_message_groups(messages)] == [2, 3, 1]


def test_oldest_first_keeps_the_newest_groups_that_fit() -> None:
    """Document 004, "Strategies": "Builds from newest groups backwards until budget exhausted"."""
    groups = sized(10, 10, 10, 10)
    assert kept(truncate_oldest_first(groups, 40, size_of)) == [0, 1, 2, 3]
    assert kept(truncate_oldest_first(groups, 39, size_of)) == [1, 2, 3]
    assert kept(truncate_oldest_first(groups, 20, size_of)) == [2, 3]


def test_oldest_first_stops_at_the_first_group_that_does_not_fit() -> None:
    assert kept(truncate_oldest_first(sized(1, 50, 10), 20, size_of)) == [2]


def test_middle_out_keeps_the_first_and_the_last_and_fills_from_the_end() -> None:
    """Document 004, "Strategies": "Fills remaining budget with groups nearest to the end"."""
    groups = sized(10, 10, 10, 10, 10)
    assert kept(truncate_middle_out(groups, 50, size_of)) == [0, 1, 2, 3, 4]
    assert kept(truncate_middle_out(groups, 49, size_of)) == [0, 2, 3, 4]
    assert kept(truncate_middle_out(groups, 35, size_of)) == [0, 3, 4]
    assert kept(truncate_middle_out(groups, 20, size_of)) == [0, 4]


def test_middle_out_drops_first_group_when_it_does_not_fit_with_last() -> None:
    assert kept(truncate_middle_out(sized(90, 10, 10), 25, size_of)) == [1, 2]


@pytest.mark.parametrize("budget", [0, -1, -5_000, 5])
@pytest.mark.parametrize("truncate", [truncate_oldest_first, truncate_middle_out])
def test_the_most_recent_group_is_kept_even_where_nothing_fits(truncate: Any, budget: int) -> None:
    """Document 004, "Strategies": "Always keeps at least the most recent group"."""
    assert kept(truncate(sized(10, 10, 10), budget, size_of)) == [2]
    assert truncate([], budget, size_of) == []


@pytest.mark.parametrize(
    ("strategy", "left"), [("oldest_first", ["7", "8", "9"]), ("middle_out", ["0", "8", "9"])], ids=["oldest", "middle"]
)
def test_building_truncates_and_messages_is_then_what_was_sent(strategy: str, left: list[str]) -> None:
    """Document 004, "Context Synchronization": "What's in `_messages` equals what's in the LLM's context window"."""
    context = manager(100, 20, strategy)
    for number in range(10):
        context.add_user_message(f"{number}" * 40)
    everything = context.messages
    assert len(everything) == 11
    body = context.build_messages()
    assert [text[0] for text in texts(context.messages)[1:]] == left
    assert [one["content"] for one in body[1:]] == texts(context.messages)
    assert not context.is_over_budget()
    assert context.log.history() == stored_messages(everything), "the ledger has what the view has not"


def test_each_call_fills_the_budget_again() -> None:
    """Decided on 004: "truncation fills the budget again each time"."""
    context = manager(200, 20)
    lengths: list[int] = []
    for _ in range(20):
        context.add_user_message("x" * 40)
        context.build_messages()
        lengths.append(len(context.messages))
    most = max(lengths)
    assert set(lengths[lengths.index(most) :]) == {most}


def test_there_is_no_marker_for_what_is_left_out() -> None:
    """Decided on 004: "`middle_out` without marker or pin"."""
    context = manager(100, 20, "middle_out")
    for number in range(10):
        context.add_user_message(f"{number}" * 40)
    context.build_messages()
    assert all(text.startswith("[Session started") or len(set(text)) == 1 for text in texts(context.messages))


@pytest.mark.parametrize("strategy", ["oldest_first", "middle_out"])
def test_last_group_is_sent_over_budget_when_budget_is_not_positive(strategy: str) -> None:
    """Document 004, "Budget Calculation": "If budget <= 0, only most recent group is kept"."""
    context = manager(100, 20, strategy)
    context.set_system_prompt("long " * 400)
    context.add_user_message("first")
    context.add_user_message("Read.")
    context.add_assistant_message("", [call("a"), call("b")])
    context.add_tool_result("a", "read", "A")
    context.add_tool_result("b", "read", "B")
    body = context.build_messages()
    assert [one["role"] for one in body] == ["system", "user", "assistant", "tool", "tool"]
    assert problems(body) == []
    assert context.is_over_budget()


def test_tools_and_system_prompt_take_their_part_of_the_budget() -> None:
    """Document 004, "Budget Calculation": `available - system_tokens - tools_tokens`."""

    def left(tools: int, system: int) -> int:
        context = manager(400, 100)
        context.set_system_prompt("s" * system)
        context.set_tool_definitions([{"name": "t" * tools}] if tools else [])
        for _ in range(20):
            context.add_user_message("x" * 40)
        context.build_messages()
        return len(context.messages)

    assert left(0, 0) > left(400, 0) >= left(400, 4) > left(400, 400)


IMAGE_TOKENS = {True: max_image_tokens(Image("image/png", "QQ==", width=1, height=1)), False: UNKNOWN_SIZE_TOKENS}
CALL_IDS = st.sampled_from(["a", "b", "c", "", "call 1"])
STEPS = st.one_of(
    st.tuples(st.just("user"), TEXTS),
    st.tuples(st.just("user"), st.text("xy ", min_size=20, max_size=200)),
    st.tuples(st.just("assistant"), TEXTS, st.lists(CALL_IDS, max_size=3)),
    st.tuples(st.just("tool"), CALL_IDS, TEXTS),
    st.tuples(st.just("system"), TEXTS),
    st.tuples(st.just("compact"), TEXTS, st.integers(0, 5)),
    st.tuples(st.just("replace"), HISTORIES),
    st.tuples(st.just("clear")),
    st.tuples(st.just("build"), st.integers(0, 20)),
)


def take(context: Any, step: Any, clock: Clock) -> list[Message]:
    """Carries a step out; returns what it adds to the conversation."""
    before = context.messages
    match step:
        case ("user", text):
            context.add_user_message(text)
        case ("assistant", text, ids):
            context.add_assistant_message(text, [call(one) for one in ids])
        case ("tool", call_id, text):
            context.add_tool_result(call_id, "read", text)
        case ("system", text):
            context.set_system_prompt(text)
            return []
        case ("compact", text, count):
            context.apply_compaction(create_summary_message(text, at_ms=clock()), before[len(before) - count :])
            return []
        case ("replace", history):
            context.apply_compaction(create_summary_message("s", at_ms=clock()), history)
            assert all(message in context.log.history() for message in history)
            return []
        case ("clear",):
            context.clear_messages()
            return []
        case (_, minutes):
            clock.forward(minutes)
            check_build(context)
            return []
    return context.messages[len(before) :]


def check_build(context: Any) -> None:
    """Whole groups, the most recent one among them, valid, within budget as far as can be."""
    before = identify_message_groups(context.messages[1:])
    body = context.build_messages()
    start, *rest = context.messages
    after = identify_message_groups(rest)
    assert problems(body) == []
    assert start.content.startswith("[Session started")
    if before:
        assert after[-1][: len(before[-1])] == before[-1], "the most recent group is there, with a new stamp at most"
        remaining = iter(before)
        assert all(any(group == other for other in remaining) for group in after[:-1]), "groups are whole"
    usage = context.get_token_usage()
    assert usage["messages"] == sum(_sent_tokens(message) for message in body if message["role"] != "system")
    assert usage["total"] <= usage["available"] or len(after) <= 1


def _sent_tokens(message: dict[str, Any]) -> int:
    """What a message of the body costs by the simple counter, counted anew."""
    count = SimpleTokenCounter().count
    content = message["content"] or ""
    pieces = [content] if isinstance(content, str) else [one["text"] for one in content if one["type"] == "text"]
    urls = (
        [] if isinstance(content, str) else [one["image_url"]["url"] for one in content if one["type"] == "image_url"]
    )
    calls = [one["function"] for one in message.get("tool_calls", ())]
    texts_of_calls = [text for one in calls for text in (one["name"], one["arguments"])]
    return 4 + sum(map(count, [*pieces, *texts_of_calls])) + sum(IMAGE_TOKENS[url.startswith("data:")] for url in urls)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEPS, max_size=16),
    st.sampled_from(["oldest_first", "middle_out"]),
    st.sampled_from(["message", "system"]),
    st.integers(0, 400),
    st.integers(0, 60),
)
def test_truncation_keeps_whole_groups_and_the_last_one_for_any_history(
    steps: list[Any], strategy: str, clock_in: str, max_tokens: int, reserve_tokens: int
) -> None:
    clock = Clock()
    context = manager(max_tokens, reserve_tokens, strategy, clock=clock_in, clock_ms=clock)
    said: list[Message] = []
    for step in steps:
        said += stored_messages(take(context, step, clock))
    check_build(context)
    stored = iter(context.log.history())
    assert all(any(message == other for other in stored) for message in said)
