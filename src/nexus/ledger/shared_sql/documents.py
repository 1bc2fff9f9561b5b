"""Documents in an SQL ledger: JSON objects that programs keep, by kind and name. Only the newest version is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from nexus.errors import BadReference, document_changed
from nexus.ledger import chain
from nexus.ledger.codec import body_json, decode_body
from nexus.ledger.records import DocumentRecord
from nexus.ledger.sessions import Document
from nexus.ledger.shared_sql.connection import Connection
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.write import Writing, upsert
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.validation import is_json

COLUMNS = "kind, name, number, body, at_ms, hash"
_PUT = upsert("document", "tenant,kind,name", "number,body,at_ms,hash")
_SELECT = f"SELECT {COLUMNS} FROM document WHERE tenant=?1"  # noqa: S608 - constants


def put(db: Connection, tenant: str, record: DocumentRecord) -> None:
    """Insert a document's row, or replace its earlier version."""
    db.run(_PUT, (tenant, *astuple(record)))


def document(reader: Reader, kind: str, name: str) -> Document | None:
    """Return a document; None if there is none."""
    rows = reader.db.rows(f"{_SELECT} AND kind=?2 AND name=?3", (reader.tenant, encode_text(kind), encode_text(name)))
    return next(iter(_values(reader, rows)), None)


def documents(reader: Reader, kind: str = "", *, after: str = "", limit: int | None = None) -> list[Document]:
    """Return the documents of a kind by name; of all kinds without one. See `LedgerStore.documents`."""
    if limit is None:
        values = (reader.tenant, encode_text(kind))
        return _values(reader, reader.db.rows(f"{_SELECT} AND (kind=?2 OR ?2='') ORDER BY kind, name", values))
    # Without the choice between one kind and all, so that the rows are read in the order of the key.
    page = f"{_SELECT} AND kind=?2 AND name>?3 ORDER BY name LIMIT ?4"
    values = (reader.tenant, encode_text(kind), encode_text(after), limit)
    return _values(reader, reader.db.rows(page, values))


def write(writing: Writing, kind: str, name: str, body: dict[str, Any], expected_number: int | None) -> Document:
    """Store a document's next version; see `LedgerStore.put_document`."""
    if not kind:
        raise BadReference("document has no kind (name one; nothing was stored)", code="bad_entry")
    writing.db.lock("document", encode_text(kind), encode_text(name))
    stored = document(writing.reader, kind, name)
    number = stored.number if stored is not None else 0
    if expected_number is not None and expected_number != number:
        raise document_changed(kind, name, expected_number, number)
    text = body_json(body)
    if not is_json(body):
        raise BadReference(
            f"{kind} {name!r} has values that are not JSON (nothing was stored; use text as keys, and text, numbers, "
            "booleans, None, lists and dicts as values)",
            code="bad_entry",
        )
    record = DocumentRecord(encode_text(kind), encode_text(name), number + 1, text, writing.clock_ms(), b"")
    put(writing.db, writing.tenant, replace(record, hash=chain.document_hash(writing.tenant, record)))
    return Document(kind, name, number + 1, decode_body(text), record.at_ms)


def delete(writing: Writing, kind: str, name: str) -> bool:
    """Delete a document; return whether there was one."""
    key = (writing.tenant, encode_text(kind), encode_text(name))
    writing.db.lock("document", *key[1:])
    is_there = writing.db.row("SELECT 1 FROM document WHERE tenant=? AND kind=? AND name=?", key) is not None
    writing.db.run("DELETE FROM document WHERE tenant=? AND kind=? AND name=?", key)
    return is_there


def _values(reader: Reader, rows: Iterable[tuple[Any, ...]]) -> list[Document]:
    values: list[Document] = []
    for row in rows:
        record = DocumentRecord(*row)
        kind = decode_text(record.kind)
        name = decode_text(record.name)
        reader.check(chain.document_hash(reader.tenant, record) == record.hash, f"{kind} {name!r}")
        try:
            body = decode_body(record.body)
        except (ValueError, msgspec.MsgspecError):
            reader.damaged(f"{kind} {name!r} is no JSON object")
        values.append(Document(kind, name, record.number, body, record.at_ms))
    return values
