"""Writing to the SQLite ledger, inside the transaction that the caller holds. The only code that inserts rows."""

from __future__ import annotations

import hashlib
import time
from typing import Any, cast

import msgspec

from nexus.errors import HeadMoved, IdempotencyConflict, NoSuchSession
from nexus.ledger import chain
from nexus.ledger.codec import encode_parts
from nexus.ledger.connection import Database
from nexus.ledger.entries import AssemblyRow, Commit, Committed, Cut, NewEntry
from nexus.ledger.text_rule import storable, to_json

_payload = msgspec.msgpack.Encoder().encode


def commit(db: Database, tenant: str, session: str, commit: Commit, title: str) -> Committed:
    """Writes a commit's entries, cut and manifest; see `LedgerStore.commit`."""
    thread = _thread(db, tenant, session, title)
    seq, digest = head(db, tenant, thread)
    if commit.expected_head is not None and commit.expected_head != seq:
        raise HeadMoved(session, commit.expected_head, seq)
    turn = last_turn(db, tenant, thread)
    first = seq + 1
    added = 0
    for entry in commit.entries:
        columns, blobs = _columns(entry)
        # Without the counts: another counter makes no other payload.
        said = [column[:-4] for column in columns]
        payload = hashlib.sha256(_payload((entry.kind, to_json(entry.body), said))).digest()
        if _known(db, tenant, thread, session, entry, payload):
            continue
        seq, added = seq + 1, added + 1
        turn += entry.opens_turn
        at_ms = entry.at_ms or time.time_ns() // 1_000_000
        head_columns = (thread, seq, entry.kind, turn, at_ms, to_json(entry.body))
        digest = chain.entry_hash(digest, tenant, head_columns, columns)
        db.run("INSERT INTO entry VALUES (?,?,?,?,?,?,?,?)", (tenant, *head_columns, digest))
        db.run_many(
            "INSERT INTO message(tenant,thread,seq,ord,role,id,run_id,source,model,at_ms,content,meta,"
            "openai,anthropic,gemini,aside) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            ((tenant, thread, seq, *row) for row in columns),
        )
        for key in entry.keys:
            db.run("INSERT INTO idempotency VALUES (?,?,?,?,?)", (tenant, thread, storable(key), seq, payload))
        for sha256, data in blobs.items():
            db.run("INSERT OR IGNORE INTO blob VALUES (?,?,?)", (tenant, sha256, data))
    if added and commit.cut is not None:
        _cut(db, tenant, thread, commit.cut)
    if added and commit.assembly is not None:
        _assembly(db, tenant, thread, first, commit.assembly)
    if added:
        db.run("UPDATE thread SET head_seq=?, head_hash=? WHERE tenant=? AND id=?", (seq, digest, tenant, thread))
    return Committed(thread, seq, added, turn)


def head(db: Database, tenant: str, thread: int) -> tuple[int, bytes]:
    """The path's last seq and hash, as the thread's row has them; what is read is checked against it."""
    row = db.row("SELECT head_seq, head_hash FROM thread WHERE tenant=? AND id=?", (tenant, thread))
    if row is None:
        raise NoSuchSession(f"there is no thread {thread}")
    return cast("tuple[int, bytes]", row)


def last_turn(db: Database, tenant: str, thread: int) -> int:
    """The number of the newest turn on the path, 0 before the first."""
    at: int | None = thread
    high = 1 << 62
    while at is not None:
        sql = "SELECT turn FROM entry WHERE tenant=? AND thread=? AND seq<=? ORDER BY seq DESC LIMIT 1"
        found = db.value(sql, (tenant, at, high))
        if found is not None:
            return int(found)
        row = db.row("SELECT parent, fork_seq FROM thread WHERE tenant=? AND id=?", (tenant, at))
        at, low = cast("tuple[int | None, int]", row)
        high = min(low, high)
    return 0


def fork(db: Database, tenant: str, session: str, parent: int, at_seq: int, digest: bytes) -> int:
    """A new thread that continues after the parent's `at_seq`, and the session's label moved to it."""
    thread = _new_thread(db, tenant, parent, at_seq, digest)
    _point(db, tenant, session, thread, "", "fork")
    return thread


def _thread(db: Database, tenant: str, session: str, title: str) -> int:
    sql = "SELECT thread FROM session_move WHERE tenant=? AND label=? ORDER BY number DESC LIMIT 1"
    found = db.value(sql, (tenant, storable(session)))
    if found is not None:
        return int(found)
    thread = _new_thread(db, tenant, None, 0, b"")
    _point(db, tenant, session, thread, title, "created")
    return thread


def _new_thread(db: Database, tenant: str, parent: int | None, fork_seq: int, digest: bytes) -> int:
    thread = int(db.value("SELECT ifnull(max(id),0)+1 FROM thread WHERE tenant=?", (tenant,)))
    root = digest or chain.root_hash(tenant, thread)
    now = time.time_ns() // 1_000_000
    row = (tenant, thread, parent, fork_seq, root, now, fork_seq, root)
    db.run("INSERT INTO thread VALUES (?,?,?,?,?,?,?,?)", row)
    return thread


def _point(db: Database, tenant: str, session: str, thread: int, title: str, reason: str) -> None:
    sql = "SELECT ifnull(max(number),0)+1 FROM session_move WHERE tenant=? AND label=?"
    number = int(db.value(sql, (tenant, storable(session))))
    row = (tenant, storable(session), number, thread, storable(title), reason, time.time_ns() // 1_000_000)
    db.run("INSERT INTO session_move VALUES (?,?,?,?,?,?,?)", row)


def _columns(entry: NewEntry) -> tuple[list[chain.MessageColumns], dict[str, bytes]]:
    blobs: dict[str, bytes] = {}
    rows: list[chain.MessageColumns] = []
    for order, sized in enumerate(entry.messages):
        m = sized.message
        content = encode_parts(m.parts, blobs)
        names = (storable(m.id), storable(m.run_id), storable(m.source), storable(m.model))
        size = sized.size
        counts = (size.openai, size.anthropic, size.gemini, size.aside)
        rows.append((order, m.role, *names, m.at_ms, content, storable(m.meta), *counts))
    return rows, blobs


def _known(db: Database, tenant: str, thread: int, session: str, entry: NewEntry, payload: bytes) -> bool:
    """Whether all the entry's keys were used for this very payload. Raises IdempotencyConflict for another one."""
    sql = "SELECT payload FROM idempotency WHERE tenant=? AND thread=? AND key=?"
    found: list[Any] = [db.value(sql, (tenant, thread, storable(key))) for key in entry.keys]
    if not any(found):
        return False
    if all(stored == payload for stored in found):
        return True
    used = next(key for key, stored in zip(entry.keys, found, strict=True) if stored)
    raise IdempotencyConflict(
        f"session {session!r} has already used the key {used!r} for something else: this context was recorded with another "
        "reply, or the key is not unique. Nothing was stored; assemble again and record that"
    )


def _cut(db: Database, tenant: str, thread: int, cut: Cut) -> None:
    """Stores a cut, unless another process decided for this view first: its decision stands."""
    sql = "SELECT number, hash FROM decision WHERE tenant=? AND thread=? AND view=? ORDER BY number DESC LIMIT 1"
    last, before = cast("tuple[int, bytes]", db.row(sql, (tenant, thread, cut.view)) or (0, b""))
    if last >= cut.number:
        return
    now = time.time_ns() // 1_000_000
    columns = (tenant, thread, cut.view, cut.number, "cut", cut.at_seq, to_json(cut), now)
    db.run("INSERT INTO decision VALUES (?,?,?,?,?,?,?,?,?)", (*columns, chain.decision_hash(before, columns)))


def _assembly(db: Database, tenant: str, thread: int, seq: int, row: AssemblyRow) -> None:
    values = (tenant, thread, seq, row.view, to_json(row.manifest), row.at_ms)
    db.run("INSERT OR REPLACE INTO assembly VALUES (?,?,?,?,?,?)", values)
