"""The ledger in SQLite: hand-written SQL behind the store protocol.

All writes of a commit are one `BEGIN IMMEDIATE` transaction. Reads check every entry against the hash chain before
anything is served. One connection, one lock: safe to share between threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from nexus.errors import LedgerDamaged, NoSuchSession
from nexus.ledger import chain, write
from nexus.ledger.codec import decode_body, decode_parts
from nexus.ledger.connection import connect, typed
from nexus.ledger.entries import AssemblyRow, Commit, Committed, Cut, Entry, EntryKind, Place, Row, SessionInfo
from nexus.ledger.text_rule import original
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


class SqliteLedger:
    """A ledger in one SQLite file, or in memory for `:memory:`. See `LedgerStore` for what each method promises."""

    def __init__(self, path: str = ":memory:", *, tenant: str = "local", create: bool = True) -> None:
        self.path, self.tenant = path, tenant
        self._lock = threading.RLock()
        self._db = connect(path, create=create)
        self._segments: dict[int, list[tuple[int, int, int | None, bytes]]] = {}

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
            return self._db.value(sql, (self.tenant, session))

    def commit(self, session: str, commit: Commit, *, title: str = "") -> Committed:
        """One transaction for everything, or nothing."""
        with self._lock, typed(self.path), self._db.transaction():
            return write.commit(self._db, self.tenant, session, commit, title)

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
        with self._lock, typed(self.path):
            found: list[Entry] = []
            for owner, low, high, root in self._path(thread):
                start, end = max(low, after), high if until is None or (high is not None and high < until) else until
                if end is None or start < end:
                    found.extend(self._segment(owner, low, start, end, root))
        return iter(found)

    def marks(self, thread: int) -> list[Entry]:
        """Clear and compaction entries of the path, newest first."""
        sql = (
            "SELECT seq FROM entry WHERE tenant=? AND thread=? AND seq>? AND (?4 IS NULL OR seq<=?4)"
            " AND kind NOT IN ('messages','completed','failed') ORDER BY seq DESC"
        )
        with self._lock, typed(self.path):
            found: list[Entry] = []
            for owner, low, high, root in reversed(self._path(thread)):
                for (seq,) in self._db.rows(sql, (self.tenant, owner, low, high)):
                    found.extend(self._segment(owner, low, int(seq) - 1, int(seq), root))
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
            " FROM decision d WHERE tenant=? AND thread=? AND view=? AND (?4 IS NULL OR at_seq<=?4)"
            " ORDER BY number DESC LIMIT 1"
        )
        with self._lock, typed(self.path):
            for owner, _, high, _ in reversed(self._path(thread)):
                row = self._db.row(sql, (self.tenant, owner, view, high))
                if row is None:
                    continue
                _, number, kind, at_seq, body, at_ms, stored, before = row
                columns = (self.tenant, owner, view, number, kind, at_seq, body, at_ms)
                if chain.decision_hash(before, columns) != stored:
                    text = f"view decision {number} of thread {owner} does not match its hash"
                    raise LedgerDamaged(f"{self.path}: {text}; nothing was served. Restore a backup")
                return _cut.decode(body)
        return None

    def last_assembly(self, thread: int, view: str) -> AssemblyRow | None:
        """The newest manifest of the view on this thread."""
        sql = "SELECT seq, manifest, at_ms FROM assembly WHERE tenant=? AND thread=? AND view=? ORDER BY seq DESC LIMIT 1"
        with self._lock, typed(self.path):
            row = self._db.row(sql, (self.tenant, thread, view))
        if row is None:
            return None
        seq, manifest, at_ms = row
        return AssemblyRow(view, decode_body(manifest), at_ms, seq)

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
            SessionInfo(label, thread, original(title), turns, messages, tokens, first, last, bool(open_turn))
            for label, thread, title, turns, messages, tokens, first, last, open_turn in rows
        ]

    def _path(self, thread: int) -> list[tuple[int, int, int | None, bytes]]:
        """The path as segments (thread, seq before its first, its last seq or None, hash before its first), root first."""
        known = self._segments.get(thread)
        if known is None:
            known, at, high = list[tuple[int, int, int | None, bytes]](), cast("int | None", thread), cast("int | None", None)
            while at is not None:
                sql = "SELECT parent, fork_seq, root_hash FROM thread WHERE tenant=? AND id=?"
                row = self._db.row(sql, (self.tenant, at))
                if row is None:
                    raise NoSuchSession(f"{self.path} has no thread {at}")
                parent, low, root = row
                known.append((at, low, high, root))
                high, at = (low if high is None else min(low, high)), parent
            known.reverse()
            self._segments[thread] = known
        return known

    def _hash_at(self, thread: int, seq: int) -> bytes:
        for owner, low, high, root in self._path(thread):
            if seq == low:
                return root
            if seq > low and (high is None or seq <= high):
                sql = "SELECT hash FROM entry WHERE tenant=? AND thread=? AND seq=?"
                found = self._db.value(sql, (self.tenant, owner, seq))
                if found is not None:
                    return found
        raise NoSuchSession(f"thread {thread} has no entry {seq}")

    def _segment(self, thread: int, low: int, after: int, until: int | None, root: bytes) -> list[Entry]:
        span = (self.tenant, thread, after, until)
        where = "tenant=? AND thread=? AND seq>? AND (?4 IS NULL OR seq<=?4)"
        entries = self._db.rows(f"SELECT seq,kind,turn,at_ms,body,hash FROM entry WHERE {where} ORDER BY seq", span)  # noqa: S608 - constants
        if not entries:
            return []
        before = root if after == low else self._hash_at(thread, after)
        by_seq: dict[int, list[chain.MessageColumns]] = {}
        names = "seq,ord,role,id,run_id,source,model,at_ms,content,meta,openai,anthropic,gemini,aside"
        for row in self._db.rows(f"SELECT {names} FROM message WHERE {where} ORDER BY seq,ord", span):  # noqa: S608
            by_seq.setdefault(row[0], []).append(cast("chain.MessageColumns", row[1:]))
        return list(self._checked(thread, after, before, entries, by_seq))

    def _checked(
        self, thread: int, after: int, before: bytes, entries: list[tuple[Any, ...]],
        by_seq: dict[int, list[chain.MessageColumns]],
    ) -> Iterator[Entry]:
        expected = after
        for seq, kind, turn, at_ms, body, stored in entries:
            columns = by_seq.get(seq, [])
            expected += 1
            digest = chain.entry_hash(before, self.tenant, (thread, seq, kind, turn, at_ms, body), columns)
            if digest != stored or seq != expected:
                text = f"{self.path}: entry {expected} of thread {thread} does not match its hash"
                raise LedgerDamaged(f"{text}; nothing was served from it. Restore a backup")
            rows = tuple(self._row(seq, c) for c in columns)
            yield Entry(seq, cast("EntryKind", kind), turn, at_ms, decode_body(body), rows, digest)
            before = digest

    def _row(self, seq: int, columns: chain.MessageColumns) -> Row:
        order, role, id_, run_id, source, model, at_ms, content, meta, *counts = columns
        parts = decode_parts(content, self._blob)
        message = Message(
            cast("Role", role), parts, original(id_), at_ms, original(run_id), original(source), original(model), original(meta)
        )
        return Row(Place(seq, order), message, Size(*counts))

    def _blob(self, sha256: str) -> bytes:
        data = self._db.value("SELECT data FROM blob WHERE tenant=? AND sha256=?", (self.tenant, sha256))
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
            raise LedgerDamaged(f"{self.path}: image {sha256[:12]} is missing or damaged. Restore a backup")
        return data


def memory_ledger(tenant: str = "local") -> SqliteLedger:
    """A ledger that is kept nowhere: for tests, previews and dry runs."""
    return SqliteLedger(":memory:", tenant=tenant)


