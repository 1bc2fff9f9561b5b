"""Idempotency keys of an SQL ledger: whether an append was stored before, and where a key was used."""

from __future__ import annotations

from nexus.errors import IdempotencyConflict
from nexus.ledger.sessions import Thread
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.ledger_entries import NewEntry


def is_repeat(reader: Reader, thread: Thread, session: str, entry: NewEntry, payload: bytes) -> bool:
    """Return True if all the entry's keys are bound to this payload. Raises IdempotencyConflict for another one."""
    if not entry.keys:
        return False
    sql = "SELECT payload FROM idempotency WHERE tenant=? AND thread=? AND key=?"
    payloads: list[bytes | None] = [
        reader.db.value(sql, (reader.tenant, thread.id, encode_text(key))) for key in entry.keys
    ]
    if not any(payloads):
        # The same append on the path from before a fork or rewind is a repeated request too.
        sql = f"{sql} AND seq<=?"
        for part in reader.path(thread.id)[:-1] if thread.parent is not None else ():
            uses = [reader.db.value(sql, (reader.tenant, part.thread, encode_text(k), part.high)) for k in entry.keys]
            if all(stored == payload for stored in uses):
                return True
        return False
    if all(stored == payload for stored in payloads):
        return True
    used = {key: stored == payload for key, stored in zip(entry.keys, payloads, strict=True) if stored}
    raise IdempotencyConflict(session, min(used, key=used.__getitem__), alike=all(used.values()))


def known_keys(reader: Reader, session: str) -> dict[str, int]:
    """Return the idempotency keys that were used on the session's path, and where."""
    thread = reader.thread_of(session)
    sql = "SELECT key, seq FROM idempotency WHERE tenant=? AND thread=? AND seq<=?"
    parts = reader.path(thread) if thread is not None else []
    rows = [row for part in parts for row in reader.db.rows(sql, (reader.tenant, part.thread, part.high))]
    reader.whole_numbers(*[seq for _, seq in rows])
    return {decode_text(str(key)): seq for key, seq in rows}


def holders(reader: Reader, key: str, thread: int | None = None) -> list[tuple[int, int]]:
    """Return the uses of a key; see `LedgerStore.holders`."""
    name = encode_text(key)
    if thread is not None:
        sql = "SELECT thread, seq FROM idempotency WHERE tenant=? AND thread=? AND key=? AND seq<=?"
        parts = reader.path(thread)
        uses_by_part = [reader.row(sql, (reader.tenant, part.thread, name, part.high)) for part in parts]
        rows = [row for row in uses_by_part if row is not None]
    else:
        sql = "SELECT thread, seq FROM idempotency WHERE tenant=? AND key=? ORDER BY thread"
        rows = reader.db.rows(sql, (reader.tenant, name))
    uses = [(holder, seq) for holder, seq in rows]
    reader.whole_numbers(*[number for row in uses for number in row])
    return uses
