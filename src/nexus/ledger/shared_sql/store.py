"""The methods of `LedgerStore` that all SQL databases share.

A store of one database supplies the snapshot in which a read runs, and the transaction in which a write runs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    AcceptedEvent,
    Alias,
    Document,
    EraseResult,
    EventState,
    Lease,
    NewQueuedEvent,
    NewRefUpdate,
    QueuedEvent,
    RefUpdate,
    Segment,
    SessionMetadata,
)
from nexus.ledger.shared_sql import documents as sql_documents
from nexus.ledger.shared_sql import dump as sql_dump
from nexus.ledger.shared_sql import idempotency, outcomes, queue, related_sessions, session_list, unused_blobs
from nexus.ledger.shared_sql import search as sql_search
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.ledger_entries import Commit, Committed, Entry, StoredCalibration

P = ParamSpec("P")
T = TypeVar("T")


def _read(
    query: Callable[Concatenate[Reader, P], T], *, is_statement: bool = False
) -> Callable[Concatenate[SqlLedger, P], T]:
    """Return the store's method that runs a reader's query in a snapshot; a single statement needs none."""

    @wraps(query)
    def method(self: SqlLedger, *args: P.args, **kwargs: P.kwargs) -> T:
        reader = self.open_reader
        if reader is None:
            read = self.read_statement if is_statement else self.read_alone
            return read(query, *args, **kwargs)
        with self.typed_errors:
            return query(reader, *args, **kwargs)

    return method


def _resolve(reader: Reader, name: str) -> str | None:
    """Return the label that a name means."""
    label = reader.resolve(encode_text(name))
    if label is not None:
        return decode_text(label)
    return None


def _path(reader: Reader, thread: int) -> list[Segment]:
    """Return the thread's path, root first."""
    return list(reader.path(thread))  # the reader's own list is cached


def _entries(reader: Reader, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
    """Return the path's entries in order, all verified before the first one is returned."""
    return iter(reader.entries(thread, after, until))


class SqlLedger(ABC):
    """Ledger of one tenant in an SQL database. See `LedgerStore` for its methods."""

    typed_errors: AbstractContextManager[None]
    """Converts the database's errors to ours."""

    changes_leases_in_commits = True
    """True if `commit` does what `Commit.lease` says, as a store of another maker may not."""

    outlives_holders = False
    """True if the ledger may lose power while those who hold a lease go on: then its fencing token must be durable."""

    def __init__(self, tenant: str, clock_ms: Callable[[], int] | None) -> None:
        self._tenant = tenant
        self._name = encode_text(tenant)
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._cache = ReadCache()

    @property
    @abstractmethod
    def location(self) -> str:
        """The ledger's location, for messages."""

    @property
    def tenant(self) -> str:
        """Whose rows these are."""
        return self._tenant

    @property
    @abstractmethod
    def open_reader(self) -> Reader | None:
        """The reader of this thread's open snapshot."""

    @abstractmethod
    def read_alone(self, query: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in a snapshot of its own."""

    def read_statement(self, query: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query of a single statement."""
        return self.read_alone(query, *args, **kwargs)

    @abstractmethod
    def _write(
        self,
        call: Callable[[Writing], T],
        *,
        alone: bool = False,
        durable: bool = True,
        is_stored: Callable[[Reader, T], bool] | None = None,
    ) -> T:
        """Run a write in a transaction and wait until it is durable.

        Args:
            call: The write. It may run again, in another transaction, unless it is `alone`.
            alone: Without any other write of the tenant at the same time.
            durable: False if a loss of power may undo it.
            is_stored: Whether this result of the write is in the ledger, for a commit whose answer was lost.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[object]:
        """Run all reads of this thread in one read transaction."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections, after what waits to be written."""

    # sessions ----------------------------------------------------------------------------------------------------

    resolve = _read(_resolve)
    thread_of = _read(Reader.thread_of)
    session = _read(Reader.session)
    sessions = _read(session_list.sessions)
    session_info = _read(session_list.session_info)
    labels_of = _read(related_sessions.labels_of)
    former_labels_of = _read(related_sessions.former_labels_of)
    names_of = _read(related_sessions.names_of)
    spawned = _read(related_sessions.spawned)
    owned = _read(related_sessions.owned)
    ref_updates = _read(Reader.ref_updates)
    aliases = _read(Reader.aliases)

    def update_refs(self, updates: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Append pointer updates and alias changes in one transaction."""
        is_stored = outcomes.are_updates_stored if updates else None
        return self._write(lambda writing: writing.update_refs(updates, aliases), is_stored=is_stored)

    # writing -----------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        """Write everything in one transaction, or nothing."""
        hashes: list[bytes] = []

        def write(writing: Writing) -> Committed:
            committed = writing.commit(session, commit, metadata)
            hashes[:] = writing.hashes[-1:]
            return committed

        return self._write(
            write, is_stored=lambda reader, committed: outcomes.is_commit_stored(reader, committed, hashes)
        )

    def fork(
        self,
        session: str,
        source: str,
        at_seq: int,
        *,
        reason: str = "fork",
        metadata: SessionMetadata | None = None,
        expected_number: int | None = None,
    ) -> int:
        """Start a thread with its parent's chain value at `at_seq`. A fork is one row."""
        new = NewRefUpdate(session, None, reason, metadata, expected_number)
        return self._write(
            lambda writing: writing.fork(new, source, at_seq),
            is_stored=lambda reader, thread: outcomes.is_fork_stored(reader, session, thread, reason),
        )

    def take_lease(self, session: str, holder: str, ms: int) -> Lease:
        """Take or renew the lease of a session."""
        return self._write(
            lambda writing: writing.take_lease(session, holder, ms),
            durable=self.outlives_holders,
            is_stored=outcomes.run_again,
        )

    def release_lease(self, session: str, holder: str) -> None:
        """Give a session's lease back."""
        self._write(lambda writing: writing.release_lease(session, holder), durable=False, is_stored=outcomes.run_again)

    def accept_events(self, events: Sequence[NewQueuedEvent]) -> list[AcceptedEvent]:
        """Store the events that are new, in one transaction."""
        return self._write(lambda writing: queue.accept(writing, events), is_stored=outcomes.are_events_accepted)

    def update_events(
        self,
        keys: Collection[str],
        state: EventState,
        *,
        expected: Collection[EventState],
        reason: str = "",
        turn: int = 0,
    ) -> list[QueuedEvent]:
        """Change the events that are in an expected state."""
        durable = state != "running"  # or the event is found queued, and taken again
        return self._write(
            lambda writing: queue.update(writing, keys, state, reason, turn, expected),
            durable=durable,
            is_stored=outcomes.are_events_updated,
        )

    def delete_finished_events(self, age_ms: int) -> int:
        """Delete the events that were finished longer ago."""
        return self._write(lambda writing: queue.delete_finished(writing, age_ms), is_stored=outcomes.run_again)

    def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Store a newer calibration."""
        self._write(
            lambda writing: writing.calibrate(provider, model, calibration),
            durable=False,
            is_stored=outcomes.run_again,
        )

    def put_document(
        self, kind: str, name: str, body: dict[str, Any], *, expected_number: int | None = None
    ) -> Document:
        """Store a document's next version."""
        return self._write(
            lambda writing: sql_documents.write(writing, kind, name, body, expected_number),
            is_stored=lambda reader, stored: sql_documents.document(reader, kind, name) == stored,
        )

    def delete_document(self, kind: str, name: str) -> bool:
        """Delete a document."""
        return self._write(
            lambda writing: sql_documents.delete(writing, kind, name),
            is_stored=lambda reader, _: sql_documents.document(reader, kind, name) is None,
        )

    @abstractmethod
    def erase(
        self,
        threads: Sequence[int] | None,
        labels: Sequence[str] = (),
        *,
        events: Sequence[str] = (),
        documents: Sequence[tuple[str, str]] = (),
        unused_since_ms: int | None = None,
        scrub: bool = True,
    ) -> EraseResult:
        """Delete rows for good."""

    def _delete_unused_blobs(self) -> EraseResult:
        """Delete the blobs that nothing uses any more, in steps between which others may write. A kill leaves the rest."""
        unused, ends = self.read_alone(unused_blobs.unused_by_messages)
        deleted = 0
        for blobs in unused_blobs.steps(partial(self.read_alone, unused_blobs.named_on_page), unused):
            deleted += self._write(partial(unused_blobs.delete_blobs, blobs=blobs, ends=ends), alone=True)
        return EraseResult((), 0, 0, deleted)

    def load(self, records: Iterable[Record]) -> int:
        """Store records that `dump` gave."""
        return self._write(lambda writing: sql_dump.load(writing, records), alone=True)

    # reading -----------------------------------------------------------------------------------------------------

    path = _read(_path)
    entries = _read(_entries)
    message_counts = _read(Reader.message_counts)
    thread = _read(Reader.thread)
    threads = _read(Reader.threads)
    forks = _read(related_sessions.forks)
    head = _read(Reader.head)
    checkpoints = _read(Reader.checkpoints)
    instructions = _read(Reader.instructions)
    last_cut = _read(Reader.last_cut)
    cuts = _read(Reader.cuts)
    last_assembly = _read(Reader.last_assembly)
    assemblies = _read(Reader.assemblies)
    blob = _read(Reader.blob_if_there)
    known_keys = _read(idempotency.known_keys)
    holders = _read(idempotency.holders)
    search = _read(sql_search.search)
    calibration = _read(Reader.calibration)
    calibrations = _read(Reader.calibrations)
    document = _read(sql_documents.document, is_statement=True)
    documents = _read(sql_documents.documents)
    queued_event = _read(queue.event)
    events_with_id = _read(queue.events_with_id)
    queued_events = _read(queue.events)
    queued_sessions = _read(queue.sessions)

    @abstractmethod
    def dump(self) -> Iterator[Record]:
        """Yield all rows of the tenant as records, unchecked, as they were when it began."""
