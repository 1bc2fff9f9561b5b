"""Sessions by the beginning of their names, in every command that takes the name of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.running import run
from nexus.engine import Engine

FIRST, SECOND = "53ea1606-cf60-417b-928a-068324ecc7b3", "53ea9999-0000-417b-928a-068324ecc7b3"


def say(nx: Engine, session: str) -> None:
    nx.record(nx.assemble("Which index?", session=session), nexus.AgentResult((nexus.assistant("GIN."),)))


@pytest.fixture
def ids(empty: Path) -> Path:
    """A workspace with two sessions whose names are ids, and a branch and a sub-agent of the first."""
    with nexus.open(workspace=empty) as nx:
        for label in (FIRST, f"{FIRST}~1", f"{FIRST}+scout", SECOND):
            say(nx, label)
    return empty


COMMANDS = [
    ("history", "53ea1"), ("session", "show", "53ea1"), ("session", "turns", "53ea1"), ("context", "53ea1"),
    ("replay", "53ea1", "1"), ("explain", "53ea1"), ("diff", "53ea1", "1", "1"), ("search", "index", "-s", "53ea1"),
    ("cache", "simulate", "53ea1"), ("pin", "53ea1"), ("fork", "copy", "53ea1"), ("rewind", "53ea1", "--turn", "1"),
    ("session", "archive", "53ea1"), ("assemble", "Why?", "-s", "53ea1"), ("assemble", "-s", "53ea1", "--turn", "1"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_session_is_found_by_the_beginning_of_its_name(ids: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, "--json", folder=ids)
    assert ran.code == 0, ran.err
    assert SECOND not in ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_ambiguous_beginning_is_an_error_that_names_the_sessions(ids: Path, command: tuple[str, ...]) -> None:
    ran = run(*("53ea" if word == "53ea1" else word for word in command), folder=ids)
    assert (ran.code, ran.out) == (2, "")
    assert f"session '53ea' is ambiguous: '{FIRST}', '{SECOND}'" in ran.err


def test_short_beginning_and_name_of_a_new_session_stand_for_none(ids: Path) -> None:
    assert "session '53e' not found" in run("history", "53e", folder=ids).err
    with nexus.open(workspace=ids) as nx:
        say(nx, "planning")
    assert "Which index?" not in run("assemble", "Hi", "-s", "plan", "--as", "text", folder=ids).out
    assert run("history", "plan", folder=ids).code == 0


def test_session_is_not_erased_by_the_beginning_of_its_name(ids: Path) -> None:
    ran = run("session", "delete", "53ea1", "--for-good", "--yes", folder=ids)
    assert (ran.code, "name the session itself" in ran.err) == (2, True)
