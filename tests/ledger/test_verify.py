"""What is changed in a ledger's file is found by verify, or is on a short list of what cannot be found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledger.everything import fill
from ledger.files import sql
from ledger.stores import append, behind_its_back, filled
from nexus.ledger import maintenance as care
from nexus.ledger.integrity import check
from nexus.ledger.maintenance import verification
from nexus.ledger.shared_sql import dump
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import user

PAGE, FRAME, LOG_HEADER = 4_096, 4_120, 32

UNFOUND = {
    ("migration", "UPDATE", "at_ms"),  # when a migration was applied
    ("thread", "DELETE", ""),  # the row of an erased thread
    ("idempotency", "DELETE", ""),  # a key that is not there is one that was never used
    ("idempotency", "UPDATE", "key"),
    ("idempotency", "INSERT", "key"),
    ("blob", "INSERT", "tenant"),  # an image that nothing shows
    ("event", "DELETE", ""),  # an event that is not there is one that was never delivered
    ("document", "DELETE", ""),
    ("lease", "DELETE", ""),  # leases have no hash: they are for programs that run
    *(("lease", "INSERT", column) for column in ("tenant", "label")),
    *(("lease", "UPDATE", column) for column in ("tenant", "label", "holder", "expires_ms", "token", "fence")),
}
"""Changes of single rows that verify cannot find: docs/reliability.md lists them. The words of the search index too."""


class Change(NamedTuple):
    """One statement that changes a row behind the ledger's back."""

    table: str
    kind: str
    column: str
    sql: str
    values: tuple[Any, ...]


def other_values(value: Any) -> list[Any]:
    """Values of the same type that are not the stored one."""
    if isinstance(value, int):
        return [value + 1, value ^ (1 << 40), 1 - value]
    if isinstance(value, bytes):
        return [value[:-1] + bytes([value[-1] ^ 1]) if value else b"x", value + b"x"]
    if value is None:
        return [1, "x"]
    return [f"{value}x", *({value[:-1], value.upper(), "main"} - {value})]


def changes_of(path: Path, every: bool) -> Iterator[Change]:
    """Changes of rows: of the last one of each table with one other value in each column, or all."""
    with behind_its_back(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")]
        for table in tables:
            if table.startswith("search"):
                continue
            columns = db.execute(f"PRAGMA table_info({table})").fetchall()
            names = [column[1] for column in columns]
            keys = [column[1] for column in columns if column[5]]
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            for row in rows if every else rows[-1:]:
                values = dict(zip(names, row, strict=True))
                where = " AND ".join(f"{key} IS ?" for key in keys)
                key = tuple(values[name] for name in keys)
                yield Change(table, "DELETE", "", f"DELETE FROM {table} WHERE {where}", key)
                for name in names:
                    for other in other_values(values[name])[: None if every else 1]:
                        update = f"UPDATE OR IGNORE {table} SET {name}=? WHERE {where}"
                        yield Change(table, "UPDATE", name, update, (other, *key))
                        if name in keys:
                            insert = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(names))})"
                            yield Change(table, "INSERT", name, insert, (*{**values, name: other}.values(),))


def unfound(path: Path, folder: Path, every: bool) -> dict[tuple[str, str, str], Change]:
    """The changes after which verify finds nothing, one of each kind."""
    silent: dict[tuple[str, str, str], Change] = {}
    for change in changes_of(path, every):
        copy = Path(shutil.copy(path, folder / "changed.db"))
        with behind_its_back(copy) as db:
            db.execute("PRAGMA synchronous=OFF")
            try:
                db.execute(change.sql, change.values).fetchall()
            except Exception as error:  # noqa: BLE001 - a column's type or constraint does not allow the value
                assert type(error).__name__ in ("ConstraintError", "MismatchError"), error
                continue
            if not db.changes():
                continue
        if not care.verify(copy):
            silent[change[:3]] = change
    return silent


def test_every_change_of_a_stored_row_is_found(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    fill(ledger, 3)
    ledger.close()
    silent = unfound(tmp_path / "l.db", tmp_path, every=False)
    assert {*silent} <= UNFOUND, [silent[kind] for kind in {*silent} - UNFOUND]


@pytest.mark.slow
def test_every_change_of_every_stored_row_is_found(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    fill(ledger, 3)
    ledger.close()
    silent = unfound(tmp_path / "l.db", tmp_path, every=True)
    assert {*silent} == UNFOUND, [silent[kind] for kind in {*silent} ^ UNFOUND if kind in silent]


@pytest.mark.parametrize(
    ("statement", "place", "what"),
    [
        ("UPDATE view_head SET hash=x'00' WHERE thread=1", "newest of view view on thread 1", "does not agree"),
        ("DELETE FROM search WHERE rowid=1; INSERT INTO search(rowid, text) VALUES (999, 'x')", "not there", "agree"),
        ("CREATE TRIGGER t AFTER INSERT ON message BEGIN DELETE FROM blob; END", "trigger t", "was added"),
        ("CREATE VIEW v AS SELECT 1", "view v", "was added"),
        ("CREATE TABLE u (x)", "table u", "was added"),
        ("DROP INDEX entry_mark", "index entry_mark", "is missing"),
        ("DROP VIEW pin; CREATE VIEW pin AS SELECT 1", "view pin", "is changed"),
        ("UPDATE migration SET checksum='0' WHERE version=2", "list of migrations", "not the one"),
    ],
)
def test_added_or_changed_schema_and_heads_are_reported(path: Path, statement: str, place: str, what: str) -> None:
    sql(path, statement)
    assert any(place in damage.place and what in damage.what for damage in care.verify(path)), care.verify(path)


def test_statistics_of_sqlite_are_no_damage(path: Path) -> None:
    sql(path, "ANALYZE")
    assert care.verify(path) == []


def test_session_whose_rows_are_deleted_is_reported(path: Path) -> None:
    sql(path, "DELETE FROM session WHERE label='worker'", "DELETE FROM session_move WHERE label='worker'")
    (damage,) = care.verify(path)
    assert damage.place == "the session of thread 6"


def test_thread_that_names_itself_as_parent_ends_the_check(path: Path) -> None:
    sql(path, "UPDATE thread SET parent=1 WHERE id=1")
    assert "thread 1" in {damage.place for damage in care.verify(path)}


COMMITS = 12


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose newest commits are in its log alone, as a killed process leaves it."""
    folder = tmp_path_factory.mktemp("logged")
    ledger = filled(folder / "open.db", 2)
    ledger.close()
    ledger = SqliteLedger(str(folder / "open.db"))
    for number in range(COMMITS):
        append(ledger, "main", user(f"late {number}"))
    for end in ("", "-wal"):
        shutil.copy(f"{folder / 'open.db'}{end}", f"{folder / 'l.db'}{end}")
    ledger.close()
    return folder / "l.db"


def with_log(logged: Path, folder: Path, log: bytes) -> Path:
    path = Path(shutil.copy(logged, folder / "l.db"))
    Path(f"{path}-wal").write_bytes(log)
    return path


def commit_ends(log: bytes) -> list[int]:
    """The offsets behind the frames that end a commit."""
    frames = range(LOG_HEADER, len(log), FRAME)
    return [at + FRAME for at in frames if any(log[at + 4 : at + 8])]


def test_damage_in_the_middle_of_the_log_is_reported(logged: Path, tmp_path: Path) -> None:
    """Each frame but those of the last three commits is hit once, in its header and in its page."""
    log = Path(f"{logged}-wal").read_bytes()
    ends = commit_ends(log)
    assert len(ends) == COMMITS
    for at in (3, 17, 25, *range(LOG_HEADER + 9, ends[-3], FRAME), *range(LOG_HEADER + 99, ends[-3], FRAME)):
        changed = bytearray(log)
        changed[at] ^= 1
        damages = care.verify(with_log(logged, tmp_path, bytes(changed)))
        assert [damage.place for damage in damages] == ["the log l.db-wal"], at
        hidden = sum(end > at for end in ends) - 1  # one less if the hit frame's own header says no commit any more
        assert any(f"at least {number} later commits," in damages[0].loss for number in (hidden, hidden - 1))


def test_log_as_a_kill_or_power_loss_leaves_it_is_no_damage(logged: Path, tmp_path: Path) -> None:
    log = Path(f"{logged}-wal").read_bytes()
    ends = commit_ends(log)
    torn = bytearray(log)
    torn[ends[-2] + FRAME + 99] ^= 1
    older = bytearray(log)
    older[ends[3] + 8 :: FRAME] = bytes(len(older[ends[3] + 8 :: FRAME]))  # salts of the log before this one
    for content in (log, log[: ends[4]], log[: ends[4] + 500], b"", log[:20], bytes(torn), bytes(older)):
        assert care.verify(with_log(logged, tmp_path, content)) == []


def test_repair_saves_the_commits_behind_damage_in_the_log(logged: Path, tmp_path: Path) -> None:
    log = bytearray(Path(f"{logged}-wal").read_bytes())
    log[commit_ends(bytes(log))[2] - 50] ^= 1
    path = with_log(logged, tmp_path, bytes(log))
    assert care.verify(path) != []
    result = care.repair(path, tmp_path / "saved.db")
    assert result.entries + result.lost_entries == 2 + COMMITS
    assert result.lost_entries <= 1


def test_dump_is_the_same_whether_threads_are_read_together_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(tmp_path / "l.db")
    for number in range(7):
        append(ledger, f"s{number % 3}", user("one"), user("two"), key=f"k{number}")
        ledger.fork(f"f{number}", f"s{number % 3}", 1)
    together = list(ledger.dump())
    for most in (1, 3, 8):
        monkeypatch.setattr(dump, "MOST_ENTRIES", most)
        assert list(ledger.dump()) == together
    assert list(check(iter(together))) == []
    ledger.close()


def test_verify_reports_an_entry_that_a_thread_read_together_with_others_has_too_much(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db")
    append(ledger, "other", user("one"))
    ledger.close()
    with behind_its_back(tmp_path / "l.db") as db:
        db.execute(
            "INSERT INTO entry SELECT tenant, 2, 9, kind, turn, at_ms, body, hash FROM entry WHERE thread=1 AND seq=1"
        )
    assert any("thread 2" in str(damage) for damage in care.verify(tmp_path / "l.db"))


def test_changed_row_of_a_thread_and_an_added_call_on_any_page_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(tmp_path / "l.db")
    for number in range(7):
        append(ledger, f"s{number}", user("one"))
    threads = [thread.id for thread in ledger.threads()]
    ledger.close()
    monkeypatch.setattr(verification, "PAGE", 3)

    for thread in threads:
        shutil.copy(tmp_path / "l.db", tmp_path / "changed.db")
        with behind_its_back(tmp_path / "changed.db") as db:
            db.execute("UPDATE thread SET tokens=tokens+1 WHERE id=?", (thread,))
            db.execute(
                "INSERT INTO tool_call SELECT tenant, id, 'c', 1, 0, 9, 'x', 0, 0 FROM thread WHERE id=?", (thread,)
            )
        places = [damage.place for damage in care.verify(tmp_path / "changed.db")]
        assert places == [f"the row of thread {thread} (tokens, hash)", f"a call in entry 1 of thread {thread}"]


def test_messages_of_every_beginning_are_compared_with_the_search_index(tmp_path: Path) -> None:
    texts = ["word", " ", "\n", "\u0301", "é", "→", '"', "\\", "\x00", "中"]
    ledger = filled(tmp_path / "l.db")
    for text in texts:
        append(ledger, "s", user(text))
    append(ledger, "s", user("  "), user("last"))
    ledger.close()

    assert care.verify(tmp_path / "l.db") == []
    with behind_its_back(tmp_path / "l.db") as db:
        ids = [number for (number,) in db.execute("SELECT id FROM search_docsize")]
    for number in ids:
        shutil.copy(tmp_path / "l.db", tmp_path / "changed.db")
        with behind_its_back(tmp_path / "changed.db") as db:
            db.execute("DELETE FROM search_docsize WHERE id=?", (number,))
        assert any(damage.place.startswith("the search index at") for damage in care.verify(tmp_path / "changed.db"))
