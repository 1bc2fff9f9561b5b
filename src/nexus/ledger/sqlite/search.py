"""Full-text search, the list of sessions, and idempotency keys of a SQLite ledger."""

from __future__ import annotations

from bisect import bisect_right

from nexus.ledger.search_text import all_text, parse_query
from nexus.ledger.sessions import Query, SearchHit, Segment, SessionInfo, SessionMetadata
from nexus.ledger.sqlite.read import Reader
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.ledger_entries import MessageRef

_SESSIONS = "SELECT label FROM session WHERE tenant=? AND status<>'alias'"

_LOST_SESSIONS = """
SELECT label FROM (SELECT label FROM session_move WHERE tenant=?1 UNION SELECT name FROM alias WHERE tenant=?1)
WHERE label NOT IN (SELECT label FROM session WHERE tenant=?1) LIMIT 1
"""


def search(reader: Reader, query: Query) -> list[SearchHit]:
    """Return the messages that have all words of the query, each read through its hash."""
    wanted = parse_query(query.text)
    if not wanted or query.limit <= 0:
        return []
    match = " ".join(f'"{" ".join(phrase)}"' for phrase in wanted)
    order = "search.rank, search.rowid DESC" if query.order == "relevance" else "search.rowid DESC"
    sql = (
        "SELECT m.thread, m.seq, m.ord, m.role FROM search JOIN message m ON m.id_row = search.rowid"  # noqa: S608
        f" WHERE search MATCH ? AND m.tenant=? ORDER BY {order}"
    )
    ranges = _ranges(reader, query.session)
    hits: list[SearchHit] = []
    passed = 0
    for thread, seq, order_in, role in reader.db.each(sql, (match, reader.tenant)):
        reader.whole_numbers(thread, seq, order_in)
        if (query.roles and role not in query.roles) or not _within(ranges, thread, seq):
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


def _ranges(reader: Reader, session: str) -> dict[int, tuple[int, int]] | None:
    """Return the ranges of threads on the session's path; None for everything."""
    if not session:
        return None
    thread = reader.thread_of(session)
    return {} if thread is None else {part.thread: (part.low, part.high) for part in reader.path(thread)}


def _within(ranges: dict[int, tuple[int, int]] | None, thread: int, seq: int) -> bool:
    if ranges is None:
        return True
    low, high = ranges.get(thread, (0, 0))
    return low < seq <= high


def _sessions_with(reader: Reader, thread: int, seq: int) -> list[tuple[str, str]]:
    """Return the sessions whose path contains an entry, directly or through a fork, with their status."""
    sessions: list[tuple[str, str]] = []
    waiting = [thread]
    while waiting:
        at = waiting.pop()
        sql = "SELECT label, status FROM session WHERE tenant=? AND thread=?"
        sessions += [(decode_text(label), status) for label, status in reader.db.rows(sql, (reader.tenant, at))]
        # A fork of a fork has no more of this thread than the fork has.
        sql = "SELECT id FROM thread WHERE tenant=? AND parent=? AND fork_seq>=? AND NOT erased"
        forks = [fork for (fork,) in reader.db.rows(sql, (reader.tenant, at, seq))]
        reader.whole_numbers(*forks)
        waiting += forks
    return sorted(sessions)


def _hit(reader: Reader, thread: int, seq: int, order: int, labels: tuple[str, ...]) -> SearchHit:
    segment = next(part for part in reader.path(thread) if part.thread == thread)
    entry = next(iter(reader.read(segment, seq - 1, seq)), None)
    row = next((row for row in entry.rows if row.ref.ord == order), None) if entry is not None else None
    if entry is None or row is None:
        reader.damaged(f"message {order} of entry {seq} of thread {thread} is lost")
    text = all_text(row.message.parts)
    at_ms = row.message.at_ms or entry.at_ms
    return SearchHit(thread, MessageRef(seq, order), entry.turn, row.message.role, at_ms, text, labels)


def sessions(reader: Reader, *, every: bool) -> list[SessionInfo]:
    """Return the sessions, newest first, with counts of their whole paths."""
    lost_label = reader.db.value(_LOST_SESSIONS, (reader.tenant,))
    if lost_label is not None:
        reader.damaged(f"the pointer of session {decode_text(str(lost_label))!r} is lost")
    infos: list[SessionInfo] = []
    totals = _Totals(reader)
    for (label,) in reader.db.rows(_SESSIONS, (reader.tenant,)):
        move = reader.move_of(label)
        facts = reader.facts(move) if move is not None else None
        if move is not None and facts is not None and move.thread is not None and (every or facts.status == "active"):
            infos.append(_info(reader, label, move.thread, facts, totals))
    return sorted(infos, key=lambda info: (-info.last_ms, info.label))


class _Totals:
    """Messages, base tokens and times of parts of threads. Shared threads are read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[int, tuple[list[int], list[int], list[int], list[int]]] = {}

    def of(self, part: Segment) -> tuple[int, int, list[int]]:
        """Return messages and tokens of a part, and the times of its first and last entry."""
        seqs, messages, tokens, times = self._known.get(part.thread) or self._read(part.thread)
        low, high = bisect_right(seqs, part.low), bisect_right(seqs, part.high)
        return messages[high] - messages[low], tokens[high] - tokens[low], times[low:high]

    def _read(self, thread: int) -> tuple[list[int], list[int], list[int], list[int]]:
        key = (self._reader.tenant, thread)
        sql = (
            "SELECT e.seq, e.at_ms, count(m.id_row), ifnull(sum(max(m.openai, m.anthropic, m.gemini)),0) FROM entry e"
            " LEFT JOIN message m ON m.tenant=e.tenant AND m.thread=e.thread AND m.seq=e.seq"
            " WHERE e.tenant=? AND e.thread=? GROUP BY e.seq ORDER BY e.seq"
        )
        sums: tuple[list[int], list[int], list[int], list[int]] = ([], [0], [0], [])
        for seq, at_ms, count, dear in self._reader.db.rows(sql, key):
            self._reader.whole_numbers(seq, at_ms, count, dear)
            sums[0].append(seq)
            sums[1].append(sums[1][-1] + count)
            sums[2].append(sums[2][-1] + dear)
            sums[3].append(at_ms)
        self._known[thread] = sums
        return sums


def _info(reader: Reader, label: str, thread: int, facts: SessionMetadata, totals: _Totals) -> SessionInfo:
    row = reader.thread(thread)
    messages, tokens, first, last = row.messages, row.tokens, row.first_ms, row.last_ms
    for part in reader.path(thread)[:-1]:
        if part.low < part.high:
            more, dear, times = totals.of(part)
            messages, tokens = messages + more, tokens + dear
            first = min(filter(None, (first, min(times, default=0))), default=0)
            last = max(last, max(times, default=0))
    names = (facts.persona, facts.parent_session)
    return SessionInfo(
        decode_text(label),
        thread,
        facts.title,
        row.turn,
        messages,
        tokens,
        first,
        last,
        row.open_turn,
        facts.status,
        *names,
    )


def known_keys(reader: Reader, session: str) -> dict[str, int]:
    """Return the idempotency keys that were used on the session's path, and where."""
    thread = reader.thread_of(session)
    sql = "SELECT key, seq FROM idempotency WHERE tenant=? AND thread=? AND seq<=?"
    parts = reader.path(thread) if thread is not None else []
    rows = [row for part in parts for row in reader.db.rows(sql, (reader.tenant, part.thread, part.high))]
    reader.whole_numbers(*[seq for _, seq in rows])
    return {decode_text(str(key)): seq for key, seq in rows}


def holders(reader: Reader, key: str) -> list[tuple[int, int]]:
    """Return the uses of a key. One lookup for each thread makes a second index unnecessary."""
    sql = (
        "SELECT t.id, i.seq FROM thread t JOIN idempotency i ON i.tenant=t.tenant AND i.thread=t.id AND i.key=?"
        " WHERE t.tenant=? ORDER BY t.id"
    )
    uses = [(thread, seq) for thread, seq in reader.db.rows(sql, (encode_text(key), reader.tenant))]
    reader.whole_numbers(*[number for row in uses for number in row])
    return uses
