# Over 500 lines: one class with a method for each operation on sessions; the work is done elsewhere.
"""Operations on sessions: turns, compaction, undo, forks, names, history, and erasing.

A session names its parent by label. When a label is given up, child sessions get the parent's new label, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadEntry, BadReference, EraseIncomplete, NoSuchSession
from nexus.ledger import replay
from nexus.ledger.replay import LiveCheckpoints, RecordedToolCall, Turn
from nexus.ledger.sessions import (
    Alias,
    EraseResult,
    NewRefUpdate,
    Query,
    RefUpdate,
    SearchHit,
    SessionInfo,
    SessionMetadata,
    SessionStatus,
    Thread,
)
from nexus.ledger.store import LedgerStore
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
    StoredMessage,
)
from nexus.types.message import Role

READ_ENTRIES = 2_000
"""Entries read at a time, so that memory does not follow the length of a session."""


def child_sessions(store: LedgerStore, labels: Collection[str]) -> list[SessionInfo]:
    """Return the sessions that were spawned by sessions with these labels."""
    everyone = store.sessions(every=True)
    return [
        session for session in everyone if session.parent_session and store.resolve(session.parent_session) in labels
    ]


def with_parent(store: LedgerStore, spawned: Iterable[SessionInfo], reason: str, **parent: Any) -> list[NewRefUpdate]:
    """Return the updates that give sessions another parent (`parent_…` of SessionMetadata)."""
    moves = (store.session(session.label) for session in spawned)
    return [
        NewRefUpdate(old.label, old.thread, reason, replace(old.facts, **parent), old.number)
        for old in moves
        if old is not None
    ]


def erase_session(store: LedgerStore, label: str, *, with_forks: bool) -> EraseResult:
    """Erase a session: every thread that it ever pointed to, its label and its aliases.

    Child sessions stay, without a parent, because another session may get the parent's label. Raises ForksDepend,
    EraseIncomplete.
    """
    threads, labels = _all_of(store, label), {label}
    if with_forks:
        _add_forks(store, threads, labels)
    orphans = [session for session in child_sessions(store, labels) if session.label not in labels]
    try:
        erased = store.erase(sorted(threads), sorted(labels))
    except EraseIncomplete:
        _orphan(store, orphans)
        raise
    _orphan(store, orphans)
    return erased


def _orphan(store: LedgerStore, orphans: list[SessionInfo]) -> None:
    none = {"parent_session": "", "parent_turn": 0, "parent_call_id": ""}
    moves = with_parent(store, orphans, "the parent was deleted for good", **none)
    if moves:
        store.update_refs(moves)


def _all_of(store: LedgerStore, label: str) -> set[int]:
    """Return every thread that a session or one of its names ever pointed to and no other session uses."""
    elsewhere = {session.thread for session in store.sessions(every=True) if session.label != label}
    threads = _ever(store, label)
    for alias in store.aliases():
        if store.resolve(alias.name) == label:  # its names from before it was renamed
            threads |= _ever(store, alias.name)
    return threads - elsewhere


def _ever(store: LedgerStore, label: str) -> set[int]:
    """Return every thread that a label pointed to."""
    return {move.thread for move in store.ref_updates(label) if move.thread is not None}


def _add_forks(store: LedgerStore, threads: set[int], labels: set[str]) -> None:
    """Add every thread that continues one of these, and every session that points to one of them now."""
    rows = store.threads()
    now = {session.label: session.thread for session in store.sessions(every=True)}
    size = -1
    while size != len(threads) + len(labels):
        size = len(threads) + len(labels)
        threads |= {row.id for row in rows if row.parent in threads and not row.erased}
        for label in {label for label, thread in now.items() if thread in threads} - labels:
            labels.add(label)
            threads |= _ever(store, label) - {thread for other, thread in now.items() if other not in labels}


class VisibleMessages(Struct, frozen=True):
    """Visible part of a session: the summary of earlier messages (or empty), and all messages after it."""

    summary: str
    first_seq: int
    rows: tuple[StoredMessage, ...]


class Ancestor(Struct, frozen=True):
    """Stretch of a turn's ancestry: turns `first_turn` to `last_turn` on a thread, and its sessions."""

    thread: int
    first_turn: int
    last_turn: int
    last_seq: int
    sessions: tuple[str, ...]


class Ledger:
    """All operations on the sessions of a store. Several may share a store; the store does the locking.

    A turn that was appended to through this object and is not closed counts as under way; any other open turn is shown
    as interrupted, as it is after a crash.
    """

    def __init__(self, store: LedgerStore) -> None:
        self.store = store
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
            raise NoSuchSession(
                f"session {session!r} not found in {self.store.location} (list sessions: nexus sessions)"
            )
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
        return self._status(session, "archived")

    def delete(self, session: str) -> RefUpdate:
        """Mark a session as deleted, so that it is not listed. `restore` lists it again, `erase` removes it."""
        return self._status(session, "deleted")

    def restore(self, session: str) -> RefUpdate:
        """Make an archived or deleted session active again."""
        return self._status(session, "active")

    def rename(self, session: str, new: str, reason: str = "") -> RefUpdate:
        """Give a session another label. The old one stays as an alias.

        This is also how an identity is promoted. Raises NoSuchSession, and BadReference if the new name is taken.
        """
        old = self._move(session)
        if self.store.resolve(new) not in (None, old.label) or new == old.label:
            raise BadReference(f"session {new!r} exists (use `merge` to redirect one identity to the other)")
        current_aliases = self.store.aliases()
        aliases = (
            [Alias(new, None, f"now the label of {old.label!r}")] if any(a.name == new for a in current_aliases) else []
        )
        # Names from before lead straight to the new one: chains of aliases have an end.
        aliases += [Alias(a.name, new, a.reason) for a in current_aliases if a.target == old.label and a.name != new]
        aliases.append(Alias(old.label, new, reason or "renamed"))
        existing = self.store.session(new)
        moves = [
            NewRefUpdate(old.label, None, f"renamed to {new}", None, old.number),
            NewRefUpdate(new, old.thread, f"renamed from {old.label}", old.facts, existing.number if existing else 0),
        ]
        return self.store.update_refs(moves, aliases)[1]

    def merge(self, session: str, into: str, reason: str = "") -> RefUpdate:
        """Redirect one session's name to another session. Their histories are not mixed.

        The history of the first session stays as the archived session `NAME~merged`, with its child sessions. Returns
        its update.
        """
        old, target = self._move(session), self._move(into)
        if old.label == target.label:
            raise BadReference(f"{session!r} and {into!r} are the same session")
        archive_label, number = f"{old.label}~merged", 1
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
        """End the open exchange: completed, or failed with an error. Raises BadEntry if none is open."""
        row = self.store.thread(self.thread(session))
        is_repeat = bool(key) and any(thread == row.id for thread, _ in self.store.holders(key))
        if not row.open_turn and not is_repeat:
            raise BadEntry(f"session {session!r} has no open turn (nothing was stored)")
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
        """Append a compaction that was planned when `after_mark` was the newest checkpoint.

        Appends may have come meanwhile. `follows` is an entry (seq and hash) that the session must still have. Raises
        CompactionSuperseded if another checkpoint came, HeadMoved if that entry is gone, BadEntry if the compaction
        covers entries that do not exist.
        """
        entry = NewEntry("compaction", body=_body(compaction), keys=(key,) if key else ())
        return self.commit(session, Commit((entry,), expected_checkpoint=after_checkpoint, follows=follows))

    def undo(self, session: str) -> Entry:
        """Undo the current compaction and return it. Raises BadEntry if there is none."""
        marks = self.store.checkpoints(self.thread(session))
        target = replay.live_checkpoints(marks).checkpoint
        if target is None or target.kind != "compaction":
            raise BadEntry(f"session {session!r} has no compaction to undo")
        self._mark(session, marks, NewEntry("undone", body={"of": target.seq}))
        return target

    def redo(self, session: str) -> Entry:
        """Undo the newest undo and return the restored compaction. Raises BadEntry if none is undone."""
        marks = self.store.checkpoints(self.thread(session))
        out = replay.revoked_checkpoints(marks)
        by_seq = {mark.seq: mark for mark in marks}
        for mark in marks:
            target = by_seq.get(mark.body["of"]) if mark.kind == "undone" and mark.seq not in out else None
            if target is not None and target.kind == "compaction":
                self._mark(session, marks, NewEntry("undone", body={"of": mark.seq}))
                return target
        raise BadEntry(f"session {session!r} has no undo to redo")

    def pin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Keep a message verbatim, whatever is cut or compacted. Raises BadEntry if it is not there."""
        return self._pin("pin", session, place, reason)

    def unpin(self, session: str, place: MessageRef, reason: str = "") -> Committed:
        """Remove a pin. Raises BadEntry if the message is not pinned."""
        if place not in self.live(session).pins:
            raise BadEntry(f"message {place.ord} of entry {place.seq} of session {session!r} is not pinned")
        return self._pin("unpin", session, place, reason)

    def fork(self, session: str, source: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Start a session that shares `source`'s history up to the end of a turn, or to an entry.

        Without either it shares all of it. Returns the new thread. Raises NoSuchSession, SessionMoved, and BadReference
        if the name is taken or the position does not exist.
        """
        if self.store.resolve(session) is not None:
            raise BadReference(f"session {session!r} exists (choose another name, or `rewind` it)")
        last = self.store.session(session)
        at = self._place(source, turn, seq)
        reason, number = f"fork of {source} at entry {at}", last.number if last is not None else 0
        return self.store.fork(session, source, at, reason=reason, facts=self._forked(source), expected_number=number)

    def rewind(self, session: str, *, turn: int | None = None, seq: int | None = None) -> int:
        """Move a session back to the end of a turn (0: the beginning) or to an entry.

        Later entries stay on the old thread. Returns the new thread. Raises NoSuchSession, BadReference, SessionMoved.
        """
        old = self._move(session)
        at = self._place(old.label, turn, seq)
        return self.store.fork(old.label, old.label, at, reason=f"rewind to entry {at}", expected_number=old.number)

    # reading -----------------------------------------------------------------------------------------------------

    def live(self, session: str) -> LiveCheckpoints:
        """Return the current checkpoints: newest clear or compaction, pins, undone compactions."""
        return replay.live_checkpoints(self.store.checkpoints(self.thread(session)))

    def entries(self, session: str, after: int = 0, until: int | None = None) -> list[Entry]:
        """Return every entry of the session, oldest first, compacted ones included."""
        return list(self.store.entries(self.thread(session), after, until))

    def visible(self, session: str) -> VisibleMessages:
        """Return the compaction-aware history: the current summary and the messages that it kept."""
        with self.store.snapshot():
            return visible_messages(self.store, self.thread(session))

    def turns(self, session: str) -> list[Turn]:
        """Return the session's turns with their derived status, oldest first."""
        thread = self.thread(session)
        return replay.turns(self.store.entries(thread), self._under_way(thread))

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
                first, last = self._turn_at(thread, part.low + 1), self._turn_at(thread, high)
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
        """Erase a session: every thread that it ever pointed to, its label and its aliases.

        Child sessions stay, without a parent. Raises ForksDepend with the sessions that continue it, unless
        `with_forks` erases these too, and EraseIncomplete.
        """
        return erase_session(self.store, self._label(session), with_forks=with_forks)

    def erase_everything(self) -> EraseResult:
        """Delete all data of the store's tenant for good."""
        return self.store.erase(None)

    # for programs that show a ledger -------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """File path or server name of the store, for messages."""
        return self.store.location

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a context in which all reads of this thread see one state of the ledger."""
        return self.store.snapshot()

    def thread_info(self, session: str | int) -> Thread:
        """Return the row of a session's thread, or of the thread with this number. Raises NoSuchSession."""
        return self.store.thread(self.thread(session) if isinstance(session, str) else session)

    def last_shared_entry(self, thread: int, other: int) -> int:
        """Return the last entry that the paths of two threads have in common (0: none)."""
        shared = 0
        for part, other_part in zip(self.store.path(thread), self.store.path(other), strict=False):
            if part.thread != other_part.thread:
                break
            shared = min(part.high, other_part.high)
        return shared

    def iter_entries(self, session: str, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """Yield the entries with `after < seq <= until`, oldest first; memory does not grow with their number.

        Raises NoSuchSession, and LedgerDamaged at the first entry that does not match its hash.
        """
        thread = self.thread(session)
        end = self.store.thread(thread).head_seq if until is None else until
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
        threads, labels = _all_of(self.store, label), {label}
        _add_forks(self.store, threads, labels)
        return sorted(labels - {label})

    def restore_ref(self, session: str, number: int) -> RefUpdate:
        """Point a session to the thread that it had after ref update `number`; this reverts a rewind.

        Raises NoSuchSession, SessionMoved, and BadReference if there is no such update or it pointed to no thread.
        """
        updates = self.ref_updates(session)
        old = next((update for update in updates if update.number == number), None)
        if old is None or old.thread is None:
            raise BadReference(
                f"ref update {number} of session {session!r} not found (list them: nexus session reflog NAME)"
            )
        last = updates[-1]
        reason = f"back to update {number}"
        return self.store.update_refs([NewRefUpdate(last.label, old.thread, reason, None, last.number)])[0]

    # helpers -----------------------------------------------------------------------------------------------------

    def _label(self, session: str) -> str:
        label = self.store.resolve(session)
        if label is None:
            raise NoSuchSession(
                f"session {session!r} not found in {self.store.location} (list sessions: nexus sessions)"
            )
        return label

    def _move(self, session: str) -> RefUpdate:
        update = self.store.session(self._label(session))
        if update is None:
            raise NoSuchSession(
                f"session {session!r} not found in {self.store.location} (list sessions: nexus sessions)"
            )
        return update

    def _status(self, session: str, status: SessionStatus) -> RefUpdate:
        return self.update(session, status, status=status)

    def _forked(self, source: str) -> SessionMetadata:
        """Return the metadata that a fork takes from its source."""
        facts = self.metadata(source)
        return SessionMetadata(title=facts.title, persona=facts.persona)

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
            raise BadReference(f"turn {turn} not found: session {session!r} has {row.turn} turns")
        low, high = 0, row.head_seq
        while low < high:  # the first entry of a later turn
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._turn_at(thread, middle + 1) <= turn else (low, middle)
        while low and next(iter(self.store.entries(thread, low - 1, low))).kind not in STEPS:
            low -= 1
        return low

    def _turn_at(self, thread: int, seq: int) -> int:
        return next(iter(self.store.entries(thread, seq - 1, seq))).turn


def visible_messages(store: LedgerStore, thread: int) -> VisibleMessages:
    """Return the compaction-aware history of a thread; see `Ledger.visible`."""
    mark = replay.live_checkpoints(store.checkpoints(thread)).checkpoint
    first = replay.visible_start(mark)
    rows = tuple(row for entry in store.entries(thread, first.seq - 1) for row in entry.rows)
    summary = str(mark.body.get("summary", "")) if mark is not None and mark.kind == "compaction" else ""
    return VisibleMessages(summary, first.seq, tuple(row for row in rows if row.ref >= first))


def _body(compaction: Compaction) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(compaction).items() if value is not None}
