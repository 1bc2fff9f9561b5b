"""Location of a workspace's ledger, and the record of ledgers that this user made or accepted.

A ledger determines what a model reads: turns, summaries and the frozen system prompt. A ledger that came with a folder,
by a clone or an archive, is therefore read-only until the user accepts it. The records are outside the workspace:
`ledgers/` in the user's folder has one file for each ledger, named by its ID. A path that a program or a command names is
always accepted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nexus.errors import LedgerError, LedgerUnusable, PackageMissing
from nexus.ledger.address import is_address
from nexus.ledger.shared_sql.store import SqlLedger
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.connection import MEMORY

if TYPE_CHECKING:
    from nexus.ledger.postgres import PostgresLedger

LEDGER_FILE = Path(".nexus") / "ledger.db"

MOST_RECORDS = 1_000
"""Records above this number are deleted when their ledger is."""

_BEGIN = ".begin"


def workspace_ledger(root: Path) -> Path:
    """Return the path of a workspace's ledger. Raises LedgerUnusable if a link leads out of the workspace."""
    file = root / LEDGER_FILE
    inside = os.path.realpath(root)
    real = os.path.realpath(file)
    for path in (real, *(os.path.realpath(f"{real}{end}") for end in ("-wal", "-shm", "-journal"))):
        if os.path.commonpath((path, inside)) != inside:
            raise LedgerUnusable(
                f"ledger {file} leads out of the workspace to {path} (nothing was opened; to use a ledger elsewhere, name "
                "it: --ledger, or nexus.open(ledger=…))",
                code="ledger_not_trusted",
            )
    return file


def open_ledger(
    root: Path | None,
    path: str | Path | None,
    user_folder: Path,
    *,
    tenant: str = "local",
    create: bool = True,
    clock_ms: Callable[[], int] | None = None,
) -> SqlLedger:
    """Open the ledger at `path`; without a path the workspace's, read-only if the user did not make or accept it.

    A path may be the URL of a PostgreSQL database. Raises LedgerUnusable, LedgerError, PackageMissing.
    """
    if is_address(path):
        return open_server_ledger(str(path), tenant=tenant, create=create, clock_ms=clock_ms)
    if path is not None:
        place = str(path)
    elif root:
        place = str(workspace_ledger(root))
    else:
        place = MEMORY
    if place == MEMORY:
        return SqliteLedger(MEMORY, tenant=tenant, clock_ms=clock_ms)
    file = Path(place).expanduser().absolute()
    status = file.stat() if file.exists() else None  # before opening, which may write
    if create:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"folder of ledger {file} not writable: {error.strerror or error}") from error
    store = SqliteLedger(str(file), tenant=tenant, create=create, clock_ms=clock_ms)
    try:
        records = LedgerRecords(user_folder)
        if status is None or not status.st_size:
            records.add(store.id, store.location)
        elif path is None:
            store.trusted = records.include(store.id, store.location, status)
    except BaseException:
        store.close()
        raise
    return store


def open_server_ledger(
    url: str, *, tenant: str = "local", create: bool = True, clock_ms: Callable[[], int] | None = None
) -> PostgresLedger:
    """Open the ledger at the URL of a PostgreSQL database. Raises LedgerUnavailable, LedgerError, PackageMissing."""
    try:
        from nexus.ledger.postgres import PostgresLedger
    except ImportError as error:
        raise PackageMissing("psycopg", "a ledger in PostgreSQL", "postgres") from error
    return PostgresLedger(url, tenant=tenant, create=create, clock_ms=clock_ms)


class LedgerRecords:
    """The ledgers that a user made or accepted, as files in `ledgers/` of the user's folder."""

    def __init__(self, user_folder: Path) -> None:
        self._folder = user_folder / "ledgers"

    def include(self, ledger_id: str, location: str, status: os.stat_result) -> bool:
        """Return True for a recorded ledger, and for one that this user made before records existed.

        The latter belongs to this user, is readable by this user only (as files of Nexus are, but not files from git or
        zip), and has not changed since. In a read-only container, which cannot store records, it may have changed.
        """
        record = self._folder / ledger_id
        with suppress(OSError):
            if record.read_text("utf-8", "surrogateescape") != location:
                self.add(ledger_id, location)  # it was moved
            return True
        begin_ns = self._begin_ns()
        is_own = os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
        if not is_own or (begin_ns is not None and status.st_ctime_ns > begin_ns):
            return False
        self.add(ledger_id, location)
        return True

    def add(self, ledger_id: str, location: str) -> bool:
        """Record a ledger. Returns whether that could be written."""
        if self._begin_ns() is None:
            return False
        try:
            (self._folder / ledger_id).write_text(location, "utf-8", "surrogateescape")
            self._prune()
        except OSError:
            return False
        return True

    def remove(self, ledger_id: str) -> None:
        """Delete the record of a ledger. Raises LedgerError if it cannot be deleted."""
        try:
            (self._folder / ledger_id).unlink(missing_ok=True)
        except OSError as error:
            raise LedgerError(f"record {self._folder / ledger_id} not deleted: {error.strerror or error}") from error

    def _begin_ns(self) -> int | None:
        """Return the time at which this folder began, which is now for a new one; None if it cannot be written."""
        begin = self._folder / _BEGIN
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                begin.open("x").close()
            if os.access(self._folder, os.W_OK):
                return begin.stat().st_mtime_ns
        return None

    def _prune(self) -> None:
        records = os.listdir(self._folder)  # noqa: PTH208 - names only
        if len(records) <= MOST_RECORDS:
            return
        for name in records:
            record = self._folder / name
            with suppress(OSError):
                if name != _BEGIN and not Path(record.read_text("utf-8", "surrogateescape")).exists():
                    record.unlink()
