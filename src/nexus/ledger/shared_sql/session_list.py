"""The list of sessions of an SQL ledger, newest first, with the totals of their paths."""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TypeAlias

from nexus.errors import BadSetting
from nexus.ledger.sessions import Segment, SessionInfo
from nexus.ledger.shared_sql.connection import Value
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_threads import END
from nexus.ledger.text_encoding import decode_text, encode_text

_FIRST_SURROGATE = 0xD800
_LAST_SURROGATE = 0xDFFF

_LOST_SESSIONS = """
SELECT label FROM (
    SELECT label FROM session_move WHERE tenant=?1 AND {moves} UNION SELECT name FROM alias WHERE tenant=?1 AND {aliases}
) known
WHERE label NOT IN (SELECT label FROM session WHERE tenant=?1 AND {moves}) LIMIT 1
"""

_SESSIONS = """
SELECT s.label FROM session s LEFT JOIN thread t ON t.tenant=s.tenant AND t.id=s.thread
WHERE s.tenant=? AND s.status<>'alias' AND s.label>=?"""

# A fork that did not go on has the time of its last shared entry, which is in the nearest thread before it that has one.
# Its row has it too, unless an earlier version made it.
# A thread is younger than its parent: damaged rows may have it otherwise, and must not go around in a circle.
_TIME = """
CASE WHEN t.last_ms>0 OR t.head_seq>t.fork_seq OR t.parent IS NULL THEN t.last_ms ELSE coalesce((
    SELECT e.at_ms FROM entry e WHERE e.tenant=t.tenant AND e.thread=t.parent AND e.seq=t.fork_seq
), (
    WITH RECURSIVE earlier(thread, steps) AS (
        SELECT t.parent, 1
        UNION ALL SELECT p.parent, steps+1 FROM earlier JOIN thread p ON p.tenant=t.tenant AND p.id=earlier.thread
        WHERE p.parent<p.id
    )
    SELECT e.at_ms FROM earlier JOIN entry e ON e.tenant=t.tenant AND e.thread=earlier.thread AND e.seq=t.fork_seq
    ORDER BY steps LIMIT 1
), 0) END"""

_IN_ORDER = f"{_SESSIONS}{{conditions}} ORDER BY {_TIME} DESC, s.label"

# Threads are read by the index of their times, only as far as the page goes, and those without a time all. Status is read
# by the whole key: a database that keeps no statistics would take its beginning, the tenant, for a better way to a thread.
_BY_TIME = f"""
SELECT label, at_ms FROM (
    SELECT s.label AS label, t.last_ms AS at_ms FROM thread t CROSS JOIN session s
    WHERE t.tenant=?1 AND t.last_ms>0 AND s.tenant=?1 AND s.thread=t.id{{conditions}}
    ORDER BY t.last_ms DESC, s.label LIMIT ?2
) timed
UNION ALL SELECT label, at_ms FROM (
    SELECT s.label AS label, {_TIME} AS at_ms FROM thread t CROSS JOIN session s
    WHERE t.tenant=?1 AND t.last_ms<=0 AND s.tenant=?1 AND s.thread=t.id{{conditions}}
    ORDER BY 2 DESC, 1 LIMIT ?2
) untimed
ORDER BY 2 DESC, 1 LIMIT ?3 OFFSET ?4"""  # noqa: S608 - constants

_IS_ACTIVE = " AND EXISTS (SELECT 1 FROM session a WHERE a.tenant=?1 AND a.label=s.label AND a.status='active')"

_COUNT = "SELECT count(*) FROM session WHERE tenant=? AND thread IS NOT NULL"

_ALL = (_BY_TIME.format(conditions=""), _COUNT)
_ACTIVE = (_BY_TIME.format(conditions=_IS_ACTIVE), f"{_COUNT} AND status='active'")
"""Statements for a page of sessions, and for their number."""


def sessions(
    reader: Reader, *, every: bool = False, prefix: str = "", limit: int | None = None, offset: int = 0
) -> list[SessionInfo]:
    """Return the sessions, newest first, with counts of their whole paths; see `LedgerStore.sessions`."""
    _check_page(limit, offset)
    if limit is not None and not prefix:
        return _page(reader, limit, offset, every=every)
    stem = encode_text(prefix)
    values: tuple[Value, ...] = (reader.tenant, stem)
    conditions = ""
    if (end := after(stem)) is not None:
        conditions = " AND s.label<?"
        values = (*values, end)
    page = ""
    if limit is None:
        # The whole list is checked whole: each pointer's status too, which its newest move must have.
        _check_pointers(reader, stem, end)
    else:
        conditions += " AND s.thread IS NOT NULL"
        if not every:
            conditions += " AND s.status='active'"
        page = " LIMIT ? OFFSET ?"
        values = (*values, limit, offset)
    totals = _Totals(reader)
    infos: list[SessionInfo] = []
    for (label,) in reader.db.rows(_IN_ORDER.format(conditions=conditions) + page, values):
        info = _session_info(reader, totals, decode_text(label))
        if info is not None and (every or info.status == "active"):
            infos.append(info)
    if limit is not None:
        return infos
    return infos[offset:]


def _page(reader: Reader, limit: int, offset: int, *, every: bool) -> list[SessionInfo]:
    """Return a part of the list of all sessions, which is read by the index of times.

    Raises LedgerDamaged for a session in another place than its time's, and, at the end of the list, for a lost one.
    """
    page, count = _ALL
    if not every:
        page, count = _ACTIVE
    rows = reader.db.rows(page, (reader.tenant, min(limit + offset, END), limit, offset))
    if len(rows) < limit:
        end = offset + len(rows)
        sessions_stored = reader.db.value(count, (reader.tenant,))
        if sessions_stored > end or (rows and sessions_stored < end):
            reader.damaged(f"the list of sessions lacks some of the {sessions_stored} that there are")
        _check_pointers(reader, "", None)
    totals = _Totals(reader)
    infos: list[SessionInfo] = []
    for label, at_ms in rows:
        info = _session_info(reader, totals, decode_text(label))
        if info is None or info.last_ms != at_ms or not (every or info.status == "active"):
            reader.damaged(f"session {decode_text(label)!r} is in a wrong place of the list of sessions")
        infos.append(info)
    return infos


def after(stem: str) -> str | None:
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
    return _session_info(reader, _Totals(reader), label)


def _check_page(limit: int | None, offset: int) -> None:
    """Raise BadSetting unless both are numbers that every database takes."""
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and not (isinstance(number, int) and 0 <= number <= END):
            raise BadSetting(f"{name} is {number!r} (pass a whole number from 0)")


def _check_pointers(reader: Reader, stem: str, end: str | None) -> None:
    """Raise LedgerDamaged if a session whose label begins so has moves and no pointer."""
    values: tuple[Value, ...] = (reader.tenant, stem)
    moves, aliases = "label>=?2", "name>=?2"
    if end is not None:
        values = (*values, end)
        moves, aliases = f"{moves} AND label<?3", f"{aliases} AND name<?3"
    lost_label = reader.db.value(_LOST_SESSIONS.format(moves=moves, aliases=aliases), values)
    if lost_label is not None:
        reader.damaged(f"the pointer of session {decode_text(str(lost_label))!r} is lost")


def _session_info(reader: Reader, totals: _Totals, label: str) -> SessionInfo | None:
    update = reader.session(label)
    if update is None or update.thread is None:
        return None
    thread = update.thread
    row = reader.thread(thread)
    messages = row.messages
    tokens = row.tokens
    first_ms = row.first_ms
    # Of a thread's own entries; else, as the list is sorted, of the last one that it shares.
    last_ms = row.last_ms
    # A thread's row has the totals of its own entries; those that a fork shares are added part by part.
    for part in reader.path(thread)[:-1] if row.parent is not None else ():
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
        update.metadata.title,
        row.turn,
        messages,
        tokens,
        first_ms,
        last_ms,
        row.open_turn,
        update.metadata.status,
        update.metadata.persona,
        update.metadata.parent_session,
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
