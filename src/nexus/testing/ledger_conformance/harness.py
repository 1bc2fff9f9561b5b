"""Harness of the checks: the backend they run on, assertions, and short forms of the store's calls.

A failed assertion names the expected and the actual value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from nexus.ledger.sessions import Alias, NewRefUpdate, SessionMetadata
from nexus.ledger.store import LedgerStore
from nexus.testing.fakes import FixedClock
from nexus.types import ledger_entries as types
from nexus.types.ledger_entries import Commit, Entry, NewEntry
from nexus.types.message import Message, TokenSize, user

Error = TypeVar("Error", bound=Exception)

START_MS = 1_700_000_000_000
"""Time at the start of a check, in milliseconds since 1970."""

WAIT_SECONDS = 30.0
"""How long a check waits for its own threads before it says that they hang."""

MOST_SHOWN = 600
"""Characters of a value that a failure shows."""

HOSTILE = "nul \x00 half \ud83d other \udc4d mark \x1a word \x1a0000 bell \x07 end"
"""Text with everything that databases refuse, cut off, or that the stored form itself uses."""


class LedgerBackend(Protocol):
    """Storage that is empty when a check begins, supplied by the author of a store."""

    @property
    def durable(self) -> bool:
        """True if the content survives closing all stores."""
        ...

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> LedgerStore:
        """Open a store for this tenant, always on the same storage. `clock_ms` supplies the time."""
        ...


class LedgerCase:
    """Stores of one check on an empty storage, and their clock. All are closed at the end."""

    def __init__(self, backend: LedgerBackend) -> None:
        self.backend = backend
        self.clock = FixedClock(START_MS)
        self._opened: list[LedgerStore] = []
        self.store = self.open()

    def open(self, tenant: str = "local") -> LedgerStore:
        """Return one more store on the same storage."""
        store = self.backend.open(tenant, self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close all stores."""
        for store in self._opened:
            store.close()
        self._opened.clear()


# assertions ----------------------------------------------------------------------------------------------------------


def equal(actual: Any, wanted: Any, what: str) -> None:
    """Raise AssertionError unless the two are equal. A store need not return the hash of a commit's newest entry."""
    if isinstance(actual, types.Committed):
        actual = replace(actual, head_hash=b"")
    if actual != wanted:
        values = [repr(value) for value in (wanted, actual)]
        values = [
            f"{text[:MOST_SHOWN]}… ({len(text)} characters)" if len(text) > MOST_SHOWN else text for text in values
        ]
        raise AssertionError(f"{what}: expected {values[0]}, found {values[1]}")


def holds(condition: bool, what: str) -> None:
    """Raise AssertionError with `what` unless the condition is true."""
    if not condition:
        raise AssertionError(what)


@contextmanager
def raises(kind: type[Error], what: str, code: str = "") -> Generator[list[Error]]:
    """Raise AssertionError unless the block raises an error of this kind, which the yielded list then contains.

    `code`: the error's, by default that of its class.
    """
    caught: list[Error] = []
    try:
        yield caught
    except kind as error:
        equal(getattr(error, "code", ""), code or getattr(kind, "code", ""), f"{what}: code of the error")
        caught.append(error)
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, found {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: expected {kind.__name__}, and no error was raised")


# values and calls ----------------------------------------------------------------------------------------------------


def with_sizes(*contents: Message | str) -> tuple[types.SizedMessage, ...]:
    """Return messages with counts that follow from their text; plain text is a user's message."""
    messages = [user(content) if isinstance(content, str) else content for content in contents]
    return tuple(types.SizedMessage(content, size_of(content)) for content in messages)


def size_of(message: Message) -> TokenSize:
    """Return counts that differ in each provider format."""
    length = len(message.text())
    return TokenSize(length + 1, length + 3, length + 2, 1)


def entry(*contents: Message | str, keys: Sequence[str] = (), at_ms: int = 0, starts_turn: bool = True) -> NewEntry:
    """Return an entry of messages, which starts a turn by default."""
    return NewEntry("messages", with_sizes(*contents), {}, at_ms, starts_turn, tuple(keys))


def mark(kind: types.EntryKind, **body: int | str) -> NewEntry:
    """Return an entry without messages, with this body."""
    return NewEntry(kind, body=dict(body))


def compaction(covers_from: int, covers_to: int, first_kept: int) -> NewEntry:
    """Return a compaction of these entries."""
    return mark("compaction", covers_from=covers_from, covers_to=covers_to, first_kept=first_kept, summary="so far")


def append(
    store: LedgerStore, session: str, *contents: Message | str, key: str = "", at_ms: int = 0
) -> types.Committed:
    """Append messages as one entry that starts a turn."""
    return put(store, session, entry(*contents, keys=(key,) if key else (), at_ms=at_ms))


def put(
    store: LedgerStore, session: str, *entries: NewEntry, metadata: SessionMetadata | None = None
) -> types.Committed:
    """Commit these entries."""
    return store.commit(session, Commit(entries), metadata)


def cut(view: str, number: int, at_seq: int) -> types.Cut:
    """Return a view's decision, made at the head `at_seq`."""
    return types.Cut(view, number, at_seq, types.MessageRef(at_seq, 0), "[left out]", at_seq, at_seq * 10, at_seq)


def manifest(view: str, number: int, at_ms: int = 7) -> types.AssemblyRow:
    """Return a manifest that can be told from others by its number."""
    return types.AssemblyRow(view, {"number": number, "text": HOSTILE}, at_ms)


def rename(store: LedgerStore, old: str, new: str) -> None:
    """Rename a session. Its old name becomes an alias."""
    moves = [NewRefUpdate(new, thread_of(store, old), "renamed"), NewRefUpdate(old, None, "renamed")]
    store.update_refs(moves, [Alias(old, new, "renamed")])


def thread_of(store: LedgerStore, session: str) -> int:
    """Return the session's thread, which must be there."""
    thread = store.thread_of(session)
    if thread is None:
        raise AssertionError(f"expected a thread for session {session!r}, found none")
    return thread


def entries(store: LedgerStore, session: str) -> list[Entry]:
    """Return all entries of the session's path; an unknown session has none."""
    thread = store.thread_of(session)
    if thread is None:
        return []
    return list(store.entries(thread))


def read_messages(store: LedgerStore, session: str) -> list[Message]:
    """Return all messages on the session's path."""
    return [row.message for stored in entries(store, session) for row in stored.rows]


def texts(store: LedgerStore, session: str) -> list[str]:
    """Return the texts of all messages on the session's path."""
    return [message.text() for message in read_messages(store, session)]


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
