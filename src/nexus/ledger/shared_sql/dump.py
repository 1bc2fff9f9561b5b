"""An SQL ledger's rows as records, and records as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from nexus.errors import BadReference, LedgerDamaged, LedgerError
from nexus.ledger.codec import call_rows, decode_parts
from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    DocumentRecord,
    EntryRecord,
    EventRecord,
    Header,
    KeyRecord,
    MessageRow,
    MoveRecord,
    Record,
    ThreadRecord,
)
from nexus.ledger.search_text import search_text
from nexus.ledger.sessions import SessionMetadata, Thread
from nexus.ledger.shared_sql import documents, queue
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.hidden_sessions import move_to_documents
from nexus.ledger.shared_sql.read import MESSAGE_COLUMNS
from nexus.ledger.shared_sql.read_threads import END
from nexus.ledger.shared_sql.write import Writing, grown
from nexus.ledger.text_encoding import decode_text, from_json
from nexus.types.decoding import decodable
from nexus.types.message import Message

_metadata = msgspec.json.Decoder(decodable(SessionMetadata))


def dump(db: Connection, tenant: str) -> Iterator[Record]:
    """Yield all rows of a tenant, unchecked, in the order that `Record` says."""
    yield Header(tenant=tenant)
    for row in db.stream("SELECT sha256, data FROM blob WHERE tenant=? ORDER BY sha256", (tenant,)):
        yield BlobRecord(*row)
    columns = "id, parent, fork_seq, root_hash, at_ms, head_seq, head_hash, erased"
    rows = db.stream(f"SELECT {columns} FROM thread WHERE tenant=? ORDER BY id", (tenant,))  # noqa: S608 - constants
    for block in _blocks(ThreadRecord(*row[:-1], erased=bool(row[-1])) for row in rows):
        short = _Threads(db, tenant, block)
        for thread in block:
            yield thread
            yield from short.entries(thread)
            if thread.id in short.with_views:
                yield from _of_views(db, tenant, thread.id)
    sql = "SELECT label, number, thread, facts, reason, at_ms, hash FROM session_move WHERE tenant=? ORDER BY 1, 2"
    yield from (MoveRecord(*row) for row in db.stream(sql, (tenant,)))
    sql = "SELECT name, number, target, reason, at_ms, hash FROM alias WHERE tenant=? ORDER BY 1, 2"
    yield from (AliasRecord(*row) for row in db.stream(sql, (tenant,)))
    sql = "SELECT provider, model, number, factor_64, samples, at_ms, hash FROM calibration WHERE tenant=?"
    yield from (CalibrationRecord(*row) for row in db.stream(f"{sql} ORDER BY 1, 2, 3", (tenant,)))
    sql = f"SELECT {queue.EVENT_COLUMNS} FROM event WHERE tenant=? ORDER BY number"  # noqa: S608 - constants
    yield from (EventRecord(*row) for row in db.stream(sql, (tenant,)))
    sql = f"SELECT {documents.COLUMNS} FROM document WHERE tenant=? ORDER BY kind, name"  # noqa: S608 - constants
    yield from (DocumentRecord(*row) for row in db.stream(sql, (tenant,)))


def _of_views(db: Connection, tenant: str, thread: int) -> Iterator[Record]:
    """Yield a thread's decisions and manifests."""
    key = (tenant, thread)
    sql = "SELECT thread, view, number, kind, at_seq, body, at_ms, hash FROM decision WHERE tenant=? AND thread=?"
    yield from (DecisionRecord(*row) for row in db.stream(f"{sql} ORDER BY view, number", key))
    sql = "SELECT thread, view, seq, manifest, at_ms, hash FROM assembly WHERE tenant=? AND thread=?"
    yield from (AssemblyRecord(*row) for row in db.stream(f"{sql} ORDER BY view, seq", key))


MOST_ENTRIES = 200
"""Entries of threads that are read together, at most."""


def _blocks(threads: Iterable[ThreadRecord]) -> Iterator[list[ThreadRecord]]:
    """Yield threads, as many together as have few entries; one that has many comes alone."""
    block: list[ThreadRecord] = []
    total = 0
    for thread in threads:
        size = _size(thread)
        if block and (total + size > MOST_ENTRIES or len(block) == MOST_ENTRIES):
            yield block
            block, total = [], 0
        block.append(thread)
        total += size
    if block:
        yield block


def _size(thread: ThreadRecord) -> int:
    """Return the number of a thread's own entries by its row; above all limits for a damaged row."""
    numbers = (thread.id, thread.fork_seq, thread.head_seq)
    if any(type(number) is not int for number in numbers):
        return END
    return max(thread.head_seq - thread.fork_seq, 0)


class _Threads:
    """Entries of several short threads, which three statements read. Each one is as `entries` gives it."""

    def __init__(self, db: Connection, tenant: str, threads: list[ThreadRecord]) -> None:
        self._db = db
        self._tenant = tenant
        self._heads: dict[int, list[tuple[Any, ...]]] = {}
        self._messages: dict[tuple[int, int], list[MessageRow]] = {}
        self._keys: dict[tuple[int, int], list[KeyRecord]] = {}
        self.with_views: set[int]
        """Threads with decisions or manifests."""
        self._is_alone = len(threads) == 1
        if self._is_alone:
            self.with_views = {threads[0].id}
            return
        span = (tenant, threads[0].id, threads[-1].id)
        where = "WHERE tenant=?1 AND thread BETWEEN ?2 AND ?3"
        sql = f"SELECT thread, seq, kind, turn, at_ms, body, hash FROM entry {where} ORDER BY thread, seq"  # noqa: S608
        for row in db.rows(sql, span):
            self._heads.setdefault(row[0], []).append(row)
        sql = f"SELECT thread, seq, {MESSAGE_COLUMNS} FROM message {where} ORDER BY thread, seq, ord"  # noqa: S608
        for thread, seq, *row in db.rows(sql, span):
            self._messages.setdefault((thread, seq), []).append(cast("MessageRow", tuple(row)))
        sql = f"SELECT thread, seq, key, payload FROM idempotency {where} ORDER BY thread, key"  # noqa: S608
        for thread, seq, name, payload in db.rows(sql, span):
            self._keys.setdefault((thread, seq), []).append(KeyRecord(name, payload))
        sql = f"SELECT thread FROM decision {where} UNION SELECT thread FROM assembly {where}"  # noqa: S608
        self.with_views = {thread for (thread,) in db.rows(sql, span)}

    def entries(self, thread: ThreadRecord) -> Iterator[EntryRecord]:
        """Yield a thread's own entries."""
        heads = self._heads.get(thread.id, [])
        if self._is_alone or len(heads) != _size(thread) or not all(type(head[1]) is int for head in heads):
            yield from entries(self._db, self._tenant, thread.id)  # a long one, or rows are damaged
            return
        for number, seq, kind, turn, at_ms, body, digest in heads:
            rows = self._messages.get((number, seq), [])
            yield EntryRecord(number, seq, kind, turn, at_ms, body, digest, rows, self._keys.get((number, seq), []))


def entries(db: Connection, tenant: str, thread: int, after: int = -END) -> Iterator[EntryRecord]:
    """Yield a thread's own entries with `seq > after`, unchecked, with their messages and keys.

    By default these are all, even with a number that no entry can have.
    """
    key = (tenant, thread, after)
    where = "WHERE tenant=? AND thread=? AND seq>?"
    heads = db.stream(f"SELECT seq, kind, turn, at_ms, body, hash FROM entry {where} ORDER BY seq", key)  # noqa: S608 - constants
    messages = _Group(db.stream(f"SELECT seq,{MESSAGE_COLUMNS} FROM message {where} ORDER BY seq, ord", key))  # noqa: S608
    keys: dict[int, list[KeyRecord]] = {}
    sql = f"SELECT seq, key, payload FROM idempotency {where} ORDER BY seq, key"  # noqa: S608 - constants
    for seq, name, payload in db.rows(sql, key):
        keys.setdefault(seq, []).append(KeyRecord(name, payload))
    for seq, kind, turn, at_ms, body, digest in heads:
        rows = [cast("MessageRow", row[1:]) for row in messages.of(seq)]
        yield EntryRecord(thread, seq, kind, turn, at_ms, body, digest, rows, keys.get(seq, []))


class _Group:
    """Rows in the order of their first column, taken out group by group."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def of(self, seq: int) -> list[tuple[Any, ...]]:
        """Return the rows of one group; earlier rows belong to no entry."""
        rows: list[tuple[Any, ...]] = []
        while self._next is not None:
            if type(seq) is not int or type(self._next[0]) is not int:
                raise LedgerDamaged("an entry or message has something else where its number belongs")
            if self._next[0] > seq:
                break
            if self._next[0] == seq:
                rows.append(self._next)
            self._next = next(self._rows, None)
        return rows


def load(writing: Writing, records: Iterable[Record]) -> int:
    """Store records; those that are there already are skipped. Returns how many were new."""
    writing.db.forget_writes()
    loader = _Loader(writing)
    for record in records:
        loader.take(record)
    loader.finish()
    move_to_documents(writing)  # of a ledger or export that an earlier version wrote
    return loader.new


def _conflict(what: str) -> LedgerError:
    return LedgerError(
        f"the ledger has another {what} (nothing was stored; import into a new ledger)", code="ledger_conflict"
    )


_KEYS: dict[type[Record], tuple[str, tuple[str, ...]]] = {
    DecisionRecord: ("decision", ("thread", "view", "number")),
    AssemblyRecord: ("assembly", ("thread", "view", "seq")),
    MoveRecord: ("session_move", ("label", "number")),
    AliasRecord: ("alias", ("name", "number")),
    CalibrationRecord: ("calibration", ("provider", "model", "number")),
    EventRecord: ("event", ("id",)),
    DocumentRecord: ("document", ("kind", "name")),
}
"""Table and key of the records that are one row."""


class _Loader:
    """Takes records in their order; threads get their totals when all their entries are there."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing
        self.db = writing.db
        self.tenant = writing.tenant
        self.new = 0
        self.thread: Thread | None = None
        self.grown = False
        self.thread_record: ThreadRecord | None = None

    def take(self, record: Record) -> None:
        """Store one record."""
        if isinstance(record, EntryRecord):
            self._entry(record)
            return
        self.finish()
        if isinstance(record, ThreadRecord):
            self._begin(record)
        elif isinstance(record, Header):
            if record.tenant != self.tenant:
                raise BadReference(f"records belong to tenant {record.tenant!r}, the ledger to {self.tenant!r}")
        elif isinstance(record, BlobRecord):
            key = (self.tenant, record.sha256)
            if self.db.row("SELECT 1 FROM blob WHERE tenant=? AND sha256=?", key) is None:
                self.db.run("INSERT INTO blob VALUES (?,?,?)", (*key, record.data))
                self.new += 1
        else:
            self._row(record)

    def finish(self) -> None:
        """Store the totals of the thread whose entries were taken."""
        if self.thread is not None and self.thread_record is not None and self.grown:
            if (self.thread.head_seq, self.thread.head_hash) != (
                self.thread_record.head_seq,
                self.thread_record.head_hash,
            ):
                raise BadReference(
                    f"thread {self.thread_record.id} should end with entry {self.thread_record.head_seq}, its records end with "
                    f"{self.thread.head_seq} (nothing was stored)"
                )
            self.writing.put_thread(self.thread)
        self.thread = self.thread_record = None
        self.grown = False

    def _begin(self, record: ThreadRecord) -> None:
        sql = "SELECT parent, fork_seq, root_hash, at_ms, erased, head_seq FROM thread WHERE tenant=? AND id=?"
        old = self.db.row(sql, (self.tenant, record.id))
        columns = (record.parent, record.fork_seq, record.root_hash, record.at_ms, int(record.erased))
        if old is not None and tuple(old[:5]) != columns:
            raise _conflict(f"thread {record.id}")
        if old is not None:
            # A ledger that was continued since keeps its own entries.
            self.thread = self.writing.reader.thread(record.id)
            self.thread_record = record
            self.grown = record.head_seq > self.thread.head_seq
            return
        begin = (record.id, record.parent, record.fork_seq, record.root_hash, record.at_ms)
        self.thread = Thread(*begin, record.fork_seq, record.root_hash, erased=record.erased)
        if not record.erased:
            self.thread = self.writing.begun(self.thread)
        self.writing.put_new_thread(self.thread)
        self.new += 1
        self.thread_record = record
        self.grown = True

    def _entry(self, record: EntryRecord) -> None:
        if self.thread is None or record.thread != self.thread.id:
            raise BadReference(f"entry {record.seq} of thread {record.thread} does not follow its thread")
        if record.seq <= self.thread.head_seq:
            sql = "SELECT hash FROM entry WHERE tenant=? AND thread=? AND seq=?"
            if self.db.value(sql, (self.tenant, record.thread, record.seq)) != record.hash:
                raise _conflict(f"entry {record.seq} in thread {record.thread}")
            return
        if record.seq != self.thread.head_seq + 1:
            raise BadReference(f"entry {self.thread.head_seq + 1} of thread {record.thread} is missing")
        messages = tuple(Message(row[1], decode_parts(row[7], lambda _: b"")) for row in record.messages)  # pyright: ignore[reportArgumentType]
        texts = [search_text(message.parts) for message in messages]
        self.writing.insert(record, texts, call_rows(messages))
        self.thread = grown(self.thread, record)
        self.grown = True
        self.new += 1

    def _row(self, record: Record) -> None:
        table, key = _KEYS[type(record)]
        where = " AND ".join(f"{name}=?" for name in key)
        values = tuple(getattr(record, name) for name in key)
        stored = self.db.value(f"SELECT hash FROM {table} WHERE tenant=? AND {where}", (self.tenant, *values))  # noqa: S608
        if stored is not None and not self._is_next_version(record):
            if stored != getattr(record, "hash", b"") and not self._is_earlier_state(record):
                raise _conflict(f"row at {table} {values}")
            return
        self.new += 1
        if isinstance(record, DecisionRecord):
            self.writing.put_decision(record)
        elif isinstance(record, AssemblyRecord):
            self.writing.put_assembly(record)
        elif isinstance(record, MoveRecord):
            self._check_follows("session_move", "label", record.label, record.number)
            self.writing.put_move(record, from_json(record.metadata, _metadata).status)
        elif isinstance(record, AliasRecord):
            self._check_follows("alias", "name", record.name, record.number)
            self.writing.put_alias(record)
        elif isinstance(record, CalibrationRecord):
            self.writing.put_calibration(record)
        elif isinstance(record, EventRecord):
            if self.db.row("SELECT 1 FROM event WHERE tenant=? AND number=?", (self.tenant, record.number)):
                raise _conflict(f"event with number {record.number}")
            queue.put(self.db, self.tenant, record)
        elif isinstance(record, DocumentRecord):
            documents.put(self.db, self.tenant, record)

    def _number_of(self, record: DocumentRecord) -> int:
        sql = "SELECT number FROM document WHERE tenant=? AND kind=? AND name=?"
        return int(self.db.value(sql, (self.tenant, record.kind, record.name)))

    def _is_next_version(self, record: Record) -> bool:
        """Return whether a record is a later version of a document that the ledger has."""
        return isinstance(record, DocumentRecord) and record.number > self._number_of(record)

    def _is_earlier_state(self, record: Record) -> bool:
        """Return whether a record is an event that the ledger has too, in any state, or an earlier version of a document."""
        if isinstance(record, DocumentRecord):
            return record.number < self._number_of(record)
        if not isinstance(record, EventRecord):
            return False
        sql = "SELECT session, number, body, accepted_ms FROM event WHERE tenant=? AND id=?"
        unchanging = (record.session, record.number, record.body, record.accepted_ms)
        return self.db.row(sql, (self.tenant, record.id)) == unchanging

    def _check_follows(self, table: str, column: str, name: str, number: int) -> None:
        sql = f"SELECT count(*) FROM {table} WHERE tenant=? AND {column}=?"  # noqa: S608 - constants
        if self.db.value(sql, (self.tenant, name)) != number - 1:
            what = f"the change before change {number} of {decode_text(name)!r}"
            raise BadReference(f"{what} is missing (nothing was stored)")
