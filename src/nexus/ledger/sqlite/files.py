"""Files of a ledger: opening at this version, identity, and searching for text."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from nexus.errors import LedgerDamaged, LedgerError
from nexus.ledger.sqlite.connection import BUSY_TIMEOUT_MS, MEMORY, SqliteDatabase, blocks, connect, settle
from nexus.ledger.sqlite.migrate import migrate
from nexus.ledger.sqlite.schema import READABLE, VERSION

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted
    fcntl = None

PART = (".nexus-", ".part")
"""How the name of an unfinished copy begins and ends."""

COMPANIONS = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps next to a database, by the end of the name."""


def open_file(path: str, *, create: bool, vfs: str) -> SqliteDatabase:
    """Open a ledger and migrate it to this version. Files that cannot be written are opened read-only.

    Raises LedgerError for an older version that cannot be written.
    """
    if path != MEMORY and not vfs:
        if _only_readable(path):
            return _readable(path)
        if create:
            try:  # an empty file that only its owner may read: SQLite would let everyone
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                pass
            except OSError as error:
                raise LedgerError(f"ledger cannot be created at {path}: {error.strerror or error}") from error
    db = connect(path, create=create, vfs=vfs)
    try:
        db.run("PRAGMA secure_delete=ON")  # what a migration leaves behind is deleted for good
        migrate(db)
        settle(db)
    except BaseException:
        db.close()
        raise
    return db


def another(path: str, *, vfs: str) -> SqliteDatabase:
    """Open another connection to a ledger that is open."""
    if not vfs and _only_readable(path):
        return _readable(path)
    db = connect(path, create=False, vfs=vfs)
    settle(db)
    return db


def _only_readable(path: str) -> bool:
    """Return True if a file or its folder cannot be written."""
    return os.access(path, os.R_OK) and not (os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK))


def _readable(path: str) -> SqliteDatabase:
    """Open a read-only connection."""
    # A file without a log does not change, because no local process can write it.
    db = connect(path, create=False, readonly=True, unchanging=not Path(f"{path}-wal").exists())
    version = int(db.value("PRAGMA user_version"))
    if version in READABLE:
        return db
    db.close()
    raise LedgerError(
        f"{path} has ledger version {version} and cannot be written (copy it to a writable folder, then migrate it to "
        f"version {VERSION}: nexus ledger migrate)"
    )


def make_part(folder: Path) -> tuple[Path, Callable[[], None]]:
    """Make an empty file for a copy, which only its owner may read, and return it with a function that releases it.

    Until then it is locked, which ends with the process too, so that `leftovers` does not name it.
    """
    while True:
        handle, name = tempfile.mkstemp(PART[1], PART[0], folder)
        if fcntl is None:
            os.close(handle)
            return Path(name), lambda: None
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):  # noqa: PTH110 - another process may have taken it for a leftover before the lock
            return Path(name), partial(os.close, handle)
        os.close(handle)


_LEAST_MERGE = 2
"""Changes of a step that merged pages of the search index; one that found nothing to merge has fewer."""


def leftovers(folder: Path) -> list[Path]:
    """Return the unfinished copies in a folder that no living process uses."""
    unused: list[Path] = []
    for part in sorted(folder.glob(f"{PART[0]}*{PART[1]}")):
        with suppress(OSError), part.open("rb") as stream:
            if fcntl is not None:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unused.append(part)
    return unused


def delete_leftovers(folder: Path) -> None:
    """Delete the unfinished copies in a folder that no living process uses, with their logs."""
    for part in leftovers(folder):
        with suppress(OSError):  # Windows deletes no file that is open
            part.unlink()
            for end in COMPANIONS:
                part.with_name(part.name + end).unlink(missing_ok=True)


def ledger_id(db: SqliteDatabase) -> str:
    """Return the ID that all copies of a ledger's file share: the time of its first migration in milliseconds."""
    at_ms = db.value("SELECT min(at_ms) FROM migration")
    if type(at_ms) is not int:  # the ID names a file
        raise LedgerDamaged("the list of migrations has something else where a time belongs")
    return str(at_ms)


def identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file at a path; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - on the way of every call
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path} cannot be examined: {error.strerror or error}") from error
    return status.st_dev, status.st_ino


def folder_of(path: str) -> tuple[int, int, int] | None:
    """Return device, inode and time of the last change of the folder at a path, or None."""
    try:
        status = os.stat(path)  # noqa: PTH116 - on the way of every call
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def rewrite(db: SqliteDatabase, path: str) -> None:
    """Rewrite the whole file without deleted content. Raises LedgerError."""
    _empty_log(db, path)
    db.run("VACUUM")
    _empty_log(db, path)


def merge_search(db: SqliteDatabase, pages: int) -> bool:
    """Merge some pages of the search index, which keeps deleted words until then; return True if some remain.

    The first of such steps has a negative number, so that the whole index is merged (sqlite.org/fts5.html: `merge`).
    """
    before = int(db.value("SELECT total_changes()"))
    db.run("INSERT INTO search(search, rank) VALUES ('merge', ?)", (pages,))
    return int(db.value("SELECT total_changes()")) - before >= _LEAST_MERGE


def _empty_log(db: SqliteDatabase, path: str) -> None:
    """Move the log into the file and empty it. Raises LedgerError while an older state is read."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while not db.empty_log():
        if time.monotonic() > until:
            raise LedgerError(
                f"{path} is being read elsewhere, so its log still contains erased text (the rows are deleted; end that "
                "reading, then run nexus ledger vacuum)",
                code="erase_incomplete",
            )
        time.sleep(0.05)


def find_needles(db: SqliteDatabase, path: str, needles: list[str]) -> list[str]:
    """Return the pieces of text that are in the files and in no row.

    Raises LedgerError while another reader needs the log.
    """
    _empty_log(db, path)
    if not needles:
        return []
    sql = (
        "SELECT EXISTS (SELECT 1 FROM message WHERE instr(content, ?1)) OR EXISTS (SELECT 1 FROM entry WHERE"
        " instr(body, ?1)) OR EXISTS (SELECT 1 FROM session_move WHERE instr(facts, ?1))"
        " OR EXISTS (SELECT 1 FROM event WHERE instr(body, ?1)) OR EXISTS (SELECT 1 FROM document WHERE instr(body, ?1))"
    )
    wanted = {needle: needle.encode() for needle in needles}
    longest = max(map(len, wanted.values()), default=0)
    logs = [file for file in (Path(f"{path}-wal"), Path(f"{path}-journal")) if file.exists()]
    present: set[str] = set()
    for parts in (blocks(path), *(iter([log.read_bytes()]) for log in logs)):
        overlap = b""
        for part in parts:
            block = overlap + part
            present.update(needle for needle, text in wanted.items() if needle not in present and text in block)
            overlap = part[-longest:] if longest else b""
    return [needle for needle in sorted(present) if not db.value(sql, (needle,))]
