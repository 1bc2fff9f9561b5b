"""Full-text search, and the list of sessions, of the memory ledger."""

from __future__ import annotations

from collections.abc import Iterator

from nexus.ledger.codec import decode_parts
from nexus.ledger.records import EntryRecord, MoveRecord
from nexus.ledger.search_text import all_text, matches, parse_query, search_text
from nexus.ledger.sessions import Query, SearchHit, SessionInfo
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.testing.memory_ledger.names import facts_of
from nexus.testing.memory_ledger.rows import Rows, tokens


def search(rows: Rows, query: Query) -> list[SearchHit]:
    """The messages that have all words of the query, the newest first: that is this store's `relevance` too."""
    wanted = parse_query(query.text)
    if not wanted or query.limit <= 0:
        return []
    hits: list[SearchHit] = []
    passed = 0
    for record, order in _candidates(rows, query):
        if not matches(search_text(decode_parts(record.messages[order][7], lambda _: b"")), wanted):
            continue
        labels = _sessions_with(rows, record.thread, record.seq)
        shown = tuple(label for label, status in labels if query.every or status != "deleted")
        if labels and not shown:
            continue
        passed += 1
        if passed > query.offset:
            hits.append(_hit(rows, record, order, shown))
        if len(hits) == query.limit:
            break
    return hits


def _candidates(rows: Rows, query: Query) -> Iterator[tuple[EntryRecord, int]]:
    """The messages of the wanted session and roles, the newest first, as their entry and place in it."""
    span: dict[int, tuple[int, int]] | None = None
    if query.session:
        label = rows.names.resolve(encode_text(query.session))
        thread = rows.names.thread_of(label) if label is not None else None
        span = {part.thread: (part.low, part.high) for part in rows.path(thread)} if thread is not None else {}
    for number, seq in reversed(rows.written):
        low, high = span.get(number, (0, 0)) if span is not None else (0, seq)
        if low < seq <= high:
            thread_rows = rows.threads[number]
            record = thread_rows.entries[seq - thread_rows.row.fork_seq - 1]
            for order in range(len(record.messages) - 1, -1, -1):
                if not query.roles or record.messages[order][1] in query.roles:
                    yield record, order


def _sessions_with(rows: Rows, thread: int, seq: int) -> list[tuple[str, str]]:
    """The sessions, with their status, that have an entry of a thread on their path."""
    return sorted(
        (decode_text(label), facts_of(move).status)
        for label, move in rows.names.active().items()
        for part in (rows.path(move.thread) if move.thread is not None else ())
        if part.thread == thread and part.low < seq <= part.high
    )


def _hit(rows: Rows, record: EntryRecord, order: int, labels: tuple[str, ...]) -> SearchHit:
    (entry,) = rows.read(record.thread, record.seq - 1, record.seq)
    row = entry.rows[order]
    text = all_text(row.message.parts)
    at_ms = row.message.at_ms or entry.at_ms
    return SearchHit(record.thread, row.place, entry.turn, row.message.role, at_ms, text, labels)


def sessions(rows: Rows, *, every: bool) -> list[SessionInfo]:
    """The sessions, newest first, with counts of their whole paths."""
    found = (_info(rows, label, move) for label, move in rows.names.active().items())
    return sorted((info for info in found if every or info.status == "active"), key=lambda i: (-i.last_ms, i.label))


def _info(rows: Rows, label: str, move: MoveRecord) -> SessionInfo:
    assert move.thread is not None
    facts, row = facts_of(move), rows.get(move.thread).row
    path = list(rows.records(move.thread))
    times = [record.at_ms for record in path]
    return SessionInfo(
        decode_text(label),
        move.thread,
        facts.title,
        row.turn,
        sum(len(record.messages) for record in path),
        sum(map(tokens, path)),
        min(filter(None, times), default=0),
        max(times, default=0),
        row.open_turn,
        facts.status,
        facts.persona,
        facts.parent_session,
    )
