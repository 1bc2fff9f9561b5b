"""The hash chain: every entry's hash covers the one before it and every column that assembly reads.

The encoding is MessagePack of the columns in a fixed order, so it is unambiguous and the same on every backend.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import msgspec

from nexus.ledger.records import AliasRecord, AssemblyRecord, CalibrationRecord, MessageRow, MoveRecord

EntryColumns: TypeAlias = tuple[int, int, str, int, int, str]
"""thread, seq, kind, turn, at_ms, body, as stored."""

_encode = msgspec.msgpack.Encoder().encode


def root_hash(tenant: str, thread: int) -> bytes:
    """The chain value before a thread's first entry; a fork takes its parent's hash at the fork instead."""
    return hashlib.sha256(_encode(("nexus-thread-1", tenant, thread))).digest()


def entry_hash(before: bytes, tenant: str, entry: EntryColumns, messages: list[MessageRow]) -> bytes:
    """The chain value after an entry. One of kind `lost` has no content any more: it keeps the value it had."""
    return hashlib.sha256(_encode((before, tenant, entry, messages))).digest()


def decision_hash(before: bytes, columns: tuple[str, int, str, int, str, int, str, int]) -> bytes:
    """The chain value after a view decision: tenant, thread, view, number, kind, at_seq, body, at_ms."""
    return hashlib.sha256(_encode((before, columns))).digest()


def move_hash(tenant: str, before: bytes, move: MoveRecord) -> bytes:
    """The chain value after a move of a session's pointer; `before` is that of the label's move before it."""
    columns = (move.label, move.number, move.thread, move.facts, move.reason, move.at_ms)
    return hashlib.sha256(_encode(("nexus-move-1", tenant, before, columns))).digest()


def alias_hash(tenant: str, before: bytes, alias: AliasRecord) -> bytes:
    """The chain value after a change of an alias; `before` is that of the name's change before it."""
    columns = (alias.name, alias.number, alias.target, alias.reason, alias.at_ms)
    return hashlib.sha256(_encode(("nexus-alias-1", tenant, before, columns))).digest()


def assembly_hash(tenant: str, row: AssemblyRecord) -> bytes:
    """The hash of a manifest's row."""
    columns = (row.thread, row.view, row.seq, row.manifest, row.at_ms)
    return hashlib.sha256(_encode(("nexus-assembly-1", tenant, columns))).digest()


def calibration_hash(tenant: str, row: CalibrationRecord) -> bytes:
    """The hash of a calibration's row."""
    columns = (row.provider, row.model, row.number, row.factor_64, row.samples, row.at_ms)
    return hashlib.sha256(_encode(("nexus-calibration-1", tenant, columns))).digest()


def columns_hash(name: str, columns: tuple[int | str | bytes | None, ...]) -> bytes:
    """The hash of a row that only one backend has: what the row is, and its columns."""
    return hashlib.sha256(_encode((name, columns))).digest()
