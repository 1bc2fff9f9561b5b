"""Ledger files for the tests of their care: read whole, damaged behind the ledger's back, as version 1 wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger.everything import said
from ledger.stores import behind_its_back
from nexus.ledger import chain
from nexus.ledger.codec import message_rows, payload_hash
from nexus.ledger.records import EntryRecord, Record
from nexus.ledger.shared_sql.read_threads import THREAD_COLUMNS
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, checksum
from nexus.types.message import assistant, user

PAGE = 4_096


def dumped(path: Path, tenant: str = "local") -> list[Record]:
    ledger = SqliteLedger(str(path), tenant=tenant, create=False)
    try:
        return list(ledger.dump())
    finally:
        ledger.close()


def entries(path: Path) -> dict[tuple[int, int], EntryRecord]:
    return {(record.thread, record.seq): record for record in dumped(path) if isinstance(record, EntryRecord)}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def sql(path: Path, *statements: str) -> None:
    with behind_its_back(path) as db:
        for statement in statements:
            db.execute(statement).fetchall()


def broken(path: Path) -> Path:
    """The ledger with one message that is not the one that was written."""
    sql(path, "UPDATE message SET meta='x' WHERE thread=1 AND seq=9")
    return path


def old_ledger(path: Path, turns: int = 5) -> Path:
    """A ledger as version 1 wrote it: two sessions, one a fork, with a cut, a manifest and keys."""
    with behind_its_back(path) as db:
        db.execute(MIGRATIONS[0])
        db.execute("INSERT INTO migration VALUES (1,?,1)", (checksum(MIGRATIONS[0]),))
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute("PRAGMA user_version=1")
        db.execute("PRAGMA journal_mode=WAL").fetchall()
        first = root = chain.root_hash("local", 1)
        digests: dict[int, bytes] = {0: root}
        thread = "INSERT INTO thread VALUES ('local',?,?,?,?,1,?,?)"
        db.execute(thread, (1, None, 0, root, 0, root))
        for seq in range(1, turns + 1):
            first = digests[seq] = old_entry(db, 1, seq, first)
        db.execute("UPDATE thread SET head_seq=?, head_hash=?", (turns, first))
        db.execute(thread, (2, 1, 3, digests[3], 3, digests[3]))
        db.execute("UPDATE thread SET head_seq=4, head_hash=? WHERE id=2", (old_entry(db, 2, 4, digests[3]),))
        for label, number in (("main", 1), ("side", 2)):
            db.execute(f"INSERT INTO session_move VALUES ('local','{label}',1,{number},'a title','created',1)")
        columns = ("local", 1, "view", 1, "cut", 2, CUT, 5)
        db.execute("INSERT INTO decision VALUES (?,?,?,?,?,?,?,?,?)", (*columns, chain.decision_hash(b"", columns)))
        db.execute("INSERT INTO assembly VALUES ('local',1,2,'view','{\"id\":1}',5)")
    return path


DROP_INDEXES_9 = (
    "DROP INDEX thread_time; DROP INDEX alias_target; DROP INDEX session_move_parent; DROP INDEX session_move_owner"
)


def as_version_8(path: Path) -> Path:
    """The closed ledger in the schema that had no indexes of times and relations, and no time of forks that did not go on."""
    with behind_its_back(path) as db:
        db.execute(f"{DROP_INDEXES_9}; DELETE FROM migration WHERE version>=9; PRAGMA user_version=8").fetchall()
        sql = f"SELECT tenant,{THREAD_COLUMNS} FROM thread WHERE parent IS NOT NULL AND head_seq=fork_seq"
        for row in db.execute(sql).fetchall():
            columns = list(row)
            columns[1 + THREAD_COLUMNS.split(",").index("last_ms")] = 0
            digest = chain.columns_hash("thread", tuple(columns))
            db.execute("UPDATE thread SET last_ms=0, hash=? WHERE tenant=? AND id=?", (digest, *columns[:2]))
    return path


def as_version_4(path: Path) -> Path:
    """The closed ledger in the schema that had no documents and no fencing tokens."""
    with behind_its_back(path) as db:
        db.execute("DROP TABLE document; ALTER TABLE lease DROP COLUMN fence; ALTER TABLE lease DROP COLUMN token")
        db.execute(
            f"DROP INDEX idempotency_key; {DROP_INDEXES_9}; DELETE FROM migration WHERE version>=5; PRAGMA user_version=4"
        )
    return path


CUT = (
    '{"view":"view","number":1,"at_seq":2,"first":{"seq":2,"ord":0},"marker":"m","left_out_messages":1,'
    '"left_out_tokens":1,"plain_until":0}'
)


def old_entry(db: Any, thread: int, seq: int, before: bytes) -> bytes:
    entry = said(user(f"question {seq}"), assistant(f"answer {seq}"), body={"n": seq})
    rows = message_rows(entry, {})
    columns = (thread, seq, "messages", seq, 1_000 + seq, f'{{"n":{seq}}}')
    digest = chain.entry_hash(before, "local", columns, rows)
    db.execute("INSERT INTO entry VALUES ('local',?,?,?,?,?,?,?)", (*columns, digest))
    for row in rows:
        db.execute(f"INSERT INTO message VALUES (NULL,'local',?,?,{','.join('?' * 13)})", (thread, seq, *row))
    payload = payload_hash(entry, rows, columns[5])
    db.execute("INSERT INTO idempotency VALUES ('local',?,?,?,?)", (thread, f"k{seq}", seq, payload))
    return digest
