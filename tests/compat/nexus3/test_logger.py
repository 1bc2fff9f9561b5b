"""The logger over a ledger: everything that is logged is in it, and a session goes on where it stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from compat.nexus3.talks import AT, Clock, call, manager, texts
from compat.nexus3.test_truncation import STEPS, take
from nexus.assembly.record import with_sizes
from nexus.compat.nexus3.context import ContextConfig, ContextManager, create_summary_message
from nexus.compat.nexus3.context.logger import LedgerLogger, MessageLogger
from nexus.compat.nexus3.context.messages import stored_messages
from nexus.ledger.sqlite import SqliteLedger
from nexus.tokens.counter import get_counter
from nexus.types.message import Message, Text, ToolResult, user
from support.validity import check_anthropic

START = "[Session started: 2026-01-13 14:30 (UTC)]"


def kinds(logger: LedgerLogger) -> list[str]:
    return [entry.kind for entry in logger.ledger.entries(logger.session)]


def talk(context: ContextManager) -> None:
    context.set_system_prompt("Be brief.")
    context.add_user_message("Read a.py.")
    context.add_assistant_message("I look.", [call("a")])
    context.add_tool_result("a", "read", "print(1)")
    context.add_assistant_message("It prints 1.")


def test_messages_become_entries_in_order_with_their_turn() -> None:
    context = manager(logger=LedgerLogger(SqliteLedger(), "agent"))
    talk(context)
    entries = context.log.ledger.entries("agent")
    said = [(entry.turn, [row.message.role for row in entry.rows]) for entry in entries if entry.rows]
    assert said == [
        (0, ["system"]),
        (0, ["user"]),
        (1, ["user"]),
        (1, ["assistant"]),
        (1, ["tool"]),
        (1, ["assistant"]),
    ]
    (turn,) = context.log.ledger.turns("agent")[-1:]
    assert (turn.number, turn.status, turn.calls) == (1, "completed", 1)
    assert [one.status for one in context.log.ledger.calls("agent")] == ["completed"]
    assert {row.message.at_ms for entry in entries for row in entry.rows} == {AT}


def test_a_second_answer_in_a_row_belongs_to_the_same_turn() -> None:
    context = manager()
    talk(context)
    context.add_assistant_message("And it is short.")
    assert [(turn.number, turn.status) for turn in context.log.ledger.turns("main")] == [(1, "completed")]
    assert kinds(context.log)[-2:] == ["messages", "completed"]


def test_clear_and_compaction_are_stored_as_entries() -> None:
    """Decided on 004: "`clear_messages()` appends a cut"."""
    context = manager()
    talk(context)
    recent = context.messages[-1:]
    context.apply_compaction(create_summary_message("They read a.py.", at_ms=AT), recent)
    entry = context.log.ledger.entries("main")[-1]
    assert (entry.kind, entry.at_ms) == ("compaction", AT)
    body = entry.body
    assert body["summary"] == "They read a.py."
    assert (body["covers_from"], body["covers_to"], body["first_kept"]) == (3, 5, 6)
    assert body["tokens_before"] > 0 and body["summary_tokens"] > 0
    visible = context.log.ledger.visible("main")
    assert (visible.summary, [row.message for row in visible.rows]) == ("They read a.py.", stored_messages(recent))
    context.clear_messages()
    assert kinds(context.log)[-1] == "clear"
    assert texts(context.log.history()) == [
        "Be brief.", START, "Read a.py.", "I look.", "read?", "!print(1)", "It prints 1."
    ]  # fmt: skip


def test_older_preserved_messages_are_stored_again_after_compaction() -> None:
    context = manager()
    talk(context)
    first = context.messages[1]
    context.apply_compaction(create_summary_message("S", at_ms=AT), [first, user("made elsewhere")])
    visible = context.log.ledger.visible("main")
    assert [row.message.text() for row in visible.rows] == ["Read a.py.", "made elsewhere"]
    assert texts(context.log.history())[-3:] == ["It prints 1.", "Read a.py.", "made elsewhere"]
    context.add_user_message("next")
    context.apply_compaction(create_summary_message("S2", at_ms=AT), context.messages[-2:])
    assert context.log.ledger.entries("main")[-1].kind == "compaction", "these are the newest: nothing stored twice"


def test_an_undone_compaction_shows_what_it_covered() -> None:
    context = manager()
    talk(context)
    context.apply_compaction(create_summary_message("S", at_ms=AT), [])
    context.log.ledger.undo("main")
    assert "I look." in texts([row.message for row in context.log.ledger.visible("main").rows])


def test_a_session_in_a_file_goes_on_where_it_stood(tmp_path: Path) -> None:
    store = SqliteLedger(str(tmp_path / "ledger.db"))
    first = ContextManager(ContextConfig(), logger=LedgerLogger(store, "agent"), clock_ms=Clock())
    talk(first)
    sent = first.build_messages()
    store.close()

    store = SqliteLedger(str(tmp_path / "ledger.db"))
    later = Clock(AT + 86_400_000)
    second = ContextManager(ContextConfig(), logger=LedgerLogger(store, "agent"), clock_ms=later)
    assert second.system_prompt == "Be brief."
    assert second.messages == first.messages
    assert second.build_messages() == sent
    second.add_user_message("More.")
    assert texts(second.messages).count(START) == 1
    store.close()


def test_compaction_has_same_bytes_after_reopening_session() -> None:
    store, clock = SqliteLedger(), Clock()
    context = manager(logger=LedgerLogger(store), timezone="Asia/Shanghai", clock_ms=clock)
    talk(context)
    for summary in (create_summary_message("They read a.py.", at_ms=AT), user("In a program's own words.")):
        context.apply_compaction(summary, context.messages[-1:])
        clock.forward(60)
        again = manager(logger=LedgerLogger(store), timezone="Asia/Shanghai", clock_ms=clock)
        assert again.messages == context.messages
        assert again.build_messages()[1:] == context.build_messages()[1:], "the system prompt has the time of now"


def test_a_session_that_began_elsewhere_gets_no_first_line_of_ours() -> None:
    store = SqliteLedger()
    nx = nexus.open(ledger=store)
    ctx = nx.assemble("Hello!", profile="bare")
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Hi."),)))
    context = manager(logger=LedgerLogger(store, "main"))
    assert texts(context.messages) == ["Hello!", "Hi."]
    context.add_user_message("More.")
    assert texts(context.messages) == ["Hello!", "Hi.", "More."]


def test_preserved_system_message_does_not_become_system_prompt() -> None:
    store = SqliteLedger()
    context = manager(logger=LedgerLogger(store))
    talk(context)
    note = Message("system", (Text("A note."),))
    context.apply_compaction(create_summary_message("S", at_ms=AT), [note])
    again = manager(logger=LedgerLogger(store))
    assert (again.system_prompt, again.messages) == ("Be brief.", context.messages)


def test_a_sessions_own_instructions_are_its_system_prompt() -> None:
    store = SqliteLedger()
    begun = (Message("system", (Text("Be brief."),)), user("Hello!"))
    LedgerLogger(store).ledger.open_turn("main", with_sizes(begun, get_counter()))
    context = manager(logger=LedgerLogger(store))
    assert (context.system_prompt, texts(context.messages)) == ("Be brief.", ["Hello!"])


def test_the_engine_goes_on_with_a_session_of_the_door() -> None:
    store = SqliteLedger()
    context = manager(logger=LedgerLogger(store, "main"))
    talk(context)
    context.apply_compaction(create_summary_message("They read a.py.", at_ms=AT), context.messages[-1:])
    body = nexus.open(ledger=store).assemble("And b.py?", profile="bare", model="gpt-4o").to_openai()["messages"]
    assert [one["content"] for one in body if one["content"] != START] == [
        "# Session instructions\n\nBe brief.",
        "[Previous conversation summary]\nThey read a.py.",
        "Read a.py.",
        "It prints 1.",
        "And b.py?",
    ]


def test_first_line_joins_first_user_turn_when_roles_must_alternate() -> None:
    """Decided on 004: "merged into the first user turn where a wire wants it"."""
    store = SqliteLedger()
    talk(manager(logger=LedgerLogger(store)))
    body = nexus.open(ledger=store).assemble("And b.py?", profile="bare", model="claude-sonnet-4-5").to_anthropic()
    assert check_anthropic(body) == []
    first = body["messages"][0]
    assert (first["role"], [part["text"] for part in first["content"]]) == ("user", [START, "Read a.py."])


def test_it_can_be_used_as_a_logger_alone() -> None:
    """Decided on 004: "`logger=` takes the documented `SessionLogger` protocol, a ledger-backed one ships"."""
    logger = LedgerLogger(SqliteLedger())
    told: MessageLogger = logger
    told.log_system("Be brief.")
    told.log_user("Hello!")
    told.log_assistant("I look.", ())
    told.log_tool_result("a", "read", ToolResult("a", (Text("x"),)))
    assert texts(logger.history()) == ["Be brief.", "Hello!", "I look.", "!x"]


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_whatever_was_done_a_new_manager_on_the_ledger_shows_the_same(steps: list[Any]) -> None:
    store, clock = SqliteLedger(), Clock()
    context = manager(1_000_000, logger=LedgerLogger(store, "main"), clock_ms=clock)
    for step in steps:
        take(context, step, clock)
    again = manager(1_000_000, logger=LedgerLogger(store, "main"), clock_ms=clock)
    assert again.system_prompt == context.system_prompt
    assert again.messages == context.messages
