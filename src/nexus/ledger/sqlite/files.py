"""A ledger's files: opening one at this version, knowing it again, and looking for text in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nexus.errors import EraseIncomplete, LedgerError
from nexus.ledger.sqlite.connection import BUSY_TIMEOUT_MS, MEMORY, Database, blocks, connect, settle
from nexus.ledger.sqlite.migrate import migrate
from nexus.ledger.sqlite.schema import VERSION


def open_file(path: str, *, create: bool, vfs: str) -> Database:
    """A connection to a ledger that is of this version now. Where nothing can be written, it only reads.

    Raises LedgerError for an older version that cannot be written.
    """
    if path != MEMORY and not vfs:
        if _only_readable(path):
            return _readable(path)
        if create:
            _make(path)
    db = connect(path, create=create, vfs=vfs)
    try:
        db.run("PRAGMA secure_delete=ON")  # what a migration leaves behind is deleted for good
        migrate(db)
        settle(db)
    except BaseException:
        db.close()
        raise
    return db


def another(path: str, *, vfs: str) -> Database:
    """One more connection to a ledger that was opened."""
    if not vfs and _only_readable(path):
        return _readable(path)
    db = connect(path, create=False, vfs=vfs)
    settle(db)
    return db


def _only_readable(path: str) -> bool:
    """Whether a file is there that cannot be written, or whose folder cannot."""
    return os.access(path, os.R_OK) and not (os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK))


def _readable(path: str) -> Database:
    """A connection that only reads. Without a log beside it the file does not change, as nobody here can write it."""
    db = connect(path, create=False, readonly=True, unchanging=not Path(f"{path}-wal").exists())
    version = int(db.value("PRAGMA user_version"))
    if version == VERSION:
        return db
    db.close()
    raise LedgerError(
        f"{path} has ledger version {version} and cannot be written here: copy it to where it can, `nexus ledger migrate` "
        f"brings it to version {VERSION}"
    )


def _make(path: str) -> None:
    """Makes the empty file of a new ledger, which only its owner may read: SQLite would let everyone."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise LedgerError(f"no ledger can be made at {path}: {error.strerror or error}") from error


def identity(path: str) -> tuple[int, int] | None:
    """Which file is at a path now (device and inode), None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - on the way of every call
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path} cannot be looked at: {error.strerror or error}") from error
    return found.st_dev, found.st_ino


def folder_of(path: str) -> tuple[int, int, int] | None:
    """Which folder is at a path now (device and inode) and when something was last made, renamed or deleted in it."""
    try:
        found = os.stat(path)  # noqa: PTH116 - on the way of every call
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def rewrite(db: Database, path: str) -> None:
    """Writes the whole file anew: it holds what its rows hold, and nothing that was deleted. Raises EraseIncomplete."""
    _empty_log(db, path)
    db.run("VACUUM")
    _empty_log(db, path)


def _empty_log(db: Database, path: str) -> None:
    """Brings the log into the file and empties it. Raises EraseIncomplete while somebody reads an older state."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while not db.empty_log():
        if time.monotonic() > until:
            raise EraseIncomplete(
                f"{path} is read by somebody else, so its log still holds what was deleted for good. The rows are gone; "
                "end that reading, then run `nexus ledger vacuum`"
            )
        time.sleep(0.05)


def find_needles(db: Database, path: str, needles: list[str]) -> list[str]:
    """The pieces that are in the files and in no row. Raises EraseIncomplete while somebody keeps the log."""
    _empty_log(db, path)
    sql = (
        "SELECT EXISTS (SELECT 1 FROM message WHERE instr(content, ?1)) OR EXISTS (SELECT 1 FROM entry WHERE"
        " instr(body, ?1)) OR EXISTS (SELECT 1 FROM session_move WHERE instr(facts, ?1))"
    )
    return [needle for needle in _in_files(path, needles) if not db.value(sql, (needle,))]


def _in_files(path: str, needles: list[str]) -> list[str]:
    """Which pieces of text the ledger's file or its log hold; each file is read once."""
    wanted = {needle: needle.encode() for needle in needles}
    longest = max(map(len, wanted.values()), default=0)
    logs = [file for file in (Path(f"{path}-wal"), Path(f"{path}-journal")) if file.exists()]
    found: set[str] = set()
    for parts in (blocks(path), *(iter([log.read_bytes()]) for log in logs)):
        kept = b""
        for part in parts:
            whole = kept + part
            found.update(needle for needle, text in wanted.items() if needle not in found and text in whole)
            kept = part[-longest:] if longest else b""
    return sorted(found)
