"""Checks that a write is in the ledger, after the answer to its commit was lost.

Each function gets a reader and the result of the write. The write runs again when it returns False.
"""

from __future__ import annotations

from collections.abc import Sequence

from nexus.ledger.sessions import AcceptedEvent, QueuedEvent, RefUpdate
from nexus.ledger.shared_sql import queue
from nexus.ledger.shared_sql.read import Reader
from nexus.types.ledger_entries import Committed


def run_again(reader: Reader, result: object) -> bool:
    """Return False: the write has the same effect when it runs twice."""
    del reader, result
    return False


def is_commit_stored(reader: Reader, committed: Committed, hashes: Sequence[bytes]) -> bool:
    """Return whether the last entry of a commit is there, with the same hash, which covers everything before it.

    A commit that added no entry runs again: it may have taken a fencing token.
    """
    sql = "SELECT hash FROM entry WHERE tenant=? AND thread=? AND seq=?"
    stored = reader.db.value(sql, (reader.tenant, committed.thread, committed.head))
    return bool(hashes) and stored == hashes[-1]


def are_updates_stored(reader: Reader, updates: Sequence[RefUpdate]) -> bool:
    """Return whether these updates of sessions are there."""
    return all(update in reader.ref_updates(update.label) for update in updates)


def is_fork_stored(reader: Reader, session: str, thread: int, reason: str) -> bool:
    """Return whether a fork's thread is there, and its session was pointed to it."""
    updates = reader.ref_updates(reader.label_of(session))
    return any(update.thread == thread and update.reason == reason for update in updates)


def are_events_accepted(reader: Reader, accepted: Sequence[AcceptedEvent]) -> bool:
    """Return whether all events that were new are there; another program may have changed their state since."""
    added = [each.event for each in accepted if each.added]
    stored = [queue.event(reader, event.key) for event in added]
    return all(
        there is not None
        and (there.number, there.body, there.accepted_ms) == (event.number, event.body, event.accepted_ms)
        for there, event in zip(stored, added, strict=True)
    )


def are_events_updated(reader: Reader, updated: Sequence[QueuedEvent]) -> bool:
    """Return whether these events are there as they were changed, or were not found to be changed."""
    return all(queue.event(reader, event.key) == event for event in updated)
