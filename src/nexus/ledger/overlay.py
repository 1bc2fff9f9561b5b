"""A ledger store as one call sees it: without the entries of its event, up to an earlier entry, or with entries to come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from nexus.ledger.recorded_calls import last_of_view
from nexus.ledger.replay import conversation_rows, pin_entries
from nexus.ledger.sessions import Thread
from nexus.ledger.store import HistoryStore, LedgerStore
from nexus.types.ledger_entries import STEPS, AssemblyRow, Cut, Entry, MessageRef, StoredMessage

_BACK = 4
"""Entries read at a time to find the open event."""

NEW_THREAD = 0
"""Thread of a session that is not stored yet."""


class PathOverlay:
    """A store in which one thread ends at entry `until`, lacks the entries `hidden`, and goes on with `staged`.

    `pins` are messages that are pinned besides those of the store.

    Everything else is the store's. It is for reading: writes go to the store itself.
    """

    def __init__(
        self,
        store: LedgerStore,
        thread: int | None,
        until: int,
        *,
        hidden: Collection[int] = (),
        staged: Sequence[Entry] = (),
        pins: Sequence[MessageRef] = (),
    ) -> None:
        self._store = store
        self._thread = thread
        self.until = until
        self._hidden = frozenset(hidden)
        self._staged = tuple(staged)
        self._pins = pin_entries(pins)

    @property
    def is_beginning(self) -> bool:
        """True if the path only ends earlier than the store's."""
        return not self._hidden and not self._staged and not self._pins

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def thread_of(self, session: str) -> int | None:
        """Return the overlaid thread, whatever the session is called."""
        del session
        if self._thread is not None or not self._staged:
            return self._thread
        return NEW_THREAD

    def thread(self, thread: int) -> Thread:
        """Return the thread's row with the overlaid end."""
        if self._thread is None:
            return Thread(NEW_THREAD, None, 0, b"", 0, head_seq=self.head(thread)[0], head_hash=b"")
        return replace(self._store.thread(self._thread), head_seq=self.head(thread)[0])

    def head(self, thread: int) -> tuple[int, bytes]:
        """Return the last seq and its hash; the hash of a staged entry is empty, because nobody knows it yet."""
        del thread
        if self._staged:
            return self._staged[-1].seq, b""
        last = None
        if self.until:
            last = next(iter(self._stored(self.until - 1, self.until)), None)
        return self.until, last.hash if last is not None else b""

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """Return the entries with `after < seq <= until`, without the hidden ones."""
        del thread
        end = self.until if until is None else min(until, self.until)
        yield from (entry for entry in self._stored(after, end) if entry.seq not in self._hidden)
        yield from (entry for entry in self._staged if after < entry.seq and (until is None or entry.seq <= until))

    def checkpoints(self, thread: int, until: int | None = None, *, replaced: bool = True) -> list[Entry]:
        """Return the checkpoints up to the overlaid end, newest first."""
        del thread
        end = self.until if until is None else min(until, self.until)
        stored = self._store.checkpoints(self._thread, end, replaced=replaced) if self._thread is not None else []
        end = self.until + len(self._staged) if until is None else until
        staged = [entry for entry in reversed(self._staged) if entry.kind not in STEPS and entry.seq <= end]
        return [*staged, *stored, *self._pins]

    def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """Return the system messages that the first entry begins with."""
        if self._thread is not None and self.until:
            return self._store.instructions(self._thread)
        first = next(self.entries(thread, 0, 1), None)
        if first is not None:
            return first.rows[: len(first.rows) - len(conversation_rows(first))]
        return ()

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """Return the view's newest cut before the overlaid end."""
        cuts = self.cuts(thread, view)
        if cuts:
            return cuts[-1]
        return None

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Return the view's cuts before the overlaid end."""
        del thread
        cuts = self._store.cuts(self._thread, view) if self._thread is not None else []
        return [cut for cut in cuts if cut.at_seq <= self.until]

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """Return the view's newest manifest before the overlaid end."""
        del thread
        if self._thread is not None:
            return last_of_view(self._store, self._thread, view, self.until)
        return None

    def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """Return the manifests before the overlaid end."""
        del thread
        end = self.until if until is None else min(until, self.until)
        if self._thread is not None:
            return self._store.assemblies(self._thread, after, end)
        return []

    def _stored(self, after: int, until: int) -> Iterator[Entry]:
        return iter(self._store.entries(self._thread, after, until) if self._thread is not None else ())


def open_event(store: HistoryStore, thread: int) -> tuple[tuple[Entry, ...], bool]:
    """Return the newest turn's entries that no reply answers, and True if the turn begins with them.

    They are user messages and results behind the turn's last whole reply. Marks of failures, and what had arrived of a
    reply before one, are among them.
    """
    row = store.thread(thread)
    pending: list[Entry] = []
    starts_turn = True
    for entry in _newest_first(store, thread, row.head_seq):
        if entry.turn != row.turn:
            break
        if entry.kind == "completed" or (entry.kind in STEPS and _is_reply(entry)):
            starts_turn = False
            break
        if entry.kind in STEPS:
            pending.append(entry)
    if not any(entry.rows and not is_partial(entry) for entry in pending):
        return (), starts_turn
    return tuple(reversed(pending)), starts_turn


def _newest_first(store: HistoryStore, thread: int, head: int) -> Iterator[Entry]:
    for until in range(head, 0, -_BACK):
        yield from reversed(list(store.entries(thread, max(until - _BACK, 0), until)))


def _is_reply(entry: Entry) -> bool:
    return not is_partial(entry) and any(row.message.role in ("assistant", "system") for row in entry.rows)


def is_partial(entry: Entry) -> bool:
    """Return True if an entry is what had arrived of a reply that broke off."""
    return bool(entry.body.get("partial"))


def without_event(store: LedgerStore, thread: int, hidden: Collection[int]) -> LedgerStore:
    """Return the store as the call sees it whose event is in the hidden entries."""
    end = store.head(thread)[0]
    while end in hidden:
        end -= 1
    overlay = PathOverlay(store, thread, end, hidden=[seq for seq in hidden if seq < end])
    return cast("LedgerStore", overlay)  # what it does not define is the store's own
