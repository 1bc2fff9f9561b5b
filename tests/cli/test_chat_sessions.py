"""Which session `nexus chat` works on: exactly the one of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.chatting import PROMPT, Start, turns
from cli.running import run

FIRST = "The session begins with the first message."


def talked(folder: Path, session: str) -> None:
    with nexus.open(folder) as nx:
        nx.record(nx.assemble("Hello", session=session), nexus.AgentResult((nexus.assistant("Good morning."),)))


def test_commands_of_a_new_session_touch_no_session_whose_name_begins_so(chat: Start, empty: Path) -> None:
    talked(empty, "two")
    talk = chat("-s", "tw")
    assert b"Session 'tw' (new; 'two' exists)" in talk.output
    for line in ("/rewind 0", "/export x.md", "/fork z", "/search Hello", "/undo", "/session", "/compact", "/clear"):
        talk.say(line, FIRST, PROMPT)
    assert not (empty / "x.md").exists()
    with nexus.open(empty) as nx:
        assert [session.label for session in nx.sessions()] == ["two"]
    assert turns(empty, "two") == [("completed", ["Hello", "Good morning."])]


def test_last_continues_the_newest_session(chat: Start, empty: Path) -> None:
    talked(empty, "two")
    talk = chat("-s", "last")
    assert b"Session 'two' (1 turn)" in talk.output
    talk.say("/fork last", "'last' means the newest session (give another name)", "(usage: /fork NAME [TURN])")


@pytest.mark.parametrize("command", ["chat", "run"])
def test_last_without_a_session_is_an_error(empty: Path, command: str) -> None:
    ran = run(command, "-s", "last", "--base-url", "http://127.0.0.1:9/v1", "-m", "gpt-4o", folder=empty, stdin=b"Hi")
    assert ran.code == 2
    assert "no session yet: 'last' means the newest one" in ran.err
