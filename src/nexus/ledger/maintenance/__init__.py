"""Maintenance of a SQLite ledger's file: backup, restore, migration, vacuum.

Every result is checked before one rename puts it at its final path.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field

from nexus.errors import LedgerBusy, LedgerError
from nexus.ledger.maintenance.files import (
    COMPANIONS,
    Progress,
    check_target,
    existing,
    replacing,
    sync,
    temporary,
    writing,
)
from nexus.ledger.maintenance.repairs import RepairResult, SavedSession, repair
from nexus.ledger.maintenance.statistics import Stats, stats
from nexus.ledger.maintenance.verification import open_readonly, require_sound, verify
from nexus.ledger.sqlite.connection import connect, sqlite_errors
from nexus.ledger.sqlite.files import open_file as made
from nexus.ledger.sqlite.files import rewrite
from nexus.ledger.sqlite.migrate import migrate as migrate_open
from nexus.ledger.sqlite.schema import VERSION

__all__ = [
    "BackupReport", "MigrationReport", "RepairResult", "RestoreReport", "SavedSession", "Stats", "VacuumReport", "backup", "migrate", "repair",
    "restore", "stats", "vacuum", "verify",
]  # fmt: skip

PATIENCE_MS = 500
"""How long to wait for others to let go of a file that is to be moved aside."""


class BackupReport(Struct, frozen=True):
    """Backup that was made and checked."""

    path: str
    bytes: int
    version: int


class RestoreReport(Struct, frozen=True):
    """Restored ledger, and the path of the ledger that it replaced (empty: none)."""

    path: str
    version: int
    previous_path: str = field(default="", name="aside")


class MigrationReport(Struct, frozen=True):
    """Versions before and after a migration, and the backup of the old file.

    `backup` is empty if none was needed, and after a dry run.
    """

    path: str
    from_version: int
    to_version: int
    backup: str = ""


class VacuumReport(Struct, frozen=True):
    """Size of a ledger's file before and after it was rewritten."""

    path: str
    before_bytes: int
    after_bytes: int


def backup(
    source: str | Path, target: str | Path, *, force: bool = False, progress: Progress | None = None
) -> BackupReport:
    """Copy a ledger's state at one moment into one checked file while others may write.

    Raises LedgerDamaged, LedgerFull, UnreadableFile (no source, or the target exists without `force`).
    """
    place = Path(target).expanduser()
    check_target(existing(source), place)
    with replacing(place, force=force) as half:
        version = _copied(Path(source).expanduser(), half, progress)
        require_sound(half)
    return BackupReport(str(target), place.stat().st_size, version)


def restore(
    source: str | Path, target: str | Path, *, force: bool = False, progress: Progress | None = None
) -> RestoreReport:
    """Replace the ledger `target` by a checked copy of the backup `source`.

    An existing ledger is kept as `NAME.before-restore-TIME`. Raises LedgerBusy when another process has it open (with
    `force` its files are moved as they are), LedgerDamaged when the backup is not sound, UnreadableFile.
    """
    place = Path(target).expanduser().resolve()
    check_target(place, existing(source))
    with replacing(place, force=True) as half:
        version = _copied(Path(source).expanduser(), half, progress)
        require_sound(half)
        if place.exists():
            half.chmod(place.stat().st_mode & 0o777)
        previous = None
        if place.exists():
            previous = _set_aside(place, force=force)
    return RestoreReport(str(target), version, str(previous or ""))


def migrate(path: str | Path, *, dry_run: bool = False, progress: Progress | None = None) -> MigrationReport:
    """Migrate a ledger to this version, after a backup to `NAME.vN.bak` in the same folder.

    A dry run migrates a temporary copy. Raises LedgerDamaged, LedgerUnusable, LedgerBusy, UnreadableFile.
    """
    place = Path(path).expanduser()
    with open_readonly(place) as db:
        version = int(db.value("PRAGMA user_version"))
    if version == VERSION:
        return MigrationReport(str(path), version, version)
    if dry_run:
        with temporary(place.resolve()) as trial:
            _copied(place, trial, progress)
            _migrate(trial)
        return MigrationReport(str(path), version, VERSION)
    backup_path = _free_path(place, f".v{version}.bak")
    backup(place, backup_path, progress=progress)
    _migrate(place)
    return MigrationReport(str(path), version, VERSION, str(backup_path))


def vacuum(path: str | Path) -> VacuumReport:
    """Rewrite a ledger's file so that it contains its rows only, without text of erased rows.

    Others may have it open. Raises LedgerError while one of them reads, LedgerUnusable, LedgerBusy, UnreadableFile,
    and LedgerError for an older version, which needs `migrate` first.
    """
    place = existing(path)
    with open_readonly(place) as db:
        version = int(db.value("PRAGMA user_version"))
    if version != VERSION:
        raise LedgerError(f"{path} has ledger version {version}, not {VERSION} (run nexus ledger migrate)")
    before = place.stat().st_size
    with sqlite_errors(str(path)), closing(made(str(place), create=False, vfs="")) as db:
        rewrite(db, str(path))
    return VacuumReport(str(path), before, place.stat().st_size)


def _migrate(path: Path) -> None:
    """Migrate a file and check the result."""
    with sqlite_errors(str(path)), closing(connect(str(path), create=False)) as db:
        migrate_open(db)
    require_sound(path)


def _copied(source: Path, half: Path, progress: Progress | None) -> int:
    """Copy a ledger's state at one moment into a file without a log; its version."""
    with open_readonly(source) as db, sqlite_errors(str(half)), closing(connect(str(half))) as copy, db.snapshot():
        # The snapshot begins with the first read. What others write meanwhile does not make the copy begin anew.
        version = int(db.value("SELECT user_version FROM pragma_user_version"))
        db.copy_to(copy, progress)
        copy.run("PRAGMA journal_mode=DELETE")
    return version


def _set_aside(place: Path, *, force: bool) -> Path:
    """Move the ledger at `place` to a free name, with its log folded in (or moved along, with `force`)."""
    free_path = _free_path(place, f".before-restore-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    in_use = (
        f"{place} is open elsewhere (nothing was restored; close it there, or use --force, which makes the next call "
        "there fail)"
    )
    try:
        with sqlite_errors(str(place)), closing(connect(str(place), create=False)) as db:
            db.run(f"PRAGMA busy_timeout={PATIENCE_MS}")
            try:
                with sqlite_errors(str(place)):
                    # Leaving WAL mode folds the log into the file, and requires the only connection.
                    closed = db.value("PRAGMA journal_mode=DELETE") == "delete"
            except LedgerBusy as error:
                raise LedgerBusy(in_use) from error
            if not closed:
                raise LedgerBusy(in_use)
    except LedgerError:
        if not force:
            raise
    with writing(place):
        try:
            os.link(place, free_path)
        except OSError:
            place.rename(free_path)
        for end in COMPANIONS:
            companion = place.with_name(place.name + end)
            if companion.exists():
                companion.rename(free_path.with_name(free_path.name + end))
        sync(place.parent)
    return free_path


def _free_path(place: Path, end: str) -> Path:
    """Return an unused path next to `place` whose name ends with `end`."""
    candidate = place.with_name(place.name + end)
    number = 1
    while candidate.exists():
        number += 1
        candidate = place.with_name(f"{place.name}{end}.{number}")
    return candidate
