"""The memory files on disk: changed whole or not at all, by one program at a time, inside the workspace only.

MEMORY.md is replaced at once (a new file that takes its name), HISTORY.md only grows. Programs of ours take turns by a
lock file; one that knows nothing of it, an editor, is noticed by the file's state, and its text is read again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from nexus.errors import MemoryBusy, UnreadableFile

LOCK = Path(".nexus") / "memory.lock"
LOCK_S = 20.0
"""So many seconds another program may hold the files."""

EDIT_BYTES = 1_000_000
"""A memory file over this is not read as facts: contexts show a small part of it, and people change it faster by hand."""

_TRIES = 20
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}

_NO_BYTE = re.compile("([\ud800-\udc7f\udd00-\udfff]+)")
"""Surrogates that do not stand for a byte that was no UTF-8."""

T = TypeVar("T")


class StoredFile(Struct, frozen=True):
    """A file as it was read: its text, and how that is written again to the byte. `state` is empty without a file."""

    text: str = ""
    mark: bytes = b""
    encoding: str = "utf-8"
    state: tuple[int, ...] = ()

    def data(self, text: str) -> bytes:
        """Another text as the bytes of this file; what its encoding has no bytes for as escapes."""
        if self.encoding != "utf-8":
            return self.mark + text.encode(self.encoding, "backslashreplace")
        pieces = _NO_BYTE.split(text)
        return self.mark + b"".join(
            piece.encode("utf-8", "backslashreplace" if at % 2 else "surrogateescape")
            for at, piece in enumerate(pieces)
        )


@contextmanager
def lock_folder(root: Path) -> Generator[None]:
    """Keeps other programs from writing to the memory of a workspace meanwhile. Raises MemoryBusy, UnreadableFile."""
    import filelock

    place = root / LOCK
    with _told(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(place)
        try:
            lock.acquire(timeout=LOCK_S)
        except filelock.Timeout as error:
            raise MemoryBusy(f"another program held {LOCK} for {LOCK_S:.0f} seconds. Nothing was written") from error
    try:
        yield
    finally:
        lock.release()


def read(root: Path, name: str) -> StoredFile:
    """The file as it is, empty without one. Raises UnreadableFile: outside, no file, too large, damaged UTF-16."""
    path = _inside(root, name)
    with _told(path):
        try:
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return StoredFile()
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UnreadableFile(f"{name} is no regular file")
            data = file.read(EDIT_BYTES + 1)
    if len(data) > EDIT_BYTES:
        raise UnreadableFile(
            f"{name} has more than {EDIT_BYTES:,} bytes: change it by hand, it is far more than is shown"
        )
    mark = next((mark for mark in _BOMS if data.startswith(mark)), b"")
    encoding = _BOMS.get(mark, "utf-8")
    try:
        text = data[len(mark) :].decode(encoding, "surrogateescape" if encoding == "utf-8" else "strict")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{name} is damaged, it is not valid {encoding.upper()}: {error.reason}") from error
    return StoredFile(text, mark, encoding, _state(found))


def change(root: Path, name: str, changed: Callable[[str], tuple[str, T]]) -> T:
    """Puts the changed text in the place of the file's, and returns what came with it. Hold the lock meanwhile.

    `changed` is asked again where somebody else wrote to the file in between. Raises MemoryBusy, UnreadableFile, and what
    `changed` raises; then the file is as it was.
    """
    path = _inside(root, name)
    for _ in range(_TRIES):
        before = read(root, name)
        text, told = changed(before.text)
        with _told(path):
            if text == before.text or _replaced(path, before, before.data(text)):
                return told
    raise MemoryBusy(f"{name} was changed by another program again and again. Nothing was written")


def append(root: Path, name: str, text: str) -> None:
    """Adds to the end of a file, on a line of its own, whole or not at all. Hold the lock meanwhile."""
    path = _inside(root, name)
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise UnreadableFile(f"{name} is no regular file")
            if found.st_size:
                os.lseek(handle, -1, os.SEEK_END)
            whole = not found.st_size or os.read(handle, 1) == b"\n"
            _write(handle, text if whole else f"\n{text}", found.st_size)
        finally:
            os.close(handle)
        _settled(path.parent)


def lines(root: Path, name: str) -> Iterator[str]:
    """The lines of a file of any size, none without one; bytes that are no UTF-8 show as U+FFFD."""
    path = _inside(root, name)
    with _told(path):
        if not path.exists():
            return
        if not path.is_file():
            raise UnreadableFile(f"{name} is no regular file")
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield from file


def _write(handle: int, text: str, size: int) -> None:
    """Writes all of it, or takes back what was written."""
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    try:
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _replaced(path: Path, before: StoredFile, data: bytes) -> bool:
    """Whether the data stands in the file's place now; not if it is no longer the file that was read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.tmp")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if before.state:
            made.chmod(path.stat().st_mode & 0o7777)
        if _state_of(path) != before.state:
            return False
        made.replace(path)
    finally:
        with suppress(FileNotFoundError):
            made.unlink()
    _settled(path.parent)
    return True


def _inside(root: Path, name: str) -> Path:
    """The file that a name leads to. Raises UnreadableFile where that is outside the workspace."""
    try:
        real = (root / name).resolve()
        inside = real.is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:
        raise UnreadableFile(f"{name} cannot be used: {error}") from error
    if not inside:
        raise UnreadableFile(f"{name} leads out of the workspace, to {real}: it was not touched")
    return real


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        return _state(path.stat())
    except FileNotFoundError:
        return ()


def _settled(folder: Path) -> None:
    """Makes the folder's entries durable, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _told(path: Path) -> Generator[None]:
    """Turns an error of the system into one that names the file."""
    try:
        yield
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be used: {error.strerror or error}. Nothing was written") from error
