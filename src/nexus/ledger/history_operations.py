"""Operations on a session's history: turns, compaction, undo, pins, forks, reading and search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Literal

import msgspec

from nexus.errors import BadReference
from nexus.ledger import replay
from nexus.ledger.replay import LiveCheckpoints, RecordedToolCall, RecordedTurn, VisibleMessages
from nexus.ledger.session_directory import SessionDirectory, label_of, last_entry_of, newest_update, thread_of
from nexus.ledger.sessions import (
    Query,
    SearchHit,
    SessionMetadata,
    Thread,
)
from nexus.ledger.store import HistoryStore, LedgerStore
from nexus.ledger.upkeep import Upkeep
from nexus.types.ledger_entries import (
    Commit,
    Committed,
    Compaction,
    Entry,
    MessageRef,
    NewEntry,
    SizedMessage,
)
from nexus.types.message import Role

READ_ENTRIES = 2_000
"""Entries read at a time, so that memory does not follow the length of a session."""


class Ledger:
    """A store's sessions: their history here, their names in `sessions`, erasure in `upkeep`.

    Several may share a store; the store does the locking.

    A turn that was appended to through this object and is not closed counts as under way; any other open turn is shown
    as interrupted, as it is after a crash.
    """

    def __init__(self, store: LedgerStore) -> None:
        self.store = store
        self.sessions = SessionDirectory(store)
        """Labels, aliases and metadata of sessions."""
        self.upkeep = Upkeep(store)
        """Erasure, and what belongs to a session without being part of it."""
        self._begun: dict[int, set[int]] = {}

    def resolve(self, name: str) -> str | None:
        """Return the label that a name means: itself, else the target of its alias, else None."""
        return self.store.resolve(name)

    def thread(self, session: str) -> int:
        """Return the thread of a session. Raises NoSuchSession."""
        return thread_of(self.store, session)

    # appending ---------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, metadata: SessionMetadata | None = None) -> Committed:
        """Write everything in one transaction; see `LedgerStore.commit`."""
        committed = self.store.commit(session, commit, metadata)
        if committed.added:
            begun = self._begun.setdefault(committed.thread, set())
            if commit.entries[-1].kind in ("completed", "failed"):
                begun.discard(committed.turn)
            else:
                begun.add(committed.turn)
        return committed

    def append(
        self,
        session: str,
        messages: Iterable[SizedMessage],
        *,
        key: str = "",
        expected_head: int | None = None,
        starts_turn: bool = False,
        body: Mapping[str, Any] | None = None,
    ) -> Committed:
        """Append one step: messages that belong together. The same key again adds nothing."""
        entry = NewEntry(
            messages=tuple(messages), body=dict(body or {}), starts_turn=starts_turn, keys=(key,) if key else ()
        )
        return self.commit(session, Commit((entry,), expected_head=expected_head))

    def open_turn(self, session: str, messages: Iterable[SizedMessage], *, key: str = "", **body: Any) -> Committed:
        """Begin a turn with its first messages. `body` contains model, role, toolset and the like."""
        return self.append(session, messages, key=key, starts_turn=True, body=body)

    def close_turn(self, session: str, *, error: str = "", key: str = "", **body: Any) -> Committed:
        """End the open exchange: completed, or failed with an error. Raises BadReference if none is open."""
        row = self.store.thread(self.thread(session))
        is_repeat = bool(key) and any(thread == row.id for thread, _ in self.store.holders(key, row.id))
        if not row.open_turn and not is_repeat:
            raise BadReference(f"session {session!r} has no open turn (nothing was stored)", code="bad_entry")
        kind, fields = ("failed", {"error": error, **body}) if error else ("completed", body)
        entry = NewEntry(kind, body=fields, keys=(key,) if key else ())
        return self.commit(session, Commit((entry,), expected_head=row.head_seq))

    def compact(
        self,
        session: str,
        compaction: Compaction,
        *,
        after_checkpoint: int,
        key: str = "",
        follows: tuple[int, bytes] | None = None,
    ) -> Committed:
        """Append a compaction that was planned when `after_checkpoint` was the newest one. Appends may have come since.

        `follows` is an entry (seq and hash) that the session must still have. Raises CompactionSuperseded if another
        checkpoint came, HeadMoved if that entry is gone, BadReference if it covers entries that do not exist.
        """
        body = {name: value for name, value in msgspec.to_builtins(compaction).items() if value is not None}
        entry = NewEntry("compaction", body=body, keys=(key,) if key else ())
        return self.commit(session, Commit((entry,), expected_checkpoint=after_checkpoint, follows=follows))

    def undo(self, session: str) -> Entry:
        """Undo the current compaction and return it. Raises BadReference if there is none."""
        marks = self.store.checkpoints(self.thread(session))
        target = replay.live_checkpoints(marks).checkpoint
        if target is None or target.kind != "compaction":
            raise BadReference(f"session {session!r} has no compaction to undo", code="bad_entry")
        _mark(self.store, session, marks, NewEntry("undone", body={"of": target.seq}))
        return target

    def redo(self, session: str) -> Entry:
        """Undo the newest undo and return the restored compaction. Raises BadReference if none is undone."""
        marks = self.store.checkpoints(self.thread(session))
        out = replay.revoked_checkpoints(marks)
        by_seq = {mark.seq: mark for mark in marks}
        for mark in marks:
            target = None
            if mark.kind == "undone" and mark.seq not in out:
                target = by_seq.get(mark.body["of"])
            if target is not None and target.kind == "compaction":
                _mark(self.store, session, marks, NewEntry("undone", body={"of": mark.seq}))
                return target
        raise BadReference(f"session {session!r} has no undo to redo", code="bad_entry")

    def pin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Keep a message verbatim, whatever is cut or compacted. Raises BadReference if it is not there."""
        return _pin(self, "pin", session, place, reason)

    def unpin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Remove a pin. Raises BadReference if the message is not pinned."""
        if place not in self.live(session).pins:
            raise BadReference(
                f"message {place.ord} of entry {place.seq} of session {session!r} is not pinned", code="bad_entry"
            )
        return _pin(self, "unpin", session, place, reason)

    def fork(self, session: str, source: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Start a session that shares `source`'s history up to the end of a turn, or to an entry (default: all of it).

        Returns the new thread. Raises NoSuchSession, HeadMoved, BadReference (name taken, no such position).
        """
        if self.store.resolve(session) is not None:
            raise BadReference(f"session {session!r} exists (choose another name, or `rewind` it)")
        last = self.store.session(session)
        at = last_entry_of(self.store, source, turn, seq)
        reason = f"fork of {source} at entry {at}"
        number = last.number if last is not None else 0
        inherited = newest_update(self.store, source).metadata
        owner = label_of(self.store, source)
        metadata = SessionMetadata(title=inherited.title, persona=inherited.persona, owner_session=owner)
        return self.store.fork(session, source, at, reason=reason, metadata=metadata, expected_number=number)

    def rewind(self, session: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Move a session back to the end of a turn (0: the beginning) or to an entry. Returns the new thread.

        Later entries stay on the old thread. Raises NoSuchSession, BadReference, HeadMoved.
        """
        old = newest_update(self.store, session)
        at = last_entry_of(self.store, old.label, turn, seq)
        return self.store.fork(old.label, old.label, at, reason=f"rewind to entry {at}", expected_number=old.number)

    # reading -----------------------------------------------------------------------------------------------------

    def live(self, session: str) -> LiveCheckpoints:
        """Return the current checkpoints: newest clear or compaction, pins, undone compactions."""
        return replay.live_checkpoints(self.store.checkpoints(self.thread(session), replaced=False))

    def entries(self, session: str, after: int = 0, until: int | None = None) -> list[Entry]:
        """Return every entry of the session, oldest first, compacted ones included."""
        return list(self.store.entries(self.thread(session), after, until))

    def visible(self, session: str) -> VisibleMessages:
        """Return the compaction-aware history: the current summary and the messages that it kept."""
        with self.store.snapshot():
            return replay.visible_messages(self.store, self.thread(session))

    def turns(self, session: str, first: int = 0) -> list[RecordedTurn]:
        """Return the session's turns from number `first` on with their derived status, oldest first."""
        thread = self.thread(session)
        return replay.turns(replay.entries_from_turn(self.store, thread, first), self._begun.get(thread, set()))

    def calls(self, session: str) -> list[RecordedToolCall]:
        """Return the session's tool calls with their derived status, in order."""
        thread = self.thread(session)
        return replay.calls(self.store.entries(thread), self._begun.get(thread, set()))

    def search(
        self,
        text: str,
        *,
        session: str = "",
        roles: Sequence[Role] = (),
        limit: int = 20,
        order: Literal["relevance", "newest"] = "relevance",
        every: bool = False,
    ) -> list[SearchHit]:
        """Return the messages that have all the words; see `Query` for phrases, `order` and `every`."""
        return self.store.search(Query(text, session, tuple(roles), limit, order=order, every=every))

    # for programs that show a ledger -------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """File path or server name of the store, for messages."""
        return self.store.location

    def snapshot(self) -> AbstractContextManager[object]:
        """Return a context in which all reads of this thread see one state of the ledger."""
        return self.store.snapshot()

    def thread_info(self, session: str | int) -> Thread:
        """Return the row of a session's thread, or of the thread with this number. Raises NoSuchSession."""
        return self.store.thread(self.thread(session) if isinstance(session, str) else session)

    def iter_entries(self, session: str, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """Yield the entries with `after < seq <= until`, oldest first; memory does not grow with their number.

        Raises NoSuchSession, and LedgerDamaged at the first entry that does not match its hash.
        """
        thread = self.thread(session)
        if until is None:
            end = self.store.thread(thread).head_seq
        else:
            end = until
        starts = range(after, end, READ_ENTRIES)
        return chain.from_iterable(self.store.entries(thread, at, min(end, at + READ_ENTRIES)) for at in starts)

    def checkpoints(self, session: str) -> list[Entry]:
        """Return the entries that are no messages (pins, compactions, clears, …), newest first."""
        return self.store.checkpoints(self.thread(session))


def _mark(store: HistoryStore, session: str, marks: list[Entry], entry: NewEntry) -> None:
    store.commit(session, Commit((entry,), expected_checkpoint=marks[0].seq if marks else 0))


def _pin(ledger: Ledger, kind: Any, session: str, place: MessageRef, reason: str) -> Committed:
    body = {"seq": place.seq, "ord": place.ord, **({"reason": reason} if reason else {})}
    ledger.thread(session)
    return ledger.store.commit(session, Commit((NewEntry(kind, body=body),)))
