"""Opening a SQLite ledger safely: settings, application id, migrations, and the engine's errors as ours.

APSW brings its own SQLite, without the WAL-reset bug of 3.7.0 to 3.51.2. WAL with `synchronous=FULL`: an acknowledged
append survives power loss. No memory mapping.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from nexus.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerFull, LedgerTooNew, NotALedger
from nexus.ledger.schema import APPLICATION_ID, MIGRATIONS, VERSION, checksum

BUSY_TIMEOUT_MS = 5_000

_SETTINGS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA mmap_size=0",
    "PRAGMA wal_autocheckpoint=1000",
)


Value: TypeAlias = int | str | bytes | None


class Database:
    """A SQLite connection with the few calls that the ledger makes, typed."""

    def __init__(self, path: str, flags: int) -> None:
        self._db: Any = apsw.Connection(path, flags=flags)

    def run(self, sql: str, values: tuple[Value, ...] = ()) -> None:
        """Runs a statement (or a script) and reads it to its end."""
        self._db.execute(sql, values or None).fetchall()

    def run_many(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        """Runs a statement once for each row of values."""
        self._db.executemany(sql, rows)

    def rows(self, sql: str, values: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self._db.execute(sql, values or None).fetchall()

    def row(self, sql: str, values: tuple[Value, ...] = ()) -> tuple[Any, ...] | None:
        """The first row, None if there is none."""
        return self._db.execute(sql, values or None).fetchone()

    def value(self, sql: str, values: tuple[Value, ...] = ()) -> Any:
        """The first column of the first row, None if there is none."""
        row = self.row(sql, values)
        return row[0] if row else None

    @contextmanager
    def transaction(self) -> Generator[None]:
        """One `BEGIN IMMEDIATE` transaction: committed whole, or rolled back when anything fails."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self.run("ROLLBACK")
            raise

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """One read transaction: everything inside sees the same state. Inside another one it adds nothing."""
        if self._db.in_transaction:
            yield
            return
        self.run("BEGIN")
        try:
            yield
        finally:
            self.run("COMMIT")

    def busy_timeout(self, timeout_ms: int) -> None:
        """How long to wait for another process's transaction."""
        self._db.set_busy_timeout(timeout_ms)

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()


def connect(path: str, *, create: bool = True) -> Database:
    """An open connection to the ledger at `path` (`:memory:` for one that is not kept), migrated to this version.

    Raises NotALedger, LedgerTooNew (both leave the file untouched), LedgerBusy, LedgerFull, LedgerError.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    with typed(path):
        if path != ":memory:":
            _check_identity(Path(path))
        db = Database(path, flags)
        try:
            db.busy_timeout(BUSY_TIMEOUT_MS)
            _check_version(int(db.value("PRAGMA user_version")), path)
            _migrate(db)
            for setting in _SETTINGS:
                db.run(setting)
        except BaseException:
            db.close()
            raise
    return db


def _check_identity(path: Path) -> None:
    """Reads the file's header (sqlite.org/fileformat.html) before SQLite opens it: opening can already change a file."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerError(f"{path} cannot be opened: {error.strerror or error}") from error
    if not header:
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise NotALedger(f"{path} is not a SQLite file; it was not touched. Choose another --ledger")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise NotALedger(f"{path} is a SQLite file of another program; it was not touched. Choose another --ledger")
    _check_version(int.from_bytes(header[60:64]), str(path))


def _check_version(version: int, path: str) -> None:
    if version > VERSION:
        raise LedgerTooNew(
            f"{path} has ledger version {version}, this Nexus knows {VERSION}; it was not touched. Upgrade Nexus"
        )


def _migrate(db: Database) -> None:
    """Brings the ledger to this version. A new file is made before WAL is set, so its header names it from the start."""
    if db.value("PRAGMA user_version") == VERSION:
        return
    with db.transaction():
        version = int(db.value("PRAGMA user_version"))
        for number, applied in db.rows("SELECT version, checksum FROM migration") if version else ():
            if checksum(MIGRATIONS[int(number) - 1]) != applied:
                raise LedgerDamaged(f"migration {number} of this ledger was another one; nothing was changed")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            db.run(script)
            now = time.time_ns() // 1_000_000
            db.run("INSERT INTO migration VALUES (?,?,?)", (number, checksum(script), now))
        db.run(f"PRAGMA application_id={APPLICATION_ID}")
        db.run(f"PRAGMA user_version={VERSION}")
    db.run("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def typed(place: str) -> Generator[None]:
    """Turns the engine's errors into ours, each with what to do."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        text = f"{place} was locked for over {BUSY_TIMEOUT_MS} ms; nothing was written, try again"
        raise LedgerBusy(text) from error
    except apsw.FullError as error:
        raise LedgerFull(f"no space left for {place}; the append is absent, all earlier ones are safe") from error
    except apsw.NotADBError as error:
        raise NotALedger(f"{place} is not a SQLite file; it was not touched. Choose another --ledger") from error
    except (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError) as error:
        text = f"{place} is damaged ({error}); nothing was served from it. Restore a backup"
        raise LedgerDamaged(text) from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.IOError) as error:
        text = f"{place} cannot be opened or written ({error}); check that its folder exists and is writable"
        raise LedgerError(text) from error
    except apsw.Error as error:
        raise LedgerError(f"{place}: the database says {error}") from error
