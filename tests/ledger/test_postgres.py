"""The ledger in PostgreSQL keeps every promise of the protocol, on a real server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import nexus
from ledger.everything import HOSTILE, fill
from ledger.stores import append, texts
from ledger.test_machine import EveryStore
from nexus.errors import (
    BadReference,
    HeadMoved,
    LedgerDamaged,
    LedgerError,
    LedgerUnavailable,
    LedgerUnusable,
    TurnSuperseded,
)
from nexus.ledger import jsonl
from nexus.ledger.address import parse_address
from nexus.ledger.maintenance import server as server_maintenance
from nexus.ledger.maintenance.transfer import transfer
from nexus.ledger.sessions import NewQueuedEvent, Query, event_key
from nexus.ledger.sqlite import SqliteLedger
from nexus.testing import FixedClock
from nexus.testing.ledger_conformance import CHECKS, LedgerCheck
from nexus.types.ledger_entries import Commit
from nexus.types.message import user
from support.errors import has_code

if TYPE_CHECKING:
    from torture.postgres_server import PostgresServer

    from nexus.ledger.postgres import PostgresLedger

MOST_EXAMPLES = 6


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """The URL of a ledger that is not there yet."""
    return postgres_server.new_ledger()


def opened(url: str, **options: Any) -> PostgresLedger:
    from nexus.ledger.postgres import PostgresLedger

    return PostgresLedger(url, **options)


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    with closing(opened(url, clock_ms=FixedClock())) as store:
        yield store


class InSchema:
    """Stores in one schema of a server."""

    durable = True

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> PostgresLedger:
        return opened(self.url, tenant=tenant, clock_ms=clock_ms)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_postgres_passes_the_conformance_suite(check: LedgerCheck, url: str) -> None:
    check(InSchema(url))


def test_random_calls_have_the_same_results_in_postgres_and_sqlite(postgres_server: PostgresServer) -> None:
    class PostgresAndFile(EveryStore):
        def __init__(self) -> None:
            super().__init__()
            self.stores["memory"].close()
            self.stores["memory"] = opened(postgres_server.new_ledger(), clock_ms=self.clock("memory"))

    options = settings(max_examples=MOST_EXAMPLES, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(PostgresAndFile, settings=options)


# ------------------------------------------------------------------------------------------------------- copies


def test_copy_to_postgres_and_back_gives_the_same_export(url: str, tmp_path: Path) -> None:
    with closing(SqliteLedger(str(tmp_path / "a.db"))) as source, closing(opened(url)) as server:
        fill(source)
        there = transfer(source, server)
        with closing(SqliteLedger(str(tmp_path / "b.db"))) as target:
            back = transfer(server, target)
            for name, store in (("a", source), ("pg", server), ("b", target)):
                jsonl.export(store, tmp_path / f"{name}.jsonl")
    exports = {(tmp_path / f"{name}.jsonl").read_bytes() for name in ("a", "pg", "b")}
    assert len(exports) == 1
    assert there.sha256 == back.sha256
    assert there.records == back.records


def test_copy_to_a_ledger_with_content_is_refused(ledger: PostgresLedger) -> None:
    append(ledger, "main", user("here"))
    source = SqliteLedger()
    append(source, "main", user("new"))
    with pytest.raises(LedgerError, match="is not empty"):
        transfer(source, ledger)
    assert texts(ledger, "main") == ["here"]


# ------------------------------------------------------------------------------------- search, damage, limits


def test_search_finds_words_and_phrases_of_any_script(ledger: PostgresLedger) -> None:
    long_word = "x" * 3_000
    for text in ("The 数据库全文检索 works", "Приве́т мир", "résumé of a fork", "a fork, a fork", long_word, HOSTILE):
        append(ledger, "main", user(text))
    found = {
        query: [hit.text[:12] for hit in ledger.search(Query(query))]
        for query in (
            "全文检索",
            "检全",
            "привет",
            "RESUME",
            '"a fork"',
            '"fork of"',
            long_word,
            long_word[:-1],
            "half",
        )
    }
    assert found == {
        "全文检索": ["The 数据库全文检索 "],
        "检全": [],
        "привет": ["Приве́т мир"[:12]],
        "RESUME": ["résumé of a "],
        '"a fork"': ["a fork, a fo", "résumé of a "],
        '"fork of"': [],
        long_word: [long_word[:12]],
        long_word[:-1]: [],
        "half": [HOSTILE[:12]],
    }


def test_changed_row_is_reported_by_read_and_verify(ledger: PostgresLedger, postgres_server: PostgresServer) -> None:
    append(ledger, "main", user("one"))
    assert server_maintenance.verify(ledger.address.url) == []
    with postgres_server.connect(ledger.address.url) as db:
        db.execute(f"UPDATE {ledger.address.schema}.entry SET at_ms=at_ms+1")
    with pytest.raises(LedgerDamaged, match="does not match its hash"):
        texts(ledger, "main")
    assert server_maintenance.verify(ledger.address.url) != []


def test_changed_document_and_event_are_reported_by_read_and_verify(
    ledger: PostgresLedger, postgres_server: PostgresServer
) -> None:
    ledger.put_document("agent", "ann", {"n": 1})
    ledger.accept_events([NewQueuedEvent("e", "main", "{}")])
    with postgres_server.connect(ledger.address.url) as db:
        db.execute(f"UPDATE {ledger.address.schema}.document SET body='{{}}'".encode())
        db.execute(f"UPDATE {ledger.address.schema}.event SET state='running'".encode())
    for read in (lambda: ledger.documents("agent"), ledger.queued_events):
        with pytest.raises(LedgerDamaged, match="does not match its hash"):
            read()
    places = [damage.place for damage in server_maintenance.verify(ledger.address.url)]
    assert places == ["queued event 'e'", "agent 'ann'"]


def test_lease_ends_by_the_clock_of_the_server(ledger: PostgresLedger, postgres_server: PostgresServer) -> None:
    held = ledger.take_lease("main", "before", 60_000)
    with postgres_server.connect(ledger.address.url) as db:
        now = db.execute("SELECT extract(epoch FROM clock_timestamp())*1000").fetchone()
        assert now is not None
        assert 0 < held.expires_ms - int(now[0]) <= 60_000
        assert ledger.take_lease("main", "me", 1_000).holder == "before"
        db.execute(f"UPDATE {ledger.address.schema}.lease SET expires_ms=expires_ms+100000000".encode())
    assert ledger.take_lease("main", "me", 1_000).fence == held.fence + 1


def test_ledger_of_version_1_gets_documents_and_tokens(url: str, postgres_server: PostgresServer) -> None:
    with closing(opened(url)) as store:
        append(store, "main", user("one"))
        store.take_lease("main", "before", 60_000)
    schema = parse_address(url).schema
    with postgres_server.connect(url) as db:
        for statement in (
            f"DROP TABLE {schema}.document",
            f"ALTER TABLE {schema}.lease DROP COLUMN token, DROP COLUMN fence",
            f"DELETE FROM {schema}.migration WHERE version>=2",
            f"UPDATE {schema}.message SET words=' old '",
        ):
            db.execute(statement.encode())
    with closing(opened(url)) as store:
        lease = store.take_lease("main", "me", 1_000)
        assert (lease.holder, lease.fence) == ("before", 0), "a lease of before lasts as long as it was taken for"
        store.release_lease("main", "before")
        fence = store.take_lease("main", "me", 1_000).fence
        assert store.commit("main", Commit((), fence=fence)).fence == fence == 1
        store.put_document("agent", "ann", {})
        assert [hit.text for hit in store.search(Query("one"))] == ["one"], "its words were computed again"
    assert server_maintenance.verify(url) == []


def test_label_that_no_index_holds_is_refused(ledger: PostgresLedger) -> None:
    label = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(3_000))  # nothing that compresses
    with pytest.raises(BadReference, match="too long", check=has_code("bad_entry")):
        append(ledger, label, user("x"))
    assert ledger.sessions() == []


# ---------------------------------------------------------------------------------------------------- tenants


def test_plain_role_sees_only_its_tenant_with_its_own_sql(postgres_server: PostgresServer, url: str) -> None:
    """The policies hold for a role without SUPERUSER, even where a statement has no condition on the tenant."""
    schema = parse_address(url).schema
    for tenant in ("acme", "other"):
        with closing(opened(url, tenant=tenant)) as store:
            append(store, "main", user(f"secret of {tenant}"))
            store.put_document("agent", "ann", {"of": tenant})
    role = f"plain_{schema}"
    with postgres_server.connect() as db:
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            db.execute(statement.encode())
    mine = postgres_server.with_schema(schema, role)
    with closing(opened(mine, tenant="acme")) as store:
        append(store, "main", user("more"))
        assert texts(store, "main") == ["secret of acme", "more"]
        assert [hit.text for hit in store.search(Query("secret"))] == ["secret of acme"]
    findings = {finding.name: finding.level for finding in server_maintenance.examine(mine)}
    assert set(findings.values()) <= {"ok", "bad"} and findings["role"] == "ok"
    with postgres_server.connect(mine) as db:
        for table in ("message", "document"):
            db.execute("SET nexus.tenant = ''")
            assert db.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,)
            db.execute("SET nexus.tenant = 'acme'")
            assert db.execute(f"SELECT DISTINCT tenant FROM {table}".encode()).fetchall() == [("acme",)]
        assert db.execute("UPDATE thread SET turn=9 WHERE tenant='other'").rowcount == 0
        with pytest.raises(Exception, match="row-level security"):
            db.execute("INSERT INTO lease VALUES ('other', 'x', 'y', 1)")


# --------------------------------------------------------------------------------------------- lost connections


def test_reads_and_writes_survive_the_death_of_idle_connections(ledger: PostgresLedger) -> None:
    append(ledger, "main", user("one"))
    _end_connections(ledger)
    assert texts(ledger, "main") == ["one"]
    _end_connections(ledger)
    append(ledger, "main", user("two"))
    assert texts(ledger, "main") == ["one", "two"]


def _end_connections(ledger: PostgresLedger) -> None:
    import psycopg

    with psycopg.connect(ledger.address.url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid<>pg_backend_pid()")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "write", ["commit", "fence", "fork", "events", "update", "rename", "lease", "document", "deletion"]
)
def test_write_whose_answer_is_lost_is_stored_once(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, moment: str, write: str
) -> None:
    """The connection ends just before the commit is sent, or just after it was stored: the result is the same."""
    import psycopg

    from nexus.ledger.history_operations import Ledger
    from nexus.ledger.postgres.connection import PostgresDatabase

    append(ledger, "main", user("one"))
    ledger.accept_events([NewQueuedEvent("e0", "main", "{}")])
    ledger.put_document("agent", "ann", {"n": 1})
    fence = ledger.commit("main", Commit((), fence=0)).fence
    commit, tries = PostgresDatabase.commit, count()

    def lost(db: PostgresDatabase) -> None:
        if next(tries):
            commit(db)
            return
        if moment == "after":
            commit(db)
        db.connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(PostgresDatabase, "commit", lost)
    if write == "commit":
        assert append(ledger, "main", user("two")).added == 1
        assert texts(ledger, "main") == ["one", "two"]
    elif write == "fence":
        taken = ledger.commit("main", Commit((), fence=0)).fence
        assert taken > fence
        with pytest.raises(TurnSuperseded):
            ledger.commit("main", Commit((), fence=fence))
    elif write == "document":
        assert ledger.put_document("agent", "ann", {"n": 2}, expected_number=1).number == 2
        assert ledger.documents("agent")[0].body == {"n": 2}
    elif write == "deletion":
        assert ledger.delete_document("agent", "ann")
        assert ledger.documents("agent") == []
    elif write == "fork":
        ledger.fork("side", "main", 1)
        assert len(ledger.ref_updates("side")) == 1
    elif write == "events":
        assert [each.added for each in ledger.accept_events([NewQueuedEvent("e1", "main", "{}")])] == [True]
        assert len(ledger.queued_events()) == 2
    elif write == "update":
        e0 = event_key("e0", "main", "")
        assert [event.state for event in ledger.update_events([e0], "done", expected=["queued"])] == ["done"]
    elif write == "rename":
        assert Ledger(ledger).sessions.rename("main", "new").label == "new"
        assert [info.label for info in ledger.sessions()] == ["new"]
    else:
        assert ledger.take_lease("main", HOSTILE, 60_000).holder == HOSTILE
    assert server_maintenance.verify(ledger.address.url) == []


def test_commit_that_is_not_looked_up_is_stored_twice(ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above finds a ledger that repeats a write without a look at what became of it."""
    import psycopg

    from nexus.ledger.postgres.connection import PostgresDatabase
    from nexus.ledger.shared_sql import outcomes

    commit, tries = PostgresDatabase.commit, count()

    def lost(db: PostgresDatabase) -> None:
        commit(db)
        if not next(tries):
            db.connection.close()
            raise psycopg.OperationalError("the connection was lost")

    append(ledger, "main", user("one"))
    monkeypatch.setattr(PostgresDatabase, "commit", lost)
    monkeypatch.setattr(outcomes, "is_commit_stored", lambda *_: False)
    append(ledger, "main", user("two"))
    assert texts(ledger, "main") == ["one", "two", "two"]


def test_killed_server_is_waited_for_and_loses_nothing() -> None:
    """A server of its own, because other tests use the common one."""
    from support.postgres import running_server

    with running_server() as server, closing(opened(server.new_ledger())) as ledger:
        append(ledger, "main", user("one"))
        for number in range(3):
            server.kill()
            starting = threading.Thread(target=server.start)
            starting.start()
            append(ledger, "main", user(f"after kill {number}"))
            starting.join()
        wanted = ["one", *(f"after kill {number}" for number in range(3))]
        assert texts(ledger, "main") == wanted


# -------------------------------------------------------------------------------------------------- many writers


def test_writers_to_many_sessions_lose_and_cross_nothing(ledger: PostgresLedger, url: str) -> None:
    """Sixteen writers of two stores; the torture `postgres_writers` has 64 of eight programs on 1,000 sessions."""
    refused: list[int] = []

    def work(store: PostgresLedger, writer: int) -> None:
        for number in range(3):
            for session in range(4):
                append(store, f"s{session}", user(f"{writer} {number}"), key=f"{writer}/{number}")
        try:
            append(store, "s0", user("late"), expected_head=0)
        except HeadMoved:
            refused.append(writer)

    with closing(opened(url)) as other:
        threads = [threading.Thread(target=work, args=((ledger, other)[writer % 2], writer)) for writer in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for session in range(4):
        found = texts(ledger, f"s{session}")
        assert sorted(found) == sorted(f"{writer} {number}" for writer in range(16) for number in range(3))
        for writer in range(16):
            assert [text for text in found if text.startswith(f"{writer} ")] == [f"{writer} {n}" for n in range(3)]
    assert sorted(refused) == list(range(16))
    assert server_maintenance.verify(url) == []


# ------------------------------------------------------------------------------------- opening and its errors


def test_url_opens_an_engine_and_its_password_is_never_shown(url: str) -> None:
    with_password = url.replace("postgres:@", "postgres:geheim@")
    with nexus.open(ledger=with_password) as nx:
        append(nx.ledger.store, "main", user("hello"))
        assert "geheim" not in nx.ledger.store.location
        assert nx.ledger.store.location.startswith("postgresql://postgres@/")
    with nexus.open(ledger=url) as nx:
        assert [info.label for info in nx.sessions()] == ["main"]
    for wrong in ("postgresql://me:geheim@127.0.0.1:1/none", "postgresql://me:geheim@/x?bad=1&password=geheim"):
        with pytest.raises(LedgerError) as caught:
            nexus.open(ledger=wrong)
        assert "geheim" not in str(caught.value)


def test_missing_server_and_missing_ledger_are_typed_errors(url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="cannot be reached"):
        opened("postgresql://127.0.0.1:1/none")
    with pytest.raises(LedgerError, match="has no ledger in schema"):
        opened(url, create=False)


def test_changed_or_newer_migration_is_refused(url: str, postgres_server: PostgresServer) -> None:
    opened(url).close()
    schema = parse_address(url).schema
    with postgres_server.connect() as db:
        db.execute(f"INSERT INTO {schema}.migration VALUES (99, 'x', 1)".encode())
        with pytest.raises(LedgerUnusable, match="version 99", check=has_code("ledger_too_new")):
            opened(url)
        db.execute(f"DELETE FROM {schema}.migration WHERE version=99".encode())
        db.execute(f"UPDATE {schema}.migration SET checksum='other'".encode())
        with pytest.raises(LedgerDamaged, match="another text"):
            opened(url)


def test_two_programs_that_open_a_new_ledger_create_it_once(url: str) -> None:
    stores: list[PostgresLedger] = []
    threads = [threading.Thread(target=lambda: stores.append(opened(url))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({store.id for store in stores}) == 1 and len(stores) == 6
    for store in stores:
        store.close()


def test_closed_ledger_and_fork_of_the_process_are_refused(ledger: PostgresLedger) -> None:
    ledger._pool.pid = os.getpid() + 1  # as in a fork
    with pytest.raises(LedgerUnusable, match="fork", check=has_code("ledger_closed")):
        ledger.sessions()
    ledger._pool.pid = os.getpid()
    ledger.close()
    with pytest.raises(LedgerUnusable, match="closed", check=has_code("ledger_closed")):
        ledger.sessions()
