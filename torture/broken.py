"""Builds of the ledger that are broken on purpose, to prove that the tortures find what they look for.

Each replaces one thing in this process before any ledger is opened; what is forked from it is broken the same way.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import LedgerError
from nexus.ledger import care, chain
from nexus.ledger.entries import Commit, Committed
from nexus.ledger.records import MessageRow
from nexus.ledger.sessions import SessionFacts
from nexus.ledger.sqlite import SqliteLedger, connection

_commit = SqliteLedger.commit


def synchronous_normal() -> None:
    """Commits do not wait for the disk."""
    connection.SYNCHRONOUS = "NORMAL"


def deferred_begin() -> None:
    """A write begins by reading and takes the write lock when it first writes."""
    connection.BEGIN = "BEGIN"


def content_hashes() -> None:
    """An entry's hash covers the content of its messages and nothing else."""

    def digest(before: bytes, tenant: str, entry: chain.EntryColumns, messages: list[MessageRow]) -> bytes:
        del tenant, entry
        return hashlib.sha256(before + "".join(row[7] for row in messages).encode()).digest()

    chain.entry_hash = digest


def copied_backup() -> None:
    """A backup is a copy of the file."""

    def copied(source: Path | str, target: Path | str, *_: object, **__: object) -> None:
        shutil.copy(source, target)

    care.backup = copied  # pyright: ignore[reportAttributeAccessIssue]


def forgotten_keys() -> None:
    """An idempotency key that was used is stored and never looked at."""

    def commit(self: SqliteLedger, session: str, commit: Commit, facts: SessionFacts | None = None) -> Committed:
        known = self.known_keys(session) if self.thread_of(session) is not None else {}
        new = [replace(one, keys=tuple(key for key in one.keys if key not in known)) for one in commit.entries]
        return _commit(self, session, replace(commit, entries=tuple(new)), facts)

    SqliteLedger.commit = commit


def split_commits() -> None:
    """Each entry of a commit has a transaction of its own."""

    def commit(self: SqliteLedger, session: str, commit: Commit, facts: SessionFacts | None = None) -> Committed:
        added = sum(_commit(self, session, Commit((entry,)), facts).added for entry in commit.entries[:-1])
        done = _commit(self, session, replace(commit, entries=commit.entries[-1:]), facts)
        return replace(done, added=done.added + added)

    SqliteLedger.commit = commit


def unexpected_marks() -> None:
    """A compaction is stored whatever mark came before it."""

    def commit(self: SqliteLedger, session: str, commit: Commit, facts: SessionFacts | None = None) -> Committed:
        return _commit(self, session, replace(commit, expected_mark=None), facts)

    SqliteLedger.commit = commit


def swallowed_errors() -> None:
    """A commit that fails is acknowledged."""

    def commit(self: SqliteLedger, session: str, commit: Commit, facts: SessionFacts | None = None) -> Committed:
        try:
            return _commit(self, session, commit, facts)
        except LedgerError:
            return Committed(1, 0, 0, 0)

    SqliteLedger.commit = commit


BUILDS: dict[str, Callable[[], None]] = {
    build.__name__: build
    for build in (
        synchronous_normal,
        deferred_begin,
        content_hashes,
        copied_backup,
        forgotten_keys,
        split_commits,
        unexpected_marks,
        swallowed_errors,
    )
}
