"""A ledger's files: opening one at this version, knowing it again, and looking for text in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nexus.errors import EraseIncomplete, LedgerError
from nexus.ledger.sqlite.connection import BUSY_TIMEOUT_MS, MEMORY, Database, blocks, connect, settle
from nexus.ledger.sqlite.migrate import migrate


def opened(path: str, *, create: bool, vfs: str) -> Database:
    """A connection to a ledger that is of this version now."""
    if create and path != MEMORY and not vfs:
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


def held(db: Database, path: str, needles: list[str]) -> list[str]:
    """The pieces that are in the files and in no row. Raises EraseIncomplete while a reader keeps the log."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while not db.empty_log():
        if time.monotonic() > until:
            raise EraseIncomplete(
                f"the rows are deleted, but another process reads an older state of {path}, so their text is still "
                "in its log. It goes when that process ends its reading and the ledger is closed everywhere"
            )
        time.sleep(0.05)
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
