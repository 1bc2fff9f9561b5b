"""A ledger file as version 1 of the schema had it, to be migrated under faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from nexus.ledger import chain
from nexus.ledger.codec import message_rows, payload_hash
from nexus.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, checksum
from nexus.ledger.text_encoding import to_json
from nexus.types.ledger_entries import Commit, NewEntry
from torture import traffic

TENANT = "local"
THREAD = 1


def make(path: Path, session: str, appends: int) -> None:
    """Writes a file of version 1 with one session of so many appends of `torture.traffic`."""
    db: Any = apsw.Connection(str(path))
    with db:
        db.execute(MIGRATIONS[0])
        db.execute("INSERT INTO migration VALUES (1, ?, ?)", (checksum(MIGRATIONS[0]), traffic.FIRST_MS))
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute("PRAGMA user_version=1")
        root = chain.root_hash(TENANT, THREAD)
        db.execute("INSERT INTO thread VALUES (?,?,NULL,0,?,?,0,?)", (TENANT, THREAD, root, traffic.FIRST_MS, root))
        move = (TENANT, session, THREAD, traffic.FIRST_MS)
        db.execute("INSERT INTO session_move VALUES (?1,?2,1,?3,'','created',?4)", move)
        before, decided, seq = root, b"", 0
        for number in range(1, appends + 1):
            commit = traffic.append(session, number)
            first = seq + 1
            for entry in commit.entries:
                seq += 1
                before = _entry(db, seq, (number + 2) // 3, entry, before)
            decided = _decided(db, commit, decided, first)
        db.execute("UPDATE thread SET head_seq=?, head_hash=?", (seq, before))
    db.execute("PRAGMA journal_mode=WAL")
    db.close()


def _entry(db: Any, seq: int, turn: int, entry: NewEntry, before: bytes) -> bytes:
    blobs: dict[str, bytes] = {}
    rows = message_rows(entry, blobs)
    columns = (THREAD, seq, entry.kind, turn, entry.at_ms, to_json(entry.body))
    digest = chain.entry_hash(before, TENANT, columns, rows)
    db.execute("INSERT INTO entry VALUES (?,?,?,?,?,?,?,?)", (TENANT, *columns, digest))
    for row in rows:
        marks = ",".join("?" * (3 + len(row)))
        db.execute(f"INSERT INTO message VALUES (NULL,{marks})", (TENANT, THREAD, seq, *row))
    for key in entry.keys:
        db.execute(
            "INSERT INTO idempotency VALUES (?,?,?,?,?)",
            (TENANT, THREAD, key, seq, payload_hash(entry, rows, to_json(entry.body))),
        )
    for sha256, data in blobs.items():
        db.execute("INSERT OR IGNORE INTO blob VALUES (?,?,?)", (TENANT, sha256, data))
    return digest


def _decided(db: Any, commit: Commit, before: bytes, first: int) -> bytes:
    cut, manifest = commit.cut, commit.assembly
    if manifest is not None:
        row = (TENANT, THREAD, first, manifest.view, to_json(manifest.manifest), manifest.at_ms)
        db.execute("INSERT INTO assembly VALUES (?,?,?,?,?,?)", row)
    if cut is None:
        return before
    columns = (TENANT, THREAD, cut.view, cut.number, "cut", cut.at_seq, to_json(cut), traffic.FIRST_MS)
    digest = chain.decision_hash(before, columns)
    db.execute("INSERT INTO decision VALUES (?,?,?,?,?,?,?,?,?)", (*columns, digest))
    return digest
