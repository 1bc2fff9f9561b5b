"""Migration of a SQLite ledger to this version: numbered scripts, and values that Python computes.

One transaction covers all of it, so a ledger has either the old version or the new one.
"""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec

from nexus.errors import LedgerDamaged
from nexus.ledger import chain
from nexus.ledger.codec import blobs_of, call_rows, decode_parts
from nexus.ledger.records import AssemblyRecord, MoveRecord
from nexus.ledger.search_text import search_text
from nexus.ledger.shared_sql.hidden_sessions import move_to_documents
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.read_sessions import ReadCache
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.sqlite.connection import SqliteDatabase
from nexus.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, checksum
from nexus.ledger.text_encoding import decode_text, to_json
from nexus.types.message import Message


def migrate(db: SqliteDatabase) -> bool:
    """Bring the ledger to this version; returns whether it had another one. A new file gets its header before WAL is set.

    Raises LedgerDamaged when an applied migration is not the one that this version knows.
    """
    version = int(db.value("PRAGMA user_version"))
    if version == VERSION:
        return False
    with db.transaction():
        version = int(db.value("PRAGMA user_version"))
        for number, applied in db.rows("SELECT version, checksum FROM migration") if version else ():
            if checksum(MIGRATIONS[int(number) - 1]) != applied:
                raise LedgerDamaged(f"migration {number} of this ledger has another text (nothing was changed)")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            db.run(script)
            if number == 2:  # which added totals, hashes, pointers and tool calls
                _fill_moves(db)
                _fill_manifests(db)
                _fill_messages(db)
                _fill_threads(db)
            if number == 6:  # which emptied the search index
                _fill_search(db)
            if number == 7:  # which has tables for all that hidden sessions held
                _move_hidden_sessions(db)
            db.run("INSERT INTO migration VALUES (?,?,?)", (number, checksum(script), _now_ms()))
        db.run(f"PRAGMA application_id={APPLICATION_ID}")
        db.run(f"PRAGMA user_version={VERSION}")
    db.run("PRAGMA wal_checkpoint(TRUNCATE)")
    return True


def _fill_moves(db: SqliteDatabase) -> None:
    sql = "SELECT tenant, label, number, thread, facts, reason, at_ms FROM session_move ORDER BY tenant, label, number"
    before = b""
    for tenant, label, number, thread, title, reason, at_ms in db.rows(sql):
        metadata = title
        if "\\u001a" in title:  # titles were in storable form, JSON has escapes of its own
            metadata = to_json({name: decode_text(value) for name, value in json.loads(title).items()})
        record = MoveRecord(label, number, thread, metadata, reason, at_ms, b"")
        before = chain.move_hash(tenant, before if number > 1 else b"", record)
        where = "WHERE tenant=? AND label=? AND number=?"
        db.run(f"UPDATE session_move SET facts=?, hash=? {where}", (metadata, before, tenant, label, number))  # noqa: S608
    db.run(
        "INSERT INTO session SELECT tenant, label, number, thread, 'active', hash FROM session_move m"
        " WHERE number=(SELECT max(number) FROM session_move n WHERE n.tenant=m.tenant AND n.label=m.label)"
    )


def _fill_manifests(db: SqliteDatabase) -> None:
    sql = "SELECT tenant, thread, view, seq, manifest, at_ms FROM assembly"
    for tenant, thread, view, seq, manifest, at_ms in db.rows(sql):
        record = AssemblyRecord(thread, view, seq, manifest, at_ms, b"")
        where = "WHERE tenant=? AND thread=? AND view=? AND seq=?"
        key = (tenant, record.thread, record.view, record.seq)
        db.run(f"UPDATE assembly SET hash=? {where}", (chain.assembly_hash(tenant, record), *key))  # noqa: S608
    views = db.rows(
        "SELECT tenant, thread, view FROM assembly UNION SELECT tenant, thread, view FROM decision ORDER BY 1, 2, 3"
    )
    for key in views:
        newest = "FROM {0} WHERE tenant=? AND thread=? AND view=? ORDER BY {1} DESC LIMIT 1"
        decided = db.rows("SELECT count(*) OVER (), hash " + newest.format("decision", "number"), key) or [(0, b"")]
        manifests = db.rows("SELECT count(*) OVER (), seq, hash " + newest.format("assembly", "seq"), key) or [
            (0, 0, b"")
        ]
        columns = (*key, *decided[0], *manifests[0])
        digest = chain.columns_hash("view_head", columns)
        db.run("INSERT INTO view_head VALUES (?,?,?,?,?,?,?,?,?)", (*columns, digest))


def _fill_messages(db: SqliteDatabase) -> None:
    for tenant, thread, seq, order, role, content in db.each(
        "SELECT tenant, thread, seq, ord, role, content FROM message"
    ):
        try:
            parts = decode_parts(content, lambda _: b"")
        except (ValueError, TypeError, msgspec.MsgspecError):
            continue  # damaged: it stays as it is, and reading it raises LedgerDamaged
        for call in call_rows((Message(role, parts),)):
            row = (tenant, thread, call.call_id, seq, order, call.part, call.name, call.is_result, call.is_error)
            db.run("INSERT INTO tool_call VALUES (?,?,?,?,?,?,?,?,?)", row)
        for sha256 in blobs_of(content):
            db.run("INSERT OR IGNORE INTO blob_use VALUES (?,?,?,?)", (tenant, sha256, thread, seq))


def _fill_search(db: SqliteDatabase) -> None:
    for id_row, content in db.each("SELECT id_row, content FROM message"):
        try:
            text = search_text(decode_parts(content, lambda _: b""))
        except (ValueError, TypeError, msgspec.MsgspecError):
            continue  # damaged: it stays as it is, and reading it raises LedgerDamaged
        if text.strip():
            db.run("INSERT INTO search(rowid, text) VALUES (?,?)", (id_row, text))


def _move_hidden_sessions(db: SqliteDatabase) -> None:
    for (tenant,) in db.rows("SELECT DISTINCT tenant FROM session ORDER BY tenant"):
        reader = Reader(db, tenant, "ledger", ReadCache(), is_writing=True)
        move_to_documents(Writing(db, reader, _now_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fill_threads(db: SqliteDatabase) -> None:
    for tenant, thread in db.rows("SELECT tenant, id FROM thread ORDER BY tenant, id"):
        where_own = "tenant=?1 AND thread=?2"
        db.run(
            "UPDATE thread SET "  # noqa: S608 - constants
            f"marks=(SELECT count(*) FROM entry WHERE {where_own} AND kind IN ('clear','compaction')),"
            f"messages=(SELECT count(*) FROM message WHERE {where_own}),"
            f"tokens=(SELECT ifnull(sum(max(openai, anthropic, gemini)),0) FROM message WHERE {where_own}),"
            f"first_ms=(SELECT ifnull(min(at_ms),0) FROM entry WHERE {where_own}),"
            f"last_ms=(SELECT ifnull(max(at_ms),0) FROM entry WHERE {where_own})"
            " WHERE tenant=?1 AND id=?2",
            (tenant, thread),
        )
        turn, open_turn = _end(db, tenant, thread, 1 << 62)
        db.run("UPDATE thread SET turn=?, open_turn=? WHERE tenant=? AND id=?", (turn, open_turn, tenant, thread))
        row = db.row(f"SELECT {THREAD_COLUMNS} FROM thread WHERE tenant=? AND id=?", (tenant, thread)) or ()  # noqa: S608
        digest = chain.columns_hash("thread", (tenant, *row))
        db.run("UPDATE thread SET hash=? WHERE tenant=? AND id=?", (digest, tenant, thread))


def _end(db: SqliteDatabase, tenant: str, thread: int, high: int) -> tuple[int, bool]:
    """Return the newest turn on a path up to `high`, and whether it is open.

    Version 1 had no pins and no undone entries.
    """
    at: Any = thread
    while at is not None:
        sql = (
            "SELECT turn, kind='messages' AND turn>0 FROM entry WHERE tenant=? AND thread=? AND seq<=?"
            " AND kind<>'compaction' ORDER BY seq DESC LIMIT 1"
        )
        newest = db.row(sql, (tenant, at, high))
        if newest is not None:
            return int(newest[0]), bool(newest[1])
        at, low = db.row("SELECT parent, fork_seq FROM thread WHERE tenant=? AND id=?", (tenant, at)) or (None, 0)
        high = min(low, high)
    return 0, False
