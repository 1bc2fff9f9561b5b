"""Damage is found and reported, never served: in every column, in the file, at the end and in the middle."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.stores import COUNTER, append, behind_its_back, filled, on_writer, replay, texts
from nexus.assembly.record import with_sizes
from nexus.errors import LedgerDamaged, LedgerError, LedgerFull
from nexus.ledger import maintenance as care
from nexus.ledger.sessions import Query
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import AssemblyRow, Commit, Cut, MessageRef, NewEntry
from nexus.types.message import Image, Message, user


def columns_of(table: str) -> dict[str, str]:
    """The columns with their types, without a row's own number, which nothing reads."""
    ledger = SqliteLedger(":memory:")
    with ledger.reading() as reader:
        found = {str(row[1]): str(row[2]) for row in reader.db.rows(f"PRAGMA table_info({table})")}
    ledger.close()
    return {name: kind for name, kind in found.items() if name != "id_row"}


CASES = [(table, column) for table in ("entry", "message") for column in columns_of(table)]
TEXT_CASES = [(table, column) for table, column in CASES if columns_of(table)[column] == "TEXT" and column != "tenant"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file that is closed and as it should be."""
    path = tmp_path_factory.mktemp("whole") / "l.db"
    filled(path).close()
    return path


def flipped(value: int | str | bytes) -> int | str | bytes:
    """The value with one bit changed; text stays text."""
    if isinstance(value, int):
        return value ^ (1 << 40)
    data = bytearray(value if isinstance(value, bytes) else value.encode())
    data[0] ^= 1
    return bytes(data) if isinstance(value, bytes) else data.decode()


def damaged(whole: Path, folder: Path, *statements: tuple[Any, ...]) -> SqliteLedger:
    path = Path(shutil.copy(whole, folder / "l.db"))
    with behind_its_back(path) as db:
        for sql, *values in statements:
            db.execute(sql, values).fetchall()
    return SqliteLedger(str(path))


def test_read_that_finds_damage_ends_its_snapshot(whole: Path, tmp_path: Path) -> None:
    ledger = damaged(whole, tmp_path, ("UPDATE message SET content='[]' WHERE seq=2",))
    with pytest.raises(LedgerDamaged) as error:
        replay(ledger, "main")
    append(ledger, "other", user("more"))
    with behind_its_back(tmp_path / "l.db") as db:
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy, error.value  # its traceback has the frames of the read


@pytest.mark.parametrize("seq", [1, 3, 6], ids=["first", "middle", "newest"])
@pytest.mark.parametrize(("table", "column"), CASES)
def test_a_flipped_bit_in_any_column_is_reported(
    whole: Path, tmp_path: Path, table: str, column: str, seq: int
) -> None:
    with behind_its_back(whole) as db:
        one = " AND ord=1" if table == "message" else ""
        value = db.execute(f"SELECT {column} FROM {table} WHERE seq=?{one}", (seq,)).fetchone()[0]
    ledger = damaged(whole, tmp_path, (f"UPDATE {table} SET {column}=? WHERE seq=?{one}", flipped(value), seq))
    with pytest.raises(LedgerDamaged, match=r"l\.db"):
        replay(ledger, "main")


@pytest.mark.parametrize(("table", "column"), TEXT_CASES)
def test_a_flipped_bit_that_leaves_no_utf_8_is_reported(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    with behind_its_back(whole) as db:
        one = " AND ord=1" if table == "message" else ""
        value = db.execute(f"SELECT {column} FROM {table} WHERE seq=3{one}").fetchone()[0]
    data = bytearray(value.encode())
    data[-1] ^= 0x80
    ledger = damaged(whole, tmp_path, (f"UPDATE {table} SET {column}=CAST(? AS TEXT) WHERE seq=3{one}", bytes(data)))
    with pytest.raises(LedgerDamaged, match=r"l\.db"):
        replay(ledger, "main")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM message WHERE seq=3 AND ord=0", "DELETE FROM message WHERE seq=3", "DELETE FROM entry WHERE seq=3",
        "DELETE FROM entry WHERE seq=6", "DELETE FROM message WHERE seq=6", "UPDATE message SET seq=4, ord=9 WHERE seq=3 AND ord=1",
        "UPDATE thread SET root_hash=x'00'", "UPDATE message SET ord=ord+5 WHERE seq=3",
        f"INSERT INTO message SELECT NULL, {', '.join(columns_of('message'))} FROM message WHERE seq=3 AND ord=0".replace("ord,", "7,"),
    ],
    ids=lambda sql: sql[:50],
)  # fmt: skip
def test_rows_that_are_lost_moved_or_added_are_reported(whole: Path, tmp_path: Path, sql: str) -> None:
    ledger = damaged(whole, tmp_path, (sql,))
    with pytest.raises(LedgerDamaged):
        replay(ledger, "main")


def test_a_row_that_another_history_would_have_had_is_reported(whole: Path, tmp_path: Path) -> None:
    """Two entries that change places are each whole, but not in their chain."""
    swap = (
        "UPDATE {0} SET seq=-3 WHERE seq=3",
        "UPDATE {0} SET seq=3 WHERE seq=4",
        "UPDATE {0} SET seq=4 WHERE seq=-3",
    )
    ledger = damaged(whole, tmp_path, *((sql.format(table),) for table in ("message", "entry") for sql in swap))
    with pytest.raises(LedgerDamaged):
        replay(ledger, "main")


def test_range_after_damage_can_be_read(whole: Path, tmp_path: Path) -> None:
    ledger = damaged(whole, tmp_path, ("UPDATE message SET content='[]' WHERE seq=1",))
    thread = ledger.thread_of("main") or 0
    assert [entry.seq for entry in ledger.entries(thread, 3)] == [4, 5, 6]
    with pytest.raises(LedgerDamaged):
        list(ledger.entries(thread, 0, 1))


def test_damage_of_the_shared_path_is_reported_for_a_fork_too(whole: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(whole, tmp_path / "source.db"))
    ledger = SqliteLedger(str(path))
    ledger.fork("side", "main", 4)
    append(ledger, "side", user("own"))
    ledger.close()
    broken = damaged(path, tmp_path, ("UPDATE message SET meta='x' WHERE seq=2 AND ord=0",))
    with pytest.raises(LedgerDamaged):
        replay(broken, "side")


@pytest.mark.parametrize(
    "read",
    [
        lambda ledger: ledger.sessions(),
        lambda ledger: ledger.sessions(limit=5),
        lambda ledger: ledger.session_info("side"),
        lambda ledger: ledger.search(Query("hello")),
    ],
    ids=["sessions", "page", "session_info", "search"],
)
def test_thread_that_is_its_own_parent_ends_a_list_with_an_error(
    tmp_path: Path, read: Callable[[SqliteLedger], object]
) -> None:
    ledger = SqliteLedger(str(tmp_path / "source.db"))
    append(ledger, "main", user("hello"))
    ledger.fork("side", "main", 1)
    append(ledger, "other", user("hello"))
    ledger.close()
    broken = damaged(tmp_path / "source.db", tmp_path, ("UPDATE thread SET parent=id, fork_seq=1",))
    with pytest.raises(LedgerDamaged):
        read(broken)


@pytest.mark.parametrize("change", ["DELETE FROM blob", "UPDATE blob SET data=x'00'", "UPDATE blob SET sha256='0'"])
def test_an_image_that_is_lost_or_changed_is_reported(tmp_path: Path, change: str) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", Message("user", (Image("image/png", data="QUJD"),)))
    with behind_its_back(tmp_path / "l.db") as db:
        db.execute(change)
    with pytest.raises(LedgerDamaged, match="image"):
        replay(ledger, "main")


DECISION = ("number", "kind", "at_seq", "body", "at_ms", "hash")


@pytest.mark.parametrize("column", DECISION)
def test_a_flipped_bit_in_a_views_decision_is_reported(tmp_path: Path, column: str) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    cut = Cut("view", 1, 1, MessageRef(1, 0), "[left out]", 3, 30, 0)
    entry = NewEntry(messages=with_sizes((user("x"),), COUNTER))
    ledger.commit("main", Commit((entry,), cut, AssemblyRow("view", {"id": "m"}, 5)))
    thread = ledger.thread_of("main") or 0
    assert ledger.last_cut(thread, "view") == cut
    with behind_its_back(tmp_path / "l.db") as db:
        value = db.execute(f"SELECT {column} FROM decision").fetchone()[0]
        db.execute(f"UPDATE decision SET {column}=?", (flipped(value),))
    with pytest.raises(LedgerDamaged, match="decision"):
        ledger.last_cut(thread, "view")


def test_flipped_bits_are_never_served_as_history(whole: Path, tmp_path: Path) -> None:
    """Whatever is hit, the answer is the history as it was or an error of ours: nothing else, and no history that differs."""
    ledger = SqliteLedger(str(whole))
    wanted = replay(ledger, "main")
    ledger.close()
    data, path, dice = whole.read_bytes(), tmp_path / "l.db", random.Random(7)
    seen: Counter[str] = Counter()
    for _ in range(400):
        broken = bytearray(data)
        broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
        for old in tmp_path.glob("l.db*"):
            old.unlink()
        path.write_bytes(broken)
        try:
            ledger = SqliteLedger(str(path))
            found = replay(ledger, "main")
            ledger.close()
        except LedgerError as error:
            seen[type(error).__name__] += 1
        else:
            assert found in (wanted, []), "a history that nobody wrote"
            seen["as it was" if found else "no such session"] += 1
    assert seen["LedgerDamaged"] > 10
    assert seen["as it was"] > 100


# ---------------------------------------------------------------------------------------------------------- a full disk


def test_full_disk_raises_and_keeps_earlier_appends(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 3)
    before = replay(ledger, "main")
    pages = on_writer(ledger, "PRAGMA page_count")
    on_writer(ledger, f"PRAGMA max_page_count={pages + 8}")
    with pytest.raises(LedgerFull, match="earlier ones are safe"):
        append(ledger, "main", user("x" * 100_000), key="big")
    assert replay(ledger, "main") == before
    assert "big" not in ledger.known_keys("main")
    small = append(ledger, "main", user("small"))
    assert small.head == 4, "what fits is still taken"
    on_writer(ledger, "PRAGMA max_page_count=1000000")
    assert append(ledger, "main", user("x" * 100_000), key="big").head == 5
    ledger.close()
    assert texts(SqliteLedger(str(tmp_path / "l.db")), "main")[-2:] == ["small", "x" * 100_000]


def test_a_full_disk_in_the_middle_of_an_import_leaves_none_of_it(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 1)
    on_writer(ledger, f"PRAGMA max_page_count={on_writer(ledger, 'PRAGMA page_count') + 10}")
    entries = tuple(
        NewEntry(messages=with_sizes((user("y" * 3_000),), COUNTER), keys=(f"i{number}",)) for number in range(50)
    )
    with pytest.raises(LedgerFull):
        ledger.commit("imported", Commit(entries))
    assert ledger.thread_of("imported") is None
    assert [one.label for one in ledger.sessions()] == ["main"]


def without_index_row(path: Path, thread: int) -> None:
    """Take a thread out of the index of times alone, as a damaged page does."""
    wrong = f"CREATE INDEX thread_time ON thread (tenant, last_ms) WHERE id<>{thread}"
    with behind_its_back(path) as db:
        (right,) = db.execute("SELECT sql FROM sqlite_schema WHERE name='thread_time'").fetchone()
        db.execute(f"DROP INDEX thread_time; {wrong}").fetchall()
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_schema SET sql=? WHERE name='thread_time'", (right,)).fetchall()


def test_a_session_that_the_index_of_times_lost_is_reported_at_the_end_of_the_list_and_by_verify(
    tmp_path: Path,
) -> None:
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    for name in "abc":
        append(ledger, name, user(name))
    ledger.close()
    without_index_row(path, 2)
    ledger = SqliteLedger(str(path))
    for every in (False, True):
        assert len(ledger.sessions(every=every, limit=1)) == 1
        with pytest.raises(LedgerDamaged, match="lacks some of the 3"):
            ledger.sessions(every=every, limit=5)
        with pytest.raises(LedgerDamaged, match="lacks some of the 3"):
            ledger.sessions(every=every, limit=2, offset=2)
    assert len(ledger.sessions()) == 3
    ledger.close()
    assert any("thread_time" in str(damage) for damage in care.verify(path))


def test_a_session_without_its_thread_is_reported_at_the_end_of_the_list(whole: Path, tmp_path: Path) -> None:
    ledger = damaged(whole, tmp_path, ("DELETE FROM thread WHERE id=1",))
    with pytest.raises(LedgerDamaged, match="lacks some of the 1"):
        ledger.sessions(limit=5)
    ledger.close()


def test_a_session_in_the_place_of_another_time_is_not_listed(whole: Path, tmp_path: Path) -> None:
    shutil.copy(whole, tmp_path / "l.db")
    with behind_its_back(tmp_path / "l.db") as db:
        (right,) = db.execute("SELECT sql FROM sqlite_schema WHERE name='thread_time'").fetchone()
        db.execute("DROP INDEX thread_time; CREATE INDEX thread_time ON thread (tenant, last_ms+1)").fetchall()
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_schema SET sql=? WHERE name='thread_time'", (right,)).fetchall()
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    with pytest.raises(LedgerDamaged, match="in a wrong place of the list"):
        ledger.sessions(limit=5)
    ledger.close()


def test_a_lost_pointer_is_reported_at_the_end_of_the_list(whole: Path, tmp_path: Path) -> None:
    ledger = damaged(whole, tmp_path, ("DELETE FROM session WHERE label='main'",))
    with pytest.raises(LedgerDamaged, match="the pointer of session 'main' is lost"):
        ledger.sessions(limit=5)
    ledger.close()
