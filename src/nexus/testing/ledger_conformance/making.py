"""Short forms of the store's calls for writing and reading in the checks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from nexus.ledger.sessions import SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.testing.ledger_conformance.expecting import holds
from nexus.types.ledger_entries import (
    AssemblyRow,
    Commit,
    Committed,
    Cut,
    Entry,
    EntryKind,
    MessageRef,
    NewEntry,
    SizedMessage,
)
from nexus.types.message import Message, TokenSize, user

HOSTILE = "nul \x00 half \ud83d other \udc4d mark \x1a word \x1a0000 bell \x07 end"
"""Text with everything that databases refuse, cut off, or that the stored form itself uses."""

WAIT_SECONDS = 30.0
"""How long a check waits for its own threads before it says that they hang."""


def with_sizes(*contents: Message | str) -> tuple[SizedMessage, ...]:
    """Return messages with counts that follow from their text; plain text is a user's message."""
    messages = [user(content) if isinstance(content, str) else content for content in contents]
    return tuple(SizedMessage(content, size_of(content)) for content in messages)


def size_of(message: Message) -> TokenSize:
    """Return counts that differ in each provider format."""
    length = len(message.text())
    return TokenSize(length + 1, length + 3, length + 2, 1)


def entry(*contents: Message | str, keys: Sequence[str] = (), at_ms: int = 0, starts_turn: bool = True) -> NewEntry:
    """Return an entry of messages, which starts a turn by default."""
    return NewEntry("messages", with_sizes(*contents), {}, at_ms, starts_turn, tuple(keys))


def mark(kind: EntryKind, **body: int | str) -> NewEntry:
    """Return an entry without messages, with this body."""
    return NewEntry(kind, body=dict(body))


def compaction(covers_from: int, covers_to: int, first_kept: int) -> NewEntry:
    """Return a compaction of these entries."""
    return mark("compaction", covers_from=covers_from, covers_to=covers_to, first_kept=first_kept, summary="so far")


def append(store: LedgerStore, session: str, *contents: Message | str, key: str = "", at_ms: int = 0) -> Committed:
    """Append messages as one entry that starts a turn."""
    return put(store, session, entry(*contents, keys=(key,) if key else (), at_ms=at_ms))


def put(store: LedgerStore, session: str, *entries: NewEntry, facts: SessionMetadata | None = None) -> Committed:
    """Commit these entries."""
    return store.commit(session, Commit(entries), facts)


def cut(view: str, number: int, at_seq: int) -> Cut:
    """Return a view's decision, made at the head `at_seq`."""
    return Cut(view, number, at_seq, MessageRef(at_seq, 0), "[left out]", at_seq, at_seq * 10, at_seq)


def manifest(view: str, number: int, at_ms: int = 7) -> AssemblyRow:
    """Return a manifest that can be told from others by its number."""
    return AssemblyRow(view, {"number": number, "text": HOSTILE}, at_ms)


def thread_of(store: LedgerStore, session: str) -> int:
    """Return the session's thread, which must be there."""
    thread = store.thread_of(session)
    holds(thread is not None, f"expected a thread for session {session!r}, found none")
    assert thread is not None
    return thread


def entries(store: LedgerStore, session: str) -> list[Entry]:
    """Return all entries of the session's path; an unknown session has none."""
    thread = store.thread_of(session)
    return [] if thread is None else list(store.entries(thread))


def texts(store: LedgerStore, session: str) -> list[str]:
    """Return the texts of all messages on the session's path."""
    return [row.message.text() for stored in entries(store, session) for row in stored.rows]


def together(*calls: Callable[[], object]) -> list[object]:
    """Run the calls at once, each on its own thread. Returns results and raised errors."""
    results: list[object] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(place: int) -> None:
        barrier.wait(WAIT_SECONDS)
        try:
            results[place] = calls[place]()
        except Exception as error:  # noqa: BLE001 - it is the result
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        holds(not thread.is_alive(), f"expected every call to return, found one that hangs after {WAIT_SECONDS:.0f} s")
    return results
