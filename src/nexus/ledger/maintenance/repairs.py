"""Saves what is whole in a damaged SQLite ledger into a new file. The damaged one is only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import LedgerBusy, LedgerDamaged, NotALedger
from nexus.ledger.integrity import check
from nexus.ledger.integrity.damage import Damage
from nexus.ledger.maintenance.files import Progress, check_target, existing, replacing, writing
from nexus.ledger.maintenance.names import Names
from nexus.ledger.maintenance.pages import Pages
from nexus.ledger.maintenance.rows import LedgerRows, Rows
from nexus.ledger.maintenance.salvage import Salvage, Views
from nexus.ledger.records import Header, Record, ThreadRecord
from nexus.ledger.sqlite import SqliteLedger, open_ledgers
from nexus.ledger.sqlite.connection import check_version
from nexus.ledger.sqlite.schema import APPLICATION_ID
from nexus.ledger.text_encoding import decode_text


class SavedSession(Struct, frozen=True):
    """What is left of a session: entries and messages on its path, and how many of its entries are lost."""

    tenant: str
    session: str
    entries: int
    messages: int
    lost: int


class RepairResult(Struct, frozen=True):
    """What a repair saved and what it could not: in all, by session, and each damage in words."""

    path: str
    entries: int
    messages: int
    lost: int
    sessions: tuple[SavedSession, ...]
    damages: tuple[Damage, ...]


def repair(
    source: str | Path, target: str | Path, *, force: bool = False, progress: Progress | None = None
) -> RepairResult:
    """Puts all that is whole in `source` into a new ledger at `target`, checked; `source` is only read.

    An entry that is damaged becomes one of kind `lost`, and what follows it stays verifiable. Damaged moves, aliases,
    decisions, manifests and calibrations are left out, and a session that lost its name gets another. Totals, pointers
    and the search index are made anew. A sound ledger comes out with the same records. Raises NotALedger when nothing of
    a ledger is found, LedgerTooNew, LedgerBusy when this process has it open, UnreadableFile when the source is not there
    or the target exists (unless `force`).
    """
    path, place = existing(source), Path(target).expanduser()
    check_target(path, place)
    if any(path.samefile(file) for file, _ in open_ledgers() if Path(file).exists()):
        # Closing a file that was opened beside SQLite takes SQLite's locks of this process away.
        raise LedgerBusy(f"{source} is open in this process; close it before it is repaired")
    with writing(source), closing(Pages(path)) as pages, replacing(place, force=force) as half:
        header = pages.image(pages.newest(1))
        if int.from_bytes(header[68:72]) == APPLICATION_ID:
            check_version(int.from_bytes(header[60:64]), str(source))
        found = LedgerRows(pages, progress)
        tenants = [_Tenant(tenant, found, rows) for tenant, rows in sorted(found.tenants.items())]
        kept = [tenant for tenant in tenants if tenant.holds_anything()]
        saved = [tenant.into(half) for tenant in kept]
        if not saved:
            raise NotALedger(f"{source} holds no row of a Nexus ledger that could be proven; it was not touched")
        broken = tuple(_broken(pages))
    return RepairResult(
        str(target),
        sum(one.entries for one in saved),
        sum(one.messages for one in saved),
        sum(one.lost for one in saved),
        tuple(session for one in saved for session in one.sessions),
        broken
        + tuple(
            damage if len(saved) == 1 else _of(tenant, damage)
            for tenant, one in zip(kept, saved, strict=True)
            for damage in one.damages
        ),
    )


def _broken(pages: Pages) -> Iterator[Damage]:
    """That pages are broken: what only they had and nothing else names cannot be listed one by one."""
    found = pages.broken()
    if found:
        place = f"page {found[0]}" if len(found) == 1 else f"{len(found)} pages, the first being page {found[0]},"
        what = f"{'is' if len(found) == 1 else 'are'} not as SQLite writes them"
        yield Damage("file", place, what, "idempotency keys that stood there, and whatever else is listed")


def _of(tenant: _Tenant, damage: Damage) -> Damage:
    return replace(damage, place=f"{damage.place} of tenant {decode_text(tenant.name)!r}")


class _Tenant:
    """One tenant's rows, on their way into the new ledger."""

    def __init__(self, tenant: str, found: LedgerRows, rows: Rows) -> None:
        self.name = tenant
        self._threads = Salvage(tenant, found, rows)
        self._views = Views(tenant, found, rows, self._threads)
        self._names = Names(tenant, found, rows, self._threads)

    def holds_anything(self) -> bool:
        """Whether anything of this tenant can be proven."""
        return self._threads.holds_anything() or self._names.holds_anything()

    def into(self, file: Path) -> RepairResult:
        """Stores what was saved, and checks what was stored."""
        with closing(SqliteLedger(str(file), tenant=decode_text(self.name))) as ledger:
            ledger.load(self._records())
            damage = next(check(ledger.dump()), None)
            if damage is not None:
                raise LedgerDamaged(f"the repaired ledger would not be sound: {damage}; nothing was written")
        return self._report(file)

    def _records(self) -> Iterator[Record]:
        yield Header(tenant=self.name)
        before: int | None = None
        for record in self._threads.records():
            if isinstance(record, ThreadRecord):
                if before is not None:
                    yield from self._views.of(before)
                before = record.id
            yield record
        if before is not None:
            yield from self._views.of(before)
        yield from self._threads.images()
        yield from self._names.moves()
        yield from self._names.aliases()
        yield from self._names.calibrations()

    def _report(self, file: Path) -> RepairResult:
        threads = self._threads.threads.values()
        lost = sum(len(kept.lost) for kept in threads)
        sessions = tuple(
            self._session(label, thread) for label, thread in self._names.pointers.items() if thread is not None
        )
        return RepairResult(
            str(file),
            sum(len(kept.digests) for kept in threads) - lost,
            sum(sum(kept.counts) for kept in threads),
            lost,
            sessions,
            (*self._threads.damages, *self._views.damages, *self._names.damages),
        )

    def _session(self, label: str, thread: int) -> SavedSession:
        entries = messages = lost = 0
        kept, high = self._threads.threads.get(thread), 1 << 62
        while kept is not None:
            counts = kept.counts[: max(high - kept.row.fork_seq, 0)]
            gone = sum(1 for seq in kept.lost if seq <= high)
            entries, messages, lost = entries + len(counts) - gone, messages + sum(counts), lost + gone
            high = min(high, kept.row.fork_seq)
            kept = self._threads.threads.get(kept.row.parent) if kept.row.parent is not None else None
        return SavedSession(decode_text(self.name), decode_text(label), entries, messages, lost)
