"""The ledger in SQLite: hand-written SQL behind the store protocol.

All writes of a commit are one `BEGIN IMMEDIATE` transaction. Reads check every entry against the hash chain before
anything is served. One connection, one lock: safe to share between threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Struct

from nexus.errors import HeadMoved, LedgerDamaged, NoSuchSession
from nexus.ledger import chain, write
from nexus.ledger.codec import decode_body, decode_parts
from nexus.ledger.connection import connect, typed
from nexus.ledger.entries import AssemblyRow, Commit, Committed, Cut, Entry, EntryKind, Place, Row, SessionInfo
from nexus.ledger.text_rule import original, storable
from nexus.message import Message, Role
from nexus.size import Size

_cut = msgspec.json.Decoder(Cut)

_SESSIONS = """
SELECT s.label, s.thread, s.title,
    (SELECT count(DISTINCT turn) FROM entry e WHERE e.tenant=s.tenant AND e.thread=s.thread AND turn>0),
    (SELECT count(*) FROM message m WHERE m.tenant=s.tenant AND m.thread=s.thread),
    (SELECT ifnull(sum(max(openai, anthropic, gemini)),0) FROM message m WHERE m.tenant=s.tenant AND m.thread=s.thread),
    (SELECT ifnull(min(nullif(at_ms,0)),0) FROM message m WHERE m.tenant=s.tenant AND m.thread=s.thread),
    (SELECT ifnull(max(at_ms),0) FROM message m WHERE m.tenant=s.tenant AND m.thread=s.thread),
    ifnull((SELECT kind='messages' FROM entry e WHERE e.tenant=s.tenant AND e.thread=s.thread ORDER BY seq DESC LIMIT 1), 0)
FROM session_move s
WHERE s.tenant=?1 AND s.number=(SELECT max(number) FROM session_move n WHERE n.tenant=s.tenant AND n.label=s.label)
ORDER BY 8 DESC, s.label
"""


END = 1 << 62
"""A seq beyond all others."""


class Segment(Struct, frozen=True):
    """A thread's share of a path: its entries with `low < seq <= high`, and the hash that stands before them."""

    thread: int
    low: int
    high: int
    root: bytes


class SqliteLedger:
    """A ledger in one SQLite file, or in memory for `:memory:`. See `LedgerStore` for what each method promises."""

    def __init__(self, path: str = ":memory:", *, tenant: str = "local", create: bool = True) -> None:
        self.path, self.tenant = path, tenant
        self._lock = threading.RLock()
        self._db = connect(path, create=create)
        self._segments: dict[int, list[Segment]] = {}

    @property
    def place(self) -> str:
        """The file's path."""
        return self.path

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._db.close()

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """One read transaction for all reads inside."""
        with self._lock, typed(self.path), self._db.snapshot():
            yield

    def thread_of(self, session: str) -> int | None:
        """The thread that the label points to now."""
        sql = "SELECT thread FROM session_move WHERE tenant=? AND label=? ORDER BY number DESC LIMIT 1"
        with self._lock, typed(self.path):
            return self._db.value(sql, (self.tenant, storable(session)))

    def commit(self, session: str, commit: Commit, *, title: str = "") -> Committed:
        """One transaction for everything, or nothing."""
        with self._lock, typed(self.path), self._db.transaction():
            self._check_follows(session, commit)
            return write.commit(self._db, self.tenant, session, commit, title)

    def _check_follows(self, session: str, commit: Commit) -> None:
        if commit.follows is None:
            return
        seq, digest = commit.follows
        thread = self.thread_of(session)
        head = write.head(self._db, self.tenant, thread)[0] if thread is not None else 0
        if thread is None or seq > head or self._hash_at(thread, seq) != digest:
            raise HeadMoved(session, seq, head)

    def fork(self, session: str, source: str, at_seq: int) -> int:
        """A fork is one row: a thread that starts with its parent's hash at `at_seq`."""
        with self._lock, typed(self.path):
            parent = self.thread_of(source)
            if parent is None:
                raise NoSuchSession(f"there is no session {source!r} to fork; `nexus sessions` lists them")
            hash_there = self._hash_at(parent, at_seq)
            with self._db.transaction():
                return write.fork(self._db, self.tenant, session, parent, at_seq, hash_there)

    def head(self, thread: int) -> tuple[int, bytes]:
        """The path's last seq and hash."""
        with self._lock, typed(self.path):
            return write.head(self._db, self.tenant, thread)

    def entries(self, thread: int, after: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The path's entries in order, verified. The whole range is read before the first one is given out."""
        with self.snapshot():
            found: list[Entry] = []
            head = write.head(self._db, self.tenant, thread)
            if until is None and head[0] == after:
                return iter(found)
            for part in self._path(thread):
                start, end = max(part.low, after), min(part.high, END if until is None else until)
                if start < end:
                    found.extend(self._read(part, start, end))
        if until is None and (not found or (found[-1].seq, found[-1].hash) != head):
            self._damaged(f"the newest entry of thread {thread} is not the one that was written last")
        return iter(found)

    def marks(self, thread: int) -> list[Entry]:
        """Clear and compaction entries of the path, newest first."""
        sql = (
            "SELECT seq FROM entry WHERE tenant=? AND thread=? AND seq>? AND seq<=?"
            " AND kind NOT IN ('messages','completed','failed') ORDER BY seq DESC"
        )
        with self.snapshot():
            found: list[Entry] = []
            for part in reversed(self._path(thread)):
                for (seq,) in self._db.rows(sql, (self.tenant, part.thread, part.low, part.high)):
                    found.extend(self._read(part, int(seq) - 1, int(seq)))
        return found

    def instructions(self, thread: int) -> Sequence[Row]:
        """The leading system messages of the path's first entry."""
        rows: list[Row] = []
        for entry in self.entries(thread, 0, 1):
            for row in entry.rows:
                if row.message.role != "system":
                    break
                rows.append(row)
        return rows

    def last_cut(self, thread: int, view: str) -> Cut | None:
        """The newest cut of the view on the path."""
        sql = (
            "SELECT thread, number, kind, at_seq, body, at_ms, hash,"
            " ifnull((SELECT hash FROM decision p WHERE p.tenant=d.tenant AND p.thread=d.thread AND p.view=d.view"
            " AND p.number=d.number-1), x'')"
            " FROM decision d WHERE tenant=? AND thread=? AND view=? AND at_seq<=?"
            " ORDER BY number DESC LIMIT 1"
        )
        with self.snapshot():
            for part in reversed(self._path(thread)):
                row = self._db.row(sql, (self.tenant, part.thread, view, part.high))
                if row is None:
                    continue
                owner = part.thread
                _, number, kind, at_seq, body, at_ms, stored, before = row
                columns = (self.tenant, owner, view, number, kind, at_seq, body, at_ms)
                if chain.decision_hash(before, columns) != stored:
                    self._damaged(f"view decision {number} of thread {owner} does not match its hash")
                return _cut.decode(body)
        return None

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest manifest of the view on the path."""
        sql = (
            "SELECT seq, manifest, at_ms FROM assembly WHERE tenant=? AND thread=? AND view=? AND seq<=?"
            " ORDER BY seq DESC LIMIT 1"
        )
        with self.snapshot():
            for part in reversed(self._path(thread)):
                row = self._db.row(sql, (self.tenant, part.thread, view, part.high))
                if row is not None:
                    seq, manifest, at_ms = row
                    return AssemblyRow(view, decode_body(manifest), at_ms, seq)
        return None

    def known_keys(self, session: str) -> dict[str, int]:
        """The idempotency keys that the session's thread has used, and where."""
        thread = self.thread_of(session)
        with self._lock, typed(self.path):
            sql = "SELECT key, seq FROM idempotency WHERE tenant=? AND thread=?"
            rows = self._db.rows(sql, (self.tenant, thread))
        return {original(str(key)): int(seq) for key, seq in rows}

    def sessions(self) -> list[SessionInfo]:
        """All sessions, newest first."""
        with self._lock, typed(self.path):
            rows = self._db.rows(_SESSIONS, (self.tenant,))
        return [
            SessionInfo(original(label), thread, original(title), turns, messages, tokens, first, last, bool(open_turn))
            for label, thread, title, turns, messages, tokens, first, last, open_turn in rows
        ]

    def _path(self, thread: int) -> list[Segment]:
        """The thread's path as segments, root first."""
        known = self._segments.get(thread)
        if known is None:
            known = list[Segment]()
            at, high = cast("int | None", thread), END
            while at is not None:
                sql = "SELECT parent, fork_seq, root_hash FROM thread WHERE tenant=? AND id=?"
                row = self._db.row(sql, (self.tenant, at))
                if row is None:
                    raise NoSuchSession(f"{self.path} has no thread {at}")
                parent, low, root = row
                known.append(Segment(at, low, high, root))
                high, at = min(low, high), parent
            known.reverse()
            for place, part in enumerate(known[1:], 1):
                if part.low < part.high and self._hash_on(known[:place], part.low) != part.root:
                    self._damaged(f"thread {part.thread} does not continue its parent at entry {part.low}")
            self._segments[thread] = known
        return known

    def _hash_at(self, thread: int, seq: int) -> bytes:
        found = self._hash_on(self._path(thread), seq)
        if found is None:
            raise NoSuchSession(f"thread {thread} has no entry {seq}")
        return found

    def _hash_on(self, path: list[Segment], seq: int) -> bytes | None:
        for part in path:
            if seq == part.low and part.low < part.high:
                return part.root
            if part.low < seq <= part.high:
                sql = "SELECT hash FROM entry WHERE tenant=? AND thread=? AND seq=?"
                return self._db.value(sql, (self.tenant, part.thread, seq))
        return None

    def _read(self, part: Segment, after: int, until: int) -> list[Entry]:
        """A segment's entries with `after < seq <= until`, checked against their hashes."""
        span = (self.tenant, part.thread, after, until)
        where = "tenant=? AND thread=? AND seq>? AND seq<=?"
        entries = self._db.rows(f"SELECT seq,kind,turn,at_ms,body,hash FROM entry WHERE {where} ORDER BY seq", span)  # noqa: S608 - constants
        if not entries:
            return []
        before = part.root if after == part.low else self._hash_at(part.thread, after)
        by_seq: dict[int, list[chain.MessageColumns]] = {}
        names = "seq,ord,role,id,run_id,source,model,at_ms,content,meta,openai,anthropic,gemini,aside"
        for row in self._db.rows(f"SELECT {names} FROM message WHERE {where} ORDER BY seq,ord", span):  # noqa: S608
            by_seq.setdefault(row[0], []).append(cast("chain.MessageColumns", row[1:]))
        return list(self._checked(part.thread, after, before, entries, by_seq))

    def _checked(
        self,
        thread: int,
        after: int,
        before: bytes,
        entries: list[tuple[Any, ...]],
        by_seq: dict[int, list[chain.MessageColumns]],
    ) -> Iterator[Entry]:
        expected = after
        for seq, kind, turn, at_ms, body, stored in entries:
            columns = by_seq.get(seq, [])
            expected += 1
            digest = chain.entry_hash(before, self.tenant, (thread, seq, kind, turn, at_ms, body), columns)
            if digest != stored or seq != expected:
                self._damaged(f"entry {expected} of thread {thread} does not match its hash")
            rows = tuple(self._row(seq, c) for c in columns)
            yield Entry(seq, cast("EntryKind", kind), turn, at_ms, decode_body(body), rows, digest)
            before = digest

    def _damaged(self, what: str) -> NoReturn:
        raise LedgerDamaged(f"{self.path}: {what}; nothing was served from it. Restore a backup")

    def _row(self, seq: int, columns: chain.MessageColumns) -> Row:
        order, role, id_, run_id, source, model, at_ms, content, meta, *counts = columns
        parts = decode_parts(content, self._blob)
        message = Message(
            cast("Role", role),
            parts,
            original(id_),
            at_ms,
            original(run_id),
            original(source),
            original(model),
            original(meta),
        )
        return Row(Place(seq, order), message, Size(*counts))

    def _blob(self, sha256: str) -> bytes:
        data = self._db.value("SELECT data FROM blob WHERE tenant=? AND sha256=?", (self.tenant, sha256))
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
            self._damaged(f"image {sha256[:12]} is missing or damaged")
        return data
