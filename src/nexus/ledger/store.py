"""What a ledger store must do. Nothing here is possible only in SQLite; every backend passes `nexus.testing.ledger_conformance`.

A store is bound to one tenant and sees no other one's rows. Methods are synchronous and may be called from any thread;
all raise `LedgerError` subclasses. Text comes back as it was given, NUL and lone surrogates included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from nexus.ledger.records import Record
from nexus.ledger.sessions import (
    Alias,
    EraseResult,
    NewRefUpdate,
    Query,
    RefUpdate,
    SearchHit,
    Segment,
    SessionInfo,
    SessionMetadata,
    Thread,
)
from nexus.types.ledger_entries import AssemblyRow, Commit, Committed, Cut, Entry, StoredCalibration, StoredMessage


class LedgerStore(Protocol):
    """An append-only store of sessions."""

    @property
    def place(self) -> str:
        """Where it is, for messages: a file path or a server's name."""
        ...

    @property
    def tenant(self) -> str:
        """Whose rows this store reads and writes."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Inside, all reads of this thread see one state of the ledger, whatever others write meanwhile."""
        ...

    def close(self) -> None:
        """Closes all connections, after what is being written. Later calls raise LedgerClosed."""
        ...

    # sessions ----------------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str | None:
        """The label that a name stands for: itself if a session has it, else what its alias leads to, else None.

        Raises BadReference when aliases go in a circle.
        """
        ...

    def thread_of(self, session: str) -> int | None:
        """The thread that a session's label or alias points to; None if there is no such session."""
        ...

    def session(self, label: str) -> RefUpdate | None:
        """The newest move of exactly this label; None if it never had one. Its thread is None if it was retired."""
        ...

    def sessions(self, *, every: bool = False) -> list[SessionInfo]:
        """The active sessions, newest first; `every` adds archived and deleted ones."""
        ...

    def moves(self, label: str) -> list[RefUpdate]:
        """All moves of exactly this label, oldest first."""
        ...

    def move(self, moves: Sequence[NewRefUpdate], aliases: Sequence[Alias] = ()) -> list[RefUpdate]:
        """Appends moves and alias changes in one transaction. Raises SessionMoved (`expected_number`), BadReference.

        Refused as BadReference: a thread that is not there or was erased, a parent session, turn or call that is not
        there, a circle of parents or of aliases.
        """
        ...

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """The aliases that hold now, by name; `every` gives each change there was, oldest first for each name."""
        ...

    # writing -----------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        """Writes everything in one transaction, or nothing. Creates the session, with these facts, if it is new.

        An entry all of whose keys are known adds nothing, and where nothing is new nothing is expected either: who asks
        again after a lost answer gets the same one. A session that was archived goes on and stays archived.
        Raises HeadMoved, CompactionSuperseded, IdempotencyConflict, BadEntry, BadReference, LedgerBusy, LedgerFull.
        """
        ...

    def fork(
        self,
        session: str,
        source: str,
        at_seq: int,
        *,
        reason: str = "fork",
        facts: SessionMetadata | None = None,
        expected_number: int | None = None,
    ) -> int:
        """Points `session` to a new thread that shares `source`'s path up to `at_seq`; returns the new thread.

        `session` may be `source` itself (a rewind). `facts` None keeps those that `session` has, if it has any.
        The new thread continues the one that entry `at_seq` lies in, so forks of forks are no deeper than they have to be.
        `expected_number` refuses it if `session` was moved since. Raises NoSuchSession, BadReference, SessionMoved.
        """
        ...

    def calibrate(self, provider: str, model: str, calibration: StoredCalibration) -> None:
        """Stores a newer calibration for a provider and model."""
        ...

    def erase(self, threads: Sequence[int] | None, labels: Sequence[str] = ()) -> EraseResult:
        """Deletes threads and labels for good, with all that only they use; None is everything of the tenant.

        What stays of a thread is its number, marked as erased. Labels that were given up for these threads go too.
        Raises ForksDepend when another thread continues one of these or another label points to it, and
        EraseIncomplete when the storage still holds some of the text.
        """
        ...

    # reading -----------------------------------------------------------------------------------------------------

    def thread(self, thread: int) -> Thread:
        """A thread's row. Raises NoSuchSession."""
        ...

    def threads(self) -> list[Thread]:
        """All threads, by number."""
        ...

    def path(self, thread: int) -> list[Segment]:
        """The thread's path, root first: which entries of which threads it consists of."""
        ...

    def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and its hash; (0, root hash) when empty."""
        ...

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The path's entries with `after < seq <= until`, in order, each checked against its hash (LedgerDamaged)."""
        ...

    def marks(self, thread: int) -> list[Entry]:
        """The path's marks (every kind that is not in `STEPS`), newest first."""
        ...

    def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """The system messages that the path's first entry begins with."""
        ...

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The view's newest cut, its own or inherited from before the fork."""
        ...

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Every cut of the view on the path, those from before a fork included, by number."""
        ...

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest stored manifest of the view."""
        ...

    def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """The stored manifests on the path with `after < seq <= until`, oldest first."""
        ...

    def blob(self, sha256: str) -> bytes | None:
        """What is stored by this hash, an image or what a manifest names; None if it is not there.

        Raises LedgerDamaged if it does not match its hash.
        """
        ...

    def known_keys(self, session: str) -> dict[str, int]:
        """The seq at which each idempotency key was used, for all keys on the session's path, inherited ones included.

        A key works once on each path: the same append again adds nothing, also after a rewind. A fork may use a key
        that it inherited for something else.
        """
        ...

    def holders(self, key: str) -> list[tuple[int, int]]:
        """Where an idempotency key was used, in any session: (thread, seq), by thread."""
        ...

    def search(self, query: Query) -> list[SearchHit]:
        """The messages that have all the query's words, Chinese, Japanese and Korean included. See `Query`."""
        ...

    def calibration(self, provider: str, model: str) -> StoredCalibration | None:
        """The newest calibration for a provider and model."""
        ...

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Every provider and model that has one, by name, with its newest calibration."""
        ...

    def dump(self) -> Iterator[Record]:
        """All rows of the tenant as records, in their fixed order, as they are: nothing is checked."""
        ...

    def load(self, records: Iterable[Record]) -> int:
        """Stores records that `dump` gave, in one transaction; those that are there already are passed over.

        Returns how many were new. Raises LedgerConflict when the ledger has another row at the same place, BadReference
        when records do not fit together. Hashes are the caller's to check (`nexus.ledger.integrity`).
        """
        ...
