"""Reading a file that somebody named: a regular file, its size capped before it is read, inside a folder where that is asked.

What a user names by hand may lie anywhere; what a workspace or an event names has to lie inside the workspace. Links are
followed and judged by where they lead.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from nexus.errors import UnreadableFile


def read_file(path: str | Path, most_bytes: int, *, inside: Path | None = None) -> bytes:
    """The file's bytes. A path that is not absolute begins at `inside`, if that is given.

    Raises UnreadableFile: not there, no regular file, larger than `most_bytes`, empty, or outside.
    """
    named = Path(path) if inside is None else inside / path
    try:
        real = named.resolve(strict=True)
        if inside is not None and not real.is_relative_to(inside.resolve(strict=True)):
            raise UnreadableFile(f"{path} lies outside the workspace")
        _check(real.stat(), path, most_bytes)
        handle = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            _check(os.fstat(handle), path, most_bytes)
            if inside is not None and not os.path.samestat(os.fstat(handle), named.resolve(strict=True).stat()):
                raise UnreadableFile(f"{path} was replaced while it was read")
            data = _read(handle, most_bytes)
        finally:
            os.close(handle)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnreadableFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not data or len(data) > most_bytes:
        raise UnreadableFile(f"{path} is {'larger than' if data else 'empty:'} {most_bytes:,} bytes")
    return data


def _check(state: os.stat_result, path: str | Path, most_bytes: int) -> None:
    """Raises UnreadableFile for what is no regular file (before it is opened: opening a device may do something)."""
    if not stat.S_ISREG(state.st_mode):
        kind = "a folder" if stat.S_ISDIR(state.st_mode) else "no regular file"
        raise UnreadableFile(f"{path} is {kind}")
    if state.st_size > most_bytes:
        raise UnreadableFile(f"{path} has {state.st_size:,} bytes, over {most_bytes:,}")


def _read(handle: int, most_bytes: int) -> bytes:
    """No more than one byte beyond the limit: a file may grow while it is read, or tell no size, as in /proc."""
    chunks: list[bytes] = []
    left = most_bytes + 1
    while left > 0 and (chunk := os.read(handle, min(left, 1 << 20))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


State: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, times of content and state in nanoseconds, size in bytes: what changes when a file does."""

BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether this system opens files relative to an open folder."""

ENTRIES = 10_000
"""Entries of a folder that are looked at."""

LOOKS = 16
"""How often a path is looked at after opening where there are no handles of folders. One look can be deceived."""

MOVED = errno.EAGAIN
"""The error of a path that was changed while it was opened: trying again may help."""

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FILE = _READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER = _READ | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_PASSED = _FOLDER | getattr(os, "O_PATH", 0)  # a folder on the way need not be readable
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def state_of(found: os.stat_result) -> State:
    """The part of a file's status that tells whether it changed."""
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def trouble_with(name: str) -> str:
    """Why a name cannot be one inside a folder; empty if it can. A leading `~` is a character like any other."""
    if name[:1] in ("/", "\\") or (name[1:2] == ":" and name[0].isalpha()):
        return "it names a place outside the workspace"
    if _UNSHOWABLE.search(name):
        return "its name has control characters, line breaks or bytes that are no text"
    if ".." in name and _leads_out(name):
        return "it points outside the workspace"
    return ""


def _leads_out(name: str) -> bool:
    depth = 0
    for part in name.replace("\\", "/").split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


@contextmanager
def open_inside(root: Path, name: str, *, hard_links: bool = False) -> Generator[int]:
    """An open handle of the regular file `name` inside `root`. Raises OSError; its `strerror` says why.

    A file that has further names in other folders is refused unless `hard_links`: one of them may lie outside. The
    error's number is `MOVED` where something on the path was changed meanwhile.
    """
    base, parts = _contained(root, name)
    if not parts:
        raise OSError(errno.EISDIR, "it is not a regular file")
    with _folder(base, parts[:-1]) as folder:
        place = parts[-1] if folder is not None else str(base.joinpath(*parts))
        _check_kind(os.stat(place, dir_fd=folder, follow_symlinks=False))
        try:
            handle = os.open(place, _FILE, dir_fd=folder)
        except OSError as error:
            raise _moved() if error.errno == errno.ELOOP else error from error
        try:
            found = os.fstat(handle)
            _check_kind(found)
            if folder is None:
                _check_again(root, name, place, found)
            if found.st_nlink > 1 and not hard_links:
                _check_names(_entries(base, parts[:-1], folder), found)
            yield handle
        finally:
            os.close(handle)


def folders_in(root: Path, name: str) -> tuple[list[str], State | None, bool]:
    """The names of the folders in the folder `name` inside `root`, sorted; its state; whether that is all. Raises OSError.

    There is no state where links are among the entries: what they lead to changes without it.
    """
    base, parts = _contained(root, name)
    with _folder(base, parts) as folder:
        before = state_of(base.joinpath(*parts).stat() if folder is None else os.fstat(folder))
        found = _entries(base, parts, folder)
        kinds = [(entry.name, _is_folder(entry), entry.is_symlink()) for entry in islice(found, ENTRIES)]
        whole = next(found, None) is None
    linked = any(is_link for _, _, is_link in kinds)
    return sorted(entry for entry, is_folder, _ in kinds if is_folder), None if linked else before, whole


def alike_in(root: Path, name: str) -> list[str]:
    """Names beside the file `name` that differ from it only in case; with its own, none. Nothing if they cannot be read."""
    folder, _, own = name.rpartition("/")
    try:
        base, parts = _contained(root, folder)
        with _folder(base, parts) as handle:
            names = [entry.name for entry in islice(_entries(base, parts, handle), ENTRIES)]
    except OSError:
        return []
    return sorted(one for one in names if one != own and one.casefold() == own.casefold())


def _contained(root: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    """The resolved root, and the parts of the path below it that the name leads to."""
    base = root.resolve()
    try:
        path = (base / name).resolve(strict=True)
    except RuntimeError as error:  # a circle of links, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    if not path.is_relative_to(base):
        raise OSError(errno.EXDEV, f"it points outside the workspace, to {path}")
    return base, path.relative_to(base).parts


@contextmanager
def _folder(base: Path, parts: tuple[str, ...]) -> Generator[int | None]:
    """The handle of a folder, reached without following a link; None where the system has no such handles."""
    if not BY_DESCRIPTOR:
        yield None
        return
    handle = os.open(base, _PASSED)
    for part in parts:
        try:
            inner = os.open(part, _PASSED, dir_fd=handle)
        except OSError as error:
            raise _moved() if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT) else error from error
        finally:
            os.close(handle)
        handle = inner
    try:
        yield handle
    finally:
        os.close(handle)


def _entries(base: Path, parts: tuple[str, ...], folder: int | None) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, in the system's order. They can be asked while this is read."""
    if folder is None:
        with os.scandir(base.joinpath(*parts)) as entries:
            yield from entries
        return
    handle = os.open(".", _FOLDER, dir_fd=folder)
    try:
        with os.scandir(handle) as entries:
            yield from entries
    finally:
        os.close(handle)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circle of links, or a place that may not be read
        return False


def _moved() -> OSError:
    return OSError(MOVED, "its path was changed while it was opened")


def _check_kind(found: os.stat_result) -> None:
    """Devices are not even opened: that alone may have an effect."""
    if stat.S_ISLNK(found.st_mode):
        raise _moved()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _check_again(root: Path, name: str, place: str, found: os.stat_result) -> None:
    """Without handles of folders: what was opened is what the path leads to, still inside, however often it is asked."""
    for _ in range(LOOKS):
        base, parts = _contained(root, name)
        now = str(base.joinpath(*parts))
        if now != place or not os.path.samestat(os.lstat(now), found):
            raise _moved()


def _check_names(entries: Iterator[os.DirEntry[str]], found: os.stat_result) -> None:
    """Raises OSError if some of a file's names are not in the folder that it was opened in."""
    here = sum(os.path.samestat(entry.stat(follow_symlinks=False), found) for entry in islice(entries, ENTRIES))
    others = found.st_nlink - here
    if others > 0:
        raise OSError(
            errno.EMLINK,
            f"it is a hard link with further names in other folders ({others}), which may lie outside the workspace: make it "
            "a copy or a symbolic link, or allow hard links (files.hard_links)",
        )
