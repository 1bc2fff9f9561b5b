"""The directory of sessions: labels, aliases, metadata, and the updates of the pointers to threads.

A session names its parent by label. When a label is given up, child sessions get the parent's new label, or none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReference
from nexus.ledger.replay import Ancestor
from nexus.ledger.sessions import Alias, NewRefUpdate, RefUpdate, SessionInfo, SessionMetadata
from nexus.ledger.store import HistoryStore, LedgerStore, SessionStore, unknown_session
from nexus.types.counts import count_noun
from nexus.types.ledger_entries import STEPS, Commit

_List = list
"""The type, whose name is that of a method in the annotations of SessionDirectory."""


def label_of(store: LedgerStore, session: str) -> str:
    """Return the label that a session's name means. Raises NoSuchSession."""
    label = store.resolve(session)
    if label is None:
        raise unknown_session(store, session)
    return label


def newest_update(store: LedgerStore, session: str) -> RefUpdate:
    """Return the newest update of a session's pointer. Raises NoSuchSession."""
    update = store.session(label_of(store, session))
    if update is None:
        raise unknown_session(store, session)
    return update


def thread_of(store: SessionStore, session: str) -> int:
    """Return the thread of a session. Raises NoSuchSession."""
    thread = store.thread_of(session)
    if thread is None:
        raise unknown_session(store, session)
    return thread


def turn_at(store: HistoryStore, thread: int, seq: int) -> int:
    """Return the turn of an entry on a thread's path."""
    return next(iter(store.entries(thread, seq - 1, seq))).turn


def last_entry_of(store: LedgerStore, session: str, turn: int | None, seq: int | None) -> int:
    """Return the seq at the end of a turn without trailing checkpoints, or the given seq, or the head.

    Raises NoSuchSession, and BadReference if there is no such turn.
    """
    thread = thread_of(store, session)
    row = store.thread(thread)
    if seq is not None:
        return seq
    if turn is None:
        return row.head_seq
    if not 0 <= turn <= row.turn:
        raise BadReference(f"turn {turn} not found: session {session!r} has {count_noun(row.turn, 'turn')}")
    low = bisect_right(range(1, row.head_seq + 1), turn, key=lambda at: turn_at(store, thread, at))
    while low and next(iter(store.entries(thread, low - 1, low))).kind not in STEPS:
        low -= 1
    return low


def with_parent(store: SessionStore, spawned: Iterable[SessionInfo], reason: str, **parent: Any) -> list[NewRefUpdate]:
    """Return the updates that give sessions another parent (`parent_…` of SessionMetadata)."""
    newest = [update for session in spawned if (update := store.session(session.label)) is not None]
    return [NewRefUpdate(o.label, o.thread, reason, replace(o.metadata, **parent), o.number) for o in newest]


class SessionDirectory:
    """The sessions of a store by name."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    def create(self, session: str, metadata: SessionMetadata | None = None) -> int:
        """Make a session without any message; returns its thread. Raises BadReference if the name is taken."""
        if self._store.resolve(session) is not None:
            raise BadReference(f"session {session!r} exists (fork it, or choose another name)")
        return self._store.commit(session, Commit(), metadata or SessionMetadata()).thread

    def list(self, *, every: bool = False, limit: int | None = None, offset: int = 0) -> _List[SessionInfo]:
        """Return the active sessions, newest first; `every` adds archived and deleted ones.

        With a `limit`, at most that many, after the first `offset`.
        """
        return self._store.sessions(every=every, limit=limit, offset=offset)

    def info(self, session: str) -> SessionInfo:
        """Return a session's line of the list. Raises NoSuchSession."""
        info = self._store.session_info(label_of(self._store, session))
        if info is None:
            raise unknown_session(self._store, session)
        return info

    def metadata(self, session: str) -> SessionMetadata:
        """Return a session's metadata. Raises NoSuchSession."""
        return newest_update(self._store, session).metadata

    def ref_updates(self, session: str) -> _List[RefUpdate]:
        """Return every update of the session's pointer, oldest first."""
        return self._store.ref_updates(label_of(self._store, session))

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
        return self._store.update_refs([back])[0]

    def update(self, session: str, reason: str = "updated", **fields: Any) -> RefUpdate:
        """Change fields of a session's metadata. Raises NoSuchSession, BadReference."""
        old = newest_update(self._store, session)
        new = NewRefUpdate(old.label, old.thread, reason, replace(old.metadata, **fields), old.number)
        return self._store.update_refs([new])[0]

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
        old = newest_update(self._store, session)
        if self._store.resolve(new) not in (None, old.label) or new == old.label:
            raise BadReference(f"session {new!r} exists (use `merge` to redirect one identity to the other)")
        current_aliases = self._store.aliases()
        taken_over = [Alias(new, None, f"now the label of {old.label!r}")]
        aliases = taken_over if any(a.name == new for a in current_aliases) else []
        # Earlier names lead straight to the new one, because a chain of aliases may have 32 steps at most.
        aliases += [Alias(a.name, new, a.reason) for a in current_aliases if a.target == old.label and a.name != new]
        aliases.append(Alias(old.label, new, reason or "renamed"))
        existing = self._store.session(new)
        updates = [
            NewRefUpdate(old.label, None, f"renamed to {new}", None, old.number),
            NewRefUpdate(
                new, old.thread, f"renamed from {old.label}", old.metadata, existing.number if existing else 0
            ),
        ]
        return self._store.update_refs(updates, aliases)[1]

    def merge(self, session: str, into: str, reason: str = "") -> RefUpdate:
        """Redirect one session's name to another session. Returns the update of the archived first session.

        Histories are not mixed: the first one stays as the session `NAME~merged`, with its child sessions.
        """
        old = newest_update(self._store, session)
        target = newest_update(self._store, into)
        if old.label == target.label:
            raise BadReference(f"{session!r} and {into!r} are the same session")
        archive_label = f"{old.label}~merged"
        number = 1
        while self._store.session(archive_label) is not None:
            number += 1
            archive_label = f"{old.label}~merged-{number}"
        spawned = self._store.spawned(old.label)
        updates = [
            NewRefUpdate(old.label, None, f"merged into {target.label}", None, old.number),
            NewRefUpdate(archive_label, old.thread, f"was {old.label}", replace(old.metadata, status="archived")),
            *with_parent(self._store, spawned, f"the parent is {archive_label} now", parent_session=archive_label),
        ]
        return self._store.update_refs(updates, [Alias(old.label, target.label, reason or "merged")])[1]

    def alias(self, name: str, session: str, reason: str = "") -> None:
        """Point a name to a session. Raises NoSuchSession, and BadReference if the name is a session itself."""
        self._store.update_refs([], [Alias(name, label_of(self._store, session), reason or "alias")])

    def unalias(self, name: str, reason: str = "") -> None:
        """Remove an alias. Raises BadReference if there is none."""
        if all(alias.name != name for alias in self._store.aliases()):
            raise BadReference(f"alias {name!r} not found (list aliases: nexus session aliases)")
        self._store.update_refs([], [Alias(name, None, reason or "taken back")])

    def aliases(self, *, every: bool = False) -> _List[Alias]:
        """Return the current aliases by name; `every` adds earlier changes."""
        return self._store.aliases(every=every)

    def spawned(self, session: str) -> _List[SessionInfo]:
        """Return the sessions that this one's turns and calls spawned."""
        return self._store.spawned(label_of(self._store, session))

    def ancestry(self, session: str, turn: int | None = None) -> list[Ancestor]:
        """Return the ancestry of a turn (default: the newest) as stretches of turns by thread, root first."""
        thread = thread_of(self._store, session)
        end = last_entry_of(self._store, session, turn, None)
        ancestors: list[Ancestor] = []
        for part in self._store.path(thread):
            high = min(part.high, end)
            if part.low < high:
                first = turn_at(self._store, thread, part.low + 1)
                last = turn_at(self._store, thread, high)
                ancestors.append(Ancestor(part.thread, first, last, high, tuple(self._labels_of(part.thread))))
        return ancestors

    def _labels_of(self, thread: int) -> _List[str]:
        """Return the labels that point to a thread, the session with the newest entry first."""
        infos = [self.info(label) for label in self._store.labels_of(thread, every=True)]
        return [info.label for info in sorted(infos, key=lambda info: (-info.last_ms, info.label))]

    def last_shared_entry(self, thread: int, other: int) -> int:
        """Return the last entry that the paths of two threads have in common (0: none)."""
        pairs = zip(self._store.path(thread), self._store.path(other), strict=False)
        shared = takewhile(lambda pair: pair[0].thread == pair[1].thread, pairs)
        return max((min(part.high, other_part.high) for part, other_part in shared), default=0)
