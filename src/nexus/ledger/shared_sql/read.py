"""Reads of entries and views of an SQL ledger, each row checked against its hash.

Checkpoints are counted, and the newest decision and manifest of a view are also named in another table, so that a lost
row is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, cast

import msgspec

from nexus.errors import NoSuchSession
from nexus.ledger import chain, replay
from nexus.ledger.codec import decode_body, read_entry
from nexus.ledger.records import AssemblyRecord, CalibrationRecord, MessageRow
from nexus.ledger.sessions import Segment
from nexus.ledger.shared_sql.connection import Dialect
from nexus.ledger.shared_sql.read_sessions import remember
from nexus.ledger.shared_sql.read_threads import END, ThreadReader
from nexus.ledger.text_encoding import decode_text, encode_text, from_json
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import STEPS, AssemblyRow, Cut, Entry, StoredCalibration, StoredMessage

_cut = msgspec.json.Decoder(decodable(Cut))

MESSAGE_COLUMNS = "ord,role,id,run_id,source,model,at_ms,content,meta,openai,anthropic,gemini,aside"
_HEADS = "SELECT seq,kind,turn,at_ms,body,hash FROM"
_ROWS = f"SELECT seq,{MESSAGE_COLUMNS} FROM"
_IN_ONE = "WHERE tenant=? AND thread=? AND seq>? AND seq<=? ORDER BY seq"
_IN_MANY = "WHERE e.tenant=?2 AND e.thread=span.thread AND e.seq>span.low AND e.seq<=span.high"

_FROM_ONE = (f"{_HEADS} entry {_IN_ONE}", f"{_ROWS} message {_IN_ONE},ord")

_CALIBRATION = (
    "SELECT number, factor_64, samples, at_ms, hash FROM calibration"
    " WHERE tenant=? AND provider=? AND model=? AND number>=? ORDER BY number"
)
_CALIBRATION_HEAD = "SELECT number, hash FROM calibration_head WHERE tenant=? AND provider=? AND model=?"

MOST_READ_AGAIN = 64
"""Entries of a read that the same snapshot may use again, at most."""

Span: TypeAlias = tuple[Segment, int, int]
"""A segment, and which of its entries: those with `after < seq <= until`."""


_MARKS = """
SELECT e.seq, e.kind, e.turn, e.at_ms, e.body, e.hash,
    (SELECT hash FROM entry p WHERE p.tenant=e.tenant AND p.thread=e.thread AND p.seq=e.seq-1),
    EXISTS (SELECT 1 FROM message m WHERE m.tenant=e.tenant AND m.thread=e.thread AND m.seq=e.seq)
FROM entry e WHERE e.tenant=?1 AND e.thread=?2 AND e.seq IN ({integers}) ORDER BY e.seq DESC
"""


@cache
def _from_many(dialect: Dialect) -> tuple[str, str]:
    """Return the statements that read the entries and messages of several spans."""
    spans = f"{dialect.spans.format('?1')} span CROSS JOIN"
    return f"{_HEADS} {spans} entry e {_IN_MANY}", f"{_ROWS} {spans} message e {_IN_MANY}"


@cache
def _marks_in(dialect: Dialect) -> str:
    """Return the statement that reads entries by their numbers."""
    return _MARKS.format(integers=dialect.integers.format("?3"))


_MARK_KINDS = """
SELECT seq, kind FROM entry WHERE tenant=? AND thread=? AND seq>? AND kind NOT IN ('messages','completed','failed')
ORDER BY seq
"""


_MANIFESTS = """
WITH RECURSIVE views(name) AS (
    SELECT min(view) FROM assembly WHERE tenant=?1 AND thread=?2
    UNION ALL
    SELECT (SELECT min(view) FROM assembly WHERE tenant=?1 AND thread=?2 AND view>name) FROM views WHERE name IS NOT NULL
)
SELECT view, seq, manifest, at_ms, hash FROM views CROSS JOIN assembly
WHERE tenant=?1 AND thread=?2 AND view=name AND seq>?3 AND seq<=?4 ORDER BY seq, view
"""
"""Manifests in a range of entries. Views come first in their key: without their names, all manifests would be read."""


def _columns_by_entry(heads: list[Any], rows: Iterator[Any]) -> Iterator[list[MessageRow]]:
    """Yield the message columns of each entry, and of a message without an entry last, if there is one."""
    row = next(rows, None)
    for head in heads:
        columns: list[MessageRow] = []
        while row is not None and row[0] == head[0]:
            columns.append(row[1:])
            row = next(rows, None)
        yield columns
    if row is not None:
        yield [row[1:]]


class Reader(ThreadReader):
    """Reads of one tenant on one connection."""

    _newest_read: tuple[int, int, list[Entry]] | None = None
    """Thread, seq before and entries of the snapshot's newest read: an operation often looks at some of them again."""

    # entries -----------------------------------------------------------------------------------------------------

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> list[Entry]:
        """Return the path's entries with `after < seq <= until`, all checked before the first is returned."""
        row = self.thread(thread)
        if until is None:
            last = row.head_seq
        else:
            last = min(until, row.head_seq)
        if last <= after:
            return []
        if row.erased:
            raise NoSuchSession(f"thread {thread} of {self.place} was erased")
        if self._newest_read is not None:
            at, start, newest = self._newest_read
            if at == thread and start <= after and last <= start + len(newest):
                return newest[after - start : last - start]
        spans = [(part, max(part.low, after), min(part.high, last)) for part in self.path(thread)]
        entries = self._read([span for span in spans if span[1] < span[2]])
        if len(entries) != last - max(after, 0) or (last == row.head_seq and entries[-1].hash != row.head_hash):
            self.damaged(f"the newest entry of thread {thread} is not the one that was written last")
        if last - after <= MOST_READ_AGAIN and not self.is_writing:
            self._newest_read = (thread, max(after, 0), entries.copy())
        return entries

    def message_counts(self, thread: int) -> list[tuple[int, int]]:
        """Return seq and number of messages of the path's entries that have any; see `LedgerStore.message_counts`."""
        row = self.thread(thread)
        path = self.path(thread)
        sql = "SELECT seq, count(*) FROM message WHERE tenant=? AND thread=? AND seq>? AND seq<=? GROUP BY seq ORDER BY seq"
        values = [(self.tenant, part.thread, part.low, min(part.high, row.head_seq)) for part in path]
        counts = [(seq, count) for span in values for seq, count in self.db.rows(sql, span)]
        self.whole_numbers(*[seq for seq, _ in counts])
        if len(path) == 1 and sum(count for _, count in counts) != row.messages:
            self.damaged(f"thread {thread} has not the {row.messages} messages that its row says")
        return counts

    def read(self, part: Segment, after: int, until: int) -> list[Entry]:
        """Return a segment's entries with `after < seq <= until`, checked against their hashes."""
        return self._read([(part, after, until)])

    def _read(self, spans: list[Span]) -> list[Entry]:
        """Return the entries of several segments of a path, in order: two queries, however many there are."""
        if len(spans) == 1:
            part, after, until = spans[0]
            is_first = after == part.low
            heads = self.db.rows(_FROM_ONE[0], (self.tenant, part.thread, after if is_first else after - 1, until))
            before = part.root if is_first else None
            if not is_first and heads and heads[0][0] == after:
                before = heads.pop(0)[-1]
            with closing(self.db.each(_FROM_ONE[1], (self.tenant, part.thread, after, until))) as rows:
                return self._joined(spans, heads, rows, [before])
        ranges = [(part.thread, after, until) for part, after, until in spans]
        heads, messages = (
            self.db.rows(query, (json.dumps(ranges), self.tenant)) for query in _from_many(self.db.dialect)
        )
        self.whole_numbers(*[head[0] for head in heads], *[number for row in messages for number in row[:2]])
        heads.sort(key=itemgetter(0))
        hashes = [
            part.root if after == part.low else self.hash_on(self.path(part.thread), after) for part, after, _ in spans
        ]
        return self._joined(spans, heads, iter(sorted(messages, key=itemgetter(0, 1))), hashes)

    def _joined(
        self, spans: list[Span], heads: list[Any], rows: Iterator[Any], hashes: list[bytes | None]
    ) -> list[Entry]:
        """Return the entries of heads and message rows, both in order, each span behind an entry with that hash."""
        if not heads:
            return []
        self.whole_numbers(*[head[0] for head in heads])
        columns = _columns_by_entry(heads, rows)
        entries: list[Entry] = []
        at = 0
        for (part, after, until), before in zip(spans, hashes, strict=True):
            span_start = at
            while at < len(heads) and heads[at][0] <= until:
                at += 1
            if span_start < at:
                if before is None:
                    self.damaged(f"entry {after} of thread {part.thread} is lost")
                entries += self._checked(part.thread, after, before, heads[span_start:at], columns)
        if next(columns, None) is not None:
            self.damaged(f"a message of thread {spans[-1][0].thread} belongs to no entry")
        return entries

    def _checked(
        self, thread: int, after: int, before: bytes, heads: list[Any], columns_by_entry: Iterator[list[MessageRow]]
    ) -> list[Entry]:
        expected = after
        entries: list[Entry] = []
        for head, columns in zip(heads, columns_by_entry, strict=False):  # the entries of other segments follow
            seq, kind, turn, at_ms, body, stored = head
            expected += 1
            digest = stored
            if kind != "lost" or columns:
                digest = chain.entry_hash(before, self.tenant, (thread, seq, kind, turn, at_ms, body), columns)
            if digest != stored or seq != expected:
                self.damaged(f"entry {expected} of thread {thread} does not match its hash")
            entries.append(read_entry(head, columns, self.blob))
            before = digest
        return entries

    def checkpoints(self, thread: int, until: int | None = None, *, replaced: bool = True) -> list[Entry]:
        """Return the path's checkpoints, newest first; see `LedgerStore`. Their number is known, so a lost one is noticed."""
        last = END if until is None else until
        parts = [(part, self._mark_kinds(part, last)) for part in self.path(thread)]
        if replaced:
            return self._marks(parts, lambda _seq, _kind: True)
        others = self._marks(parts, lambda _seq, kind: kind != "compaction")
        revoked = replay.revoked_checkpoints(others)
        compactions = (seq for _, kinds in parts for seq, kind in kinds if kind == "compaction" and seq not in revoked)
        first = max(*compactions, *(mark.seq for mark in others if mark.kind == "clear"), 0, 0)
        summaries = self._marks(parts, lambda seq, kind: kind == "compaction" and (seq >= first or seq in revoked))
        return sorted([*others, *summaries], key=attrgetter("seq"), reverse=True)

    def _mark_kinds(self, part: Segment, last: int) -> list[tuple[int, str]]:
        """Return seq and kind of a segment's checkpoints up to an entry; new ones are read, the others once."""
        row = self.thread(part.thread)
        cached = self.mark_kinds.get(part.thread, [])
        values = (self.tenant, part.thread, cached[-1][0] if cached else 0)
        new = [(seq, kind) for seq, kind in self.db.rows(_MARK_KINDS, values) if kind not in STEPS]
        self.whole_numbers(*[seq for seq, _ in new])
        marks = [*cached, *new]
        if sum(seq <= row.head_seq for seq, _ in marks) != row.marks:  # a snapshot may be older than the cache
            if cached:
                self.mark_kinds.pop(part.thread, None)
                return self._mark_kinds(part, last)
            self.damaged(f"thread {part.thread} has lost one of its marks")
        remember(self.mark_kinds, part.thread, marks)
        return [mark for mark in marks if part.low < mark[0] <= min(part.high, last, row.head_seq)]

    def _marks(
        self, parts: list[tuple[Segment, list[tuple[int, str]]]], is_read: Callable[[int, str], bool]
    ) -> list[Entry]:
        """Return the checkpoints of a path's segments that are to be read, newest first."""
        entries: list[Entry] = []
        for part, kinds in reversed(parts):
            seqs = [seq for seq, kind in kinds if is_read(seq, kind)]
            rows = (
                self.db.rows(_marks_in(self.db.dialect), (self.tenant, part.thread, json.dumps(seqs))) if seqs else []
            )
            if [row[0] for row in rows] != seqs[::-1]:
                self.damaged(f"thread {part.thread} has lost one of its marks")
            for seq, kind, turn, at_ms, body, digest, before, messages in rows:
                columns = (part.thread, seq, kind, turn, at_ms, body)
                previous = part.root if seq == part.low + 1 else before or b""
                intact = chain.entry_hash(previous, self.tenant, columns, []) == digest
                self.check(intact and not messages, f"mark {seq} of thread {part.thread}")
                entries.append(read_entry((seq, kind, turn, at_ms, body, digest), [], self.blob))
        return entries

    def newest_mark(self, thread: int) -> int:
        """Return the seq of the path's newest checkpoint, 0 if it has none."""
        sql = (
            "SELECT seq, kind FROM entry WHERE tenant=? AND thread=? AND seq<=?"
            " AND kind NOT IN ('messages','completed','failed') ORDER BY seq DESC"
        )
        for part in reversed(self.path(thread)):
            for seq, kind in self.db.each(sql, (self.tenant, part.thread, part.high)):
                if kind not in STEPS:
                    self.whole_numbers(seq)
                    return seq
        return 0

    def instructions(self, thread: int) -> Sequence[StoredMessage]:
        """Return the leading system messages of the path's first entry."""
        rows: list[StoredMessage] = []
        for entry in self.entries(thread, 0, 1):
            for row in entry.rows:
                if row.message.role != "system":
                    break
                rows.append(row)
        return rows

    def blob(self, sha256: str) -> bytes:
        """Return image data by its hash."""
        data = self.blob_if_there(sha256)
        if data is None:
            self.damaged(f"image {sha256[:12]} is missing")
        return data

    def blob_if_there(self, sha256: str) -> bytes | None:
        """Return a blob, checked against its hash; None if there is none."""
        row = self.db.row("SELECT data FROM blob WHERE tenant=? AND sha256=?", (self.tenant, sha256))
        if row is None:
            return None
        data = row[0]
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
            self.damaged(f"image or input {sha256[:12]} is damaged")
        return data

    # views -------------------------------------------------------------------------------------------------------

    def view_head(self, thread: int, view: str) -> tuple[int, bytes, int, int, bytes] | None:
        """Return a view's row on one thread: decisions and last hash, manifests and last seq and hash."""
        sql = (
            "SELECT decisions, decision_hash, assemblies, assembly_seq, assembly_hash, hash FROM view_head"
            " WHERE tenant=? AND thread=? AND view=?"
        )
        row = self.row(sql, (self.tenant, thread, view))
        if row is not None:
            digest = chain.columns_hash("view_head", (self.tenant, thread, view, *row[:-1]))
            self.check(digest == row[-1], f"what is newest of view {decode_text(view)} on thread {thread}")
            return cast("tuple[int, bytes, int, int, bytes]", row[:-1])
        sql = (
            "SELECT 1 FROM decision WHERE tenant=?1 AND thread=?2 AND view=?3"
            " UNION ALL SELECT 1 FROM assembly WHERE tenant=?1 AND thread=?2 AND view=?3 LIMIT 1"
        )
        if self.db.row(sql, (self.tenant, thread, view)):
            self.damaged(f"what is newest of view {decode_text(view)} on thread {thread} is lost")
        return None

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """Return the newest cut of the view on the path."""
        view = encode_text(view)
        sql = "SELECT number, kind, at_seq, body, at_ms, hash FROM decision WHERE tenant=? AND thread=? AND view=?"
        for part in reversed(self.path(thread)):
            head = self.view_head(part.thread, view)
            if head is None or head[0] == 0:
                continue
            rows = self.db.rows(f"{sql} ORDER BY number DESC LIMIT 2", (self.tenant, part.thread, view))
            self.whole_numbers(*[row[2] for row in rows])
            if rows and rows[0][-1] == head[1] and rows[0][2] <= part.high:
                return self._cut(part.thread, view, rows[0], rows[1:])
            # A fork from before the newest decision: all of them are looked at, so that none is missed.
            rows = self.db.rows(f"{sql} ORDER BY number DESC", (self.tenant, part.thread, view))
            intact = len(rows) == head[0] and rows[0][-1] == head[1]
            self.check(intact, f"the newest view decision of thread {part.thread}")
            cuts = [(row[2], self._cut(part.thread, view, row, rows[at:])) for at, row in enumerate(rows, 1)]
            newest = next((cut for at_seq, cut in cuts if at_seq <= part.high), None)
            if newest is not None:
                return newest
        return None

    def cuts(self, thread: int, view: str) -> list[Cut]:
        """Return every cut of the view on the path, by number."""
        view = encode_text(view)
        inherited = list[Cut]()
        sql = "SELECT number, kind, at_seq, body, at_ms, hash FROM decision WHERE tenant=? AND thread=? AND view=?"
        for part in self.path(thread):
            head = self.view_head(part.thread, view)
            rows = self.db.rows(f"{sql} ORDER BY number DESC", (self.tenant, part.thread, view))
            intact = len(rows) == (head[0] if head else 0) and (not rows or (head and rows[0][-1] == head[1]))
            self.check(bool(intact), f"the view decisions of thread {part.thread}")
            cuts = [(row[2], self._cut(part.thread, view, row, rows[at:])) for at, row in enumerate(rows, 1)]
            inherited.extend(cut for at_seq, cut in reversed(cuts) if at_seq <= part.high)
        return inherited

    def _cut(self, thread: int, view: str, row: tuple[Any, ...], previous: list[tuple[Any, ...]]) -> Cut:
        """Return a decision, checked against the one before it, which is the first of the earlier ones."""
        number, kind, at_seq, body, at_ms, stored = row
        before = previous[0][-1] if previous else b""
        columns = (self.tenant, thread, view, number, kind, at_seq, body, at_ms)
        self.check(chain.decision_hash(before, columns) == stored, f"view decision {number} of thread {thread}")
        return from_json(body, _cut)

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """Return the newest manifest of the view on the path."""
        view = encode_text(view)
        sql = (
            "SELECT seq, manifest, at_ms, hash FROM assembly WHERE tenant=? AND thread=? AND view=? AND seq<=?"
            " ORDER BY seq DESC LIMIT 1"
        )
        for part in reversed(self.path(thread)):
            head = self.view_head(part.thread, view)
            if head is None or head[2] == 0:
                continue
            row = self.db.row(sql, (self.tenant, part.thread, view, part.high))
            if head[3] <= part.high:
                intact = row is not None and (row[0], row[3]) == head[3:]
                self.check(intact, f"the newest manifest of {view}")
            else:
                every = "SELECT seq, manifest, at_ms, hash FROM assembly WHERE tenant=? AND thread=? AND view=?"
                rows = self.db.rows(every, (self.tenant, part.thread, view))
                for assembly in rows:
                    self._manifest(part.thread, view, assembly)
                until = max((assembly for assembly in rows if assembly[0] <= part.high), default=None)
                self.check(len(rows) == head[2] and until == row, f"a manifest of thread {part.thread}")
            if row is not None:
                return self._manifest(part.thread, view, row)
        return None

    def assemblies(self, thread: int, after: int = 0, until: int | None = None) -> list[AssemblyRow]:
        """Return the manifests on the path with `after < seq <= until`, oldest first."""
        last = END if until is None else until
        return [
            self._manifest(part.thread, row[0], row[1:])
            for part in self.path(thread)
            for row in self.db.rows(_MANIFESTS, (self.tenant, part.thread, max(part.low, after), min(part.high, last)))
        ]

    def _manifest(self, thread: int, view: str, row: tuple[Any, ...]) -> AssemblyRow:
        seq, manifest, at_ms, digest = row
        record = AssemblyRecord(thread, view, seq, manifest, at_ms, digest)
        self.check(chain.assembly_hash(self.tenant, record) == digest, f"manifest {seq} of thread {thread}")
        return AssemblyRow(decode_text(view), decode_body(manifest), at_ms, seq)

    def calibration(self, provider: str, model: str) -> StoredCalibration | None:
        """Return the newest calibration."""
        names = (self.tenant, encode_text(provider), encode_text(model))
        what = f"the calibration of {provider}/{model}"
        head = self.row(_CALIBRATION_HEAD, names)
        before, newest = self._calibrations.get(names[1:], (None, None))
        if newest is not None and head == before:
            return newest
        rows = self.db.rows(_CALIBRATION, (*names, head[0] if head is not None else 0))
        if not rows:
            self.check(head is None, what)
            return None
        record = CalibrationRecord(names[1], names[2], *rows[-1])
        intact = (record.number, record.hash) == head and chain.calibration_hash(self.tenant, record) == record.hash
        self.check(intact, what)
        newest = StoredCalibration(record.factor_64, record.samples, record.at_ms)
        if head is not None:
            remember(self._calibrations, names[1:], (head, newest))
        return newest

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Return the newest calibration of each provider and model, by name."""
        sql = (
            "SELECT provider, model FROM calibration WHERE tenant=?1"
            " UNION SELECT provider, model FROM calibration_head WHERE tenant=?1 ORDER BY 1, 2"
        )
        names = [(decode_text(row[0]), decode_text(row[1])) for row in self.db.rows(sql, (self.tenant,))]
        return [(*name, newest) for name in names if (newest := self.calibration(*name))]
