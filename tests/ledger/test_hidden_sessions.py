"""Documents that earlier versions kept in hidden sessions are documents after an old ledger was opened, imported or repaired."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from torture.traffic import FIRST_MS
from torture.version_6 import as_version_6, hide

from cli.running import environment
from ledger.files import PAGE, sql
from ledger.stores import append, texts
from nexus.errors import LedgerDamaged, LedgerFull
from nexus.ledger import maintenance as care
from nexus.ledger.address import parse_address
from nexus.ledger.documents import AGENT, CONFIGURATION, MOVED, PROFILE, hidden_threads
from nexus.ledger.history_operations import Ledger
from nexus.ledger.integrity import check
from nexus.ledger.maintenance import server as server_care
from nexus.ledger.sessions import Document
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger, migrate
from nexus.ledger.sqlite.schema import VERSION
from nexus.types.message import user

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

SETTINGS = {"agent_id": "mine", "settings": {"system_prompt": "My secret is 4711."}}
OLD = {"agent_id": "mine", "settings": {"system_prompt": "An older secret."}}
EDITS = {"edits": {"mood.enabled": True}, "template": {}}
LIKES = {"prompt_overrides": {"friends_profile": "She likes haiku."}}


def fill(store: SqlLedger) -> None:
    """Store what an earlier version had: hidden sessions, and conversations beside them."""
    append(store, "main", user("a question"))
    hide(store, "nexus:agent:mine", OLD, SETTINGS)
    hide(store, "configuration:default", *({"edits": {"n": number}} for number in range(40)), EDITS)
    append(store, "configuration:default", user("words of others"))
    hide(store, "identity:ann", LIKES)
    append(store, "nexus:agent:talk", user("a conversation"))


def moved() -> list[Document]:
    return [
        Document(CONFIGURATION, "default", 1, EDITS, FIRST_MS + 40),
        Document(AGENT, "mine", 1, SETTINGS, FIRST_MS + 1),
        Document(PROFILE, "ann", 1, LIKES, FIRST_MS),
    ]


def documents(store: SqlLedger) -> list[Document]:
    return sorted(store.documents(), key=lambda document: (document.kind != CONFIGURATION, document.kind))


def as_version_3(server: PostgresServer, url: str) -> None:
    """Give a ledger in PostgreSQL the schema version of before its documents were moved."""
    with server.connect(url) as db:
        db.execute(f"DELETE FROM {parse_address(url).schema}.migration WHERE version>=4".encode())


@dataclass
class Old:
    """A ledger of before documents were moved."""

    open: Callable[..., SqlLedger]
    verify: Callable[[], list[Any]]
    place: str
    make_old: Callable[[], object]

    def filled(self, fill: Callable[[SqlLedger], None], tenants: tuple[str, ...] = ("local",)) -> None:
        for tenant in tenants:
            with closing(self.open(tenant=tenant)) as store:
                fill(store)
        self.make_old()


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    if request.param == "sqlite":
        path = tmp_path / "l.db"
        yield Old(
            lambda **options: SqliteLedger(str(path), **options),
            lambda: care.verify(path),
            str(path),
            lambda: as_version_6(path),
        )
        return
    from nexus.ledger.postgres import PostgresLedger

    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.new_ledger()
    yield Old(
        lambda **options: PostgresLedger(url, **options),
        lambda: server_care.verify(url),
        url,
        lambda: as_version_3(server, url),
    )


# opening ---------------------------------------------------------------------------------------------------------------


def test_hidden_sessions_of_all_tenants_are_documents_and_keep_their_entries(old: Old) -> None:
    tenants = ("local", "other", "a\x00b")
    old.filled(fill, tenants)
    for tenant in tenants:
        with closing(old.open(tenant=tenant)) as store:
            assert documents(store) == moved()
            assert {info.label for info in store.sessions(every=True)} == {"main", "nexus:agent:talk"}
            for label in ("nexus:agent:mine", "configuration:default", "identity:ann"):
                assert store.resolve(label) is None and store.thread_of(label) is None
                assert store.ref_updates(label)[-1].reason == MOVED
            (thread,) = hidden_threads(store, AGENT, "mine")
            versions = [row.message.text() for entry in store.entries(thread) for row in entry.rows]
            assert [json.loads(text) for text in versions] == [OLD, SETTINGS]
            assert list(check(store.dump())) == []
    assert old.verify() == []


def test_conversation_with_such_a_label_is_no_document(old: Old) -> None:
    old.filled(fill)
    with closing(old.open()) as store:
        assert texts(store, "nexus:agent:talk") == ["a conversation"]
        assert store.document(AGENT, "talk") is None


def test_second_opening_changes_nothing(old: Old) -> None:
    old.filled(fill)
    with closing(old.open()) as store:
        records = list(store.dump())
        store.put_document(AGENT, "mine", {**SETTINGS, "is_closed": True})
    with closing(old.open()) as store:
        document = store.document(AGENT, "mine")
        assert document is not None and (document.number, document.body["is_closed"]) == (2, True)
        store.put_document(AGENT, "mine", SETTINGS)
        assert len(list(store.dump())) == len(records)


def test_label_of_a_hidden_session_is_free(old: Old) -> None:
    old.filled(fill)
    with closing(old.open()) as store:
        append(store, "nexus:agent:mine", user("a new session"))
        assert texts(store, "nexus:agent:mine") == ["a new session"]
    with closing(old.open()) as store:
        assert texts(store, "nexus:agent:mine") == ["a new session"]
        assert documents(store) == moved()


def test_document_of_a_renamed_session_is_found_by_its_alias(old: Old) -> None:
    def fill_and_rename(store: SqlLedger) -> None:
        fill(store)
        Ledger(store).sessions.rename("nexus:agent:mine", "talk")
        Ledger(store).sessions.alias("latest", "talk")

    old.filled(fill_and_rename)
    with closing(old.open()) as store:
        assert documents(store) == moved()
        assert [store.resolve(name) for name in ("nexus:agent:mine", "talk", "latest")] == [None] * 3
    assert old.verify() == []


def test_document_that_exists_stays(old: Old) -> None:
    def fill_both(store: SqlLedger) -> None:
        store.put_document(PROFILE, "ann", {"learning": "Welsh"})
        fill(store)

    old.filled(fill_both)
    with closing(old.open()) as store:
        document = store.document(PROFILE, "ann")
        assert document is not None and document.body == {"learning": "Welsh"}
        assert store.resolve("identity:ann") is None


@pytest.mark.parametrize("text", ["{", "[]", "5", '"x"', "[" * 10_000])
def test_newest_version_that_is_an_object_counts(old: Old, text: str) -> None:
    def fill_badly(store: SqlLedger) -> None:
        hide(store, "nexus:agent:mine", OLD, SETTINGS, text, text)
        hide(store, "nexus:agent:none", text)

    old.filled(fill_badly)
    with closing(old.open()) as store:
        assert [(document.name, document.body) for document in store.documents()] == [("mine", SETTINGS)]
        assert texts(store, "nexus:agent:none") == [text]


def test_names_of_any_text_are_kept(old: Old) -> None:
    names = ["a\x00b", "\ud800", "ü" * 200, "x:y", " ", ""]

    def fill_names(store: SqlLedger) -> None:
        for name in names:
            hide(store, f"identity:{name}", {"of": repr(name)})

    old.filled(fill_names)
    with closing(old.open()) as store:
        assert {document.name: document.body for document in store.documents(PROFILE)} == {
            name: {"of": repr(name)} for name in names
        }


def test_two_processes_that_open_at_once_move_it_once(old: Old) -> None:
    old.filled(fill)
    script = (
        "import sys\n"
        "from nexus.ledger.location import open_ledger\n"
        "from pathlib import Path\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "store = open_ledger(None, sys.argv[1], Path(sys.argv[2]))\n"
        "print(len(store.documents()), [update.number for update in store.ref_updates('nexus:agent:mine')])\n"
    )
    command = [sys.executable, "-c", script, old.place, str(Path.cwd())]
    pipe = subprocess.PIPE
    openers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) for _ in range(4)]
    for opener in openers:
        assert opener.stdout is not None and opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=300)[0] for opener in openers] == ["3 [1, 2]\n"] * 4
    assert old.verify() == []


# erasing ---------------------------------------------------------------------------------------------------------------


def test_erasing_a_session_erases_its_agent_with_earlier_versions(old: Old) -> None:
    def fill_with_session(store: SqlLedger) -> None:
        fill(store)
        append(store, "mine", user("words of the session"))

    old.filled(fill_with_session)
    with closing(old.open()) as store:
        Ledger(store).sessions.rename("mine", "renamed")
        erased = Ledger(store).upkeep.erase("renamed")
        assert (len(erased.threads), erased.remaining) == (2, 0)
        assert store.document(AGENT, "mine") is None
        assert not hidden_threads(store, AGENT, "mine") and not store.ref_updates("nexus:agent:mine")
        assert [document.kind for document in documents(store)] == [CONFIGURATION, PROFILE]
        secrets = [record for record in store.dump() if "secret" in str(record)]
        assert secrets == []
    assert old.verify() == []


def test_erasing_a_principal_erases_her_profile_and_her_agents(old: Old) -> None:
    def fill_agents(store: SqlLedger) -> None:
        fill(store)
        hide(store, "identity:default", {"learning": "Welsh"})
        for name, principal in (("hers", "ann"), ("ann", "bob"), ("nobodys", "")):
            body = {"settings": {"principal": principal}, "words": f"words of the agent {name} " * 3}
            hide(store, f"nexus:agent:{name}", {"words": f"older words of the agent {name} " * 3}, body)

    old.filled(fill_agents)
    with closing(old.open()) as store:
        result = Ledger(store).upkeep.erase_principal("ann")
        assert (result.documents, result.erased.remaining) == (2, 0)
        assert {document.name for document in store.documents(AGENT)} == {"ann", "mine", "nobodys"}
        assert [document.name for document in store.documents(PROFILE)] == ["default"]
        assert len(result.erased.threads) == 2
        Ledger(store).upkeep.erase_principal("default")
        assert store.document(CONFIGURATION, "default") is not None
    assert old.verify() == []


# files -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed file of version 6."""
    with closing(SqliteLedger(str(tmp_path / "l.db"))) as store:
        fill(store)
    return as_version_6(tmp_path / "l.db")


def test_no_text_is_left_in_the_file_after_an_erasure(path: Path) -> None:
    with closing(SqliteLedger(str(path))) as store:
        store.put_document(AGENT, "mine", {"agent_id": "mine", "settings": {"system_prompt": "A newer secret."}})
        append(store, "mine", user("hello"))
        Ledger(store).upkeep.erase("mine")
        Ledger(store).upkeep.erase_principal("ann")
    assert not [word for word in (b"secret", b"haiku") if word in path.read_bytes()]


def test_damaged_hidden_session_is_left_as_it_is(path: Path) -> None:
    sql(path, "UPDATE message SET content=replace(content, '4711', '4712')")
    with closing(SqliteLedger(str(path))) as store:
        assert [document.kind for document in documents(store)] == [CONFIGURATION, PROFILE]
        with pytest.raises(LedgerDamaged):
            texts(store, "nexus:agent:mine")
    assert care.verify(path) != []


def test_damage_in_the_pointer_leaves_the_session_without_a_document(path: Path) -> None:
    sql(path, "UPDATE session_move SET at_ms=1 WHERE label='nexus:agent:mine'")
    with closing(SqliteLedger(str(path))) as store:
        assert store.document(AGENT, "mine") is None
        assert store.document(PROFILE, "ann") is not None


def test_failure_in_the_middle_leaves_the_old_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise OSError("no more")

    monkeypatch.setattr(migrate, "_now_ms", fails)
    with pytest.raises(OSError, match="no more"):
        SqliteLedger(str(path))
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (6,)
        assert db.execute("SELECT count(*) FROM document").fetchone() == (0,)
    monkeypatch.undo()
    with closing(SqliteLedger(str(path))) as store:
        assert documents(store) == moved()


def test_full_disk_leaves_the_old_version(tmp_path: Path) -> None:
    path, large = tmp_path / "l.db", {"settings": {"system_prompt": "x" * 300_000}}
    with closing(SqliteLedger(str(path))) as store:
        hide(store, "nexus:agent:mine", large)
    as_version_6(path)
    pages = path.stat().st_size // PAGE

    def limit(db: apsw.Connection) -> None:
        db.execute(f"PRAGMA max_page_count={pages + 8}").fetchall()

    apsw.connection_hooks.append(limit)
    try:
        with pytest.raises(LedgerFull):
            SqliteLedger(str(path))
    finally:
        apsw.connection_hooks.remove(limit)
    assert apsw.Connection(str(path)).execute("PRAGMA user_version").fetchone() == (6,)
    with closing(SqliteLedger(str(path))) as store:
        assert [document.body for document in store.documents()] == [large]


def test_file_that_cannot_be_written_is_read_without_a_migration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.ledger.sqlite.files._only_readable", lambda _: True)
    with closing(SqliteLedger(str(path))) as store:
        assert texts(store, "main") == ["a question"]
        assert store.documents() == []
    assert apsw.Connection(str(path)).execute("PRAGMA user_version").fetchone() == (6,)
    assert care.verify(path) == []
    sql(path, "PRAGMA user_version=5")
    with pytest.raises(Exception, match="version 5 and cannot be written"):
        SqliteLedger(str(path))


def test_export_of_an_earlier_version_is_imported_with_its_documents() -> None:
    source, target = SqliteLedger(":memory:"), SqliteLedger(":memory:")
    fill(source)
    records = list(source.dump())
    assert target.load(records) == len(records) - 1
    assert documents(target) == moved()
    assert target.resolve("nexus:agent:mine") is None
    after = list(target.dump())
    assert target.load(records) == 0
    assert list(target.dump()) == after
    again = SqliteLedger(":memory:")
    again.load(after)
    assert list(again.dump()) == after


def test_repair_of_an_old_file_moves_its_documents(path: Path, tmp_path: Path) -> None:
    assert care.repair(path, tmp_path / "new.db").damages == ()
    with closing(SqliteLedger(str(tmp_path / "new.db"))) as store:
        assert documents(store) == moved()
    assert care.verify(tmp_path / "new.db") == []


def test_dry_run_and_migration_with_a_backup(path: Path) -> None:
    assert care.migrate(path, dry_run=True) == care.MigrationReport(str(path), 6, VERSION)
    report = care.migrate(path)
    assert report.backup
    with closing(SqliteLedger(str(path))) as store:
        assert documents(store) == moved()
    for _ in range(2):
        with closing(SqliteLedger(report.backup)) as store:
            assert documents(store) == moved()
