"""The memory files on disk: atomic changes by one program at a time, inside the workspace only.

MEMORY.md is replaced by rename, HISTORY.md only grows. Nexus programs take turns by a lock file; a change by another
program, such as an editor, is noticed by the file's state, and its text is read again.
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
from nexus.workspace.files.containment import folder_inside, open_inside, read_bytes

LOCK = Path(".nexus") / "memory.lock"
LOCK_S = 20.0  # seconds to wait for another program's lock
EDIT_BYTES = 1_000_000
"""Size limit of an editable memory file. Contexts show a small part of it, and a larger one is easier to fix by hand."""

_TRIES = 20
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}

_NO_BYTE = re.compile("([\ud800-\udc7f\udd00-\udfff]+)")  # surrogates that do not represent an undecodable byte

T = TypeVar("T")


class StoredFile(Struct, frozen=True):
    """A file's text, with everything that is needed to write unchanged parts back byte for byte."""

    text: str = ""
    mark: bytes = b""
    """Byte order mark."""
    encoding: str = "utf-8"
    state: tuple[int, ...] = ()
    """State of the file when it was read; empty without a file."""

    def data(self, text: str) -> bytes:
        """Return another text as bytes of this file, with escapes for characters that its encoding lacks."""
        if self.encoding != "utf-8":
            return self.mark + text.encode(self.encoding, "backslashreplace")
        pieces = _NO_BYTE.split(text)
        return self.mark + b"".join(
            piece.encode("utf-8", "backslashreplace" if at % 2 else "surrogateescape")
            for at, piece in enumerate(pieces)
        )


@contextmanager
def lock_folder(root: Path, name: Path = LOCK) -> Generator[None]:
    """Exclude other programs from writing to the memory of a workspace, or to what another lock is for.

    Raises MemoryBusy, UnreadableFile.
    """
    import filelock

    path = root / name
    with _name_in_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        try:
            lock.acquire(timeout=LOCK_S)
        except filelock.Timeout as error:
            text = f"{name} locked by another program for {LOCK_S:.0f} seconds (nothing was written)"
            raise MemoryBusy(text) from error
    try:
        yield
    finally:
        lock.release()


def read(root: Path, name: str) -> StoredFile:
    """Return the file, empty without one.

    Raises UnreadableFile for a file that is outside, not regular, too large, or damaged UTF-16.
    """
    path = _inside(root, name)
    with _name_in_errors(path):
        try:
            with open_inside(root, name, hard_links=True) as handle:
                status = os.fstat(handle)
                data = read_bytes(handle, EDIT_BYTES + 1)
        except FileNotFoundError:
            return StoredFile()
    if len(data) > EDIT_BYTES:
        raise UnreadableFile(f"{name} is larger than {EDIT_BYTES:,} bytes (edit it by hand)")
    mark = next((mark for mark in _BOMS if data.startswith(mark)), b"")
    encoding = _BOMS.get(mark, "utf-8")
    try:
        text = data[len(mark) :].decode(encoding, "surrogateescape" if encoding == "utf-8" else "strict")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{name} is damaged: not valid {encoding.upper()}, {error.reason}") from error
    return StoredFile(text, mark, encoding, _state(status))


def change(root: Path, name: str, update: Callable[[str], tuple[str, T]]) -> T:
    """Replace the file's text by the first result of `update`, and return the second. Hold the lock meanwhile.

    `update` is called again if another program wrote to the file in between. Raises MemoryBusy, UnreadableFile, and any
    error of `update`; the file is then unchanged.
    """
    path = _inside(root, name)
    for _ in range(_TRIES):
        before = read(root, name)
        text, result = update(before.text)
        if text == before.text:
            return result
        data = before.data(text)
        with _name_in_errors(path), folder_inside(root, name) as (folder, file):
            if _replace(file, folder, data, before):
                return result
    raise MemoryBusy(f"{name} was repeatedly changed by another program (nothing was written)")


def _replace(name: str, folder: int | None, data: bytes, before: StoredFile) -> bool:
    """Replace a file of a folder; return False if it is not the one that was read before. A link is replaced itself."""
    head, tail = os.path.split(name)  # a path on systems without folder handles
    temporary = os.path.join(head, f".{tail}.tmp")  # noqa: PTH118 - a name in an open folder

    def status() -> os.stat_result:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if before.state:
                target = handle if os.chmod in os.supports_fd else temporary
                os.chmod(target, status().st_mode & 0o7777)  # noqa: PTH101 - an open file
            os.fsync(handle)
        # An editor does not take the lock: the file must still be the one that was read.
        try:
            state = _state(status())
        except FileNotFoundError:
            state = ()
        if state != before.state:
            return False
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        _sync_folder(head or ".", folder)
        return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)


def append(root: Path, name: str, text: str) -> None:
    """Append to a file, on a line of its own, completely or not at all. Hold the lock meanwhile."""
    path = _inside(root, name)
    with _name_in_errors(path), folder_inside(root, name) as (folder, file):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(file, flags, 0o666, dir_fd=folder)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableFile(f"{name} is not a regular file")
            # A line that a crash tore must not swallow the new entry.
            if status.st_size:
                os.lseek(handle, -1, os.SEEK_END)
            ends_line = not status.st_size or os.read(handle, 1) == b"\n"
            data = memoryview((text if ends_line else f"\n{text}").encode("utf-8", "backslashreplace"))
            try:
                while data:
                    data = data[os.write(handle, data) :]
                os.fsync(handle)
            # A full disk leaves no half of an entry.
            except OSError:
                os.ftruncate(handle, status.st_size)
                raise
        finally:
            os.close(handle)
        _sync_folder(os.path.split(file)[0] or ".", folder)


def lines(root: Path, name: str) -> Iterator[str]:
    """Yield the lines of a file of any size, none without one; undecodable bytes appear as U+FFFD."""
    path = _inside(root, name)
    with _name_in_errors(path):
        try:
            with (
                open_inside(root, name, hard_links=True) as handle,
                open(handle, encoding="utf-8-sig", errors="replace", newline="\n", closefd=False) as file,
            ):
                yield from file
        except FileNotFoundError:
            return


def _inside(root: Path, name: str) -> Path:
    """Return the resolved path of a name. Raises UnreadableFile if it is outside the workspace."""
    try:
        real = (root / name).resolve()
        inside = real.is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:
        raise UnreadableFile(f"{name} cannot be used: {error}") from error
    if not inside:
        raise UnreadableFile(f"{name} leads out of the workspace, to {real} (left unchanged)")
    return real


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _sync_folder(path: str, folder: int | None) -> None:
    """Make a folder's entries durable, if the system can; `path` begins at an open folder, if there is one."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY, dir_fd=folder)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _name_in_errors(path: Path) -> Generator[None]:
    """Convert OSError into an UnreadableFile that names the file."""
    try:
        yield
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be used: {error.strerror or error} (nothing was written)") from error
