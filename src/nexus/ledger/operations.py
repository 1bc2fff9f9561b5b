"""Operations on sessions: turns, compaction, undo, forks, names, history, and erasing.

A session names its parent by label. When a label is given up, child sessions get the parent's new label, or none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, takewhile
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nexus.errors import BadReference
from nexus.ledger import erasure, replay
from nexus.ledger.erasure import Erasure, child_sessions
from nexus.ledger.replay import Ancestor, LiveCheckpoints, RecordedToolCall, Turn, VisibleMessages
from nexus.ledger.sessions import (
    EVENT_STATES,
    Alias,
    ErasedPrincipal,
    EraseResult,
    NewRefUpdate,
    Query,
    RefUpdate,
    SearchHit,
    SessionInfo,
    SessionMetadata,
    Thread,
)
from nexus.ledger.store import LedgerStore, unknown_session
from nexus.ledger.unrecorded import UnrecordedReplies
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import (
    STEPS,
    Commit,
    Committed,
    Compaction,
    Entry,
    MessageRef,
    NewEntry,
    SizedMessage,
    StoredCalibration,
)
from nexus.types.message import Role

READ_ENTRIES = 2_000
"""Entries read at a time, so that memory does not follow the length of a session."""


def with_parent(store: LedgerStore, spawned: Iterable[SessionInfo], reason: str, **parent: Any) -> list[NewRefUpdate]:
    """Return the updates that give sessions another parent (`parent_…` of SessionMetadata)."""
    newest = [update for session in spawned if (update := store.session(session.label)) is not None]
    return [NewRefUpdate(o.label, o.thread, reason, replace(o.facts, **parent), o.number) for o in newest]


class Ledger:
    """All operations on the sessions of a store. Several may share a store; the store does the locking.

    A turn that was appended to through this object and is not closed counts as under way; any other open turn is shown
    as interrupted, as it is after a crash.
    """

    def __init__(self, store: LedgerStore) -> None:
        self.store = store
        self.unrecorded: UnrecordedReplies | None = None
        """Replies that wait to be recorded, which are erased with their sessions."""
        self._begun: set[tuple[int, int]] = set()

    # sessions ----------------------------------------------------------------------------------------------------

    def create(self, session: str, facts: SessionMetadata | None = None) -> int:
        """Make a session without any message; returns its thread. Raises BadReference if the name is taken."""
        if self.store.resolve(session) is not None:
            raise BadReference(f"session {session!r} exists (fork it, or choose another name)")
        return self.store.commit(session, Commit(), facts or SessionMetadata()).thread

    def resolve(self, name: str) -> str | None:
        """Return the label that a name means: itself, else the target of its alias, else None."""
        return self.store.resolve(name)

    def thread(self, session: str) -> int:
        """Return the thread of a session. Raises NoSuchSession."""
        thread = self.store.thread_of(session)
        if thread is None:
            raise unknown_session(self.store, session)
        return thread

    def sessions(self, *, every: bool = False) -> list[SessionInfo]:
        """Return the active sessions, newest first; `every` adds archived and deleted ones."""
        return self.store.sessions(every=every)

    def metadata(self, session: str) -> SessionMetadata:
        """Return a session's metadata. Raises NoSuchSession."""
        return self._move(session).facts

    def ref_updates(self, session: str) -> list[RefUpdate]:
        """Return every update of the session's pointer, oldest first."""
        return self.store.ref_updates(self._label(session))

    def update(self, session: str, reason: str = "updated", **facts: Any) -> RefUpdate:
        """Change fields of a session's metadata. Raises NoSuchSession, BadReference."""
        old = self._move(session)
        new = NewRefUpdate(old.label, old.thread, reason, replace(old.facts, **facts), old.number)
        return self.store.update_refs([new])[0]

    def archive(self, session: str) -> RefUpdate:
        """Remove a session from the list; its content stays."""
        return self.update(session, "archived", status="archived")

    def delete(self, session: str) -> RefUpdate:
        """Mark a session as deleted, so that it is not listed. `restore` lists it again, `erase` removes it."""
        return self.update(session, "deleted", status="deleted")

    def restore(self, session: str) -> RefUpdate:
        """Make an archived or deleted session active again."""
        return self.update(session, "active", status="active")

    def rename(self, session: str, new: str, reason: str = "") -> RefUpdate:
        """Give a session another label; the old one becomes an alias. Raises NoSuchSession, BadReference."""
        old = self._move(session)
        if self.store.resolve(new) not in (None, old.label) or new == old.label:
            raise BadReference(f"session {new!r} exists (use `merge` to redirect one identity to the other)")
        current_aliases = self.store.aliases()
        taken_over = [Alias(new, None, f"now the label of {old.label!r}")]
        aliases = taken_over if any(a.name == new for a in current_aliases) else []
        # Earlier names lead straight to the new one, because a chain of aliases may have 32 steps at most.
        aliases += [Alias(a.name, new, a.reason) for a in current_aliases if a.target == old.label and a.name != new]
        aliases.append(Alias(old.label, new, reason or "renamed"))
        existing = self.store.session(new)
        moves = [
            NewRefUpdate(old.label, None, f"renamed to {new}", None, old.number),
            NewRefUpdate(new, old.thread, f"renamed from {old.label}", old.facts, existing.number if existing else 0),
        ]
        return self.store.update_refs(moves, aliases)[1]

    def merge(self, session: str, into: str, reason: str = "") -> RefUpdate:
        """Redirect one session's name to another session. Returns the update of the archived first session.

        Histories are not mixed: the first one stays as the session `NAME~merged`, with its child sessions.
        """
        old = self._move(session)
        target = self._move(into)
        if old.label == target.label:
            raise BadReference(f"{session!r} and {into!r} are the same session")
        archive_label = f"{old.label}~merged"
        number = 1
        while self.store.session(archive_label) is not None:
            number += 1
            archive_label = f"{old.label}~merged-{number}"
        spawned = child_sessions(self.store, {old.label})
        moves = [
            NewRefUpdate(old.label, None, f"merged into {target.label}", None, old.number),
            NewRefUpdate(archive_label, old.thread, f"was {old.label}", replace(old.facts, status="archived")),
            *with_parent(self.store, spawned, f"the parent is {archive_label} now", parent_session=archive_label),
        ]
        return self.store.update_refs(moves, [Alias(old.label, target.label, reason or "merged")])[1]

    def alias(self, name: str, session: str, reason: str = "") -> None:
        """Point a name to a session. Raises NoSuchSession, and BadReference if the name is a session itself."""
        self.store.update_refs([], [Alias(name, self._label(session), reason or "alias")])

    def unalias(self, name: str, reason: str = "") -> None:
        """Remove an alias. Raises BadReference if there is none."""
        if all(alias.name != name for alias in self.store.aliases()):
            raise BadReference(f"alias {name!r} not found (list aliases: nexus session aliases)")
        self.store.update_refs([], [Alias(name, None, reason or "taken back")])

    # appending ---------------------------------------------------------------------------------------------------

    def commit(self, session: str, commit: Commit, facts: SessionMetadata | None = None) -> Committed:
        """Write everything in one transaction; see `LedgerStore.commit`."""
        committed = self.store.commit(session, commit, facts)
        if committed.added:
            over = commit.entries[-1].kind in ("completed", "failed")
            (self._begun.discard if over else self._begun.add)((committed.thread, committed.turn))
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
        self._mark(session, marks, NewEntry("undone", body={"of": target.seq}))
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
                self._mark(session, marks, NewEntry("undone", body={"of": mark.seq}))
                return target
        raise BadReference(f"session {session!r} has no undo to redo", code="bad_entry")

    def pin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Keep a message verbatim, whatever is cut or compacted. Raises BadReference if it is not there."""
        return self._pin("pin", session, place, reason)

    def unpin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Remove a pin. Raises BadReference if the message is not pinned."""
        if place not in self.live(session).pins:
            raise BadReference(
                f"message {place.ord} of entry {place.seq} of session {session!r} is not pinned", code="bad_entry"
            )
        return self._pin("unpin", session, place, reason)

    def fork(self, session: str, source: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Start a session that shares `source`'s history up to the end of a turn, or to an entry (default: all of it).

        Returns the new thread. Raises NoSuchSession, HeadMoved, BadReference (name taken, no such position).
        """
        if self.store.resolve(session) is not None:
            raise BadReference(f"session {session!r} exists (choose another name, or `rewind` it)")
        last = self.store.session(session)
        at = self._place(source, turn, seq)
        reason = f"fork of {source} at entry {at}"
        number = last.number if last is not None else 0
        inherited = self.metadata(source)
        owner = self._label(source)
        facts = SessionMetadata(title=inherited.title, persona=inherited.persona, owner_session=owner)
        return self.store.fork(session, source, at, reason=reason, facts=facts, expected_number=number)

    def rewind(self, session: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Move a session back to the end of a turn (0: the beginning) or to an entry. Returns the new thread.

        Later entries stay on the old thread. Raises NoSuchSession, BadReference, HeadMoved.
        """
        old = self._move(session)
        at = self._place(old.label, turn, seq)
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

    def turns(self, session: str, first: int = 0) -> list[Turn]:
        """Return the session's turns from number `first` on with their derived status, oldest first."""
        thread = self.thread(session)
        return replay.turns(replay.entries_from_turn(self.store, thread, first), self._under_way(thread))

    def calls(self, session: str) -> list[RecordedToolCall]:
        """Return the session's tool calls with their derived status, in order."""
        thread = self.thread(session)
        return replay.calls(self.store.entries(thread), self._under_way(thread))

    def spawned(self, session: str) -> list[SessionInfo]:
        """Return the sessions that this one's turns and calls spawned."""
        return child_sessions(self.store, {self._label(session)})

    def ancestry(self, session: str, turn: int | None = None) -> list[Ancestor]:
        """Return the ancestry of a turn (default: the newest) as stretches of turns by thread, root first."""
        thread = self.thread(session)
        end = self._place(session, turn, None)
        labels: dict[int, list[str]] = {}
        for info in self.store.sessions(every=True):
            labels.setdefault(info.thread, []).append(info.label)
        ancestors: list[Ancestor] = []
        for part in self.store.path(thread):
            high = min(part.high, end)
            if part.low < high:
                first = self._turn_at(thread, part.low + 1)
                last = self._turn_at(thread, high)
                ancestors.append(Ancestor(part.thread, first, last, high, tuple(labels.get(part.thread, ()))))
        return ancestors

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

    def erase(self, session: str, *, with_forks: bool = False) -> EraseResult:
        """Erase a session: every thread that it ever pointed to, its label, its aliases and its queued events.

        The sessions that its calls spawned and its late replies go too. Raises LedgerError with the sessions that continue
        it, unless `with_forks` erases these too, NoSuchSession for a label without session and events, LedgerError.
        """
        label = self.store.resolve(session)
        if label is None:
            if not self.store.queued_events(session, EVENT_STATES):
                raise unknown_session(self.store, session)
            label = session
        return self._erase(erasure.of_sessions(self.store, {label}, with_forks=with_forks))

    def erase_principal(self, principal: str) -> ErasedPrincipal:
        """Erase all that the ledger has of one principal: sessions, workers, queued events, documents, waiting replies.

        A session that others used too stays and is listed in the result: it is theirs as well. Raises BadReference for an
        empty principal, and LedgerError.
        """
        if not principal:
            raise BadReference("principal is empty (name whose data to erase)")
        with self.store.snapshot():
            chosen, shared = erasure.of_principal(self.store, principal)
        replies = 0
        if self.unrecorded is not None:
            replies = self.unrecorded.erase(principal=principal)
        erased = self._erase(chosen)
        return ErasedPrincipal(
            tuple(sorted(chosen.labels)), tuple(shared), len(chosen.events), len(chosen.documents), replies, erased
        )

    def erase_everything(self) -> EraseResult:
        """Delete all data of the store's tenant for good."""
        if self.unrecorded is not None:
            self.unrecorded.erase(everything=True)
        return self.store.erase(None)

    def late_replies(self, session: str) -> list[SessionInfo]:
        """Return the sessions with replies that came too late for their turn in a session, newest first."""
        return erasure.late_replies(self.store, {self._label(session)})

    def _erase(self, chosen: Erasure) -> EraseResult:
        threads = sorted(chosen.threads)
        labels = sorted(chosen.labels)
        erased = self.store.erase(threads, labels, events=chosen.events, documents=chosen.documents)
        if self.unrecorded is not None:
            self.unrecorded.erase(sessions=chosen.labels)
        return erased

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

    def last_shared_entry(self, thread: int, other: int) -> int:
        """Return the last entry that the paths of two threads have in common (0: none)."""
        pairs = zip(self.store.path(thread), self.store.path(other), strict=False)
        shared = takewhile(lambda pair: pair[0].thread == pair[1].thread, pairs)
        return max((min(part.high, other_part.high) for part, other_part in shared), default=0)

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

    def aliases(self, *, every: bool = False) -> list[Alias]:
        """Return the current aliases by name; `every` adds earlier changes."""
        return self.store.aliases(every=every)

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Return provider, calibration key and newest calibration of every calibrated model, by name."""
        return self.store.calibrations()

    def dependents(self, session: str) -> list[str]:
        """Return the labels of the sessions that `erase` with `with_forks` deletes as well, sorted."""
        label = self._label(session)
        return sorted(erasure.of_sessions(self.store, {label}, with_forks=True).labels - {label})

    def restore_ref(self, session: str, number: int) -> RefUpdate:
        """Point a session to the thread that it had after ref update `number`; this reverts a rewind.

        Raises NoSuchSession, HeadMoved, and BadReference if there is no such update or it pointed to no thread.
        """
        updates = self.ref_updates(session)
        old = next((update for update in updates if update.number == number), None)
        if old is None or old.thread is None:
            what = f"ref update {number} of session {session!r} not found"
            raise BadReference(f"{what} (list them: nexus session reflog NAME)")
        last = updates[-1]
        back = NewRefUpdate(last.label, old.thread, f"back to update {number}", None, last.number)
        return self.store.update_refs([back])[0]

    # helpers -----------------------------------------------------------------------------------------------------

    def _label(self, session: str) -> str:
        label = self.store.resolve(session)
        if label is None:
            raise unknown_session(self.store, session)
        return label

    def _move(self, session: str) -> RefUpdate:
        update = self.store.session(self._label(session))
        if update is None:
            raise unknown_session(self.store, session)
        return update

    def _mark(self, session: str, marks: list[Entry], entry: NewEntry) -> None:
        self.store.commit(session, Commit((entry,), expected_checkpoint=marks[0].seq if marks else 0))

    def _pin(self, kind: Any, session: str, place: MessageRef, reason: str) -> Committed:
        body = {"seq": place.seq, "ord": place.ord, **({"reason": reason} if reason else {})}
        self.thread(session)
        return self.store.commit(session, Commit((NewEntry(kind, body=body),)))

    def _under_way(self, thread: int) -> set[int]:
        return {turn for begun_thread, turn in self._begun if begun_thread == thread}

    def _place(self, session: str, turn: int | None, seq: int | None) -> int:
        """Return the seq at the end of a turn without trailing checkpoints, or the given seq, or the head."""
        thread = self.thread(session)
        row = self.store.thread(thread)
        if seq is not None:
            return seq
        if turn is None:
            return row.head_seq
        if not 0 <= turn <= row.turn:
            raise BadReference(f"turn {turn} not found: session {session!r} has {count_noun(row.turn, 'turn')}")
        low = bisect_right(range(1, row.head_seq + 1), turn, key=lambda at: self._turn_at(thread, at))
        while low and next(iter(self.store.entries(thread, low - 1, low))).kind not in STEPS:
            low -= 1
        return low

    def _turn_at(self, thread: int, seq: int) -> int:
        return next(iter(self.store.entries(thread, seq - 1, seq))).turn
