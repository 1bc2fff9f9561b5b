"""Copying a ledger into another one, between databases. Exports of both are equal byte for byte."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import msgspec
from msgspec import Struct

from nexus.errors import LedgerDamaged, LedgerError
from nexus.ledger.integrity import check
from nexus.ledger.maintenance.files import Progress
from nexus.ledger.records import Header, Record
from nexus.ledger.store import LedgerStore

EVERY = 1_000
"""Records between two reports of progress."""

_encode = msgspec.json.Encoder().encode


class TransferReport(Struct, frozen=True):
    """Copied records by kind. `sha256` is the hash of the records of both ledgers."""

    source: str
    target: str
    tenant: str
    records: dict[str, int]
    sha256: str


class _Pass:
    """One pass over a store's records: counts and hashes them."""

    def __init__(self, store: LedgerStore, progress: Progress | None) -> None:
        self._store = store
        self._progress = progress
        self._hash = hashlib.sha256()
        self.counts: Counter[str] = Counter()

    @property
    def sha256(self) -> str:
        """The hash of the records that went by."""
        return self._hash.hexdigest()

    def records(self, wanted: str = "") -> Iterator[Record]:
        """Yield the records. Raises LedgerError at the end, if they are not the ones that were `wanted`."""
        with closing(record for record in self._store.dump()) as records:
            for record in records:
                self._hash.update(_encode(record))
                self.counts[str(record.__struct_config__.tag)] += 1
                yield record
                if self._progress is not None and not self.counts.total() % EVERY:
                    self._progress(self.counts.total(), 0)
        if wanted not in ("", self.sha256):
            raise LedgerError(
                f"{self._store.location} changed while it was copied (nothing was stored; close the programs that write, "
                "and try again)",
                code="ledger_conflict",
            )


def transfer(source: LedgerStore, target: LedgerStore, progress: Progress | None = None) -> TransferReport:
    """Copy all records of the source's tenant into an empty target of the same tenant, in one transaction.

    The source is checked before anything is stored, and the target is compared with it afterwards. Raises LedgerError
    when the target is not empty or the source changes meanwhile, LedgerDamaged.
    """
    with closing(record for record in target.dump()) as records:
        if any(not isinstance(record, Header) for record in records):
            raise LedgerError(
                f"{target.location} is not empty (nothing was stored; name a new ledger, or use nexus ledger export and "
                "import to merge)",
                code="ledger_conflict",
            )
    first = _Pass(source, progress)
    damage = next(check(first.records()), None)
    if damage is not None:
        raise LedgerDamaged(
            f"{source.location} is damaged: {damage} (nothing was stored; list all damage: nexus ledger verify)"
        )
    second = _Pass(source, progress)
    target.load(second.records(first.sha256))
    copied = _Pass(target, progress)
    for _ in copied.records():
        pass
    if copied.sha256 != first.sha256:
        raise LedgerDamaged(
            f"{target.location} has other records than {source.location} after the copy (do not use it; erase it: nexus "
            "ledger erase-tenant)"
        )
    return TransferReport(source.location, target.location, source.tenant, dict(first.counts), first.sha256)
