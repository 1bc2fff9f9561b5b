"""What a repair says of names, marks and views: whatever is missing is listed, and nothing that was given up comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledger.everything import said
from ledger.files import dumped, entries, sql
from ledger.stores import append, texts
from ledger.test_maintenance import swapped
from nexus.ledger import chain
from nexus.ledger import maintenance as care
from nexus.ledger.history_operations import Ledger
from nexus.ledger.records import CalibrationRecord
from nexus.ledger.shared_sql.erase import erase
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit
from nexus.types.message import user


@pytest.mark.parametrize(
    ("statement", "place", "what"),
    [
        ("DELETE FROM decision WHERE number=2 AND thread=1", "1 of 2 decisions of view view on thread 1", "is missing"),
        ("DELETE FROM decision WHERE thread=1", "2 of 2 decisions of view view on thread 1", "are missing"),
        ("DELETE FROM assembly WHERE seq=1", "1 of 12 manifests of view view on thread 1", "is missing"),
        ("DELETE FROM alias WHERE name='nick'", "alias 'nick'", "is missing or does not match its hash"),
        ("DELETE FROM alias WHERE name='nack' AND number=2", "alias 'nack'", "is missing or does not match its hash"),
        ("DELETE FROM session_move WHERE label='main' AND number=2", "move 2 of session 'main'", "is missing"),
        ("DELETE FROM calibration WHERE number=1", "calibration 1 of openai/gpt-5", "is missing or does not match its hash"),
        ("DELETE FROM calibration WHERE number=2", "calibration 2 of openai/gpt-5", "is missing or does not match its hash"),
    ],
)  # fmt: skip
def test_missing_row_is_reported_by_verify_and_repair(
    path: Path, tmp_path: Path, statement: str, place: str, what: str
) -> None:
    sql(path, "PRAGMA secure_delete=ON", statement)
    assert care.verify(path) != []
    done = care.repair(path, tmp_path / "new.db")
    assert [(damage.place, damage.what) for damage in done.damages] == [(place, what)]
    assert care.verify(tmp_path / "new.db") == []
    again = care.repair(tmp_path / "new.db", tmp_path / "again.db")
    assert again.damages == ()
    assert dumped(tmp_path / "again.db") == dumped(tmp_path / "new.db")


def test_a_calibration_that_is_left_alone_is_numbered_anew(path: Path, tmp_path: Path) -> None:
    sql(path, "PRAGMA secure_delete=ON", "DELETE FROM calibration WHERE number=1")
    care.repair(path, tmp_path / "new.db")
    (kept,) = [record for record in dumped(tmp_path / "new.db") if isinstance(record, CalibrationRecord)]
    assert (kept.number, kept.factor_64) == (1, 67)
    assert kept.hash == chain.calibration_hash("local", kept)


def test_an_older_move_may_point_to_what_was_deleted_for_good(tmp_path: Path) -> None:
    store = SqliteLedger(str(tmp_path / "l.db"))
    ledger = Ledger(store)
    for label in ("a", "b"):
        append(store, label, user(label))
    ledger.sessions.merge("a", "b")
    ledger.sessions.unalias("a")
    append(store, "a", user("anew"))
    ledger.upkeep.erase("a~merged")
    store.close()
    assert care.verify(tmp_path / "l.db") == []
    done = care.repair(tmp_path / "l.db", tmp_path / "new.db")
    assert done.damages == ()
    assert dumped(tmp_path / "new.db") == dumped(tmp_path / "l.db")


def test_repair_does_not_restore_erased_names_from_the_log(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "secret name", user("a secret"))
    append(ledger, "kept", user("kept"))
    thread = ledger.thread_of("secret name") or 0
    ledger._write(lambda writing: erase(writing, [thread], ["secret name"]), alone=True)
    append(ledger, "kept", user("and on"))
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path / 'l.db'}{end}", f"{tmp_path / 'killed.db'}{end}")
    ledger.close()
    assert b"secret name" in (tmp_path / "killed.db-wal").read_bytes()
    done = care.repair(tmp_path / "killed.db", tmp_path / "new.db")
    assert done.damages == ()
    assert b"secret" not in (tmp_path / "new.db").read_bytes()
    assert dumped(tmp_path / "new.db") == dumped(tmp_path / "killed.db")


def test_renamed_session_stays_retired_when_its_last_move_is_lost(tmp_path: Path) -> None:
    store = SqliteLedger(str(tmp_path / "l.db"))
    append(store, "old", user("x"))
    Ledger(store).sessions.rename("old", "new")
    store.close()
    sql(tmp_path / "l.db", "PRAGMA secure_delete=ON", "DELETE FROM session_move WHERE label='old' AND number=2")
    done = care.repair(tmp_path / "l.db", tmp_path / "saved.db")
    assert [damage.place for damage in done.damages] == ["move 2 of session 'old'"]
    kept = SqliteLedger(str(tmp_path / "saved.db"))
    assert [one.label for one in kept.sessions(every=True)] == ["new"]
    assert kept.resolve("old") == "new"
    kept.close()


def test_repair_names_threads_that_lost_all_names(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    for label in ("main", "other"):
        append(ledger, label, user(label))
    ledger.close()
    sql(tmp_path / "l.db", "PRAGMA secure_delete=ON", "DELETE FROM session_move", "DELETE FROM session")
    done = care.repair(tmp_path / "l.db", tmp_path / "new.db")
    kept = SqliteLedger(str(tmp_path / "new.db"))
    assert (texts(kept, "recovered-1"), texts(kept, "recovered-2")) == (["main"], ["other"])
    kept.close()
    assert [damage.place for damage in done.damages] == ["the session of thread 1", "the session of thread 2"]
    assert "recovered-1" in done.damages[0].what


def test_an_entry_that_matches_its_hash_and_cannot_be_read_is_lost(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    ledger.commit("main", Commit(tuple(said(user(text)) for text in ("a", "b"))))
    ledger.close()
    (first, second) = entries(tmp_path / "l.db").values()
    message = (*second.messages[0][:7], '[{"type":"text"}]', *second.messages[0][8:])
    columns = (1, 2, "messages", second.turn, second.at_ms, second.body)
    digest = chain.entry_hash(first.hash, "local", columns, [message]).hex()
    sql(
        tmp_path / "l.db",
        f"UPDATE message SET content='{message[7]}' WHERE seq=2",
        f"UPDATE entry SET hash=x'{digest}' WHERE seq=2",
    )
    assert [damage.place for damage in care.verify(tmp_path / "l.db")][:1] == ["entry 2 of thread 1"]
    done = care.repair(tmp_path / "l.db", tmp_path / "new.db")
    assert [damage.what[:14] for damage in done.damages] == ["cannot be read"]
    assert [entry.kind for entry in entries(tmp_path / "new.db").values()] == ["messages", "lost"]


@pytest.mark.parametrize("content", [b"\0" * 4_096, b"\xa5" * 4_096])
def test_repair_reports_a_broken_page_of_unnamed_rows(path: Path, tmp_path: Path, content: bytes) -> None:
    ledger = SqliteLedger(str(path), create=False)
    with ledger.reading() as reader:
        page = int(reader.db.value("SELECT rootpage FROM sqlite_schema WHERE name='idempotency'"))
    ledger.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4_096 : page * 4_096] = content
    path.write_bytes(data)
    done = care.repair(path, tmp_path / "new.db")
    assert [damage.place for damage in done.damages] == [f"page {page}"]
    assert done.lost_entries == 0


@pytest.mark.parametrize(("one", "two"), [("blob", "calibration"), ("message", "session"), ("entry", "thread")])
def test_pages_that_stand_in_one_anothers_place_cost_nothing(path: Path, tmp_path: Path, one: str, two: str) -> None:
    was = dumped(path)
    swapped(path, one, two)
    assert care.repair(path, tmp_path / "new.db").lost_entries == 0
    assert dumped(tmp_path / "new.db") == was


def test_misplaced_first_page_loses_at_most_one_entry(path: Path, tmp_path: Path) -> None:
    was, data = dumped(path), path.read_bytes()
    for page in range(1, len(data) // 4_096):
        first, other = data[:4_096], data[page * 4_096 : (page + 1) * 4_096]
        path.write_bytes(other + data[4_096 : page * 4_096] + first + data[(page + 1) * 4_096 :])
        done = care.repair(path, tmp_path / "new.db", force=True)
        # A page that goes on with another one's row is found by its place alone.
        assert done.lost_entries <= 1, page
        assert done.lost_entries == 1 or dumped(tmp_path / "new.db") == was, page
