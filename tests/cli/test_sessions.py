"""`nexus sessions`: what the ledger holds, readable and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.running import run, write_json
from ledger.stores import append
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import user


def session(folder: Path, name: str, at: str = "2026-01-05T10:00:00Z") -> None:
    line = {
        "type": "user", "uuid": f"u-{len(name)}-{at}", "parentUuid": None, "sessionId": "s", "timestamp": at,
        "message": {"role": "user", "content": "Hello"},
    }  # fmt: skip
    path = write_json(folder / "line.jsonl", line)
    assert run("import", path, "-s", name, folder=folder).code == 0


def test_an_empty_ledger_says_how_to_bring_sessions(empty: Path) -> None:
    ran = run("sessions", folder=empty)
    assert ran.code == 0
    assert "nexus import" in ran.out
    assert run("sessions", "--json", folder=empty).json == []


def test_sessions_without_a_ledger_is_no_error_and_makes_no_file(tmp_path: Path) -> None:
    ran = run("sessions", folder=tmp_path)
    assert (ran.code, ran.out[:18]) == (0, "No ledger here yet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("sessions",), ("history", "main"), ("session", "show", "main"), ("context", "main"), ("search", "x")]
)
def test_named_ledger_that_is_missing_is_an_error(tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, "--ledger", "typo.db", folder=tmp_path)
    assert (ran.code, ran.out) == (4, "")
    assert "ledger 'typo.db' not found" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_every_session_is_one_line_with_turns_messages_tokens_and_time(example: Path) -> None:
    session(example, "second")
    lines = run("sessions", folder=example).out.splitlines()
    assert lines[0].split() == ["session", "turns", "messages", "tokens", "first", "last", "title"]
    assert len(lines) == 3
    (second,) = [line for line in lines if line.startswith("second ")]
    assert second.split()[1:3] == ["1", "1"]
    assert "2026-01-05 10:00" in second


def test_the_newest_session_comes_first(empty: Path) -> None:
    session(empty, "old", "2026-01-01T00:00:00Z")
    session(empty, "newest", "2026-03-01T00:00:00Z")
    session(empty, "middle", "2026-02-01T00:00:00Z")
    assert [one["label"] for one in run("sessions", "--json", folder=empty).json] == ["newest", "middle", "old"]


def test_json_counts_are_those_of_the_history(example: Path) -> None:
    (one,) = run("sessions", "--json", folder=example).json
    entries = run("history", "main", "--json", folder=example).json
    messages = [message for entry in entries for message in entry["messages"]]
    assert one["messages"] == len(messages)
    assert one["tokens"] == sum(message["tokens"] for message in messages)
    assert one["turns"] == len({entry["turn"] for entry in entries} - {0})


def test_turn_that_waits_for_an_answer_here_is_open_and_an_imported_one_is_not(empty: Path) -> None:
    session(empty, "imported")
    with nexus.open(workspace=empty) as nx:
        nx.begin("Which index?", session="own")
    out = run("sessions", folder=empty).out
    assert ("own (open turn)" in out, "imported (open turn)" in out) == (True, False)
    assert run("session", "show", "imported", "--json", folder=empty).json["open_turn"] is None
    assert run("session", "show", "own", "--json", folder=empty).json["open_turn"] == 1


NAMES = ["[/x]", "[red]y[/red]", ":smile:", "ünïcode 会議", "a/b/c", "--json", "%d {} \\n", "a" * 60]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is(empty: Path, name: str) -> None:
    session(empty, name)
    assert name in run("sessions", folder=empty).out


def test_a_very_long_name_leaves_the_other_columns_readable(empty: Path) -> None:
    session(empty, "n" * 5_000)
    session(empty, "short")
    shown = run("sessions", folder=empty).out
    for line in shown.splitlines()[1:]:
        assert "2026-01-05 10:00" in line, "the time of the last message is not there"
    assert len(shown.splitlines()) == 3
    assert max(map(len, shown.splitlines())) <= 400


@pytest.mark.parametrize("name", ["two\nlines", "esc\x1b[31m\x07", "tab\tx", "cr\rx"], ids=repr)
def test_control_characters_in_names_are_escaped_on_one_line(empty: Path, name: str) -> None:
    session(empty, name)
    shown = run("sessions", folder=empty).out
    assert len(shown.splitlines()) == 2
    assert [sign for sign in "\x1b\x07\r" if sign in shown] == []
    assert [one["label"] for one in run("sessions", "--json", folder=empty).json] == [name]


def test_an_empty_file_is_refused_as_no_ledger_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    ran = run("sessions", "--ledger", file, folder=tmp_path)
    assert (ran.code, "is an empty file and not a ledger" in ran.err) == (5, True)
    assert file.stat().st_size == 0


def test_tenant_selects_the_sessions_of_a_tenant(tmp_path: Path) -> None:
    place = ("--ledger", str(tmp_path / "shared.db"))
    for tenant, label in (("local", "librarian"), ("acme", "lib")):
        store = SqliteLedger(place[1], tenant=tenant)
        append(store, label, user(f"the words of {tenant}"))
        store.close()
    assert [one["label"] for one in run("sessions", "--json", *place, folder=tmp_path).json] == ["librarian"]
    acme = (*place, "--tenant", "acme")
    assert [one["label"] for one in run("sessions", "--json", *acme, folder=tmp_path).json] == ["lib"]
    for command in (("history", "lib"), ("search", "words"), ("session", "show", "lib"), ("context", "lib")):
        ran = run(*command, *acme, folder=tmp_path)
        assert (ran.code, "librarian" in ran.out) == (0, False), ran.err
    assert "the words of acme" in run("history", "lib", *acme, folder=tmp_path).out
    assert run("history", "librarian", *acme, folder=tmp_path).code == 2
    assert run("usage", *acme, folder=tmp_path).code == 0


def test_the_newest_100_are_listed_and_a_limit_lists_others(empty: Path) -> None:
    with nexus.open(empty) as nx:
        for number in range(101):
            append(nx.ledger.store, f"s{number:03}", user("one"))
    usual = run("sessions", folder=empty)
    assert len(usual.out.splitlines()) == 1 + 100
    assert usual.err == "There are older sessions: --limit 0 lists all.\n"
    two = run("sessions", "-n", "2", folder=empty)
    assert len(two.out.splitlines()) == 1 + 2
    for line in (("--limit", "0"), ("-n", "101")):
        ran = run("sessions", *line, folder=empty)
        assert (len(ran.out.splitlines()), ran.err) == (1 + 101, "")
    assert len(run("sessions", "--json", folder=empty).json) == 101
    assert len(run("sessions", "--json", "-n", "3", folder=empty).json) == 3
    assert run("sessions", "-n", "-1", folder=empty).code == 2
