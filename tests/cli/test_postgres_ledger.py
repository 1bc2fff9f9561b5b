"""The command line with a ledger in PostgreSQL: the same commands, and clear words where a file is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli.running import run
from ledger.everything import fill
from nexus.ledger.sqlite import SqliteLedger

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

FILES_ONLY = {
    ("vacuum",): "PostgreSQL runs VACUUM by itself",
    ("backup", "copy.db"): "pg_dump",
    ("restore", "copy.db"): "pg_restore",
    ("repair", "copy.db"): "backup of the server",
    ("trust",): "always accepted",
}


@pytest.fixture
def url(postgres_server: PostgresServer, tmp_path: Path) -> str:
    """The URL of a ledger that was copied from a file, `a.db` in the test's folder."""
    store = SqliteLedger(str(tmp_path / "a.db"))
    fill(store)
    store.close()
    url = postgres_server.new_ledger().replace("postgres:@", "postgres:geheim@")
    done = run("ledger", "--ledger", "a.db", "migrate", "--to", url, folder=tmp_path)
    assert done.code == 0, done.err
    assert "equal to" in done.out and "geheim" not in done.out + done.err
    return url


def answer(folder: Path, url: str, *arguments: str) -> Any:
    done = run(*arguments, "--ledger", url, "--json", folder=folder)
    assert done.code == 0, done.err + done.out
    assert "geheim" not in done.out + done.err
    return json.loads(done.out)


def test_commands_give_the_same_answers_as_on_the_file(url: str, tmp_path: Path) -> None:
    file = str(tmp_path / "a.db")
    for arguments in (("sessions", "--all"), ("history", "main"), ("search", "answer"), ("show", "main")):
        done = [run(*arguments, "--ledger", place, "--json", folder=tmp_path) for place in (url, file)]
        assert done[0].code == done[1].code
        assert len(done[0].out) == len(done[1].out), arguments
    verified = answer(tmp_path, url, "ledger", "verify")
    assert verified["sound"] and verified["damages"] == []
    stats, of_file = answer(tmp_path, url, "ledger", "stats"), answer(tmp_path, file, "ledger", "stats")
    same = {"sessions", "entries", "messages", "tokens", "tool_calls", "usage", "events", "images", "cuts"}
    assert {key: stats[key] for key in same} == {key: of_file[key] for key in same}
    assert stats["server"] and not of_file["server"]


def test_exports_and_copies_are_equal_byte_for_byte(url: str, tmp_path: Path) -> None:
    for place, name in ((url, "pg.jsonl"), ("a.db", "a.jsonl")):
        assert run("ledger", "--ledger", place, "export", name, folder=tmp_path).code == 0
    done = run("ledger", "--ledger", url, "migrate", "--to", "b.db", "--json", folder=tmp_path)
    assert done.code == 0 and json.loads(done.out)["otherTenants"] == []
    assert run("ledger", "--ledger", "b.db", "export", "b.jsonl", folder=tmp_path).code == 0
    assert len({(tmp_path / f"{name}.jsonl").read_bytes() for name in ("pg", "a", "b")}) == 1
    again = run("ledger", "--ledger", "a.db", "migrate", "--to", url, folder=tmp_path)
    assert again.code == 5 and "is not empty" in again.err
    assert answer(tmp_path, url, "ledger", "import", "a.jsonl")["added"] == 0


def test_new_session_is_written_and_read(url: str, tmp_path: Path) -> None:
    run("init", "work", "--ledger", url, folder=tmp_path)
    work = tmp_path / "work"
    assert run("session", "rename", "main", "fresh", "--ledger", url, folder=work).code == 0
    labels = {session["label"] for session in answer(work, url, "sessions", "--all")}
    assert "fresh" in labels
    assert not (work / ".nexus" / "ledger.db").exists()


@pytest.mark.parametrize("arguments", FILES_ONLY, ids=" ".join)
def test_commands_for_files_name_what_to_use_instead(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run("ledger", *arguments, "--ledger", "postgresql://me:geheim@127.0.0.1:1/x", folder=tmp_path)
    assert done.code != 0 and "Traceback" not in done.err
    assert FILES_ONLY[arguments] in done.err and "geheim" not in done.err


def test_server_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    for arguments in (("sessions",), ("ledger", "verify"), ("ledger", "stats"), ("ledger", "export", "-")):
        done = run(*arguments, "--ledger", "postgresql://me:geheim@127.0.0.1:1/x", folder=tmp_path)
        assert done.code == 5, done.err
        assert "cannot be reached" in done.err and "Traceback" not in done.err and "geheim" not in done.err
    done = run("ledger", "doctor", "--ledger", "postgresql://127.0.0.1:1/x", folder=tmp_path)
    assert done.code == 5 and "cannot be reached" in done.out


def test_doctor_examines_server_role_and_rights(url: str, tmp_path: Path) -> None:
    done = run("ledger", "doctor", "--ledger", url, "--json", folder=tmp_path)
    findings = {finding["name"]: finding["level"] for finding in json.loads(done.out)["findings"]}
    assert list(findings) == ["server", "durability", "role", "rights", "connections", "version", "clock"]
    assert findings["durability"] == "bad"  # the tests' server does not sync, which is what this finding is for
    assert findings["role"] == "warn" and findings["rights"] == "ok"


def test_a_database_without_a_ledger_is_an_empty_ledger(postgres_server: PostgresServer, tmp_path: Path) -> None:
    empty = ("--ledger", postgres_server.new_ledger())
    for _ in range(2):  # reading makes no ledger
        ran = run("sessions", *empty, folder=tmp_path)
        assert (ran.code, ran.out[:18], ran.err) == (0, "No ledger here yet", "")
    ran = run("history", "main", *empty, folder=tmp_path)
    assert (ran.code, "no ledger yet" in ran.err) == (2, True)
