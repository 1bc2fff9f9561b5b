"""The hash chain: every entry's hash covers the one before it and every column that assembly reads.

The encoding is MessagePack of the columns in a fixed order, so it is unambiguous and the same on every backend.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

from nexus.ledger.records import (
    AliasRecord,
    AssemblyRecord,
    CalibrationRecord,
    DocumentRecord,
    EventRecord,
    MessageRow,
    MoveRecord,
)

EntryColumns: TypeAlias = tuple[int, int, str, int, int, str]
"""thread, seq, kind, turn, at_ms, body, as stored."""

_encode = msgspec.msgpack.Encoder().encode


def root_hash(tenant: str, thread: int) -> bytes:
    """Return the chain value before a thread's first entry.

    A fork starts with its parent's chain value at the fork instead.
    """
    return hashlib.sha256(_encode(("nexus-thread-1", tenant, thread))).digest()


def entry_hash(before: bytes, tenant: str, entry: EntryColumns, messages: list[MessageRow]) -> bytes:
    """Return the chain value after an entry.

    An entry of kind `lost` has no content and keeps its stored value.
    """
    return hashlib.sha256(_encode((before, tenant, entry, messages))).digest()


def decision_hash(before: bytes, columns: tuple[str, int, str, int, str, int, str, int]) -> bytes:
    """Return the chain value after a view decision.

    `columns` are tenant, thread, view, number, kind, at_seq, body and at_ms.
    """
    return hashlib.sha256(_encode((before, columns))).digest()


def move_hash(tenant: str, before: bytes, move: MoveRecord) -> bytes:
    """Return the chain value after a pointer update; `before` is the label's previous chain value."""
    columns = (move.label, move.number, move.thread, move.metadata, move.reason, move.at_ms)
    return hashlib.sha256(_encode(("nexus-move-1", tenant, before, columns))).digest()


def alias_hash(tenant: str, before: bytes, alias: AliasRecord) -> bytes:
    """Return the chain value after an alias change; `before` is the alias's previous chain value."""
    columns = (alias.name, alias.number, alias.target, alias.reason, alias.at_ms)
    return hashlib.sha256(_encode(("nexus-alias-1", tenant, before, columns))).digest()


def assembly_hash(tenant: str, row: AssemblyRecord) -> bytes:
    """Return the hash of a manifest's row."""
    columns = (row.thread, row.view, row.seq, row.manifest, row.at_ms)
    return hashlib.sha256(_encode(("nexus-assembly-1", tenant, columns))).digest()


def calibration_hash(tenant: str, row: CalibrationRecord) -> bytes:
    """Return the hash of a calibration's row."""
    columns = (row.provider, row.model, row.number, row.factor_64, row.samples, row.at_ms)
    return hashlib.sha256(_encode(("nexus-calibration-1", tenant, columns))).digest()


def event_hash(tenant: str, row: EventRecord) -> bytes:
    """Return the hash of an event's row: of all columns."""
    columns = (row.id, row.session, row.number, row.state, row.body, row.reason, row.turn, row.accepted_ms)
    return hashlib.sha256(_encode(("nexus-event-2", tenant, columns, row.changed_ms))).digest()


def is_event_intact(tenant: str, row: EventRecord) -> bool:
    """Return whether an event's row matches its hash. Earlier versions hashed only the columns that never change."""
    columns = (row.id, row.session, row.number, row.body, row.accepted_ms)
    unchanging = hashlib.sha256(_encode(("nexus-event-1", tenant, columns))).digest()
    return row.hash in (event_hash(tenant, row), unchanging)


def document_hash(tenant: str, row: DocumentRecord) -> bytes:
    """Return the hash of a document's row."""
    columns = (row.kind, row.name, row.number, row.body, row.at_ms)
    return hashlib.sha256(_encode(("nexus-document-1", tenant, columns))).digest()


def columns_hash(name: str, columns: tuple[int | str | bytes | None, ...]) -> bytes:
    """Return the hash of a row that only one backend has, from the row's kind and columns."""
    return hashlib.sha256(_encode((name, columns))).digest()
