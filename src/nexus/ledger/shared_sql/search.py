"""Full-text search and the list of sessions of an SQL ledger."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from nexus.errors import BadSetting
from nexus.ledger.search_text import all_text, parse_query
from nexus.ledger.sessions import Query, RefUpdate, SearchHit, Segment, SessionInfo
from nexus.ledger.shared_sql.connection import Value
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_threads import END
from nexus.ledger.text_encoding import decode_text, encode_text

_FIRST_SURROGATE = 0xD800
_LAST_SURROGATE = 0xDFFF

_LOST_SESSIONS = """
SELECT label FROM (SELECT label FROM session_move WHERE tenant=?1 UNION SELECT name FROM alias WHERE tenant=?1) known
WHERE label NOT IN (SELECT label FROM session WHERE tenant=?1) LIMIT 1
"""

_MESSAGES_AT_ONCE = 500

_Place: TypeAlias = tuple[int, int]
"""Thread and seq of an entry."""

_SESSIONS = """
SELECT s.label FROM session s LEFT JOIN thread t ON t.tenant=s.tenant AND t.id=s.thread
WHERE s.tenant=? AND s.status<>'alias' AND s.label>=?"""

# A fork that did not go on has the time of its last shared entry, which is in the nearest thread before it that has one.
# A thread is younger than its parent: damaged rows may have it otherwise, and must not go around in a circle.
_NEWEST_FIRST = """
CASE WHEN t.head_seq>t.fork_seq OR t.parent IS NULL THEN t.last_ms ELSE coalesce((
    WITH RECURSIVE earlier(thread, steps) AS (
        SELECT t.parent, 1
        UNION ALL SELECT p.parent, steps+1 FROM earlier JOIN thread p ON p.tenant=t.tenant AND p.id=earlier.thread
        WHERE p.parent<p.id
    )
    SELECT e.at_ms FROM earlier JOIN entry e ON e.tenant=t.tenant AND e.thread=earlier.thread AND e.seq=t.fork_seq
    ORDER BY steps LIMIT 1
), 0) END DESC, s.label"""


def search(reader: Reader, query: Query) -> list[SearchHit]:
    """Return the messages that have all words of the query, each read through its hash."""
    wanted = parse_query(query.text)
    if not wanted or query.limit <= 0:
        return []
    ranges: dict[int, tuple[int, int]] | None = None
    if query.session:
        within = reader.thread_of(query.session)
        ranges = {part.thread: (part.low, part.high) for part in reader.path(within)} if within is not None else {}
    hits: list[SearchHit] = []
    skipped = 0
    messages = reader.db.find_messages(reader.tenant, wanted, by_relevance=query.order == "relevance")
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

    Both tables are read once for all places: databases search them by tenant, which may have very many sessions.
    """
    integers = reader.db.dialect.integers.format("?2")
    forks_sql = f"SELECT parent, id, fork_seq FROM thread WHERE tenant=?1 AND erased=0 AND parent IN ({integers})"  # noqa: S608
    labels_sql = f"SELECT thread, label, status FROM session WHERE tenant=?1 AND thread IN ({integers})"  # noqa: S608
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


def labels_of(reader: Reader, thread: int) -> list[str]:
    """Return the labels of a thread; see `LedgerStore.labels_of`."""
    sql = "SELECT label FROM session WHERE tenant=? AND thread=? AND status NOT IN ('alias','deleted')"
    labels = [decode_text(str(label)) for (label,) in reader.db.rows(sql, (reader.tenant, thread))]
    updates = [update for label in labels if (update := reader.session(label)) is not None]
    return [update.label for update in sorted(updates, key=lambda update: -update.at_ms) if update.thread == thread]


def sessions(
    reader: Reader, *, every: bool = False, prefix: str = "", limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    """Return the sessions, newest first, with counts of their whole paths; see `LedgerStore.sessions`."""
    _check_page(limit, offset)
    stem = encode_text(prefix)
    values: tuple[Value, ...] = (reader.tenant, stem)
    conditions = ""
    if (end := _after(stem)) is not None:
        conditions = " AND s.label<?"
        values = (*values, end)
    page = ""
    if limit is None:
        # The whole list is checked whole: each pointer's status too, which its newest move must have.
        _check_pointers(reader)
    else:
        conditions += " AND s.thread IS NOT NULL"
        if not every:
            conditions += " AND s.status='active'"
        page = " LIMIT ? OFFSET ?"
        values = (*values, limit, offset)
    sql = f"{_SESSIONS}{conditions} ORDER BY {_NEWEST_FIRST}{page}"
    totals = _Totals(reader)
    infos: list[SessionInfo] = []
    for (label,) in reader.db.rows(sql, values):
        update = reader.session(decode_text(label))
        if update is not None and update.thread is not None and (every or update.facts.status == "active"):
            infos.append(_session_info(reader, totals, update, update.thread))
    if limit is not None:
        return infos
    return infos[offset:]


def _after(stem: str) -> str | None:
    """Return the least text after all texts that begin with the stem; None if there is none."""
    rest = stem.rstrip(chr(sys.maxunicode))
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    if code == _FIRST_SURROGATE:  # a database takes no surrogates
        code = _LAST_SURROGATE + 1
    return rest[:-1] + chr(code)


def session_info(reader: Reader, label: str) -> SessionInfo | None:
    """Return a session with counts of its whole path; see `LedgerStore.session_info`."""
    update = reader.session(label)
    if update is None or update.thread is None:
        return None
    return _session_info(reader, _Totals(reader), update, update.thread)


def _check_page(limit: int | None, offset: int) -> None:
    """Raise BadSetting unless both are numbers that every database takes."""
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and not (isinstance(number, int) and 0 <= number <= END):
            raise BadSetting(f"{name} is {number!r} (pass a whole number from 0)")


def _check_pointers(reader: Reader) -> None:
    """Raise LedgerDamaged if a session has moves and no pointer."""
    lost_label = reader.db.value(_LOST_SESSIONS, (reader.tenant,))
    if lost_label is not None:
        reader.damaged(f"the pointer of session {decode_text(str(lost_label))!r} is lost")


def _session_info(reader: Reader, totals: _Totals, update: RefUpdate, thread: int) -> SessionInfo:
    row = reader.thread(thread)
    messages = row.messages
    tokens = row.tokens
    first_ms = row.first_ms
    # Of a thread's own entries; else, as the list is sorted, of the last one that it shares.
    last_ms = row.last_ms
    # A thread's row has the totals of its own entries; those that a fork shares are added part by part.
    for part in reader.path(thread)[:-1]:
        if part.low < part.high:
            more_messages, more_tokens, times = totals.of(part)
            messages = messages + more_messages
            tokens = tokens + more_tokens
            first_ms = min(filter(None, (first_ms, min(times, default=0))), default=0)
            if row.head_seq == row.fork_seq and times:
                last_ms = times[-1]
    return SessionInfo(
        update.label,
        thread,
        update.facts.title,
        row.turn,
        messages,
        tokens,
        first_ms,
        last_ms,
        row.open_turn,
        update.facts.status,
        update.facts.persona,
        update.facts.parent_session,
    )


_Sums: TypeAlias = tuple[list[int], list[int], list[int], list[int]]
"""Seqs of a thread's entries, messages and tokens up to each, and their times."""


class _Totals:
    """Messages, base tokens and times of parts of threads. Shared threads are read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sums: dict[int, _Sums] = {}

    def of(self, part: Segment) -> tuple[int, int, list[int]]:
        """Return messages and tokens of a part, and the times of its first and last entry."""
        seqs, messages, tokens, times = self._sums.get(part.thread) or self._read(part.thread)
        low = bisect_right(seqs, part.low)
        high = bisect_right(seqs, part.high)
        return messages[high] - messages[low], tokens[high] - tokens[low], times[low:high]

    def _read(self, thread: int) -> _Sums:
        key = (self._reader.tenant, thread)
        greatest = self._reader.db.dialect.greatest
        sql = (
            "SELECT e.seq, max(e.at_ms), count(m.id_row),"  # noqa: S608 - constants
            f" CAST(coalesce(sum({greatest}(m.openai, m.anthropic, m.gemini)),0) AS bigint) FROM entry e"
            " LEFT JOIN message m ON m.tenant=e.tenant AND m.thread=e.thread AND m.seq=e.seq"
            " WHERE e.tenant=? AND e.thread=? GROUP BY e.seq ORDER BY e.seq"
        )
        sums: _Sums = ([], [0], [0], [])
        for seq, at_ms, count, dear in self._reader.db.rows(sql, key):
            self._reader.whole_numbers(seq, at_ms, count, dear)
            sums[0].append(seq)
            sums[1].append(sums[1][-1] + count)
            sums[2].append(sums[2][-1] + dear)
            sums[3].append(at_ms)
        self._sums[thread] = sums
        return sums
