"""A file that is no ledger of ours is refused by every command, and not one byte of it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.conftest import EXAMPLES
from cli.running import run

COMMANDS: tuple[tuple[str | Path, ...], ...] = (
    ("sessions",), ("history", "main"), ("assemble", "Hi"), ("context",), ("import", EXAMPLES / "session.json"),
    ("import", EXAMPLES / "session.json", "--dry-run"), ("init",),
)  # fmt: skip


def sql(path: Path, *statements: str) -> None:
    db: Any = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement).fetchall()
    db.close()


def other_program(path: Path) -> None:
    sql(path, "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)", "INSERT INTO notes (text) VALUES ('mine')")


def other_program_with_its_id(path: Path) -> None:
    sql(path, "PRAGMA application_id=12345", "PRAGMA user_version=7", "CREATE TABLE notes (text TEXT)")


def other_program_without_tables(path: Path) -> None:
    sql(path, "PRAGMA user_version=7", "CREATE TABLE t (a)", "DROP TABLE t")


def other_program_with_a_journal(path: Path) -> None:
    """As another program leaves it that was killed: its last writes are in the write-ahead log."""
    source = path.with_name("source.db")
    db: Any = apsw.Connection(str(source))
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    other_program_rows = "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')"
    db.execute(other_program_rows).fetchall()
    for end in ("", "-wal"):
        path.with_name(path.name + end).write_bytes(source.with_name(source.name + end).read_bytes())
    db.close()
    for found in path.parent.glob("source.db*"):
        found.unlink()


def text_file(path: Path) -> None:
    path.write_text("Dear diary, this is a text of more than five hundred and twelve bytes. " * 20)


def short_text(path: Path) -> None:
    path.write_text("short")


def newer_version(path: Path) -> None:
    assert run("init", "--ledger", path, folder=path.parent).code == 0
    sql(path, "PRAGMA user_version=99", "CREATE TABLE of_the_future (a)", "PRAGMA wal_checkpoint(TRUNCATE)")


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "another program's": (other_program, "another program"),
    "another program's, with its id": (other_program_with_its_id, "another program"),
    "another program's, without tables": (other_program_without_tables, "another program"),
    "another program's, with a journal": (other_program_with_a_journal, "another program"),
    "a text": (text_file, "not a SQLite file"),
    "a short text": (short_text, "not a SQLite file"),
    "of a newer version": (newer_version, "newer|upgrade"),
}


@pytest.mark.parametrize(("make", "says"), FILES.values(), ids=FILES)
def test_every_command_rejects_foreign_file_as_ledger_unchanged(
    tmp_path: Path, make: Callable[[Path], None], says: str
) -> None:
    make(tmp_path / "given.db")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("given.db*")}
    for command in COMMANDS:
        ran = run(*command, "--ledger", "given.db", folder=tmp_path)
        assert (ran.code, ran.out) == (5, ""), command
        assert str(tmp_path / "given.db") in ran.err
        assert any(word in ran.err for word in says.split("|"))
        assert "not touched" in ran.err
        after = {path.name: path.read_bytes() for path in tmp_path.glob("given.db*")}
        assert after == before, f"{command} changed the file"


def test_a_folder_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    assert run("sessions", "--ledger", "folder.db", folder=tmp_path).code == 2


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    assert run("import", EXAMPLES / "session.json", "--ledger", "new.db", folder=tmp_path).code == 0
    assert run("sessions", "--ledger", "new.db", "--json", folder=tmp_path).json[0]["label"] == "session"


def test_damage_is_reported_and_nothing_is_served(example: Path) -> None:
    sql(example / ".nexus" / "ledger.db", "UPDATE message SET content='[]' WHERE seq=100")
    for command in (("history", "main"), ("assemble", "Hi"), ("context",)):
        ran = run(*command, folder=example)
        assert (ran.code, ran.out) == (5, "")
        assert "does not match its hash" in ran.err
        assert "nexus ledger restore" in ran.err
