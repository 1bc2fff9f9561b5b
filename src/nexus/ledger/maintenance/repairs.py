"""Repair of a damaged SQLite ledger into a new file. The damaged one is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from nexus.errors import LedgerBusy, LedgerDamaged, LedgerUnusable
from nexus.ledger.integrity import check
from nexus.ledger.integrity.threads import Damage
from nexus.ledger.maintenance.files import Progress, check_target, existing, replacing, writing
from nexus.ledger.maintenance.names import Names
from nexus.ledger.maintenance.pages import Pages
from nexus.ledger.maintenance.rows import LedgerRows
from nexus.ledger.maintenance.salvage import Salvage, Views
from nexus.ledger.records import Header, Record, ThreadRecord
from nexus.ledger.sqlite import SqliteLedger, open_ledgers
from nexus.ledger.sqlite.connection import check_version
from nexus.ledger.sqlite.schema import APPLICATION_ID
from nexus.ledger.text_encoding import decode_text


class SavedSession(Struct, frozen=True):
    """Salvaged entries and messages on a session's path, and its number of lost entries."""

    tenant: str
    session: str
    entries: int
    messages: int
    lost_entries: int = field(name="lost")


class RepairResult(Struct, frozen=True):
    """Result of a repair: totals, sessions, and each damage in words."""

    path: str
    entries: int
    messages: int
    lost_entries: int = field(name="lost")
    sessions: tuple[SavedSession, ...]
    damages: tuple[Damage, ...]


def repair(
    source: str | Path, target: str | Path, *, force: bool = False, progress: Progress | None = None
) -> RepairResult:
    """Copy everything intact in `source` to a new, checked ledger at `target`.

    A damaged entry becomes one of kind `lost`, and everything after it stays verifiable. Damaged pointer updates,
    aliases, decisions, manifests, calibrations and queued events are dropped, and a session that lost its name gets another. Totals,
    pointers and the search index are rebuilt. A sound ledger keeps all its records. Raises LedgerUnusable when no ledger is
    found, LedgerUnusable, LedgerBusy when this process has it open, UnreadableFile when the source does not exist or the
    target exists (unless `force`).
    """
    path = existing(source)
    place = Path(target).expanduser()
    check_target(path, place)
    if any(path.samefile(file) for file, _ in open_ledgers() if Path(file).exists()):
        # Closing a file that was opened beside SQLite takes SQLite's locks of this process away.
        raise LedgerBusy(f"{source} is open in this process (close it before the repair)")
    with writing(source), closing(Pages(path)) as pages, replacing(place, force=force) as half:
        header = pages.image(pages.newest(1))
        if int.from_bytes(header[68:72]) == APPLICATION_ID:
            check_version(int.from_bytes(header[60:64]), str(source))
        ledger_rows = LedgerRows(pages, progress)
        tenants = [_Tenant(tenant, ledger_rows) for tenant in ledger_rows.tenants]
        salvaged = [tenant for tenant in tenants if tenant.holds_anything()]
        saved = [tenant.into(half) for tenant in salvaged]
        if not saved:
            raise LedgerUnusable(
                f"{source} contains no provable row of a Nexus ledger (it was not touched)", code="not_a_ledger"
            )
        damages = list(_broken(pages))
    for tenant, result in zip(salvaged, saved, strict=True):
        of = ""
        if len(saved) > 1:
            of = f" of tenant {decode_text(tenant.name)!r}"
        damages += [replace(damage, place=f"{damage.place}{of}") for damage in result.damages]
    return RepairResult(
        str(target),
        sum(result.entries for result in saved),
        sum(result.messages for result in saved),
        sum(result.lost_entries for result in saved),
        tuple(session for result in saved for session in result.sessions),
        tuple(damages),
    )


def _broken(pages: Pages) -> Iterator[Damage]:
    """Yield damage for broken pages, whose rows cannot be listed one by one."""
    numbers = pages.broken()
    if numbers:
        several = f"{len(numbers)} pages, the first being page {numbers[0]},"
        place, verb = (several, "are") if len(numbers) > 1 else (f"page {numbers[0]}", "is")
        loss = "idempotency keys and queued events that stood there, and whatever else is listed"
        yield Damage("file", place, f"{verb} not as SQLite writes them", loss)


class _Tenant:
    """One tenant's rows, on their way into the new ledger."""

    def __init__(self, tenant: str, ledger_rows: LedgerRows) -> None:
        self.name = tenant
        self._threads = Salvage(tenant, ledger_rows)
        self._views = Views(tenant, ledger_rows, self._threads)
        self._names = Names(tenant, ledger_rows, self._threads)

    def holds_anything(self) -> bool:
        """Return True if anything of this tenant can be proven."""
        return self._threads.holds_anything() or self._names.holds_anything()

    def into(self, file: Path) -> RepairResult:
        """Store the salvaged records and check them."""
        with closing(SqliteLedger(str(file), tenant=decode_text(self.name))) as ledger:
            ledger.load(self._records())
            damage = next(check(ledger.dump()), None)
            if damage is not None:
                raise LedgerDamaged(f"repaired ledger would not be sound: {damage} (nothing was written)")
        threads = self._threads.threads.values()
        lost_entries = sum(len(salvaged.lost_seqs) for salvaged in threads)
        pointers = self._names.pointers.items()
        return RepairResult(
            str(file),
            sum(len(salvaged.digests) for salvaged in threads) - lost_entries,
            sum(sum(salvaged.counts) for salvaged in threads),
            lost_entries,
            tuple(self._session(label, thread) for label, thread in pointers if thread is not None),
            (*self._threads.damages, *self._views.damages, *self._names.damages),
        )

    def _records(self) -> Iterator[Record]:
        yield Header(tenant=self.name)
        thread: int | None = None
        for record in self._threads.records():
            if isinstance(record, ThreadRecord) and thread is not None:
                yield from self._views.of(thread)
            if isinstance(record, ThreadRecord):
                thread = record.id
            yield record
        if thread is not None:
            yield from self._views.of(thread)
        yield from self._threads.images()
        yield from self._names.updates()
        yield from self._names.aliases()
        yield from self._names.calibrations()
        yield from self._names.events()
        yield from self._names.documents()

    def _session(self, label: str, thread: int) -> SavedSession:
        entries = messages = lost_entries = 0
        salvaged = self._threads.threads.get(thread)
        high = 1 << 62
        while salvaged is not None:
            counts = salvaged.counts[: max(high - salvaged.row.fork_seq, 0)]
            lost_below = sum(1 for seq in salvaged.lost_seqs if seq <= high)
            entries += len(counts) - lost_below
            messages += sum(counts)
            lost_entries += lost_below
            high = min(high, salvaged.row.fork_seq)
            if salvaged.row.parent is not None:
                salvaged = self._threads.threads.get(salvaged.row.parent)
            else:
                salvaged = None
        return SavedSession(decode_text(self.name), decode_text(label), entries, messages, lost_entries)
