"""Looking after a SQLite ledger's file: copies, bringing one back, bringing an old one to this version.

Every result is checked before it takes its place, and takes it by one rename.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from nexus.errors import LedgerBusy, LedgerError
from nexus.ledger.maintenance.files import COMPANIONS, Progress, check_target, existing, replacing, sync, writing
from nexus.ledger.maintenance.repairs import RepairResult, SavedSession, repair
from nexus.ledger.maintenance.statistics import Stats, stats
from nexus.ledger.maintenance.verification import open_readonly, require_sound, verify
from nexus.ledger.sqlite.connection import connect, typed
from nexus.ledger.sqlite.files import open_file as made
from nexus.ledger.sqlite.files import rewrite
from nexus.ledger.sqlite.migrate import migrate as bring
from nexus.ledger.sqlite.schema import VERSION

__all__ = [
    "BackupReport", "MigrationReport", "RepairResult", "RestoreReport", "SavedSession", "Stats", "VacuumReport", "backup", "migrate", "repair",
    "restore", "stats", "vacuum", "verify",
]  # fmt: skip

PATIENCE_MS = 500
"""How long to wait for others to let go of a file that is to be moved aside."""


class BackupReport(Struct, frozen=True):
    """A backup that was made and checked."""

    path: str
    bytes: int
    version: int


class RestoreReport(Struct, frozen=True):
    """A ledger that was brought back, and where the one that was there before is now (empty: there was none)."""

    path: str
    version: int
    aside: str = ""


class MigrationReport(Struct, frozen=True):
    """A ledger's versions before and after, and the backup of the old one (empty: none was needed, or a dry run)."""

    path: str
    from_version: int
    to_version: int
    backup: str = ""


class VacuumReport(Struct, frozen=True):
    """A ledger that was written anew, and its file's size before and after."""

    path: str
    before_bytes: int
    after_bytes: int


def backup(
    source: str | Path, target: str | Path, *, force: bool = False, progress: Progress | None = None
) -> BackupReport:
    """Copies a ledger into one file, as it is at one moment, while others may go on writing.

    The copy is checked before it takes its name. Raises LedgerDamaged when it is not sound, UnreadableFile when the
    source is not there or the target exists (unless `force`), LedgerFull.
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
    """Puts a copy of the backup `source` in the place of the ledger `target`, once it is checked.

    A ledger that is there is kept as `NAME.before-restore-TIME`. Raises LedgerBusy when another process has it open or
    its log cannot be folded in; with `force` its files are moved as they are. Raises LedgerDamaged when the backup is
    not sound, UnreadableFile when it is not there.
    """
    place = Path(target).expanduser().resolve()
    check_target(place, existing(source))
    with replacing(place, force=True) as half:
        version = _copied(Path(source).expanduser(), half, progress)
        require_sound(half)
        if place.exists():
            half.chmod(place.stat().st_mode & 0o777)
        aside = _set_aside(place, force=force) if place.exists() else None
    return RestoreReport(str(target), version, str(aside or ""))


def migrate(path: str | Path, *, dry_run: bool = False, progress: Progress | None = None) -> MigrationReport:
    """Brings a ledger to this version, after a backup of the old one as `NAME.vN.bak` beside it.

    A dry run does it to a copy that is thrown away. A ledger of this version is left as it is. Raises LedgerDamaged,
    LedgerTooNew, LedgerBusy, UnreadableFile.
    """
    place = Path(path).expanduser()
    with open_readonly(place) as db:
        version = int(db.value("PRAGMA user_version"))
    if version == VERSION:
        return MigrationReport(str(path), version, version)
    if dry_run:
        with writing(place), tempfile.TemporaryDirectory(prefix=".nexus-", dir=place.resolve().parent) as folder:
            trial = Path(folder) / "trial.db"
            _copied(place, trial, progress)
            _bring(trial)
        return MigrationReport(str(path), version, VERSION)
    kept = _free(place, f".v{version}.bak")
    backup(place, kept, progress=progress)
    _bring(place)
    return MigrationReport(str(path), version, VERSION, str(kept))


def vacuum(path: str | Path) -> VacuumReport:
    """Writes a ledger's file anew, so that it holds its rows and nothing else: no text of what was deleted for good.

    Others may have it open. Raises EraseIncomplete while one of them reads, LedgerTooNew, LedgerBusy, UnreadableFile, and
    LedgerError for an older version, which `migrate` brings to this one.
    """
    place = existing(path)
    with open_readonly(place) as db:
        version = int(db.value("PRAGMA user_version"))
    if version != VERSION:
        raise LedgerError(f"{path} has ledger version {version}; bring it to version {VERSION}: nexus ledger migrate")
    before = place.stat().st_size
    with typed(str(path)), closing(made(str(place), create=False, vfs="")) as db:
        rewrite(db, str(path))
    return VacuumReport(str(path), before, place.stat().st_size)


def _bring(path: Path) -> None:
    """Migrates a file and checks the result."""
    with typed(str(path)), closing(connect(str(path), create=False)) as db:
        bring(db)
    require_sound(path)


def _copied(source: Path, half: Path, progress: Progress | None) -> int:
    """Copies a ledger's state at one moment into a file without a log; its version."""
    with open_readonly(source) as db, typed(str(half)), closing(connect(str(half))) as copy, db.snapshot():
        # The snapshot begins with the first read. What others write meanwhile does not make the copy begin anew.
        version = int(db.value("SELECT user_version FROM pragma_user_version"))
        db.copy_to(copy, progress)
        copy.run("PRAGMA journal_mode=DELETE")
    return version


def _set_aside(place: Path, *, force: bool) -> Path:
    """Gives the ledger at `place` a second name, with its log folded in; with `force` the log keeps beside it."""
    aside = _free(place, f".before-restore-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    try:
        _close_for_others(place)
    except LedgerError:
        if not force:
            raise
    with writing(place):
        try:
            os.link(place, aside)
        except OSError:
            place.rename(aside)
        for end in COMPANIONS:
            companion = place.with_name(place.name + end)
            if companion.exists():
                companion.rename(aside.with_name(aside.name + end))
        sync(place.parent)
    return aside


def _close_for_others(place: Path) -> None:
    """Folds a ledger's log into it. Raises LedgerBusy when others have it open: that takes the only connection."""
    with typed(str(place)), closing(connect(str(place), create=False)) as db:
        db.run(f"PRAGMA busy_timeout={PATIENCE_MS}")
        with _as_in_use(place):
            if db.value("PRAGMA journal_mode=DELETE") != "delete":
                raise LedgerBusy(str(place))


@contextmanager
def _as_in_use(place: Path) -> Generator[None]:
    try:
        with typed(str(place)):
            yield
    except LedgerBusy as error:
        raise LedgerBusy(
            f"{place} is open somewhere else; nothing was restored. Close it there, or use --force: whoever has it open "
            "then gets an error at the next call"
        ) from error


def _free(place: Path, end: str) -> Path:
    """A name beside `place` that nothing has yet."""
    found, number = place.with_name(place.name + end), 1
    while found.exists():
        number += 1
        found = place.with_name(f"{place.name}{end}.{number}")
    return found
