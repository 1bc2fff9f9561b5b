"""A repair saves all that is whole and nothing that is not: whatever is broken costs what it hits, and no more."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ledger.everything import fill, picture, said
from ledger.files import PAGE, broken, dumped, entries, names, old_ledger, sql
from ledger.stores import append, filled, replay, texts
from nexus.errors import LedgerBusy, LedgerDamaged, LedgerUnusable, UnreadableFile
from nexus.ledger import maintenance as care
from nexus.ledger.maintenance.entries import UNKNOWN
from nexus.ledger.maintenance.pages import Pages
from nexus.ledger.records import EntryRecord, ThreadRecord
from nexus.ledger.sessions import NewRefUpdate, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.ledger_entries import Commit
from nexus.types.message import user
from support.errors import has_code


def test_a_repair_of_a_sound_ledger_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    told: list[tuple[int, int]] = []
    done = care.repair(path, tmp_path / "new.db", progress=lambda *now: told.append(now))
    assert dumped(tmp_path / "new.db") == dumped(path)
    assert (done.lost_entries, done.damages) == (0, ())
    assert told[-1] == (len(before) // PAGE, len(before) // PAGE)
    assert care.verify(tmp_path / "new.db") == []
    assert path.read_bytes() == before
    assert names(tmp_path) == ["l.db", "new.db"]
    counted = {one.session: (one.entries, one.messages, one.lost_entries) for one in done.sessions}
    ledger = SqliteLedger(str(path))
    for info in ledger.sessions(every=True):
        assert counted[info.label] == (len(replay(ledger, info.label)), info.messages, 0)
    ledger.close()


def test_repair_marks_a_damaged_entry_as_lost(path: Path, tmp_path: Path) -> None:
    was = entries(path)
    done = care.repair(broken(path), tmp_path / "new.db")
    now = entries(tmp_path / "new.db")
    lost = now.pop((1, 9))
    assert (lost.kind, lost.hash, lost.messages, lost.turn) == ("lost", was[1, 9].hash, [], was[1, 9].turn)
    assert now == {place: record for place, record in was.items() if place != (1, 9)}
    assert [(damage.place, damage.what, damage.loss) for damage in done.damages] == [
        ("entry 9 of thread 1", "is damaged", "its content")
    ]
    assert done.lost_entries == 1
    assert {one.session: one.lost_entries for one in done.sessions}["main"] == 1
    assert care.verify(tmp_path / "new.db") == []
    ledger = SqliteLedger(str(tmp_path / "new.db"))
    append(ledger, "main", user("and on"))
    assert texts(ledger, "main")[-1] == "and on"
    ledger.close()
    again = care.repair(tmp_path / "new.db", tmp_path / "again.db")
    assert (again.lost_entries, again.damages) == (1, ())


def test_lost_entry_does_not_prove_the_entry_before_it(path: Path, tmp_path: Path) -> None:
    care.repair(broken(path), tmp_path / "new.db")
    sql(tmp_path / "new.db", "UPDATE message SET content='[]' WHERE thread=1 AND seq=8")
    done = care.repair(tmp_path / "new.db", tmp_path / "again.db")
    assert done.lost_entries == 2
    found = entries(tmp_path / "again.db")
    assert (found[1, 8].kind, found[1, 9].kind, found[1, 10].kind) == ("lost", "lost", "completed")
    assert care.verify(tmp_path / "again.db") == []


@pytest.mark.parametrize("seq", [1, 2, 30, 60])
def test_missing_entry_row_loses_one_entry_when_its_hash_is_on_a_page(path: Path, tmp_path: Path, seq: int) -> None:
    """SQLite leaves a deleted row's bytes where they were, but for the first four."""
    was = entries(path)
    sql(path, f"DELETE FROM entry WHERE thread=1 AND seq={seq}", f"DELETE FROM message WHERE thread=1 AND seq={seq}")
    done = care.repair(path, tmp_path / "new.db")
    now = entries(tmp_path / "new.db")
    assert [record.seq for record in now.values() if record.kind == "lost"] == [seq]
    assert now[1, seq].hash == was[1, seq].hash
    assert done.lost_entries == 1


def test_a_stored_chain_value_that_is_damaged_costs_nothing(path: Path, tmp_path: Path) -> None:
    was = entries(path)
    sql(path, "UPDATE entry SET hash=zeroblob(32) WHERE thread=1 AND seq IN (9, 20)")
    done = care.repair(path, tmp_path / "new.db")
    assert (done.lost_entries, done.damages) == (0, ())
    assert entries(tmp_path / "new.db") == was


def test_unproven_hash_loses_the_next_entry_and_keeps_the_rest(path: Path, tmp_path: Path) -> None:
    sql(path, "UPDATE entry SET hash=zeroblob(32), at_ms=1 WHERE thread=1 AND seq=20")
    done = care.repair(path, tmp_path / "new.db")
    lost = [record for record in entries(tmp_path / "new.db").values() if record.kind == "lost"]
    assert [(record.seq, record.hash == UNKNOWN) for record in lost] == [(20, True), (21, False)]
    assert [damage.what for damage in done.damages] == ["is damaged", "cannot be proven"]
    assert care.verify(tmp_path / "new.db") == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE thread SET at_ms=at_ms+1", "UPDATE thread SET head_seq=head_seq+1", "UPDATE thread SET hash=x'00'",
        "UPDATE thread SET fork_seq=fork_seq+1", "UPDATE thread SET root_hash=zeroblob(32)", "DELETE FROM thread",
        "UPDATE thread SET head_hash=zeroblob(32)", "UPDATE thread SET parent=NULL", "UPDATE thread SET id=id+50",
    ],
)  # fmt: skip
def test_repair_joins_threads_with_damaged_rows_by_their_entries(path: Path, tmp_path: Path, statement: str) -> None:
    was = entries(path)
    sql(path, statement)
    done = care.repair(path, tmp_path / "new.db")
    assert entries(tmp_path / "new.db") == was
    assert done.lost_entries == 0
    assert care.verify(tmp_path / "new.db") == []


def test_the_newest_entry_that_is_damaged_is_known_to_be_lost(path: Path, tmp_path: Path) -> None:
    was = entries(path)
    newest = max(seq for thread, seq in was if thread == 2)
    sql(path, f"UPDATE entry SET body='[]' WHERE thread=2 AND seq={newest}")
    care.repair(path, tmp_path / "new.db")
    lost = entries(tmp_path / "new.db")[2, newest]
    assert (lost.kind, lost.hash) == ("lost", was[2, newest].hash)


def test_entries_at_the_end_that_are_gone_are_known_to_be_lost(path: Path, tmp_path: Path) -> None:
    newest = max(seq for thread, seq in entries(path) if thread == 2)
    data = path.read_bytes()
    sql(
        path,
        f"DELETE FROM message WHERE thread=2 AND seq>{newest - 3}",
        f"DELETE FROM entry WHERE thread=2 AND seq>{newest - 3}",
    )
    assert path.read_bytes() != data
    care.repair(path, tmp_path / "new.db")
    found = entries(tmp_path / "new.db")
    assert [found[2, seq].kind for seq in range(newest - 2, newest + 1)] == ["lost"] * 3


def test_impossible_entry_number_adds_no_lost_entries(path: Path, tmp_path: Path) -> None:
    sql(path, f"UPDATE entry SET seq={1 << 40} WHERE thread=1 AND seq=9")
    done = care.repair(path, tmp_path / "new.db")
    assert done.lost_entries == 1
    assert any("stands behind the newest entry" in damage.what for damage in done.damages)


def test_moved_message_damages_only_its_own_entry(path: Path, tmp_path: Path) -> None:
    sql(path, "UPDATE message SET seq=11, ord=1 WHERE thread=1 AND seq=9")
    care.repair(path, tmp_path / "new.db")
    found = entries(tmp_path / "new.db")
    assert [place for place, record in found.items() if record.kind == "lost"] == [(1, 9)]


def test_an_entry_whose_image_is_lost_is_lost_and_the_image_is_named(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    ledger.commit("main", Commit((said(user("a")), said(picture()), said(user("b")))))
    ledger.close()
    sql(tmp_path / "l.db", "UPDATE blob SET data=x'00' WHERE length(data)>100")
    done = care.repair(tmp_path / "l.db", tmp_path / "new.db")
    kept = SqliteLedger(str(tmp_path / "new.db"))
    assert [entry.kind for entry in replay(kept, "main")] == ["messages", "lost", "messages"]
    assert texts(kept, "main") == ["a", "b"]
    kept.close()
    assert [damage.record for damage in done.damages] == ["blob", "entry"]
    assert "which is lost" in done.damages[1].what


@pytest.mark.parametrize("change", ["UPDATE session_move SET facts='{}'", "DELETE FROM session_move"])
def test_sessions_whose_moves_are_damaged_still_point_where_they_did(path: Path, tmp_path: Path, change: str) -> None:
    before = SqliteLedger(str(path))
    was = {info.label: (info.thread, info.status) for info in before.sessions(every=True)}
    before.close()
    sql(path, change)
    done = care.repair(path, tmp_path / "new.db")
    ledger = SqliteLedger(str(tmp_path / "new.db"))
    now = {info.label: (info.thread, info.status) for info in ledger.sessions(every=True)}
    assert {label: where for label, where in now.items() if not label.startswith("recovered-")} == was
    ledger.close()
    assert {damage.record for damage in done.damages} >= {"move"}


def test_repair_drops_a_damaged_move_and_rechains_the_rest(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("a"))
    thread = ledger.thread_of("main")
    for title in ("one", "two", "three"):
        ledger.update_refs([NewRefUpdate("main", thread, title, SessionMetadata(title=title))])
    ledger.close()
    sql(tmp_path / "l.db", 'UPDATE session_move SET facts=\'{"title":"forged"}\' WHERE number=2')
    done = care.repair(tmp_path / "l.db", tmp_path / "new.db")
    kept = SqliteLedger(str(tmp_path / "new.db"))
    assert [(move.number, move.metadata.title) for move in kept.ref_updates("main")] == [
        (1, ""),
        (2, "two"),
        (3, "three"),
    ]
    kept.close()
    assert [damage.place for damage in done.damages] == ["move 2 of session 'main'"]


def test_a_thread_of_which_no_session_is_left_gets_one(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    for label in ("main", "other"):
        append(ledger, label, user(label))
    ledger.close()
    gone = "tenant='local' AND label='other'"
    sql(tmp_path / "l.db", f"UPDATE session_move SET reason='x' WHERE {gone}", f"DELETE FROM session WHERE {gone}")
    care.repair(tmp_path / "l.db", tmp_path / "new.db")
    kept = SqliteLedger(str(tmp_path / "new.db"))
    assert texts(kept, "recovered-2") == ["other"]
    assert sorted(info.label for info in kept.sessions()) == ["main", "recovered-2"]
    kept.close()


@pytest.mark.parametrize(
    ("statement", "record"),
    [
        ("UPDATE alias SET reason='x' WHERE name='nick'", "alias"), ("UPDATE decision SET body='{}' WHERE number=2", "decision"),
        ("UPDATE assembly SET manifest='{}' WHERE seq=1", "assembly"), ("UPDATE calibration SET samples=99", "calibration"),
        ("UPDATE idempotency SET payload=x'00' WHERE seq=1", "entry"),
    ],
)  # fmt: skip
def test_repair_drops_and_lists_other_damage(path: Path, tmp_path: Path, statement: str, record: str) -> None:
    was = entries(path)
    sql(path, statement)
    done = care.repair(path, tmp_path / "new.db")
    assert {damage.record for damage in done.damages} == {record}
    assert done.lost_entries == 0
    assert [one.hash for one in entries(tmp_path / "new.db").values()] == [one.hash for one in was.values()]
    assert care.verify(tmp_path / "new.db") == []


def test_repair_does_not_restore_erased_rows(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, "main", user("kept"))
    append(ledger, "gone", user("the secret text of a session"))
    ledger.erase([2], ["gone"])
    ledger.close()
    care.repair(tmp_path / "l.db", tmp_path / "new.db")
    assert b"secret text" not in (tmp_path / "new.db").read_bytes()
    assert [record for record in dumped(tmp_path / "new.db") if isinstance(record, ThreadRecord)][1].erased


def test_all_tenants_are_repaired(tmp_path: Path) -> None:
    for tenant in ("local", "other\x00"):
        ledger = SqliteLedger(str(tmp_path / "l.db"), tenant=tenant)
        fill(ledger, 2)
        ledger.close()
    care.repair(tmp_path / "l.db", tmp_path / "new.db")
    for tenant in ("local", "other\x00"):
        assert dumped(tmp_path / "new.db", tenant) == dumped(tmp_path / "l.db", tenant)
    assert care.verify(tmp_path / "new.db") == []
    sql(tmp_path / "new.db", "UPDATE entry SET at_ms=1 WHERE thread=1 AND seq=3 AND tenant='local'")
    (damage,) = [damage for damage in care.verify(tmp_path / "new.db") if damage.record == "entry"]
    assert damage.place == "entry 3 of thread 1 of tenant 'local'"
    done = care.repair(tmp_path / "new.db", tmp_path / "again.db")
    assert [damage.place for damage in done.damages] == ["entry 3 of thread 1 of tenant 'local'"]
    assert {(one.tenant, one.lost_entries) for one in done.sessions if one.session == "side"} == {
        ("local", 1), ("other\x00", 0)
    }  # fmt: skip


def test_repair_saves_rows_of_the_log_and_leaves_the_source_unchanged(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 30)
    was = list(ledger.dump())
    folder = tmp_path / "crashed"
    folder.mkdir()
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path / 'l.db'}{end}", folder / f"l.db{end}")
    ledger.close()
    assert (folder / "l.db").stat().st_size < (folder / "l.db-wal").stat().st_size
    log = bytearray((folder / "l.db-wal").read_bytes())
    log[len(log) // 2] ^= 4
    (folder / "l.db-wal").write_bytes(log)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    done = care.repair(folder / "l.db", tmp_path / "new.db")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert done.lost_entries <= 1
    saved = [record for record in dumped(tmp_path / "new.db") if isinstance(record, EntryRecord)]
    whole = [record for record in was if isinstance(record, EntryRecord)]
    assert [record.hash for record in saved] == [record.hash for record in whole]
    assert sum(one == two for one, two in zip(saved, whole, strict=True)) >= 29


def test_an_old_ledger_is_repaired_into_one_of_this_version(tmp_path: Path) -> None:
    path = old_ledger(tmp_path / "l.db", 30)
    sql(path, "UPDATE message SET content=replace(content, 'question', 'answer') WHERE seq=5")
    with pytest.raises(LedgerDamaged, match="entry 5 of thread 1"):
        care.migrate(path, dry_run=True)
    done = care.repair(path, tmp_path / "new.db")
    assert (done.entries, done.lost_entries) == (30, 1)
    assert care.verify(tmp_path / "new.db") == []
    ledger = SqliteLedger(str(tmp_path / "new.db"))
    assert [info.title for info in ledger.sessions()] == ["a title", "a title"]
    assert len(ledger.assemblies(1)) == 1
    assert ledger.last_cut(1, "view") is not None
    ledger.close()


def hit(data: bytearray, dice: random.Random) -> None:
    """One bit flipped somewhere."""
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def zeroed(data: bytearray, dice: random.Random) -> None:
    """One page behind the first lost."""
    page = dice.randrange(1, len(data) // PAGE)
    data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def headers(data: bytearray, dice: random.Random) -> None:
    """A bit flipped in the head of each tenth page."""
    for page in range(dice.randrange(10), len(data) // PAGE, 10):
        data[page * PAGE + dice.randrange(12)] ^= 1 << dice.randrange(8)


@pytest.mark.parametrize(("damage", "rounds", "most"), [(hit, 40, 1), (zeroed, 15, 60), (headers, 10, 4)])
def test_repair_of_random_damage_saves_nothing_false(
    whole: Path, tmp_path: Path, record_property: Any, damage: Callable[..., None], rounds: int, most: int
) -> None:
    was, data = entries(whole), whole.read_bytes()
    figures: Counter[str] = Counter()
    for number in range(rounds):
        changed = bytearray(data)
        damage(changed, random.Random(number))
        bad, new = tmp_path / "bad.db", tmp_path / f"new{number}.db"
        bad.write_bytes(changed)
        care.repair(bad, new)
        now = entries(new)
        for place, record in now.items():
            assert record.kind == "lost" or (record.messages, record.body, record.hash) == (
                was[place].messages, was[place].body, was[place].hash
            ), place  # fmt: skip
        lost = sum(place not in now or now[place].kind == "lost" for place in was)
        assert lost <= most, f"round {number}"
        figures.update({f"entries after {damage.__name__}": len(was), f"entries lost after {damage.__name__}": lost})
        if not number % 10:
            assert care.verify(new) == []
    record_property("figures", dict(figures))


def test_a_file_that_holds_nothing_of_a_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Dear diary " * 2_000)
    (tmp_path / "empty").touch()
    sql(tmp_path / "other.db", "CREATE TABLE notes (a TEXT, b INTEGER)", "INSERT INTO notes VALUES ('mine', 1)")
    (tmp_path / "junk").write_bytes(random.Random(1).randbytes(100_000))
    for name in ("text", "empty", "other.db", "junk"):
        with pytest.raises(
            LedgerUnusable, match="contains no provable row of a Nexus ledger", check=has_code("not_a_ledger")
        ):
            care.repair(tmp_path / name, tmp_path / "new.db")
    with pytest.raises(UnreadableFile, match="is not there"):
        care.repair(tmp_path / "absent", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_repair_overwrites_only_when_asked_and_never_its_source(path: Path, tmp_path: Path) -> None:
    (tmp_path / "new.db").write_text("mine")
    with pytest.raises(UnreadableFile, match="exists and was not touched"):
        care.repair(path, tmp_path / "new.db")
    with pytest.raises(UnreadableFile, match="of the ledger itself"):
        care.repair(path, path, force=True)
    assert (tmp_path / "new.db").read_text() == "mine"
    care.repair(path, tmp_path / "new.db", force=True)
    ledger = SqliteLedger(str(path))
    with pytest.raises(LedgerBusy, match="open in this process"):
        care.repair(path, tmp_path / "other.db")
    ledger.close()


def test_rows_are_read_from_pages_as_sqlite_reads_them(tmp_path: Path) -> None:
    """Every kind of value and every size of a row, on small pages, through the log and without it."""
    path = tmp_path / "x.db"
    db: Any = apsw.Connection(str(path))
    db.execute("PRAGMA page_size=512").fetchall()
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    db.execute("CREATE TABLE t (a, b, c)")
    db.execute("CREATE TABLE w (k INTEGER, b, PRIMARY KEY (k)) WITHOUT ROWID")
    dice = random.Random(3)
    values = [0, 1, -1, 127, -128, 1 << 14, -(1 << 22), 1 << 30, 1 << 40, -(1 << 62), None, 1.5, "", "é会", b"", b"\0"]
    wanted: set[tuple[Any, ...]] = set()
    for number in range(400):
        row = (dice.choice(values), "x" * dice.randrange(0, 3_000, 7), dice.randbytes(dice.randrange(50)))
        db.execute("INSERT INTO t VALUES (?,?,?)", row)
        wanted.add(row)
        row = (number, dice.randbytes(dice.randrange(900)))
        db.execute("INSERT INTO w VALUES (?,?)", row)
        wanted.add(row)
        if number == 200:
            db.execute("PRAGMA wal_checkpoint").fetchall()
    pages = Pages(path)
    found = {tuple(row) for image in range(1, pages.images + 1) for _, _, row, _ in pages.rows(image)}
    assert wanted <= found
    pages.close()
    db.close()
    pages = Pages(path)
    assert wanted <= {tuple(row) for image in range(1, pages.images + 1) for _, _, row, _ in pages.rows(image)}
    pages.close()
