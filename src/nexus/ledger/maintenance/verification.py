"""Full check of a SQLite ledger: SQLite's own structure, every hash, and all derived rows."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec.structs import replace

from nexus.errors import LedgerDamaged, NotALedger
from nexus.ledger.integrity import check
from nexus.ledger.integrity.damage import Damage
from nexus.ledger.maintenance.derived import Derived
from nexus.ledger.maintenance.files import COMPANIONS, Progress, existing, writing
from nexus.ledger.records import Record
from nexus.ledger.sqlite import dump as sqlite_dump
from nexus.ledger.sqlite.connection import Database, connect, typed
from nexus.ledger.sqlite.schema import VERSION
from nexus.ledger.text_encoding import decode_text

EVERY = 1_000
"""Records between two reports of progress."""


@contextmanager
def open_readonly(path: str | Path) -> Generator[Database]:
    """Open a ledger's file as it is: it is not migrated, and its log is not folded in.

    Raises UnreadableFile when it does not exist, NotALedger (also for an empty file), LedgerTooNew.
    """
    file = existing(path)
    with writing(path):
        sizes = {end: _size_of(file.with_name(file.name + end)) for end in ("", *COMPANIONS)}
    if not sizes[""] and not sizes["-wal"] and not sizes["-journal"]:
        raise NotALedger(f"{path} is empty and not a ledger (name a ledger's file, or restore a backup)")
    # Whoever closes a file last folds its log in, unless it was opened for reading; but then the log stays.
    readonly = sizes["-wal"] > 0 or not os.access(file, os.W_OK)
    with typed(str(path)), closing(connect(str(path), create=False, readonly=readonly)) as db:
        yield db


def _size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def verify(path: str | Path, progress: Progress | None = None) -> list[Damage]:
    """Return all damage of a ledger, of all its tenants, at one moment; an empty list if it is sound.

    Of a ledger of an older version only SQLite's own structure is checked: it gets its hashes when it is migrated.
    Raises NotALedger, LedgerTooNew, UnreadableFile.
    """
    damages: list[Damage] = []
    with open_readonly(path) as db:
        # A snapshot that ends with the connection: in a broken file a COMMIT of mere reads can fail too.
        db.run("BEGIN")
        damages.extend(_guarded("the file", _structure(db)))
        if db.value("PRAGMA user_version") == VERSION:
            tenant_names = _guarded_tenants(db, damages)
            for tenant in tenant_names:
                of = f" of tenant {decode_text(tenant)!r}" if len(tenant_names) > 1 else ""
                rows = _guarded("the rows", _content(db, tenant, progress))
                damages.extend(replace(damage, place=f"{damage.place}{of}") for damage in rows)
    return damages


def require_sound(path: str | Path, progress: Progress | None = None) -> None:
    """Raise LedgerDamaged, with the first damage, unless a ledger is sound."""
    damages = verify(path, progress)
    if damages:
        more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
        raise LedgerDamaged(f"{path} is damaged: {damages[0]}{more}")


def tenants(db: Database) -> list[str]:
    """Return the tenants that have rows, in storable form."""
    sql = "SELECT tenant FROM thread UNION SELECT tenant FROM session_move UNION SELECT tenant FROM blob ORDER BY 1"
    return [str(tenant) for (tenant,) in db.rows(sql)]


def _guarded(place: str, findings: Iterator[Damage]) -> Iterator[Damage]:
    """Yield a check's findings. If the file cannot be read to the end, that is the last finding."""
    try:
        with typed("the file"):
            yield from findings
    except _BROKEN as error:
        yield Damage("file", place, f"cannot be read to the end ({_cause(error)})", "what was not read was not checked")


_BROKEN = (LedgerDamaged, TypeError, ValueError)
"""A page in another's place gives values of other types, at which a comparison or a conversion fails."""


def _cause(error: Exception) -> str:
    return str(error.__cause__ or error)


def _guarded_tenants(db: Database, damages: list[Damage]) -> list[str]:
    try:
        with typed("the file"):
            return tenants(db)
    except _BROKEN as error:
        damages.append(Damage("file", "the list of tenants", f"cannot be read ({_cause(error)})", "everything"))
        return []


def _structure(db: Database) -> Iterator[Damage]:
    """Run SQLite's checks of pages, indexes and references between rows."""
    for (text,) in db.rows("PRAGMA integrity_check"):
        if text != "ok":
            yield Damage("file", "the file", f"is not as SQLite wants it: {text}", "possibly rows")
    missing = {(table, parent) for table, _, parent, _ in db.rows("PRAGMA foreign_key_check")}
    for table, parent in sorted(missing):
        yield Damage("file", f"a row of {table}", f"belongs to a row of {parent} that is not there", "this row")


def _content(db: Database, tenant: str, progress: Progress | None) -> Iterator[Damage]:
    """Yield the damage of one tenant's records and of the rows derived from them."""
    total = int(db.value("SELECT count(*) FROM entry WHERE tenant=?", (tenant,)))
    derived = Derived(db, tenant)
    yield from check(_with_progress(derived.watch(sqlite_dump.dump(db, tenant)), progress, total))
    yield from derived.differences()


def _with_progress(records: Iterator[Record], progress: Progress | None, total: int) -> Iterator[Record]:
    for number, record in enumerate(records):
        yield record
        if progress is not None and not number % EVERY:
            progress(min(number, total), total)
