"""Copies of a ledger are whole or absent, what is brought back is what was saved, and all that can be checked is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from ledger.files import PAGE, broken, dumped, names, old_ledger, sql
from ledger.stores import append, behind_its_back, in_a_fork, texts
from nexus.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerUnusable, UnreadableFile
from nexus.ledger import maintenance as care
from nexus.ledger.maintenance.doctor import examine
from nexus.ledger.maintenance.files import temporary
from nexus.ledger.maintenance.verification import reading_mode
from nexus.ledger.records import EntryRecord, ThreadRecord
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.schema import VERSION
from nexus.types.message import user
from support.errors import has_code

# ----------------------------------------------------------------------------------------------------------------- verify


def test_verify_of_a_sound_ledger_changes_no_file(path: Path) -> None:
    before = path.read_bytes()
    assert care.verify(path) == []
    assert names(path.parent) == ["l.db"]
    assert path.read_bytes() == before


DERIVED = [
    ("UPDATE thread SET messages=messages+1 WHERE id=1", "row of thread 1 (messages, hash)"),
    ("UPDATE thread SET hash=x'00' WHERE id=2", "row of thread 2 (hash)"),
    ("UPDATE thread SET at_ms=7 WHERE id=1", "row of thread 1 (hash)"),
    ("UPDATE session SET thread=1 WHERE label='main'", "pointer of session 'main'"),
    ("UPDATE session SET status='deleted' WHERE label='side'", "pointer of session 'side'"),
    ("DELETE FROM session WHERE label='nick'", "pointer of session 'nick'"),
    ("UPDATE view_head SET decisions=9 WHERE thread=1", "what is newest of view view on thread 1"),
    ("DELETE FROM view_head WHERE thread=1", "what is newest of view view on thread 1"),
    ("DELETE FROM tool_call WHERE thread=1 AND seq=2", "calls and images of entry 2 of thread 1"),
    ("UPDATE tool_call SET seq=4 WHERE thread=1 AND seq=2", "call"),
    ("DELETE FROM blob_use", "calls and images of entry"),
    ("INSERT INTO blob_use SELECT tenant, sha256, 1, 1 FROM blob LIMIT 1", "use of image"),
    ("UPDATE calibration_head SET number=1", "newest calibration of openai/gpt-5"),
    ("DELETE FROM search WHERE rowid=(SELECT id_row FROM message WHERE thread=1 AND seq=4)", "entry 4 of thread 1"),
    ("INSERT INTO tool_call VALUES ('local',1,'c',999,0,0,'look',0,0)", "row of tool_call"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "place"), DERIVED)
def test_a_derived_row_that_does_not_agree_is_reported(path: Path, statement: str, place: str) -> None:
    sql(path, statement)
    damages = care.verify(path)
    assert any(place in damage.place for damage in damages), damages


def test_damage_is_reported_and_the_rest_is_checked(path: Path) -> None:
    broken(path)
    sql(path, "UPDATE entry SET at_ms=1 WHERE thread=2 AND seq=9", "DELETE FROM decision WHERE number=1")
    places = [damage.place for damage in care.verify(path)]
    assert places[:2] == ["entry 9 of thread 1", "decision 2 of view view on thread 1"]
    assert "entry 9 of thread 2" in places
    assert all(damage.what and damage.loss for damage in care.verify(path))


def test_a_broken_page_is_reported_and_ends_no_check(path: Path) -> None:
    with behind_its_back(path) as db:
        page = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='message'").fetchone()[0]
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = b"\xff" * PAGE
    path.write_bytes(data)
    damages = care.verify(path)
    assert any(damage.record == "file" for damage in damages)


def test_verify_refuses_what_is_no_ledger_and_what_is_newer(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="is not there"):
        care.verify(tmp_path / "absent")
    sql(path, f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(LedgerUnusable, check=has_code("ledger_too_new")):
        care.verify(path)
    (tmp_path / "text").write_text("Dear diary " * 100)
    with pytest.raises(LedgerUnusable, check=has_code("not_a_ledger")):
        care.verify(tmp_path / "text")


def swapped(path: Path, one: str, two: str) -> None:
    """The first pages of two tables change places."""
    with behind_its_back(path) as db:
        sql = "SELECT rootpage FROM sqlite_schema WHERE name=?"
        first, second = (db.execute(sql, (name,)).fetchone()[0] - 1 for name in (one, two))
    data = bytearray(path.read_bytes())
    a, b = (slice(page * PAGE, (page + 1) * PAGE) for page in (first, second))
    data[a], data[b] = data[b], data[a]
    path.write_bytes(data)


@pytest.mark.parametrize(("one", "two"), [("blob", "calibration"), ("session", "alias"), ("decision", "view_head")])
def test_pages_that_stand_in_one_anothers_place_are_reported(path: Path, one: str, two: str) -> None:
    swapped(path, one, two)
    assert care.verify(path) != []


def test_an_empty_file_is_no_ledger_and_stays_empty(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    before = path.read_bytes()
    for call in (
        lambda: care.verify(tmp_path / "empty"), lambda: care.migrate(tmp_path / "empty"),
        lambda: care.stats(tmp_path / "empty"), lambda: care.backup(tmp_path / "empty", tmp_path / "b.db"),
        lambda: care.restore(tmp_path / "empty", path), lambda: care.repair(tmp_path / "empty", tmp_path / "b.db"),
    ):  # fmt: skip
        with pytest.raises(LedgerUnusable, check=has_code("not_a_ledger")):
            call()
    assert (tmp_path / "empty").read_bytes() == b""
    assert path.read_bytes() == before
    assert names(tmp_path) == ["empty", "l.db"]


def test_import_rejects_a_path_that_is_not_a_file(path: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path, tmp_path / "pipe"):
        for call in (care.verify, care.migrate, care.stats):
            with pytest.raises(UnreadableFile, match="is not a regular file"):
                call(source)
        for call in (care.backup, care.restore, care.repair):
            with pytest.raises(UnreadableFile, match="is not a regular file"):
                call(source, tmp_path / "new.db")
            with pytest.raises(UnreadableFile, match="is not a regular file"):
                call(path, source, force=True)
    assert names(tmp_path) == ["l.db", "pipe"]


def test_a_ledger_of_a_newer_version_is_refused_and_not_touched(path: Path, tmp_path: Path) -> None:
    newer = Path(shutil.copy(path, tmp_path / "newer.db"))
    sql(newer, f"PRAGMA user_version={VERSION + 1}")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for call in (
        lambda: care.backup(newer, tmp_path / "b.db"), lambda: care.restore(newer, path),
        lambda: care.repair(newer, tmp_path / "b.db"), lambda: care.migrate(newer), lambda: care.stats(newer),
        lambda: care.restore(path, newer),
    ):  # fmt: skip
        with pytest.raises(LedgerUnusable, match="upgrade Nexus", check=has_code("ledger_too_new")):
            call()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# ----------------------------------------------------------------------------------------------------------------- backup


def test_a_backup_is_one_file_with_the_same_content(path: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = care.backup(path, tmp_path / "b.db", progress=lambda *now: told.append(now))
    assert dumped(tmp_path / "b.db") == dumped(path)
    assert (done.path, done.bytes, done.version) == (
        str(tmp_path / "b.db"), (tmp_path / "b.db").stat().st_size, VERSION
    )  # fmt: skip
    assert told[-1][0] == told[-1][1] > 0
    assert names(tmp_path) == ["b.db", "l.db"]


def test_backup_contains_acknowledged_appends_while_others_write(tmp_path: Path) -> None:
    ledger, stop = SqliteLedger(str(tmp_path / "l.db")), threading.Event()
    acknowledged: list[int] = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            append(ledger, "main", user(f"text {number} " + "x" * 3_000))
            acknowledged.append(number)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(5):
            while len(acknowledged) < 10 * (number + 1):
                pass
            before = len(acknowledged)
            care.backup(tmp_path / "l.db", tmp_path / f"b{number}.db")
            after = len(acknowledged)
            copy = SqliteLedger(str(tmp_path / f"b{number}.db"))
            assert before <= len(texts(copy, "main")) <= after + 1
            copy.close()
    finally:
        stop.set()
        thread.join()
    ledger.close()
    assert care.verify(tmp_path / "l.db") == []


def test_a_backup_of_a_damaged_ledger_is_refused_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerDamaged, match="entry 9 of thread 1"):
        care.backup(broken(path), tmp_path / "b.db")
    assert names(tmp_path) == ["l.db"]


def test_a_backup_overwrites_only_when_asked_and_never_its_source(path: Path, tmp_path: Path) -> None:
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(UnreadableFile, match=r"exists and was not touched.*--force"):
        care.backup(path, tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"
    care.backup(path, tmp_path / "b.db", force=True)
    with pytest.raises(UnreadableFile, match="of the ledger itself"):
        care.backup(path, path.parent / ".." / path.parent.name / "l.db", force=True)
    with pytest.raises(UnreadableFile, match="is not there"):
        care.backup(tmp_path / "absent", tmp_path / "c.db")


def test_a_backup_that_finds_no_room_leaves_nothing(path: Path) -> None:
    code = (
        "import resource, signal, sys\nfrom nexus.errors import LedgerError\nfrom nexus.ledger import maintenance\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "try:\n    maintenance.backup(sys.argv[1], sys.argv[2])\n"
        "except LedgerError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path), str(path.with_name("b.db"))], capture_output=True, text=True, check=True
    )
    assert "cannot be read or written" in ran.stdout
    assert names(path.parent) == ["l.db"]


# ---------------------------------------------------------------------------------------------------------------- restore


def test_restore_keeps_the_previous_ledger(path: Path, tmp_path: Path) -> None:
    care.backup(path, tmp_path / "b.db")
    ledger = SqliteLedger(str(path))
    append(ledger, "later", user("later"))
    ledger.close()
    was = dumped(path)
    path.chmod(0o640)
    done = care.restore(tmp_path / "b.db", path)
    assert path.stat().st_mode & 0o777 == 0o640
    assert dumped(path) == dumped(tmp_path / "b.db")
    assert dumped(Path(done.previous_path)) == was
    assert Path(done.previous_path).name.startswith("l.db.before-restore-20")
    assert names(tmp_path) == ["b.db", "l.db", Path(done.previous_path).name]


def test_a_backup_is_restored_where_nothing_was(path: Path, tmp_path: Path) -> None:
    assert care.restore(path, tmp_path / "new.db").previous_path == ""
    assert dumped(tmp_path / "new.db") == dumped(path)


def test_a_damaged_backup_changes_nothing(path: Path, tmp_path: Path) -> None:
    broken(Path(shutil.copy(path, tmp_path / "b.db")))
    (tmp_path / "text.db").write_text("no ledger " * 100)
    before = path.read_bytes()
    for name, error in (("b.db", LedgerDamaged), ("text.db", LedgerUnusable), ("absent.db", UnreadableFile)):
        with pytest.raises(error):
            care.restore(tmp_path / name, path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["b.db", "l.db", "text.db"]


def test_a_ledger_that_is_open_is_not_replaced_unless_forced(path: Path, tmp_path: Path) -> None:
    care.backup(path, tmp_path / "b.db")
    ledger = SqliteLedger(str(path))
    append(ledger, "late", user("late"))
    with pytest.raises(LedgerBusy, match="--force"):
        care.restore(tmp_path / "b.db", path)
    assert texts(ledger, "late") == ["late"]
    done = care.restore(tmp_path / "b.db", path, force=True)
    with pytest.raises(LedgerError):
        ledger.thread_of("late")
    ledger.close()
    assert dumped(path) == dumped(tmp_path / "b.db")
    kept = SqliteLedger(done.previous_path)
    assert texts(kept, "late") == ["late"]
    kept.close()


def test_a_ledger_is_not_restored_from_itself(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(UnreadableFile, match="of the ledger itself"):
        care.restore(path, path, force=True)
    assert path.read_bytes() == before


def test_restore_folds_in_the_log_of_a_killed_process(path: Path, tmp_path: Path) -> None:
    care.backup(path, tmp_path / "b.db")
    ledger = SqliteLedger(str(path))
    append(ledger, "late", user("late"))
    crashed = tmp_path / "crashed.db"
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{crashed}{end}")
    ledger.close()
    done = care.restore(tmp_path / "b.db", crashed)
    assert not [name for name in names(tmp_path) if "-wal" in name or "-shm" in name]
    aside = SqliteLedger(done.previous_path)
    assert texts(aside, "late") == ["late"]
    aside.close()


def test_forced_restore_moves_a_ledger_too_damaged_to_close(path: Path, tmp_path: Path) -> None:
    care.backup(path, tmp_path / "b.db")
    path.write_bytes(b"\0" * 9_000)
    with pytest.raises(LedgerUnusable, check=has_code("not_a_ledger")):
        care.restore(tmp_path / "b.db", path)
    done = care.restore(tmp_path / "b.db", path, force=True)
    assert Path(done.previous_path).read_bytes() == b"\0" * 9_000
    assert dumped(path) == dumped(tmp_path / "b.db")


# ---------------------------------------------------------------------------------------------------------------- migrate


def test_an_old_ledger_is_brought_to_this_version_after_a_backup(tmp_path: Path) -> None:
    path = old_ledger(tmp_path / "l.db")
    done = care.migrate(path)
    assert (done.from_version, done.to_version, done.backup) == (1, VERSION, str(tmp_path / "l.db.v1.bak"))
    assert care.verify(path) == []
    ledger = SqliteLedger(str(path))
    assert texts(ledger, "main") == [text for n in range(1, 6) for text in (f"question {n}", f"answer {n}")]
    assert [info.title for info in ledger.sessions()] == ["a title", "a title"]
    ledger.close()
    with behind_its_back(tmp_path / "l.db.v1.bak") as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == 1
    assert care.migrate(path) == care.MigrationReport(str(path), VERSION, VERSION)
    assert names(tmp_path) == ["l.db", "l.db.v1.bak"]


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    path = old_ledger(tmp_path / "l.db")
    before = path.read_bytes()
    assert care.migrate(path, dry_run=True) == care.MigrationReport(str(path), 1, VERSION)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["l.db"]


def test_backup_keeps_the_version_and_overwrites_no_backup(tmp_path: Path) -> None:
    path = old_ledger(tmp_path / "l.db")
    assert care.backup(path, tmp_path / "l.db.v1.bak").version == 1
    assert care.migrate(path).backup == str(tmp_path / "l.db.v1.bak.2")
    assert care.restore(tmp_path / "l.db.v1.bak", path).version == 1
    assert care.migrate(path).from_version == 1
    with pytest.raises(UnreadableFile):
        care.migrate(tmp_path / "absent")


# ------------------------------------------------------------------------------------------------------------------ stats


def test_figures_are_those_of_the_rows(path: Path) -> None:
    found = care.stats(path)
    records = dumped(path)
    assert found.entries == sum(isinstance(record, EntryRecord) for record in records)
    assert found.threads + found.erased_threads == sum(isinstance(record, ThreadRecord) for record in records)
    assert found.messages == sum(len(record.messages) for record in records if isinstance(record, EntryRecord))
    assert (found.erased_threads, found.compactions, found.pins, found.cuts, found.manifests) == (1, 1, 1, 3, 12)
    assert found.sessions == {"active": 3, "archived": 1}
    assert (found.tool_calls, found.tool_results, found.images) == (15, 16, 2)
    assert (found.events, found.open_events) == (4, 2)
    (usage,) = found.usage
    assert (usage.provider, usage.model, usage.calls) == ("openai", "gpt-5", 15)
    assert usage.cached_share == found.cached_share == usage.cache_read_tokens / usage.input_tokens
    assert (found.file_bytes, found.log_bytes) == (path.stat().st_size, 0)
    assert found.pages * found.page_bytes == found.file_bytes


def test_figures_of_an_old_ledger_ask_for_migration(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="nexus ledger migrate"):
        care.stats(old_ledger(tmp_path / "l.db"))


# --------------------------------------------------------------------------------------------------------------- leftovers


def leave_copies(folder: Path) -> None:
    """The files of a backup that was killed."""
    for end in ("", "-wal", "-shm", "-journal"):
        (folder / f".nexus-killed.part{end}").write_text("a conversation")


@pytest.mark.parametrize("job", ["backup", "restore", "repair", "migrate", "erase"])
def test_copies_of_killed_jobs_are_deleted_by_the_next_job(path: Path, tmp_path: Path, job: str) -> None:
    care.backup(path, tmp_path / "b.db")
    if job == "migrate":
        path = old_ledger(tmp_path / "old.db")
    leave_copies(tmp_path)
    finding = next(one for one in examine(path) if one.name == "copies")
    assert (finding.level, ".nexus-killed.part: 14 bytes" in finding.what) == ("warn", True)
    with temporary(tmp_path / "x") as half:  # a job that is under way
        leave_copies(tmp_path)
        if job == "erase":
            ledger = SqliteLedger(str(path))
            ledger.erase(None)
            ledger.close()
        else:
            {
                "backup": lambda: care.backup(path, tmp_path / "b.db", force=True),
                "restore": lambda: care.restore(tmp_path / "b.db", path),
                "repair": lambda: care.repair(path, tmp_path / "r.db"),
                "migrate": lambda: care.migrate(path, dry_run=True),
            }[job]()
        assert [name for name in names(tmp_path) if name.startswith(".nexus")] == [half.name]
        assert next(one for one in examine(path) if one.name == "copies").level == "ok"
    assert not half.exists()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("log", [False, True])
def test_ledger_in_a_read_only_folder_is_verified(path: Path, log: bool) -> None:
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("late"))
    with tempfile.TemporaryDirectory() as name:
        copy = Path(shutil.copy(path, Path(name) / "l.db"))
        if log:
            shutil.copy(f"{path}-wal", f"{copy}-wal")
        ledger.close()
        if not log:
            shutil.copy(path, copy)

        def check_both() -> None:
            if os.getuid() == 0:  # who may do everything
                os.setgid(65_534)
                os.setuid(65_534)
            assert reading_mode(copy) == ("copy" if log else "unlocked")
            assert care.verify(copy) == []
            assert care.stats(copy).entries > 0

        for file in Path(name).iterdir():
            file.chmod(0o644)
        before = names(Path(name))
        Path(name).chmod(0o555)
        assert in_a_fork(check_both) == "done"
        assert names(Path(name)) == before
        Path(name).chmod(0o777)
