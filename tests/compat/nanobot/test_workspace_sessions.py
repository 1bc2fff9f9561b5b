"""`nexus.compat.nanobot.session.manager.SessionManager`, to which document 003's builder leaves all state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.compat.nanobot.session.manager import Session, SessionManager
from nexus.errors import BadReply, BadSetting, NotFound
from nexus.types.ledger_entries import Compaction
from nexus.types.message import Image, Message, Text, ToolResult
from support.errors import has_code
from support.hostile import PIXEL
from support.validity import CHECKS

CALL = {"id": "call_123", "type": "function", "function": {"name": "list_dir", "arguments": '{"path": "."}'}}
"""The call of document 003, "add_assistant_message"."""

RUNTIME = "[Runtime Context — metadata only, not instructions]\nCurrent Time: 2026-03-06 14:30 (Friday)\nTimezone: PST"


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(number: int) -> list[dict[str, Any]]:
    """A call and its result."""
    call = {**CALL, "id": f"call_{number}"}
    result = {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SessionManager]:
    with SessionManager(tmp_path) as manager:
        yield manager


@pytest.fixture
def session(sessions: SessionManager) -> Session:
    return sessions.get_or_create("cli:user123")


def valid(history: list[dict[str, Any]]) -> list[str]:
    """What is wrong with a history as the messages of a request that ends with a user's, apart from document 003's fields."""
    own = {"tool": {"name"}, "assistant": {"reasoning_content", "thinking_blocks"}}
    messages = [
        {name: value for name, value in item.items() if name not in own.get(item["role"], ())} for item in history
    ]
    return list(CHECKS["openai"]({"model": "gpt-4o", "messages": [*messages, asked("and now?")]}))


def test_the_documents_example_runs(tmp_path: Path) -> None:
    """Document 003, "build_messages", Example; only the import's path is changed."""
    workspace = tmp_path
    sessions = SessionManager(workspace)
    session = sessions.get_or_create("cli:user123")
    # Get recent history
    history = session.get_history(max_messages=100)
    assert history == []
    sessions.close()


def test_session_history_comes_from_workspace_ledger(tmp_path: Path) -> None:
    """Document 003, "build_messages": "Previous conversation messages from session history"."""
    with nexus.open(tmp_path) as nx:
        ctx = nx.assemble("What did we decide?", session="cli:user123", profile="bare")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("A GIN index."),)))
    with SessionManager(tmp_path) as sessions:
        session = sessions.get_or_create("cli:user123")
        assert session.get_history() == [asked("What did we decide?"), said("A GIN index.")]
        session.append([asked("When?"), said("On Thursday.")])
        assert [one.label for one in sessions.engine.sessions()] == ["cli:user123"]
    with nexus.open(tmp_path) as nx:
        assert [message.text() for message in nx.history("cli:user123")][2:] == ["When?", "On Thursday."]
        assert [turn.status for turn in nx.ledger.turns("cli:user123")] == ["completed", "completed"]


def test_messages_come_back_as_they_were_appended(session: Session) -> None:
    """Document 003, "add_assistant_message" and "add_tool_result": the forms of their messages."""
    messages = [
        asked("List files"),
        {"role": "assistant", "content": "I'll list the files in the current directory.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_123", "name": "list_dir", "content": "a.txt"},
        said("There is one."),
    ]
    session.append(messages)
    assert session.get_history() == messages
    assert session.append([]) is None


def test_an_image_comes_back_in_the_documents_form(session: Session) -> None:
    """Document 003, "Image Support": `{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}`."""
    content = [
        {"type": "text", "text": "[Runtime Context...]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "text", "text": "What's in this image?"},
    ]
    session.append([{"role": "user", "content": content}, said("A cat.")])
    assert session.get_history()[0] == {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{RUNTIME}\n\nList files", "List files"),
        (f"{RUNTIME}\n\na\n\nb", "a\n\nb"),
        (RUNTIME, RUNTIME),
        (f"{RUNTIME}\n\n", f"{RUNTIME}\n\n"),
        (f" {RUNTIME}\n\nhi", f" {RUNTIME}\n\nhi"),
        (f"hi\n\n{RUNTIME}\n\nhi", f"hi\n\n{RUNTIME}\n\nhi"),
    ],
)
def test_runtime_metadata_is_stored_separately_and_sent_unchanged(
    sessions: SessionManager, session: Session, content: str, said: str
) -> None:
    """Document 003, "Runtime Context": "Every user message includes runtime metadata"."""
    session.append([asked(content)])
    assert session.get_history() == [asked(content)]
    assert [message.text() for message in sessions.engine.history(session.key)] == [said]


def test_runtime_metadata_before_images_are_kept_apart_too(sessions: SessionManager, session: Session) -> None:
    """Document 003, "Image Support": metadata, images, text."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    content = [{"type": "text", "text": RUNTIME}, picture, {"type": "text", "text": "And this?"}]
    session.append([asked("hi"), said("hello"), {"role": "user", "content": content}])
    assert session.get_history()[-1]["content"] == content
    assert [message.text() for message in sessions.engine.history(session.key)][-1] == "And this?"


def test_large_results_are_truncated_in_history_but_not_in_ledger(sessions: SessionManager, session: Session) -> None:
    """Document 003, "Architecture Notes": "Large tool results (>500 chars) are truncated when saving to session history".

    Decided: a view setting; the ledger keeps the whole and says how to get it.
    """
    long = "".join(f"line {number}\n" for number in range(100))
    for text in ("x" * 500, "x" * 501, long):
        session.append([asked("go"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
                        {"role": "tool", "tool_call_id": "call_123", "content": text}, said("done")])  # fmt: skip
    first, second, third = [item["content"] for item in session.get_history() if item["role"] == "tool"]
    assert first == "x" * 500
    assert len(second) <= 500 and len(third) <= 500
    assert third.startswith("line 0\nline 1\n") and third.endswith("line 99\n")
    assert "characters left out here; the whole: `nexus history --call call_123`" in third
    assert session.get_history() == session.get_history()
    kept = [result.content for message in sessions.engine.history(session.key) for result in message.results()]
    assert kept[2] == (Text(long),)
    sessions.result_chars = 0
    assert sessions.get_or_create(session.key).get_history()[-2]["content"] == long


def test_images_in_a_truncated_result_stay(session: Session) -> None:
    content = (Text("x" * 900), Image("image/png", PIXEL, width=1, height=1))
    session.append([asked("go"), {"role": "assistant", "content": None, "tool_calls": [CALL]}])
    session.append([Message("tool", (ToolResult("call_123", content),)), Message("assistant", (Text("done"),))])
    shown = session.get_history()[2]["content"]
    assert shown.endswith("image/png 1x1; this provider's tool results hold text only]")
    assert "characters left out here" in shown


def test_of_many_messages_the_newest_are_given_from_a_users_on(session: Session) -> None:
    for number in range(4):
        session.append([asked(f"question {number}"), *step(number), said(f"answer {number}")])
    assert [item["role"] for item in session.get_history(9)] == 2 * ["user", "assistant", "tool", "assistant"]
    assert session.get_history(4)[0] == asked("question 3")
    assert session.get_history(0) == []


def test_of_a_long_tool_loop_the_question_and_the_newest_steps_are_given(session: Session) -> None:
    session.append([asked("old"), said("old answer"), asked("question"), *step(1), *step(2), *step(3)])
    history = session.get_history(5)
    assert [item.get("tool_call_id") or item["content"] for item in history] == [
        "question", None, "call_2", None, "call_3",
    ]  # fmt: skip
    assert session.get_history(4) == [history[0], *history[3:]]
    assert session.get_history(1) == [asked("question")]


def test_calls_without_a_result_are_answered_as_interrupted(session: Session) -> None:
    session.append([asked("go"), {"role": "assistant", "content": None, "tool_calls": [CALL]}])
    assert session.get_history()[-1]["content"] == "[no result recorded]"


def test_after_a_compaction_its_summary_stands_first_and_stays_there(
    sessions: SessionManager, session: Session
) -> None:
    for number in range(3):
        session.append([asked(f"question {number}"), said(f"answer {number}")])
    body = Compaction(covers_from=1, covers_to=2, first_kept=3, summary="They spoke of tea.")
    sessions.engine.ledger.compact(session.key, body, after_checkpoint=0)
    summary = asked("[Previous conversation summary]\nThey spoke of tea.")
    assert session.get_history()[:2] == [summary, asked("question 1")]
    assert session.get_history(3) == [summary, asked("question 2"), said("answer 2")]
    assert session.get_history(2) == [summary, asked("question 2")]


CHATS: st.SearchStrategy[list[str | tuple[int, bool]]] = st.lists(
    st.sampled_from(["user", "assistant"]) | st.tuples(st.integers(1, 3), st.booleans()), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(CHATS, st.integers(0, 12))
def test_law_any_part_of_a_history_is_valid_and_no_longer_than_asked(
    chat: list[str | tuple[int, bool]], most: int
) -> None:
    messages: list[dict[str, Any]] = []
    for number, one in enumerate(chat):
        if isinstance(one, tuple):
            count, is_answered = one
            calls = [{**CALL, "id": f"c{number}-{at}"} for at in range(count)]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            answered = calls if is_answered else calls[:1]
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in answered]
        else:
            messages.append({"role": one, "content": f"{one} {number}"})
    with nexus.open(ledger=":memory:") as nx:
        session = Session("s", nx)
        nx.ledger.sessions.create("s")
        session.append(messages)
        whole, part = session.get_history(), session.get_history(most)
    assert len(part) <= most
    assert valid(whole) == valid(part) == []
    assert part == whole if len(whole) <= most else part == [item for item in whole if item in part]


def test_the_same_key_is_the_same_session_and_an_alias_leads_to_it(sessions: SessionManager) -> None:
    sessions.get_or_create("cli:a").append([asked("hi"), said("hello")])
    sessions.engine.ledger.sessions.rename("cli:a", "dm:ana")
    found = sessions.get_or_create("cli:a")
    assert (found.key, len(found.get_history())) == ("dm:ana", 2)
    assert [one.label for one in sessions.engine.sessions()] == ["dm:ana"]


@pytest.mark.parametrize("key", ["", "  ", "dm:", "worker: x", "dm:a\nb"])
def test_what_is_no_key_is_refused(sessions: SessionManager, key: str) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_session_key")):
        sessions.get_or_create(key)
    assert sessions.engine.sessions() == []


def test_what_is_no_message_is_refused_and_nothing_is_stored(session: Session) -> None:
    with pytest.raises(BadReply, match="role"):
        session.append([asked("hi"), {"role": "robot", "content": "x"}])
    with pytest.raises(BadSetting, match="max_messages invalid: -1"):
        session.get_history(-1)
    assert session.get_history() == []


def test_system_prompts_are_not_stored_each_call_makes_its_own(sessions: SessionManager, session: Session) -> None:
    """Document 003, "Architecture Notes": "System prompt is rebuilt on every message for consistency"."""
    session.append([{"role": "system", "content": "You are Nexus."}, asked("hi"), said("hello")])
    assert [message.role for message in sessions.engine.history(session.key)] == ["user", "assistant"]


def test_missing_workspace_raises(tmp_path: Path) -> None:
    with pytest.raises(NotFound, check=has_code("workspace_missing")):
        SessionManager(tmp_path / "none")
