"""Every store keeps every promise of the protocol; and the checks notice a store that breaks one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nexus.ledger.codec import read_entry
from nexus.ledger.records import EntryRecord
from nexus.ledger.sessions import AcceptedEvent, Document, NewQueuedEvent, Query, SearchHit, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.testing import FixedClock
from nexus.testing.ledger_conformance import CHECKS, LedgerCheck, check_name, run
from nexus.testing.ledger_conformance.storage import fill
from nexus.types.ledger_entries import Commit, Committed, Entry, TurnPosition

FILLED = "62e9cabae6d16c83df13b9610b45b8d43b34bfa7d6035388e8a2ce0301760052"
"""SHA-256 of the records that `storage.fill` writes.

Computed with an independent implementation of the protocol in plain Python, before it was removed.
"""


class SharedMemory(SqliteLedger):
    """A ledger on another one's database in memory. Closing it leaves the database open."""

    def __init__(self, first: SqliteLedger, tenant: str, clock_ms: Callable[[], int] | None) -> None:
        super().__init__(":memory:", tenant=tenant, clock_ms=clock_ms)
        self._closed_alone, self._pool = self._pool, first._pool

    def close(self) -> None:
        self._pool = self._closed_alone
        super().close()


class InMemory:
    """Stores on one database in memory, which exists as long as the backend."""

    durable = True

    def __init__(self, kind: type[SharedMemory] = SharedMemory) -> None:
        self.kind, self.first = kind, SqliteLedger(":memory:")

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> SharedMemory:
        return self.kind(self.first, tenant, clock_ms)


class InFile:
    """Stores on one SQLite file."""

    durable = True

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "ledger.db")

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> SqliteLedger:
        return SqliteLedger(self.path, tenant=tenant, clock_ms=clock_ms)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_sqlite_in_memory_passes_the_suite(check: LedgerCheck) -> None:
    check(InMemory())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_sqlite_on_disk_passes_the_suite(check: LedgerCheck, tmp_path: Path) -> None:
    check(InFile(tmp_path))


def test_records_are_the_bytes_of_an_independent_implementation() -> None:
    store = SqliteLedger(":memory:", clock_ms=FixedClock())
    fill(store)
    records = b"\n".join(msgspec.json.encode(record) for record in store.dump())
    assert hashlib.sha256(records).hexdigest() == FILLED


# ------------------------------------------------------------------------------------------------ the suite itself


def test_every_check_is_named_by_a_different_sentence() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) >= 60
    assert [name for name in names if len(name.split()) < 4 or not name[0].isupper()] == []


def test_the_suite_needs_no_pytest() -> None:
    import subprocess
    import sys

    code = "import sys, nexus.testing.ledger_conformance; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_run_reports_what_passed_and_what_was_found_instead() -> None:
    good, bad = run(InMemory), run(lambda: InMemory(Deaf))
    assert (good.ok, len(good.passed), good.failed) == (True, len(CHECKS), ())
    assert not bad.ok
    assert len(bad.passed) + len(bad.failed) == len(CHECKS)
    assert str(good) == f"{len(CHECKS)} of {len(CHECKS)} checks passed"
    assert "FAILED A commit with an expected head is refused" in str(bad)
    assert all(said for _, said in bad.failed)


class Deaf(SharedMemory):
    """Ignores what a commit expects of the session's head."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        return super().commit(session, replace(commit, expected_head=None), metadata)


class Forgetful(SharedMemory):
    """Does not remember idempotency keys."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        entries = tuple(replace(entry, keys=()) for entry in commit.entries)
        return super().commit(session, replace(commit, entries=entries), metadata)


class Torn(SharedMemory):
    """Commits entry by entry."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        done = super().commit(session, replace(commit, entries=commit.entries[:1]), metadata)
        for entry in commit.entries[1:]:
            more = super().commit(session, Commit((entry,)))
            done = replace(more, added=done.added + more.added)
        return done


class Open(SharedMemory):
    """Lets a search see every tenant's messages."""

    def search(self, query: Query) -> list[SearchHit]:
        with self._pool.connection() as db:
            tenants = [str(name) for (name,) in db.rows("SELECT DISTINCT tenant FROM thread")]
        return [hit for name in tenants for hit in SharedMemory(self, name, None).search(query)]


class Moving(SharedMemory):
    """Its snapshots see what others write."""

    @contextmanager
    def snapshot(self) -> Generator[None]:
        yield


class Trusting(SharedMemory):
    """Serves what it holds without a look at its hash."""

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        high = {part.thread: part.high for part in self.path(thread)}
        for record in list(self.dump()):
            if not isinstance(record, EntryRecord) or record.seq > high.get(record.thread, 0):
                continue
            if record.seq > after and (until is None or record.seq <= until):
                yield read_entry(head_of(record), record.messages, lambda sha256: self.blob(sha256) or b"")


def head_of(record: EntryRecord) -> tuple[int, str, int, int, str, bytes]:
    return record.seq, record.kind, record.turn, record.at_ms, record.body, record.hash


class Washing(SharedMemory):
    """Drops NUL from labels."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        return super().commit(session.replace("\0", ""), commit, metadata)


class Unfenced(SharedMemory):
    """Lets any token write."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        done = super().commit(session, replace(commit, fence=commit.fence and None), metadata)
        return replace(done, fence=commit.fence or done.fence)


class Turnless(SharedMemory):
    """Looks at no turn."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        return super().commit(session, replace(commit, turn=None), metadata)


class Counted(SharedMemory):
    """Knows turns by their number only."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        turn, thread = commit.turn, self.thread_of(session)
        if turn is not None and thread is not None:
            turn = TurnPosition(thread, self.head(thread)[0], turn.turn)
        return super().commit(session, replace(commit, turn=turn), metadata)


class Anonymous(SharedMemory):
    """Does not tell principals apart."""

    def accept_events(self, events: Sequence[NewQueuedEvent]) -> list[AcceptedEvent]:
        return super().accept_events([replace(event, principal="") for event in events])


class Overwriting(SharedMemory):
    """Replaces whatever version a document has."""

    def put_document(
        self, kind: str, name: str, body: dict[str, Any], *, expected_number: int | None = None
    ) -> Document:
        del expected_number
        return super().put_document(kind, name, body)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Deaf, "with an expected head is refused"),
        (Deaf, "Of eight threads that expect the same head"),
        (Forgetful, "A key that comes again with the same payload adds nothing"),
        (Forgetful, "Of eight threads that append under one key"),
        (Torn, "whose second entry is refused leaves nothing"),
        (Open, "No tenant sees another one's rows"),
        (Moving, "Inside a snapshot all reads see one state"),
        (Trusting, "does not match its hash is loaded as it is and never served"),
        (Washing, "NUL, lone surrogates and U+001A survive"),
        (Unfenced, "A later writer shuts out all earlier ones"),
        (Unfenced, "Of two threads that write with different tokens"),
        (Turnless, "are written while it is the newest, and not after its end"),
        (Counted, "A turn that a rewind removed"),
        (Counted, "A turn of an erased session"),
        (Anonymous, "Equal ids of two principals"),
        (Overwriting, "A change that expects another version is refused"),
    ],
)
def test_a_broken_store_fails_the_check_that_is_named_for_it(broken: type[SharedMemory], words: str) -> None:
    check = check_name(words)
    check(InMemory())
    with pytest.raises(AssertionError, match=r"expected .*found|no error was raised"):
        check(InMemory(broken))
