"""Atomic file replacement: a temporary file in the same folder, synced, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from nexus.errors import LedgerError, LedgerFull, UnreadableFile
from nexus.ledger.sqlite.files import COMPANIONS, delete_leftovers, make_part

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how much is done, and how much there is in all (0: not known)."""


@contextmanager
def replacing(target: Path, *, force: bool = False) -> Generator[Path]:
    """Yield a temporary path next to `target` that replaces it on success and is deleted on failure.

    Raises UnreadableFile when the target exists (unless `force`), is not a regular file, or its folder does not exist.
    """
    place = target.resolve()
    if place.exists() and not place.is_file():
        raise UnreadableFile(f"{target} is not a regular file (name another one)")
    if place.exists() and not force:
        raise UnreadableFile(f"{target} exists and was not touched (name another file, or use --force)")
    if not place.parent.is_dir():
        raise UnreadableFile(f"{target} cannot be written: folder {place.parent} not found")
    with temporary(place) as half:
        yield half
        with writing(target):
            sync(half)
            half.replace(place)
            sync(place.parent)


@contextmanager
def temporary(place: Path) -> Generator[Path]:
    """Yield the path of an empty file next to `place` that is deleted at the end.

    Before that, it deletes the files that killed processes left there.
    """
    with writing(place):
        delete_leftovers(place.parent)
        half, release = make_part(place.parent)
    try:
        yield half
    finally:
        for end in ("", *COMPANIONS):
            half.with_name(half.name + end).unlink(missing_ok=True)
        release()


def existing(path: str | Path) -> Path:
    """Return the regular file at a path. Raises UnreadableFile when there is none, LedgerError."""
    file = Path(path).expanduser()
    with writing(path):
        if file.is_file():
            return file
        what = "is not there"
        if file.exists():
            what = "is not a regular file"
    raise UnreadableFile(f"{path} {what} (name a ledger's file)")


def check_target(ledger: str | Path, target: str | Path) -> None:
    """Raise UnreadableFile for a target that is the ledger's own file or one of its companions."""
    file = Path(ledger).expanduser()
    ledger_files = {file.with_name(f"{file.name}{end}").resolve() for end in ("", *COMPANIONS)}
    if Path(target).expanduser().resolve() in ledger_files:
        raise UnreadableFile(f"{target} is a file of the ledger itself and was not touched (name another one)")


@contextmanager
def writing(target: Path | str) -> Generator[None]:
    """Turn the operating system's errors into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise LedgerFull(f"no space left for {target} (nothing was stored)") from error
        raise LedgerError(f"{target} cannot be read or written: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk.

    Folders are skipped where the system cannot sync them.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
