"""Full-text search, the list of sessions, and idempotency keys of an SQL ledger."""

from __future__ import annotations

from bisect import bisect_right
from typing import TypeAlias

from nexus.ledger.search_text import all_text, parse_query
from nexus.ledger.sessions import Query, SearchHit, Segment, SessionInfo
from nexus.ledger.sql.read import Reader
from nexus.ledger.sql.read_threads import END
from nexus.ledger.text_encoding import decode_text, encode_text

_LOST_SESSIONS = """
SELECT label FROM (SELECT label FROM session_move WHERE tenant=?1 UNION SELECT name FROM alias WHERE tenant=?1) known
WHERE label NOT IN (SELECT label FROM session WHERE tenant=?1) LIMIT 1
"""


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
    passed = 0
    messages = reader.db.find_messages(reader.tenant, wanted, by_relevance=query.order == "relevance")
    for thread, seq, order_in, role in messages:
        reader.whole_numbers(thread, seq, order_in)
        low, high = (0, END) if ranges is None else ranges.get(thread, (0, 0))
        if (query.roles and role not in query.roles) or not low < seq <= high:
            continue
        labels = _sessions_with(reader, thread, seq)
        visible_labels = tuple(label for label, status in labels if query.every or status != "deleted")
        if labels and not visible_labels:
            continue
        passed += 1
        if passed > query.offset:
            hits.append(_hit(reader, thread, seq, order_in, visible_labels))
        if len(hits) == query.limit:
            break
    return hits


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


def _sessions_with(reader: Reader, thread: int, seq: int) -> list[tuple[str, str]]:
    """Return the sessions whose path contains an entry, directly or through a fork, with their status."""
    sessions: list[tuple[str, str]] = []
    waiting = [thread]
    while waiting:
        at = waiting.pop()
        sql = "SELECT label, status FROM session WHERE tenant=? AND thread=?"
        sessions += [(decode_text(label), status) for label, status in reader.db.rows(sql, (reader.tenant, at))]
        # A fork of a fork has no more of this thread than the fork has.
        sql = "SELECT id FROM thread WHERE tenant=? AND parent=? AND fork_seq>=? AND erased=0"
        forks = [fork for (fork,) in reader.db.rows(sql, (reader.tenant, at, seq))]
        reader.whole_numbers(*forks)
        waiting += forks
    return sorted(sessions)


def labels_of(reader: Reader, thread: int) -> list[str]:
    """Return the labels of a thread; see `LedgerStore.labels_of`."""
    sql = "SELECT label FROM session WHERE tenant=? AND thread=? AND status NOT IN ('alias','deleted')"
    labels = [decode_text(str(label)) for (label,) in reader.db.rows(sql, (reader.tenant, thread))]
    updates = [update for label in labels if (update := reader.session(label)) is not None]
    return [update.label for update in sorted(updates, key=lambda update: -update.at_ms) if update.thread == thread]


def sessions(reader: Reader, *, every: bool = False, prefix: str = "") -> list[SessionInfo]:
    """Return the sessions, newest first, with counts of their whole paths."""
    lost_label = reader.db.value(_LOST_SESSIONS, (reader.tenant,))
    if lost_label is not None:
        reader.damaged(f"the pointer of session {decode_text(str(lost_label))!r} is lost")
    infos: list[SessionInfo] = []
    totals = _Totals(reader)
    sql = "SELECT label FROM session WHERE tenant=? AND status<>'alias' AND label>=? AND substr(label,1,CAST(? AS INTEGER))=?"
    stem = encode_text(prefix)
    for (label,) in reader.db.rows(sql, (reader.tenant, stem, len(stem), stem)):
        update = reader.session(decode_text(label))
        if update is None or update.thread is None or not (every or update.facts.status == "active"):
            continue
        row = reader.thread(update.thread)
        messages = row.messages
        tokens = row.tokens
        first_ms = row.first_ms
        last_ms = row.last_ms
        # A thread's row has the totals of its own entries; those that a fork shares are added part by part.
        for part in reader.path(update.thread)[:-1]:
            if part.low < part.high:
                more_messages, more_tokens, times = totals.of(part)
                messages = messages + more_messages
                tokens = tokens + more_tokens
                first_ms = min(filter(None, (first_ms, min(times, default=0))), default=0)
                last_ms = max(last_ms, max(times, default=0))
        infos.append(
            SessionInfo(
                update.label,
                update.thread,
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
        )
    return sorted(infos, key=lambda info: (-info.last_ms, info.label))


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


def known_keys(reader: Reader, session: str) -> dict[str, int]:
    """Return the idempotency keys that were used on the session's path, and where."""
    thread = reader.thread_of(session)
    sql = "SELECT key, seq FROM idempotency WHERE tenant=? AND thread=? AND seq<=?"
    parts = reader.path(thread) if thread is not None else []
    rows = [row for part in parts for row in reader.db.rows(sql, (reader.tenant, part.thread, part.high))]
    reader.whole_numbers(*[seq for _, seq in rows])
    return {decode_text(str(key)): seq for key, seq in rows}


def holders(reader: Reader, key: str, thread: int | None = None) -> list[tuple[int, int]]:
    """Return the uses of a key; see `LedgerStore.holders`."""
    name = encode_text(key)
    if thread is not None:
        sql = "SELECT thread, seq FROM idempotency WHERE tenant=? AND thread=? AND key=? AND seq<=?"
        parts = reader.path(thread)
        rows = [row for part in parts for row in reader.db.rows(sql, (reader.tenant, part.thread, name, part.high))]
    else:
        sql = "SELECT thread, seq FROM idempotency WHERE tenant=? AND key=? ORDER BY thread"
        rows = reader.db.rows(sql, (reader.tenant, name))
    uses = [(holder, seq) for holder, seq in rows]
    reader.whole_numbers(*[number for row in uses for number in row])
    return uses
