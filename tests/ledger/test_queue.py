"""The queue of accepted events in files: model and store agree, processes add each id once, and care keeps the events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ledger.everything import key
from ledger.files import as_version_4, dumped, names, sql
from ledger.stores import append, behind_its_back, in_a_fork
from nexus.errors import LedgerDamaged, LedgerError, LedgerUnusable
from nexus.ledger import jsonl
from nexus.ledger import maintenance as care
from nexus.ledger.history_operations import Ledger
from nexus.ledger.overlay import PathOverlay
from nexus.ledger.records import EventRecord
from nexus.ledger.sessions import EVENT_STATES, PENDING, EventState, NewQueuedEvent, QueuedEvent, event_key
from nexus.ledger.shared_sql import queue as sql_queue
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, checksum
from nexus.types.message import user
from support.errors import has_code

STATES = st.sampled_from(EVENT_STATES)
IDS = st.sampled_from(["e1", "e2", "e3", "e4", "nul\x00", "half\ud800"])
SESSIONS = st.sampled_from(["a", "b", "c"])
WHO = st.sampled_from(["", "ann", "half\ud800"])

Known: TypeAlias = tuple[str, str, str]
"""Session of the model, id and principal of an event."""
KNOWN = st.tuples(SESSIONS, IDS, WHO)


def accept(ledger: SqliteLedger, session: str, *ids: str) -> None:
    ledger.accept_events([NewQueuedEvent(id_, session, f'{{"text":"the event {id_}"}}') for id_ in ids])


def rows(ledger: SqliteLedger) -> list[QueuedEvent]:
    return ledger.queued_events(states=EVENT_STATES)


class TwoHandles(RuleBasedStateMachine):
    """Calls on two stores of one file, and on a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.now_ms = 1_000
        self.stores = [self.opened(), self.opened()]
        append(self.stores[0], "a", user("one"))
        self.label = "a"
        self.model: dict[Known, QueuedEvent] = {}
        self.labels = ["a"]
        self.newest = 0

    def opened(self) -> SqliteLedger:
        return SqliteLedger(str(self.folder / "l.db"), clock_ms=lambda: self.now_ms)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def current(self, session: str) -> str:
        return self.label if session == "a" else session

    @rule(which=st.integers(0, 1), events=st.lists(KNOWN, max_size=4), body=st.text(max_size=5), name=st.integers(0, 2))
    def accepts(self, which: int, events: list[Known], body: str, name: int) -> None:
        self.now_ms += 1
        any_name = self.labels[name % len(self.labels)]  # a session is known by all the names that it ever had
        new = [NewQueuedEvent(id_, any_name if of == "a" else of, body, principal=who) for of, id_, who in events]
        for known, accepted in zip(events, self.stores[which].accept_events(new), strict=True):
            assert accepted.added == (known not in self.model)
            if accepted.added:
                number = max((event.number for event in self.model.values()), default=0) + 1
                session, id_, who = known
                place = (event_key(id_, self.current(session), who), session, number)
                self.model[known] = QueuedEvent(*place, "queued", body, "", 0, self.now_ms, self.now_ms)
            assert accepted.event == self.shown(known)

    @rule(
        which=st.integers(0, 1),
        events=st.lists(KNOWN, max_size=4),
        state=STATES,
        expected=st.sets(STATES),
        turn=st.integers(0, 3),
    )
    def updates(self, which: int, events: list[Known], state: EventState, expected: set[EventState], turn: int) -> None:
        self.now_ms += 1
        keys = [self.model[known].key if known in self.model else "unknown" for known in events]
        changed = self.stores[which].update_events(keys, state, expected=expected, turn=turn, reason=state)
        wanted = [known for known in self.model if known in events and self.model[known].state in expected]
        for known in wanted:
            old = self.model[known]
            place = (old.key, old.session, old.number, state, old.body)
            self.model[known] = QueuedEvent(*place, state, turn, old.accepted_ms, self.now_ms)
        assert changed == sorted(map(self.shown, wanted), key=lambda event: event.number)

    @rule(which=st.integers(0, 1), age_ms=st.integers(0, 5))
    def deletes_finished(self, which: int, age_ms: int) -> None:
        before_ms = self.now_ms - age_ms
        old = [k for k, event in self.model.items() if event.state not in PENDING and event.changed_ms < before_ms]
        assert self.stores[which].delete_finished_events(age_ms) == len(old)
        for known in old:
            del self.model[known]

    @rule(which=st.integers(0, 1), label=st.sampled_from(["a", "n1", "n2"]))
    def renames(self, which: int, label: str) -> None:
        if label != self.label:
            Ledger(self.stores[which]).sessions.rename(self.label, label)
            self.label = label
            self.labels = list(dict.fromkeys([*self.labels, label]))

    @rule(which=st.integers(0, 1))
    def reopens_without_closing(self, which: int) -> None:
        self.stores[which] = self.opened()

    @rule(which=st.integers(0, 1))
    def erases(self, which: int) -> None:
        self.stores[which].erase([], ["b"])
        self.model = {known: event for known, event in self.model.items() if event.session != "b"}

    @rule(which=st.integers(0, 1), events=st.lists(KNOWN, max_size=2))
    def erases_events(self, which: int, events: list[Known]) -> None:
        self.stores[which].erase([], events=[self.model[known].key for known in events if known in self.model])
        self.model = {known: event for known, event in self.model.items() if known not in events}

    def shown(self, known: Known) -> QueuedEvent:
        event = self.model[known]
        place = (self.current(event.session), event.number, event.state, event.body, event.reason)
        return QueuedEvent(event.key, *place, event.turn, event.accepted_ms, event.changed_ms)

    @invariant()
    def both_stores_have_the_events_of_the_model(self) -> None:
        wanted = sorted(map(self.shown, self.model), key=lambda event: event.number)
        for store in self.stores:
            assert rows(store) == wanted
            for session in ("a", "b", "n1"):
                label = self.current("a") if session == "n1" and store.resolve("n1") else self.current(session)
                assert store.queued_events(session) == [
                    event for event in wanted if event.session == label and event.state in PENDING
                ]
            for id_ in {event.id for event in wanted}:
                assert store.events_with_id(id_) == [event for event in wanted if event.id == id_]
            pending = [event.session for event in wanted if event.state in PENDING]
            assert store.queued_sessions() == list(dict.fromkeys(pending))


TestTwoHandles = TwoHandles.TestCase
TestTwoHandles.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


ACCEPTING = """
import sys
from nexus.ledger.sessions import NewQueuedEvent
from nexus.ledger.sqlite import SqliteLedger

ledger = SqliteLedger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(0, 300, 3):
    events = [NewQueuedEvent(f"e{number + i}", "main", sys.argv[2]) for i in range(3)]
    for accepted in ledger.accept_events(events):
        if accepted.added:
            print(accepted.event.id, flush=True)
"""


def test_processes_that_accept_the_same_ids_at_once_add_each_once(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    SqliteLedger(str(path)).close()
    processes: list[Any] = [
        subprocess.Popen(
            [sys.executable, "-c", ACCEPTING, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    added = [process.communicate(timeout=600)[0].split() for process in processes]
    stored = rows(SqliteLedger(str(path)))
    assert [event.number for event in stored] == list(range(1, 301))
    for name, ids in zip(("one", "two"), added, strict=True):
        assert ids == [event.id for event in stored if event.body == name]


def test_queue_of_a_read_only_ledger_is_read_and_refuses_events() -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "l.db")
        ledger = SqliteLedger(str(file))
        accept(ledger, "main", "e")
        ledger.close()
        file.chmod(0o444)
        file.parent.chmod(0o777)

        def read_and_write() -> None:
            if os.getuid() == 0:  # who may do everything
                os.setgid(65_534)
                os.setuid(65_534)
            readable = SqliteLedger(str(file), create=False)
            assert [event.id for event in readable.queued_events("main")] == ["e"]
            with pytest.raises(LedgerError, match="writable"):
                accept(readable, "main", "new")
            readable.close()

        assert in_a_fork(read_and_write) == "done"


def test_untrusted_ledger_refuses_events() -> None:
    ledger = SqliteLedger()
    accept(ledger, "main", "e")
    ledger.trusted = False
    for call in (
        lambda: accept(ledger, "main", "new"),
        lambda: ledger.update_events([key("e")], "done", expected=["queued"]),
        lambda: ledger.delete_finished_events(0),
    ):
        with pytest.raises(LedgerUnusable, check=has_code("ledger_not_trusted")):
            call()
    assert [event.id for event in ledger.queued_events()] == ["e"]


def test_overlay_of_a_path_passes_the_queue_through() -> None:
    ledger = SqliteLedger()
    append(ledger, "main", user("one"))
    overlay: Any = PathOverlay(ledger, ledger.thread_of("main"), 0)
    assert overlay.accept_events([NewQueuedEvent("e", "main", "{}")])[0].added
    assert overlay.queued_events("main") == ledger.queued_events("main")


def test_ledger_of_version_3_gets_the_queue_and_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("one"), key="k")
    before = list(ledger.dump())
    ledger.close()
    as_version_4(path)
    with behind_its_back(path) as db:
        db.execute("DROP TABLE event; DELETE FROM migration WHERE version>=4; PRAGMA user_version=3")
        assert db.execute("SELECT checksum FROM migration WHERE version=3").fetchone()[0] == checksum(MIGRATIONS[2])
        assert db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    assert care.verify(path) == []
    assert care.migrate(path, dry_run=True) == care.MigrationReport(str(path), 3, VERSION)
    ledger = SqliteLedger(str(path))
    assert list(ledger.dump()) == before
    assert append(ledger, "main", user("one"), key="k").added == 0
    accept(ledger, "main", "e")
    ledger.close()
    assert care.verify(path) == []


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        (f"UPDATE event SET {change} WHERE id LIKE 'e2%'", "queued event 'e2'")
        for change in (
            "body='{}'",
            "state='lost'",
            "state='queued'",
            "session='other'",
            "number=9",
            "reason=''",
            "turn=1",
            "accepted_ms=1",
            "changed_ms=1",
            "id='e2'",
        )
    ]
    + [
        ("DROP INDEX event_state", "the index event_state"),
    ],
)
def test_changed_event_is_reported_and_never_returned(path: Path, statement: str, place: str) -> None:
    sql(path, statement)
    assert place in {damage.place for damage in care.verify(path)}
    ledger = SqliteLedger(str(path))
    if place.startswith("queued"):
        with pytest.raises(LedgerDamaged, match="queued event 'e2'"):
            ledger.events_with_id("e2")
    ledger.close()


def test_export_backup_and_repair_keep_the_events(path: Path, tmp_path: Path) -> None:
    ledger = SqliteLedger(str(path))
    wanted = rows(ledger)
    assert len(wanted) == 4
    jsonl.export(ledger, tmp_path / "l.jsonl")
    ledger.close()
    care.backup(path, tmp_path / "backup.db")
    assert care.repair(path, tmp_path / "repaired.db").damages == ()
    imported = SqliteLedger(str(tmp_path / "imported.db"))
    assert jsonl.load(imported, tmp_path / "l.jsonl").records["event"] == 4
    assert jsonl.load(imported, tmp_path / "l.jsonl").added == 0
    imported.close()
    for name in ("backup", "repaired", "imported"):
        assert rows(SqliteLedger(str(tmp_path / f"{name}.db"))) == wanted


@pytest.mark.parametrize("change", ["body='{}'", "state='queued'"])
def test_repair_drops_a_damaged_event_and_keeps_the_others(path: Path, tmp_path: Path, change: str) -> None:
    sql(path, f"UPDATE event SET {change} WHERE id LIKE 'e2%'")
    result = care.repair(path, tmp_path / "new.db")
    assert [(damage.record, damage.place) for damage in result.damages] == [("event", "queued event 'e2'")]
    kept = [record for record in dumped(tmp_path / "new.db") if isinstance(record, EventRecord)]
    assert [
        record for record in dumped(path) if isinstance(record, EventRecord) and record.id != key("e2", "side")
    ] == kept


def test_repair_saves_a_queue_whose_sessions_have_not_begun(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    accept(ledger, "main", *(f"e{number}" for number in range(40)))
    ledger.update_events([key("e1")], "running", expected=["queued"])
    ledger.update_events([key("e2")], "done", expected=["queued"])
    ledger.delete_finished_events(-1)
    wanted = rows(ledger)
    for end in ("", "-wal"):  # as a killed process leaves it
        shutil.copy(tmp_path / f"l.db{end}", tmp_path / f"killed.db{end}")
    assert care.repair(tmp_path / "killed.db", tmp_path / "new.db").damages == ()
    assert rows(SqliteLedger(str(tmp_path / "new.db"))) == wanted
    assert len(wanted) == 39


def test_erased_session_leaves_no_text_of_its_events(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    ledger = SqliteLedger(str(path))
    append(ledger, "main", user("one"))
    accept(ledger, "main", *(f"secret {number}" for number in range(50)))
    accept(ledger, "other", "harmless")
    ledger.update_events([key("secret 1")], "failed", expected=["queued"], reason="a secret reason")
    erased = Ledger(ledger).upkeep.erase("main")
    assert erased.remaining == 0 < erased.needles
    ledger.close()
    assert names(tmp_path) == ["l.db"]
    assert b"secret" not in path.read_bytes()
    assert b"harmless" in path.read_bytes()


def test_queries_of_the_queue_use_an_index_however_many_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = SqliteLedger()
    accept(ledger, "main", "e")
    with ledger.reading() as reader:
        rows_of, plans = reader.db.rows, list[str]()

        def explained(statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            if " event " in statement:
                plans.extend(str(row[3]) for row in rows_of(f"EXPLAIN QUERY PLAN {statement}", values))
            return rows_of(statement, values)

        monkeypatch.setattr(reader.db, "rows", explained)
        sql_queue.events(reader)
        sql_queue.events(reader, "main")
        sql_queue.sessions(reader)
        sql_queue.event(reader, key("e"))
        sql_queue.events_with_id(reader, "e")
    ends = ("state=?)", "state=? AND session=?)", "state=?)", "id=?)", "id=?)", "id>? AND id<?)")
    searches = [plan for plan in plans if "event" in plan]
    assert [plan.split("(")[1] for plan in searches] == [f"tenant=? AND {end}" for end in ends]
