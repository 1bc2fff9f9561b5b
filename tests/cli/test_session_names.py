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
    ("replay", "53ea1", "1"), ("explain", "53ea1"), ("session", "diff", "53ea1", "1", "1"), ("search", "index", "-s", "53ea1"),
    ("cache", "simulate", "53ea1"), ("session", "pin", "53ea1"), ("fork", "copy", "53ea1"), ("session", "rewind", "53ea1", "--turn", "1"),
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


OPTIONS = [
    ("history",), ("session", "show"), ("session", "turns"), ("session", "calls"), ("session", "reflog"),
    ("session", "ancestry"), ("context",), ("replay", "1"), ("explain", "1"), ("explain",), ("session", "diff", "1", "1"),
    ("search", "index"), ("cache", "show"), ("cache", "simulate"), ("session", "pin", "1"), ("session", "pin"), ("fork", "copy"),
    ("session", "rewind", "--turn", "1"), ("session", "set", "title=Two words"), ("session", "alias", "other"),
    ("session", "rename", "new"), ("session", "archive"), ("compact", "--dry-run"), ("compact", "names", "--dry-run"),
    ("memory", "propose"), ("config", "profile", "show", "layered"), ("assemble", "--turn", "1"), ("session", "merge", SECOND),
]  # fmt: skip


@pytest.mark.parametrize("command", OPTIONS, ids=" ".join)
def test_session_is_the_value_of_an_option_anywhere_in_the_line(ids: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, "--session", "53ea1", "--json", folder=ids)
    assert ran.code == 0, ran.err
    again = run(command[0], *command[1:], "-s", f"{SECOND}?", folder=ids)
    assert (again.code, "not found" in again.err) == (2, True)


def test_session_is_either_an_argument_or_an_option(ids: Path) -> None:
    ran = run("history", FIRST, "-s", SECOND, folder=ids)
    assert (ran.code, "unexpected extra argument" in ran.err) == (2, True)
    assert "Missing argument" in run("undo", folder=ids).err


def test_label_that_looks_like_an_option_is_a_value(ids: Path) -> None:
    with nexus.open(workspace=ids) as nx:
        say(nx, "--json")
    assert "Which index?" in run("history", "-s", "--json", folder=ids).out
    assert "Which index?" in run("history", "--", "--json", folder=ids).out
    assert run("fork", "copy", "--session=--json", folder=ids).code == 0


def test_last_is_the_newest_session_unless_a_session_has_the_name(ids: Path) -> None:
    with nexus.open(workspace=ids, clock_ms=lambda: 4_000_000_000_000) as nx:
        say(nx, "newest")
    shown = run("session", "show", "last", "--json", folder=ids).json
    assert shown["session"] == "newest"
    run("session", "archive", "newest", folder=ids)
    assert run("session", "show", "-s", "last", "--json", folder=ids).json["session"] != "newest"
    rejected = run("session", "alias", "last", SECOND, folder=ids)
    assert "'last' means the newest session" in rejected.err
    with nexus.open(ids) as nx:
        nx.ledger.sessions.alias("last", SECOND)
    assert run("session", "show", "last", "--json", folder=ids).json["session"] == SECOND
    run("session", "unalias", "last", folder=ids)
    with nexus.open(workspace=ids) as nx:
        say(nx, "last")
    assert run("session", "show", "last", "--json", folder=ids).json["session"] == "last"


def test_last_needs_a_session(empty: Path) -> None:
    assert "session 'last' not found" in run("history", "last", folder=empty).err


def test_deleted_session_does_not_make_a_beginning_ambiguous(ids: Path) -> None:
    run("session", "delete", SECOND, folder=ids)
    assert run("session", "show", "53ea", "--json", folder=ids).json["session"] == FIRST
    assert run("session", "restore", "53ea9", folder=ids).code == 0


def test_name_of_a_new_session_is_taken_literally(ids: Path) -> None:
    assert "session '5' is ambiguous" in run("history", "5", folder=ids).err
    assert "session '' not found" in run("history", "-s", "", folder=ids).err
    with nexus.open(workspace=ids) as nx:
        say(nx, "planning")
    assert "Which index?" not in run("assemble", "Hi", "-s", "plan", "--as", "text", folder=ids).out
    assert run("history", "plan", folder=ids).code == 0


def test_session_is_not_erased_by_the_beginning_of_its_name(ids: Path) -> None:
    ran = run("session", "delete", "53ea1", "--for-good", "--yes", folder=ids)
    assert (ran.code, "name the session itself" in ran.err) == (2, True)
