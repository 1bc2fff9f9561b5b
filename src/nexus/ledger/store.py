"""What a ledger store must do. Nothing here is possible only in SQLite; every backend passes the same tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from nexus.ledger.entries import AssemblyRow, Commit, Committed, Cut, Entry, Row, SessionInfo


class LedgerStore(Protocol):
    """An append-only store of sessions. Methods are synchronous; all raise `LedgerError` subclasses."""

    @property
    def place(self) -> str:
        """Where it is, for messages: a file path or a server's name."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Inside, all reads of this thread see one state of the ledger, whatever others write meanwhile."""
        ...

    def thread_of(self, session: str) -> int | None:
        """The thread that a session's label points to; None if there is no such session."""
        ...

    def commit(self, session: str, commit: Commit, *, title: str = "") -> Committed:
        """Writes everything in one transaction, or nothing. Creates the session if it is new.

        An entry all of whose keys are known adds nothing. Raises HeadMoved, IdempotencyConflict, LedgerBusy, LedgerFull.
        """
        ...

    def fork(self, session: str, source: str, at_seq: int) -> int:
        """Starts `session` as a thread that shares `source`'s path up to `at_seq`; returns the new thread."""
        ...

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The path's entries with `after < seq <= until`, in order, each checked against its hash (LedgerDamaged)."""
        ...

    def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and its hash; (0, root hash) when empty."""
        ...

    def marks(self, thread: int) -> list[Entry]:
        """The path's clear and compaction entries, newest first."""
        ...

    def instructions(self, thread: int) -> Sequence[Row]:
        """The system messages that stand before everything else on the path."""
        ...

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The view's newest cut, its own or inherited from before the fork."""
        ...

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest stored manifest of the view."""
        ...

    def known_keys(self, session: str) -> dict[str, int]:
        """The seq at which each idempotency key was used, for all keys that the session's thread has used."""
        ...

    def sessions(self) -> list[SessionInfo]:
        """All sessions, newest first."""
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...
