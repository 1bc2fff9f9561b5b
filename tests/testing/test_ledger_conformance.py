"""Every store keeps every promise of the protocol; and the checks notice a store that breaks one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from nexus.ledger.codec import read_entry
from nexus.ledger.records import EntryRecord
from nexus.ledger.sessions import Query, SearchHit, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger
from nexus.testing.ledger_conformance import CHECKS, Check, check_name, run
from nexus.testing.memory_ledger import MemoryLedger
from nexus.testing.memory_ledger.rows import END
from nexus.types.ledger_entries import Commit, Committed, Entry

# ------------------------------------------------------------------------------------------------ the shipped stores


class InMemory:
    """Stores on one storage in memory: it stays as long as the first of them."""

    durable = True

    def __init__(self, first: MemoryLedger | None = None) -> None:
        self.first = first or MemoryLedger()

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> MemoryLedger:
        return self.first.for_tenant(tenant, clock_ms=clock_ms)


class InFile:
    """Stores on one SQLite file."""

    durable = True

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "ledger.db")

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> SqliteLedger:
        return SqliteLedger(self.path, tenant=tenant, clock_ms=clock_ms)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_ledger_in_memory(check: Check) -> None:
    check(InMemory())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_ledger_in_sqlite(check: Check, tmp_path: Path) -> None:
    check(InFile(tmp_path))


# ------------------------------------------------------------------------------------------------ the suite itself


def test_every_check_has_a_sentence_of_its_own_as_its_name() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) >= 60
    assert [name for name in names if len(name.split()) < 4 or not name[0].isupper()] == []


def test_the_suite_needs_no_pytest() -> None:
    import subprocess
    import sys

    code = "import sys, nexus.testing.ledger_conformance; print('pytest' in sys.modules, 'apsw' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_run_reports_what_passed_and_what_was_found_instead() -> None:
    good, bad = run(InMemory), run(lambda: InMemory(Deaf()))
    assert (good.ok, len(good.passed), good.failed) == (True, len(CHECKS), ())
    assert not bad.ok
    assert len(bad.passed) + len(bad.failed) == len(CHECKS)
    assert str(good) == f"{len(CHECKS)} of {len(CHECKS)} checks passed"
    assert "FAILED A commit with an expected head is refused" in str(bad)
    assert all(said for _, said in bad.failed)


class Broken(MemoryLedger):
    """A memory ledger whose stores for other tenants are as broken as itself."""

    def for_tenant(self, tenant: str, *, clock_ms: Callable[[], int] | None = None) -> MemoryLedger:
        other = type(self)(tenant, clock_ms=clock_ms)
        other._lock, other._tenants = self._lock, self._tenants
        return other


class Deaf(Broken):
    """Ignores what a commit expects of the session's head."""

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        return super().commit(session, replace(commit, expected_head=None), facts)


class Forgetful(Broken):
    """Does not remember idempotency keys."""

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        entries = tuple(replace(entry, keys=()) for entry in commit.entries)
        return super().commit(session, replace(commit, entries=entries), facts)


class Torn(Broken):
    """Commits entry by entry."""

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        done = super().commit(session, replace(commit, entries=commit.entries[:1]), facts)
        for entry in commit.entries[1:]:
            more = super().commit(session, Commit((entry,)))
            done = replace(more, added=done.added + more.added)
        return done


class Open(Broken):
    """Lets a search see every tenant's messages."""

    def search(self, query: Query) -> list[SearchHit]:
        names = list(self._tenants)
        return [hit for name in names for hit in MemoryLedger.search(cast("Open", self.for_tenant(name)), query)]


class Moving(Broken):
    """Its snapshots see what others write."""

    @contextmanager
    def snapshot(self) -> Generator[None]:
        yield


class Trusting(Broken):
    """Serves what it holds without a look at its hash."""

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        with self._rows() as rows:
            found = list(rows.records(thread, after, END if until is None else until))
            return iter([read_entry(head_of(record), record.messages, rows.blobs.__getitem__) for record in found])


def head_of(record: EntryRecord) -> tuple[int, str, int, int, str, bytes]:
    return record.seq, record.kind, record.turn, record.at_ms, record.body, record.hash


class Washing(Broken):
    """Drops NUL from labels."""

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        return super().commit(session.replace("\0", ""), commit, facts)


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
        (Washing, "NUL, lone surrogates and U+001A come back"),
    ],
)
def test_a_broken_store_fails_the_check_that_is_named_for_it(broken: type[MemoryLedger], words: str) -> None:
    check = check_name(words)
    check(InMemory())
    with pytest.raises(AssertionError, match=r"expected .*found|no error was raised"):
        check(InMemory(broken()))
