"""Ledgers of older versions open, with all that was in them, and a migration that is stopped leaves the old one.

`version_1.sql` and `version_1.json` were written by the first version: its file, and what it read back from it.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from ledger.files import as_version_4, as_version_8, dumped
from ledger.stores import append, behind_its_back, texts
from nexus.errors import LedgerDamaged
from nexus.ledger import maintenance as care
from nexus.ledger.history_operations import Ledger
from nexus.ledger.integrity import check
from nexus.ledger.records import EventRecord
from nexus.ledger.sessions import NewQueuedEvent
from nexus.ledger.sqlite import SqliteLedger, migrate
from nexus.ledger.sqlite.schema import APPLICATION_ID, VERSION
from nexus.testing.ledger_conformance.queue import old_event
from nexus.types.ledger_entries import Commit
from nexus.types.message import Image, user

HERE = Path(__file__).parent
READ_BACK: dict[str, Any] = json.loads((HERE / "version_1.json").read_text("utf-8"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file as the first version left it."""
    path = tmp_path / "l.db"
    with behind_its_back(path) as db:
        db.execute((HERE / "version_1.sql").read_text("utf-8")).fetchall()
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute("PRAGMA user_version=1")
        db.execute("PRAGMA journal_mode=WAL")
    return path


def test_migrated_ledger_reads_like_version_1(old: Path) -> None:
    ledger = SqliteLedger(str(old))
    assert {one.label for one in ledger.sessions()} == set(READ_BACK)
    for label, wanted in READ_BACK.items():
        thread = ledger.thread_of(label)
        assert thread == wanted["thread"]
        found = [
            [e.seq, e.kind, e.turn, e.at_ms, e.hash.hex(), [row.message.text() for row in e.rows]]
            for e in ledger.entries(thread)
        ]
        assert found == wanted["entries"]
    assert Ledger(ledger).sessions.metadata("titled").title == "A title"
    assert list(check(ledger.dump())) == []
    with behind_its_back(old) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION
        assert [row[0] for row in db.execute("SELECT version FROM migration ORDER BY 1")] == [*range(1, VERSION + 1)]
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_forks_of_version_8_without_entries_keep_their_place_in_the_list(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    now = [0]
    with closing(SqliteLedger(str(path), clock_ms=lambda: now[0])) as store:
        for number, name in enumerate("abcd"):
            now[0] = number + 1
            append(store, name, user(name))
        store.fork("of b", "b", 1)
        store.fork("of the fork", "of b", 1)
        listed = store.sessions()
    as_version_8(path)
    assert care.verify(path) == []
    with closing(SqliteLedger(str(path))) as store:
        assert store.sessions() == listed
        assert [page for at in range(6) for page in store.sessions(limit=1, offset=at)] == listed
        assert [info.label for info in listed] == ["d", "c", "b", "of b", "of the fork", "a"]
        now[0] = 9
        append(store, "of b", user("on"))
        assert [info.label for info in store.sessions(limit=2)] == ["of b", "d"]
    assert care.verify(path) == []


def test_migration_computes_the_search_index_again(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with closing(SqliteLedger(str(path))) as store:
        append(store, "main", user("getUserName"))
    with behind_its_back(as_version_4(path)) as db:
        db.execute("INSERT INTO search(search) VALUES ('delete-all')")
        db.execute("INSERT INTO search(rowid, text) SELECT id_row, 'getusername' FROM message")
    with closing(SqliteLedger(str(path))) as store:
        assert [hit.text for hit in Ledger(store).search("user")] == ["getUserName"]
        assert list(check(store.dump())) == []


def test_migration_fills_the_rows_that_version_1_lacks(old: Path) -> None:
    store = SqliteLedger(str(old))
    ledger = Ledger(store)
    assert {hit.ref.seq for hit in ledger.search("索引")} == {1, 3, 5, 7, 9, 11}
    assert ledger.live("imported").checkpoint is not None
    ledger.undo("imported")
    assert ledger.live("imported").checkpoint is None
    ledger.redo("imported")
    assert [move.reason for move in ledger.sessions.ref_updates("main")] == ["created", "fork"]
    assert [turn.status for turn in ledger.turns("cleared")] == ["interrupted"]
    assert {call.status for call in ledger.calls("branch")} == {"completed"}
    cut = store.last_cut(1, "layered/openai/2^9/estimate")
    assert cut is not None and cut.number == 2
    assert store.last_assembly(1, "layered/openai/2^9/estimate") is not None
    (entry,) = ledger.entries("picture")
    assert any(isinstance(part, Image) and part.data == "QUJD" for part in entry.rows[0].message.parts)
    rows = {one.label: (one.turns, one.messages, one.open_turn) for one in ledger.sessions.list()}
    assert rows["branch"] == (3, 9, True)
    assert rows["imported"] == (2, 4, True)


def test_an_old_ledger_is_written_to_like_any_other(old: Path) -> None:
    ledger = Ledger(SqliteLedger(str(old)))
    head = ledger.store.head(ledger.thread("main"))[0]
    assert ledger.append("main", [], expected_head=head).head == head + 1
    assert ledger.store.known_keys("picture") == {"img": 1}


def test_a_migration_that_fails_leaves_the_old_version_whole(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr(migrate, "_fill_threads", fails)
    with pytest.raises(OSError, match="no more"):
        SqliteLedger(str(old))
    with behind_its_back(old) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == 1
        assert [row[0] for row in db.execute("SELECT version FROM migration")] == [1]
    monkeypatch.undo()
    assert len(SqliteLedger(str(old)).sessions()) == len(READ_BACK)


@pytest.fixture
def version_4(tmp_path: Path) -> Path:
    """A ledger of version 4 that was killed: a lease is held, an event runs, one is queued, one is done."""
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("one"), key="k")
    ledger.close()
    as_version_4(path)
    rows = [old_event("local", id_, number, "main") for number, id_ in enumerate(("waits", "runs", "over"), 1)]
    rows = [rows[0], replace(rows[1], state="running"), replace(rows[2], state="done", reason="x", turn=1)]
    with behind_its_back(path) as db:
        for row in rows:
            db.execute(f"INSERT INTO event VALUES ('local',{','.join('?' * 10)})", astuple(row))
        until_ms = time.time_ns() // 1_000_000 + 30_000  # Unix time, as leases had it
        db.execute("INSERT INTO lease VALUES ('local','main','process 1 on elsewhere (x)',?)", (until_ms,))
    return path


def test_queue_and_leases_of_version_4_go_on(version_4: Path) -> None:
    assert care.verify(version_4) == []
    assert care.migrate(version_4, dry_run=True) == care.MigrationReport(str(version_4), 4, VERSION)
    ledger = SqliteLedger(str(version_4))
    assert care.verify(version_4) == []
    assert [event.key for event in ledger.queued_events("main")] == ["waits", "runs"]
    new = [NewQueuedEvent(id_, "main", "again", principal="ann") for id_ in ("waits", "runs", "over", "new")]
    assert [known.added for known in ledger.accept_events(new)] == [False, False, False, True]
    (event,) = ledger.update_events(["runs"], "done", expected=["running"], turn=2)
    assert ledger.queued_event("runs") == event
    lease = ledger.take_lease("main", "me", 30_000)
    assert (lease.holder, lease.fence) == ("me", 1), "a lease of before the migration blocks nobody"
    assert ledger.commit("main", Commit((), fence=lease.fence)).fence == 1
    ledger.put_document("agent", "ann", {"x": 1})
    assert texts(ledger, "main") == ["one"]
    assert list(check(ledger.dump())) == []
    ledger.close()
    assert care.verify(version_4) == []


@pytest.mark.parametrize(
    "change", ["body='x'", "session='other'", "number=9", "id='other'", "accepted_ms=1", "state='no'"]
)
def test_changed_event_of_version_4_is_found(version_4: Path, change: str) -> None:
    with behind_its_back(version_4) as db:
        db.execute(f"UPDATE event SET {change} WHERE id='over'")
    SqliteLedger(str(version_4)).close()
    assert [damage.record for damage in care.verify(version_4)] == ["event"]


def test_repair_saves_the_queue_of_version_4(version_4: Path, tmp_path: Path) -> None:
    with behind_its_back(version_4) as db:
        db.execute("UPDATE event SET body='x' WHERE id='over'")
    saved = care.repair(version_4, tmp_path / "new.db")
    assert [damage.place for damage in saved.damages] == ["queued event 'over'"]
    assert care.verify(tmp_path / "new.db") == []
    records = [record for record in dumped(tmp_path / "new.db") if isinstance(record, EventRecord)]
    assert [(record.id, record.state) for record in records] == [("waits", "queued"), ("runs", "running")]


def test_migration_with_another_checksum_is_rejected(old: Path) -> None:
    with behind_its_back(old) as db:
        db.execute("UPDATE migration SET checksum='other'")
    with pytest.raises(LedgerDamaged, match="migration 1"):
        SqliteLedger(str(old))
    with behind_its_back(old) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == 1
