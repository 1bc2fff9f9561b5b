"""A ledger's files: opening one at this version, knowing it again, and looking for text in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nexus.errors import LedgerError
from nexus.ledger.sqlite.connection import MEMORY, Database, blocks, connect, settle
from nexus.ledger.sqlite.migrate import migrate


def opened(path: str, *, create: bool, vfs: str) -> Database:
    """A connection to a ledger that is of this version now."""
    if create and path != MEMORY and not vfs:
        _make(path)
    db = connect(path, create=create, vfs=vfs)
    try:
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


def in_files(path: str, needle: str) -> bool:
    """Whether the ledger's file or its log holds a piece of text."""
    wanted = needle.encode()
    logs = [file for file in (Path(f"{path}-wal"), Path(f"{path}-journal")) if file.exists()]
    return _within(blocks(path), wanted) or any(_within(iter([log.read_bytes()]), wanted) for log in logs)


def _within(parts: Iterator[bytes], wanted: bytes) -> bool:
    kept = b""
    for part in parts:
        if wanted in kept + part:
            return True
        kept = part[-len(wanted) :]
    return False
