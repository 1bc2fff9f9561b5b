"""Documents that earlier versions kept as system messages of hidden sessions, and how they become documents.

Each was an archived session with a reserved label, and its newest system message with the source `configuration` was the
current version. A session without one is a conversation, whatever its label.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from nexus.errors import LedgerError
from nexus.ledger import chain
from nexus.ledger.codec import body_json
from nexus.ledger.documents import HIDDEN, MOVED
from nexus.ledger.records import DocumentRecord
from nexus.ledger.shared_sql import documents
from nexus.ledger.shared_sql.read import Reader
from nexus.ledger.shared_sql.write import Writing
from nexus.ledger.text_encoding import decode_text, encode_text
from nexus.types.ledger_entries import Entry

_SOURCE = "configuration"
"""Source of the messages that are versions of documents. Other messages of their sessions are ignored."""

_BLOCK = 16
"""Entries that are read at once, from the newest on."""


def move_to_documents(writing: Writing) -> None:
    """Store what hidden sessions of a tenant hold as documents; each session gives up its label, and keeps its entries.

    A document that exists already stays. What is damaged is left as it is: reading it says so.
    """
    prefixes = tuple(HIDDEN.values())
    sql = "SELECT label FROM session WHERE tenant=? ORDER BY label"
    labels = [str(label) for (label,) in writing.db.rows(sql, (writing.tenant,))]
    for label in labels:
        if label.startswith(prefixes):
            with suppress(LedgerError):
                _move(writing, label)


def _move(writing: Writing, name: str) -> None:
    """Move the document of one name: a label, or the alias of a session that was renamed."""
    reader = writing.reader
    update = reader.pointed(name)
    if update is None or update.thread is None:
        return
    version = _newest_version(reader, update.thread)
    if version is None:
        return
    record = _record(writing, name, *version)
    has_document = documents.document(reader, decode_text(record.kind), decode_text(record.name)) is not None
    writing.point(update.label, None, MOVED, None)  # reads before it writes: a damaged session is left whole
    if not has_document:
        documents.put(writing.db, writing.tenant, record)


def _newest_version(reader: Reader, thread: int) -> tuple[dict[str, Any], int] | None:
    """Return the newest version that is a JSON object, and its time in milliseconds; None if there is none."""
    for end in range(reader.thread(thread).head_seq, 0, -_BLOCK):
        for entry in reversed(reader.entries(thread, max(end - _BLOCK, 0), end)):
            body = _body(entry)
            if body is not None:
                return body, entry.at_ms
    return None


def _body(entry: Entry) -> dict[str, Any] | None:
    for row in reversed(entry.rows):
        if row.message.source == _SOURCE and row.message.role == "system":
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(row.message.text(), type=dict[str, Any])
    return None


def _record(writing: Writing, label: str, body: dict[str, Any], at_ms: int) -> DocumentRecord:
    """Return the row of a document by the label of its session."""
    kind, prefix = next(row for row in HIDDEN.items() if label.startswith(row[1]))
    columns = (encode_text(kind), label.removeprefix(prefix), 1, body_json(body), at_ms)
    digest = chain.document_hash(writing.tenant, DocumentRecord(*columns, b""))
    return DocumentRecord(*columns, digest)
