"""Full-text search of an SQL ledger: filters and pages. The query itself is in `find_messages` of each database's connection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from nexus.ledger.search_text import all_text, parse_query
from nexus.ledger.sessions import Query, SearchHit
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_threads import END
from nexus.ledger.text_encoding import decode_text

_MESSAGES_AT_ONCE = 500

_Place: TypeAlias = tuple[int, int]
"""Thread and seq of an entry."""


def search(reader: Reader, query: Query) -> list[SearchHit]:
    """Return the messages that have all words of the query, or any if it says so, each read through its hash."""
    wanted = parse_query(query.text)
    if not wanted or query.limit <= 0:
        return []
    ranges: dict[int, tuple[int, int]] | None = None
    if query.session:
        within = reader.thread_of(query.session)
        ranges = {part.thread: (part.low, part.high) for part in reader.path(within)} if within is not None else {}
    hits: list[SearchHit] = []
    skipped = 0
    messages = reader.db.find_messages(
        reader.tenant, wanted, by_relevance=query.order == "relevance", any_phrase=query.any_word
    )
    candidates = (message for message in messages if _is_inside(reader, message, query, ranges))
    batch_size = min(query.limit, _MESSAGES_AT_ONCE)
    while batch := list(islice(candidates, batch_size)):
        sessions_with = _sessions_with(reader, {message[:2] for message in batch})
        for thread, seq, order_in, _ in batch:
            labels = sessions_with[thread, seq]
            visible_labels = tuple(label for label, status in labels if query.every or status != "deleted")
            if labels and not visible_labels:
                continue
            if skipped < query.offset:
                skipped += 1
                continue
            hits.append(_hit(reader, thread, seq, order_in, visible_labels))
            if len(hits) == query.limit:
                return hits
        batch_size = _MESSAGES_AT_ONCE
    return hits


def _is_inside(
    reader: Reader, message: tuple[int, int, int, str], query: Query, ranges: dict[int, tuple[int, int]] | None
) -> bool:
    """Return True if a message has one of the wanted roles and is on the wanted path."""
    thread, seq, order_in, role = message
    reader.whole_numbers(thread, seq, order_in)
    low, high = 0, END
    if ranges is not None:
        low, high = ranges.get(thread, (0, 0))
    return low < seq <= high and (not query.roles or role in query.roles)


def _hit(reader: Reader, thread: int, seq: int, order_in: int, labels: tuple[str, ...]) -> SearchHit:
    """Return a found message, read through its entry's hash."""
    segment = next(part for part in reader.path(thread) if part.thread == thread)
    lost = f"message {order_in} of entry {seq} of thread {thread} is lost"
    entry = next(iter(reader.read(segment, seq - 1, seq)), None)
    if entry is None:
        reader.damaged(lost)
    row = next((row for row in entry.rows if row.ref.ord == order_in), None)
    if row is None:
        reader.damaged(lost)
    at_ms = row.message.at_ms or entry.at_ms
    return SearchHit(thread, row.ref, entry.turn, row.message.role, at_ms, all_text(row.message.parts), labels)


def _sessions_with(reader: Reader, places: Iterable[_Place]) -> dict[_Place, list[tuple[str, str]]]:
    """Return the sessions whose path contains each place, directly or through a fork, with their status.

    Each table is read by an index that has the keys alone, and then by its own key: otherwise SQLite, without statistics,
    would read all rows of the tenant.
    """
    integers = reader.db.dialect.integers.format("?2")
    forks_sql = (
        "SELECT f.parent, t.id, t.fork_seq FROM thread f CROSS JOIN thread t"  # noqa: S608
        f" WHERE f.tenant=?1 AND f.parent IN ({integers}) AND t.tenant=?1 AND t.id=f.id AND t.erased=0"
    )
    labels_sql = (
        "SELECT p.thread, p.label, p.status FROM session s CROSS JOIN session p"  # noqa: S608
        f" WHERE s.tenant=?1 AND s.thread IN ({integers}) AND p.tenant=?1 AND p.label=s.label"
    )
    forks = dict[int, list[tuple[int, int]]]()
    threads = {thread for thread, _ in places}
    parents = threads
    while parents:
        rows = reader.db.rows(forks_sql, (reader.tenant, json.dumps(sorted(parents))))
        for parent, fork, fork_seq in rows:
            reader.whole_numbers(parent, fork, fork_seq)
            if fork <= parent:
                reader.damaged(f"thread {fork} continues thread {parent}, which is not older")
            forks.setdefault(parent, []).append((fork, fork_seq))
        parents = {fork for _, fork, _ in rows} - threads
        threads = threads | parents
    sessions = dict[int, list[tuple[str, str]]]()
    for thread, label, status in reader.db.rows(labels_sql, (reader.tenant, json.dumps(sorted(threads)))):
        sessions.setdefault(thread, []).append((decode_text(label), status))
    return {place: _sessions_of(place, forks, sessions) for place in places}


def _sessions_of(
    place: _Place, forks: Mapping[int, list[tuple[int, int]]], sessions: Mapping[int, list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    thread, seq = place
    sharing: list[tuple[str, str]] = []
    waiting = [thread]
    while waiting:
        at = waiting.pop()
        sharing += sessions.get(at, ())
        # A fork of a fork has no more of this thread than the fork has.
        waiting += [fork for fork, fork_seq in forks.get(at, ()) if fork_seq >= seq]
    return sorted(sharing)
