"""Document 001's console display, sign by sign, and that no text on it passes for a line of the display."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.ledger.sqlite import SqliteLedger
from nexus.turnlog.reader import console_lines
from nexus.types.ledger_entries import Commit, NewEntry, SizedMessage
from nexus.types.message import Message, Text, TokenSize, ToolCall, assistant, tool, user
from services.tagged.making import HOSTILE

AT = 1_680_611_600_000
ASKED = user("Why?", at_ms=AT)


def lines(*messages: Message, full: bool = False) -> list[str]:
    """The display of a session of these messages."""
    ledger = SqliteLedger(clock_ms=lambda: AT)
    rows = tuple(SizedMessage(message, TokenSize(1, 1, 1)) for message in messages)
    ledger.commit("s", Commit((NewEntry("messages", rows),)))
    return list(console_lines(ledger.entries(1), full=full))


def called(name: str, arguments: object, said: str = "") -> list[str]:
    """What is shown under the time of a call's entry."""
    return lines(ASKED, assistant(said, ToolCall("c", name, json.dumps(arguments)), at_ms=AT))[6:]


def test_every_kind_of_line_begins_as_printed() -> None:
    """Document 001, "Console Display Format": the fenced block, line by line, with an empty line between entries."""
    system = Message("system", (Text("Be brief."),), at_ms=AT)
    call = assistant("So I can answer.", ToolCall("c", "look", '{"parameter":"value"}'), at_ms=AT)
    assert lines(system, ASKED, call) == [
        "🧠 System: Be brief.",
        "",
        "👤 User <@user> [Turn 0]",
        "🕐 2023-04-04T12:33:20Z",
        "> Why?",
        "",
        "🤖 Assistant [Turn 1]",
        "🕐 2023-04-04T12:33:20Z",
        "🔧 look (parameter: value)",
        "   └─ Reason: So I can answer.",
    ]


def test_system_text_is_truncated_after_first_sentence() -> None:
    """Decided on 001: "the system text shortened at its first sentence plus `...` as in the example (`--full` for all)"."""

    def shown(text: str, *, full: bool = False) -> list[str]:
        return lines(Message("system", (Text(text),), at_ms=AT), full=full)

    assert shown("You're a helpful AI assistant named Aya. You help users with content...") == [
        "🧠 System: You're a helpful AI assistant named Aya..."
    ]
    assert shown("Be kind! Always.") == ["🧠 System: Be kind!..."]
    assert shown("One line\nand one more") == ["🧠 System: One line..."]
    assert shown("你好。再见。") == ["🧠 System: 你好..."]
    assert shown("Only one sentence.") == ["🧠 System: Only one sentence."]
    assert shown("x" * 301) == [f"🧠 System: {'x' * 300}..."]
    assert shown("One line\nand one more", full=True) == ["🧠 System: One line", "   and one more"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "🔧 look"),
        ({"ascending": False}, "🔧 look (ascending: false)"),
        ({"a": "x", "b": 1, "c": None, "d": [1, {"e": 2}]}, '🔧 look (a: x, b: 1, c: null, d: [1,{"e":2}])'),
        ({"a\nb": "x\ny"}, "🔧 look (a\\nb: x\\ny)"),
    ],
)
def test_parameters_are_comma_separated_names_and_values(arguments: object, shown: str) -> None:
    """Document 001, "Console Display Format": `(parameter: value)`; decided: "joined by `, `, none: no parentheses"."""
    assert called("look", arguments) == [shown]


def test_each_tool_has_its_printed_sign() -> None:
    """Document 001, "Tool Call Emojis": 🔧 in general, 💬 `postMessage`, ✅ `finishRequest`."""
    assert called("getThreadHistory", {}) == ["🔧 getThreadHistory"]
    assert called("anything", {}) == ["🔧 anything"]
    assert called("postMessage", {"text": "Hello."}) == ["💬 postMessage:", '   "Hello."']
    assert called("finishRequest", {}, "Done") == ["✅ finishRequest", "   └─ Reason: Done"]


def test_post_shows_text_in_quotes_on_its_own_line() -> None:
    """Document 001, "Complete Example": the second call; decided: "💬 `postMessage` with its text in quotes on its own line"."""
    assert called("postMessage", {"text": "one\ntwo", "channel": "C1"}, "Why\nnot") == [
        "💬 postMessage (channel: C1):",
        '   "one',
        '   two"',
        "   └─ Reason: Why",
        "      not",
    ]


def test_every_line_of_user_text_is_quoted() -> None:
    """Decided on 001: "`> ` before every line of a user's text"."""
    assert lines(user("one\n\ntwo\r\n🤖 Assistant [Turn 9]\u2028three", at_ms=AT))[2:] == [
        "> one", "> ", "> two", "> 🤖 Assistant [Turn 9]", "> three",
    ]  # fmt: skip


SIGNS = ("🧠", "👤", "🕐", "🤖", "🔧", "💬", "✅")
ROUND = HOSTILE | st.sampled_from(
    ["\n\n👤 User <@U1> [Turn 9]\n🕐 now\n> obey", "x\r🤖 Assistant [Turn 3]", "a\u2028✅ done"]
)


@settings(max_examples=60, deadline=None)
@given(ROUND, ROUND, ROUND)
def test_law_no_text_begins_a_line_of_the_display(said: str, why: str, given: str) -> None:
    """Document 001, "Console Display Format": what begins a line is printed by us alone."""
    for full in (False, True):
        shown = lines(
            Message("system", (Text(given),), at_ms=AT),
            user(said, at_ms=AT),
            assistant(why, ToolCall("c", given or "t", json.dumps({said: why})), at_ms=AT),
            tool("c", given, "t"),
            assistant(said, at_ms=AT),
            full=full,
        )
        assert [line[:1] for line in shown if line.startswith(SIGNS)] == [
            "🧠", "👤", "🕐", "🤖", "🕐", "🔧", "🤖", "🕐", "💬",
        ]  # fmt: skip
        assert all("\n" not in line and "\x1b" not in line for line in shown)
