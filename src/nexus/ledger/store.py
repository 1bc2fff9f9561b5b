"""Protocol of a ledger store. Every backend passes `nexus.testing.ledger_conformance`.

A store is bound to one tenant and sees no other tenant's rows. Methods are synchronous and may be called from any
thread; all raise `LedgerError` subclasses. Text is returned unchanged, NUL and lone surrogates included.

What needs one part of a store names that part: `SessionStore`, `HistoryStore`, `QueueStore` or `DocumentStore`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from nexus.errors import NoSuchSession
from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    PENDING,
    AcceptedEvent,
    Alias,
    Document,
    EraseResult,
    EventState,
    Lease,
    NewQueuedEvent,
    NewRefUpdate,
    Query,
    QueuedEvent,
    RefUpdate,
    SearchHit,
    Segment,
    SessionInfo,
    SessionMetadata,
    Thread,
)
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, Entry, StoredCalibration, StoredMessage


class TenantStore(Protocol):
    """Location, tenant and snapshots: the base of each part of a store."""

    @property
    def location(self) -> str:
        """Location for messages: a file path or a server's name."""
        ...

    @property
    def tenant(self) -> str:
        """Whose rows this store reads and writes."""
        ...

    def snapshot(self) -> AbstractContextManager[object]:
        """Run all reads of this thread on one state of the ledger, whatever others write meanwhile."""
        ...


class SessionStore(TenantStore, Protocol):
    """Names of sessions: labels, aliases, pointer updates and leases."""

    def resolve(self, name: str) -> str | None:
        """Return the label that a name means: itself, else the target of its alias, else None.

        Raises BadReference when aliases form a circle.
        """
        ...

    def thread_of(self, session: str) -> int | None:
        """Return the thread that a session's label or alias points to; None for an unknown session."""
        ...

    def session(self, label: str) -> RefUpdate | None:
        """Return the newest update of exactly this label; None if it never had one.

        The update's thread is None if the label was retired.
        """
        ...

    def sessions(
        self, *, every: bool = False, prefix: str = "", limit: int | None = None, offset: int = 0
    ) -> list[SessionInfo]:
        """Return the active sessions, newest first; `every` adds archived and deleted ones.

        `prefix` is the beginning of their labels. With a `limit`, at most that many are read, after the first `offset`;
        of the others nothing is read or checked.
        """
        ...

    def session_info(self, label: str) -> SessionInfo | None:
        """Return the line of `sessions` of exactly this label, whatever its status; None for a name without a session."""
        ...

    def labels_of(self, thread: int, *, every: bool = False) -> list[str]:
        """Return the labels that point to a thread now, the one that was updated last first.

        Those of deleted sessions are among them with `every` only.
        """
        ...

    def former_labels_of(self, thread: int) -> list[str]:
        """Return the labels that pointed to a thread once and point to another one now, by name."""
        ...

    def names_of(self, label: str) -> list[str]:
        """Return a session's label and all aliases that lead to it."""
        ...

    def spawned(self, label: str) -> list[SessionInfo]:
        """Return the sessions whose parent session is this one under any of its names, newest first, of every status."""
        ...

    def owned(self, label: str) -> list[RefUpdate]:
        """Return the newest updates of the sessions whose owner session is this one under any of its names, by label."""
        ...

    def ref_updates(self, label: str) -> list[RefUpdate]:
        """Return all updates of exactly this label, oldest first."""
        ...

    def update_refs(self, updates: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Append pointer updates and alias changes in one transaction.

        Raises HeadMoved (`expected_number`), and BadReference for an unknown or erased thread, an unknown parent
        session, turn or call, and a circle of parents or aliases.
        """
        ...

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """Return the current aliases by name. `every` returns all changes, oldest first for each name."""
        ...

    def take_lease(self, session: str, holder: str, ms: int) -> Lease:
        """Take the lease of a session for some milliseconds, or renew one's own. Returns the lease that applies now.

        It lasts two minutes at most, and is another holder's if that one has not expired by the store's own clock. A
        session need not exist. Each holder gets a larger fencing token than all writers before, for `Commit.fence`, and
        renewing keeps it. Leases restrict nobody else, and follow a session that is renamed.
        """
        ...

    def release_lease(self, session: str, holder: str) -> None:
        """Give a session's lease back; another holder's stays."""
        ...


class HistoryStore(TenantStore, Protocol):
    """Threads of entries, which are appended and read, with cuts, manifests, images and idempotency keys."""

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        """Write everything in one transaction, or nothing. A new session gets this metadata.

        An entry whose keys are all known adds nothing, and if nothing is new, expectations are not checked: a client
        that repeats a request after a lost answer gets the same answer. An archived session can be appended to and
        stays archived. Raises HeadMoved (`base` and a session that exists), CompactionSuperseded,
        TurnSuperseded (`turn`, `fence`), IdempotencyConflict, BadReference, LedgerBusy, LedgerFull.

        A store with the attribute `changes_leases_in_commits` set to True also takes or ends `Commit.lease`, or both at
        once (`LeaseChange.is_brief`), and raises SessionBusy if another holder has it.
        """
        ...

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
        """Point `session` to a new thread that shares `source`'s path up to `at_seq`. Returns the thread.

        `session` may be `source` itself (a rewind). `metadata` None keeps the session's metadata. The new thread continues
        the one that contains entry `at_seq`, so forks of forks are as shallow as possible. `expected_number` rejects
        the fork if `session` was moved since. Raises NoSuchSession, BadReference, HeadMoved.
        """
        ...

    def thread(self, thread: int) -> Thread:
        """Return a thread's row. Raises NoSuchSession."""
        ...

    def threads(self) -> list[Thread]:
        """Return all threads, by number."""
        ...

    def forks(self, thread: int) -> list[int]:
        """Return the threads that directly continue a thread and were not erased, by number."""
        ...

    def path(self, thread: int) -> list[Segment]:
        """Return the thread's path, root first: which entries of which threads it consists of."""
        ...

    def head(self, thread: int) -> tuple[int, bytes]:
        """Return the path's last seq and its hash; (0, root hash) when empty."""
        ...

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """Return the path's entries with `after < seq <= until` in order, checked (LedgerDamaged)."""
        ...

    def message_counts(self, thread: int) -> list[tuple[int, int]]:
        """Return seq and number of messages of each entry of the path that has any, in order; their text is not read."""
        ...

    def checkpoints(self, thread: int, until: int | None = None, *, replaced: bool = True) -> list[Entry]:
        """Return the path's checkpoints (every kind that is not in `STEPS`) up to an entry, newest first.

        Without `replaced` they lack the compactions that a later clear or compaction has replaced: the summaries of a
        long session are larger than its window.
        """
        ...

    def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """Return the system messages that the path's first entry begins with."""
        ...

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """Return the view's newest cut, its own or inherited from before the fork."""
        ...

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Return every cut of the view on the path, those from before a fork included, by number."""
        ...

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """Return the newest stored manifest of the view."""
        ...

    def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """Return the stored manifests on the path with `after < seq <= until`, oldest first."""
        ...

    def blob(self, sha256: str) -> bytes | None:
        """Return the image or manifest input with this hash; None if there is none.

        Raises LedgerDamaged if it does not match its hash.
        """
        ...

    def known_keys(self, session: str) -> dict[str, int]:
        """Return the seq of each idempotency key on the session's path, inherited ones included.

        A key works once on each path: the same append again adds nothing, also after a rewind. A fork may use a key
        that it inherited for something else.
        """
        ...

    def holders(self, key: str, thread: int | None = None) -> list[tuple[int, int]]:
        """Return the uses of an idempotency key as (thread, seq): on a thread's path, root first, or in all, by thread."""
        ...

    def search(self, query: Query) -> list[SearchHit]:
        """Return the messages that contain all the query's words. See `Query`."""
        ...


class QueueStore(TenantStore, Protocol):
    """Events that wait for their turn."""

    def accept_events(self, events: Sequence[NewQueuedEvent]) -> list[AcceptedEvent]:
        """Store the events that are new, in one transaction. Returns each event as it is stored now, in this order.

        An event is known if its session, under any of its names, has one with its id and principal: that one keeps its
        row, whatever its state and body. A session need not exist; an alias means its session. Raises BadReference for an
        empty id or an unknown state.
        """
        ...

    def update_events(
        self,
        keys: Collection[str],
        state: EventState,
        *,
        expected: Collection[EventState],
        reason: str = "",
        turn: int = 0,
    ) -> list[QueuedEvent]:
        """Give events that are in an expected state another one, with this reason and turn, in one transaction.

        Returns the changed events by number. Events in other states stay as they are, and unknown keys are ignored. A
        loss of power may undo a change to `running`.
        """
        ...

    def delete_finished_events(self, age_ms: int) -> int:
        """Delete the events that were done, failed or dropped more than `age_ms` ago. Returns their number.

        An event that is delivered again after that is new.
        """
        ...

    def queued_event(self, key: str) -> QueuedEvent | None:
        """Return the event with this key, in any state; None if there is none."""
        ...

    def events_with_id(self, id: str) -> list[QueuedEvent]:  # noqa: A002 - the field's name
        """Return the events with this id by number: several sessions and principals may have one each."""
        ...

    def queued_events(self, session: str | None = None, states: Collection[EventState] = PENDING) -> list[QueuedEvent]:
        """Return the events in these states by number: of one session, its earlier names included, or of all."""
        ...

    def queued_sessions(self) -> list[str]:
        """Return the labels of the sessions that have queued or running events, by their first one."""
        ...


class DocumentStore(TenantStore, Protocol):
    """Documents and calibrations: of each, the newest version counts."""

    def put_document(
        self, kind: str, name: str, body: dict[str, Any], *, expected_number: int | None = None
    ) -> Document:
        """Store a document's next version and return it as it is stored; earlier ones are gone.

        `expected_number` is the number of the version that it replaces (0: none). Raises HeadMoved if there is
        another, and BadReference without a kind or for a body without an exact JSON form.
        """
        ...

    def delete_document(self, kind: str, name: str) -> bool:
        """Delete a document; return whether there was one."""
        ...

    def document(self, kind: str, name: str) -> Document | None:
        """Return a document; None if there is none."""
        ...

    def documents(self, kind: str = "", *, after: str = "", limit: int | None = None) -> list[Document]:
        """Return the documents of a kind by name; of all kinds without one.

        With a `limit`, at most that many of one kind are read, behind the name `after`. Names are ordered as they are
        stored: those of ASCII by their characters.
        """
        ...

    def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Store a newer calibration for a provider and model. A loss of power may undo it."""
        ...

    def calibration(self, provider: str, model: str) -> StoredCalibration | None:
        """Return the newest calibration for a provider and model."""
        ...

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Return every provider and model that has one, by name, with its newest calibration."""
        ...


class LedgerStore(SessionStore, HistoryStore, QueueStore, DocumentStore, Protocol):
    """An append-only store of sessions, with their queue and documents."""

    def close(self) -> None:
        """Close all connections after pending writes. Later calls raise LedgerUnusable."""
        ...

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
        """Delete threads and labels for good, with all that only they use; None is everything of the tenant.

        What stays of a thread is its number, marked as erased. Labels that were given up for these threads go too, and
        the queued events of all these labels. So do further queued events by key, and documents by kind and name.
        Raises LedgerError when another thread continues one of these or another label points to it or one of
        them has an entry from after `unused_since_ms`, and when the storage still holds some of the text.
        Without `scrub`, what takes long is left to the next erasure, also to one of nothing: images and manifest inputs
        that nothing uses any more, and text in unused parts of the storage.
        """
        ...

    def dump(self) -> Iterator[Record]:
        """Return all rows of the tenant as records, in their fixed order, as they are: nothing is checked."""
        ...

    def load(self, records: Iterable[Record]) -> int:
        """Store records that `dump` gave, in one transaction; those that are there already are skipped.

        Of a document the later version stays. Returns how many were new. Raises LedgerError when the ledger has another row at the same place, BadReference
        when records do not fit together. Hashes are the caller's to check (`nexus.ledger.integrity`).
        """
        ...


def unknown_session(store: TenantStore, session: str) -> NoSuchSession:
    """Return the error for a session that the store does not have."""
    return NoSuchSession(f"session {session!r} not found in {store.location} (list sessions: nexus sessions)")
