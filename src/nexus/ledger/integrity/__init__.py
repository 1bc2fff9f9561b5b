"""Integrity check of a ledger's records: every hash, gap and reference. Pure.

It works on the records of any store's `dump`, in one pass. Memory grows with threads, images and names, and by
13 bytes for each entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from nexus.ledger.integrity.damage import Damage
from nexus.ledger.integrity.labels import LabelAudit
from nexus.ledger.integrity.threads import ThreadAudit
from nexus.ledger.records import (
    FORMAT,
    AliasRecord,
    AssemblyRecord,
    BlobRecord,
    CalibrationRecord,
    DecisionRecord,
    EntryRecord,
    Header,
    KeyRecord,
    MessageRow,
    MoveRecord,
    Record,
    ThreadRecord,
)

_RANKS: dict[type[Record], int] = {
    Header: 0,
    BlobRecord: 1,
    ThreadRecord: 2,
    EntryRecord: 2,
    DecisionRecord: 2,
    AssemblyRecord: 2,
    MoveRecord: 3,
    AliasRecord: 4,
    CalibrationRecord: 5,
}
"""Records stand in this order. What belongs to a thread stands behind it, which is checked there."""


def check(records: Iterable[Record]) -> Iterator[Damage]:
    """Yield all damage of a dump in the order of its records. A sound ledger yields none.

    After a damaged entry the check continues from the stored chain value, so each damage is reported once.
    """
    number, stream = 0, iter(records)
    header = next(stream, None)
    if not isinstance(header, Header):
        yield Damage("ledger", "the ledger's header", "is missing", "everything", number=1)
        return
    if header.format != FORMAT:
        what = f"says format {header.format}, where this version knows {FORMAT}"
        yield Damage("ledger", "the ledger's header", what, "everything", number=1)
        return
    audit = _Audit(header.tenant)
    for number, record in enumerate(stream, 2):
        for damage in audit.take(record):
            yield replace(damage, number=number)
    for damage in audit.finish():
        yield replace(damage, number=number or 1)


class _Audit:
    """The state of one pass."""

    def __init__(self, tenant: str) -> None:
        self._rank = 0
        self._blobs: set[str] = set()
        self._last_blob = ""
        self._threads = ThreadAudit(tenant, self._blobs)
        self._labels = LabelAudit(tenant, self._threads)

    def take(self, record: Record) -> Iterator[Damage]:
        """Yield the damage of the next record, given all records before it."""
        if not _fits(record):
            name = str(record.__struct_config__.tag)
            yield Damage(name, f"a record of kind {name!r}", "has columns that cannot be stored", "this row")
            return
        yield from self._in_order(record)
        if isinstance(record, EntryRecord):
            yield from self._threads.entry(record)
        elif isinstance(record, DecisionRecord):
            yield from self._threads.decision(record)
        elif isinstance(record, AssemblyRecord):
            yield from self._threads.manifest(record)
        elif isinstance(record, ThreadRecord):
            yield from self._threads.begin(record)
        elif isinstance(record, BlobRecord):
            yield from self._blob(record)
        elif isinstance(record, MoveRecord):
            yield from self._threads.finish()
            yield from self._labels.move(record)
        elif isinstance(record, AliasRecord):
            yield from self._labels.alias(record)
        elif isinstance(record, CalibrationRecord):
            yield from self._labels.calibration(record)

    def finish(self) -> Iterator[Damage]:
        """Yield damage that only the end of the dump reveals."""
        yield from self._threads.finish()
        yield from self._labels.finish()

    def _in_order(self, record: Record) -> Iterator[Damage]:
        rank = _RANKS[type(record)]
        if rank == 0 or rank < self._rank:
            name = str(record.__struct_config__.tag)
            yield Damage(name, f"a record of kind {name!r}", "is not in its place", "the order of the dump")
        self._rank = max(rank, self._rank)

    def _blob(self, record: BlobRecord) -> Iterator[Damage]:
        place = f"image {record.sha256[:12]}"
        if hashlib.sha256(record.data).hexdigest() != record.sha256:
            yield Damage("blob", place, "does not match its hash", "the image, and each message that shows it")
        if record.sha256 <= self._last_blob:
            yield Damage("blob", place, "is not in its place", "the order of the dump")
        self._last_blob = record.sha256
        self._blobs.add(record.sha256)


_Int: Any = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MESSAGES: Any = list[tuple[tuple(_Int if kind is int else kind for kind in get_args(MessageRow))]]  # pyright: ignore[reportInvalidTypeArguments]
_STORED: dict[Any, Any] = {
    int: _Int, int | None: _Int | None, list[MessageRow]: _MESSAGES, list[KeyRecord]: list[tuple[str, bytes]]
}  # fmt: skip
_columns: dict[type, Any] = {}


def _fits(record: Record) -> bool:
    """Return True if all columns of a record, its messages and its keys have storable values.

    A page that was written to another page's position contains rows of other tables, and a text file may contain
    anything.
    """
    kind = type(record)
    if kind not in _columns:
        hints = get_type_hints(kind)
        _columns[kind] = tuple[tuple(_STORED.get(hints[name], hints[name]) for name in kind.__struct_fields__)]  # pyright: ignore[reportInvalidTypeArguments]
    values: tuple[Any, ...] = msgspec.structs.astuple(record)
    if isinstance(record, EntryRecord):
        values = (*values[:-1], [msgspec.structs.astuple(key) for key in record.keys])
    try:
        msgspec.convert(values, _columns[kind])
    except msgspec.ValidationError:
        return False
    return True
