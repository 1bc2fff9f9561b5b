"""Safe opening of named files: regular files only, size-capped before reading, and inside a folder where required.

A file that a user names may be anywhere; one that a workspace or an event names has to be inside the workspace. Links are
followed and judged by their targets: a path is resolved, judged, and then opened name by name without following links.
What is read is what was judged, whatever another program replaces meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from nexus.errors import BadSetting, UnreadableFile


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """Return a path that the program or the user gave as `name`, `~` expanded. Raises BadSetting for one that cannot exist."""
    try:
        problem = ""
        if b"\0" in os.fsencode(path):
            problem = "it contains a NUL character"
        expanded = Path(path).expanduser()
    except (TypeError, ValueError, RuntimeError) as error:
        problem = str(error)[:200]
        expanded = Path()
    if problem:
        raise BadSetting(f"{name} is not a path: {problem}")
    return expanded


def read_file(path: str | Path, most_bytes: int, *, inside: Path | None = None) -> bytes:
    """Return the file's bytes. A relative path begins at `inside`, if that is given.

    Raises UnreadableFile for a file that is missing, not regular, larger than `most_bytes`, empty, or outside.
    """
    # The error texts keep their bytes: for images they become notes in the context (nexus.workspace.attachments).
    target = Path(path) if inside is None else inside / path
    try:
        real = target.resolve(strict=True)
        if inside is None:
            base = real.parent
        else:
            base = inside.resolve(strict=True)
        if not real.is_relative_to(base):
            raise UnreadableFile(f"{path} lies outside the workspace")

        def check(status: os.stat_result) -> None:
            _check_regular(status, path, most_bytes)

        with _open_handle(base, real.relative_to(base).parts, check) as (handle, _):
            # Up to one byte over the limit: a file may grow while it is read, or have no size, as in /proc.
            data = read_bytes(handle, most_bytes + 1)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnreadableFile(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not data or len(data) > most_bytes:
        raise UnreadableFile(f"{path} is {'larger than' if data else 'empty:'} {most_bytes:,} bytes")
    return data


def read_bytes(handle: int, most_bytes: int) -> bytes:
    """Return the bytes of an open file from its position on, at most `most_bytes`."""
    chunks: list[bytes] = []
    remaining = most_bytes
    while remaining > 0 and (chunk := os.read(handle, min(remaining, 1 << 20))):
        chunks.append(chunk)
        remaining -= len(chunk)
    return b"".join(chunks)


def _check_regular(status: os.stat_result, path: str | Path, most_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "no regular file"
        if stat.S_ISDIR(status.st_mode):
            kind = "a folder"
        raise UnreadableFile(f"{path} is {kind}")
    if status.st_size > most_bytes:
        raise UnreadableFile(f"{path} has {status.st_size:,} bytes, over {most_bytes:,}")


State: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, times of content and status in nanoseconds, size in bytes."""

BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether this system opens files relative to an open folder."""

ENTRIES = 10_000  # number of a folder's entries that are read
LOOKS = 16
"""Checks of a path after opening, on systems without folder handles, because a race can deceive a single check."""

MOVED = errno.EAGAIN  # error number for a path that changed while it was opened; a retry may succeed

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FILE = _READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER = _READ | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_PASSED = _FOLDER | getattr(os, "O_PATH", 0)  # a folder on the way need not be readable
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def state_of(status: os.stat_result) -> State:
    """Return the part of a file's status that changes with the file."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def path_problem(name: str) -> str:
    """Return why a name cannot be a path inside a folder, or "". A leading `~` has no special meaning."""
    if name[:1] in ("/", "\\") or (name[1:2] == ":" and name[0].isalpha()):
        return "path outside the workspace"
    if _UNPRINTABLE.search(name):
        return "name has control characters, line breaks or undecodable bytes"
    if ".." in name:
        depth = 0
        for part in name.replace("\\", "/").split("/"):
            depth += -1 if part == ".." else part not in ("", ".")
            if depth < 0:
                return "path outside the workspace"
    return ""


@contextmanager
def open_inside(
    root: Path,
    name: str,
    *,
    hard_links: bool = False,
    judge: Callable[[tuple[str, ...]], None] = lambda _: None,
) -> Generator[int]:
    """Yield an open handle of the regular file `name` inside `root`. Raises OSError with the reason as `strerror`.

    A file with further names in other folders is rejected unless `hard_links`, because one of them may be outside. The
    error number is `MOVED` if the path changed meanwhile.

    Args:
        root: The folder.
        name: Path of the file inside of it; links are followed.
        hard_links: Allow a file with further names in other folders.
        judge: Takes the names on the path of the file that is opened, below `root` and without links; raises to refuse.
    """
    base, parts = _contained(root, name)
    judge(parts)
    with _open_handle(base, parts, _check_kind) as (handle, folder):
        status = os.fstat(handle)
        if status.st_nlink > 1 and not hard_links:
            entries = islice(_entries(base, parts[:-1], folder), ENTRIES)
            local = sum(os.path.samestat(entry.stat(follow_symlinks=False), status) for entry in entries)
            if status.st_nlink > local:
                text = (
                    f"hard link with {status.st_nlink - local} names in other folders, possibly outside the workspace"
                )
                raise OSError(errno.EMLINK, f"{text} (use a copy or a symbolic link, or set files.hard_links)")
        yield handle


@contextmanager
def open_resolved(base: Path, path: Path) -> Generator[int]:
    """Yield an open handle of the regular file `path` inside `base`, both resolved before; no link is followed.

    Raises OSError as `open_inside`.
    """
    with _open_handle(base, path.relative_to(base).parts, _check_kind) as (handle, _):
        yield handle


@contextmanager
def _open_handle(
    base: Path, parts: tuple[str, ...], check: Callable[[os.stat_result], None]
) -> Generator[tuple[int, int | None]]:
    """Yield an open handle of the file at a resolved path below `base`, and the handle of its folder (see `_folder`).

    No link below `base` is followed: the file is the one at this path. `check` raises for a wrong kind of file.
    """
    if not parts:
        raise OSError(errno.EISDIR, "not a regular file")
    with _folder(base, parts[:-1]) as folder:
        if folder is not None:
            path = parts[-1]
        else:
            path = str(base.joinpath(*parts))
        check(os.stat(path, dir_fd=folder, follow_symlinks=False))
        try:
            handle = os.open(path, _FILE, dir_fd=folder)
        except OSError as error:
            raise _moved() if error.errno == errno.ELOOP else error from error
        try:
            status = os.fstat(handle)
            check(status)
            for _ in range(LOOKS if folder is None else 0):
                if str(Path(path).resolve(strict=True)) != path or not os.path.samestat(os.lstat(path), status):
                    raise _moved()
            yield handle, folder
        finally:
            os.close(handle)


def list_folders(root: Path, name: str) -> tuple[list[str], State | None, bool]:
    """Return the sorted folder names in the folder `name`, its state, and whether the list is complete. Raises OSError.

    The state is None if there are links among the entries: their targets change without it.
    """
    base, parts = _contained(root, name)
    with _folder(base, parts) as folder:
        before = state_of(base.joinpath(*parts).stat() if folder is None else os.fstat(folder))
        entries = _entries(base, parts, folder)
        names: list[str] = []
        has_links = False
        for entry in islice(entries, ENTRIES):
            has_links = has_links or entry.is_symlink()
            with suppress(OSError):  # a circle of links, or no permission
                names += [entry.name] if entry.is_dir() else []
        is_complete = next(entries, None) is None
    return sorted(names), None if has_links else before, is_complete


def names_differing_in_case(root: Path, name: str) -> list[str]:
    """Return names in the file's folder that differ from it only in case; none if the folder cannot be read."""
    folder, _, file = name.rpartition("/")
    try:
        base, parts = _contained(root, folder)
        with _folder(base, parts) as handle:
            names = [entry.name for entry in islice(_entries(base, parts, handle), ENTRIES)]
    except OSError:
        return []
    return sorted(other for other in names if other != file and other.casefold() == file.casefold())


def _contained(root: Path, name: str, *, strict: bool = True) -> tuple[Path, tuple[str, ...]]:
    """Return the resolved root, and the parts of the resolved path below it; `strict`: the file has to exist."""
    base = root.resolve()
    try:
        path = (base / name).resolve(strict=strict)
    except RuntimeError as error:  # a circle of links, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    if not path.is_relative_to(base):
        raise OSError(errno.EXDEV, f"path outside the workspace: {path}")
    return base, path.relative_to(base).parts


@contextmanager
def folder_inside(root: Path, name: str) -> Generator[tuple[int | None, str]]:
    """Yield the handle of the folder of the file `name` inside `root`, and the file's name for calls with this handle.

    The file may be missing, and so may its folders, which are created. Links are followed before; on systems without
    folder handles the handle is None, and the name a path. Raises OSError as `open_inside`.
    """
    base, parts = _contained(root, name, strict=False)
    if not parts:
        raise OSError(errno.EISDIR, "not a regular file")
    with _folder(base, parts[:-1], create=True) as folder:
        yield folder, parts[-1] if folder is not None else str(base.joinpath(*parts))


@contextmanager
def _folder(base: Path, parts: tuple[str, ...], *, create: bool = False) -> Generator[int | None]:
    """Yield the handle of a folder, opened without following links; None on systems without such handles.

    With `create` missing folders are created.
    """
    if not BY_DESCRIPTOR:
        if create:
            base.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        yield None
        return
    handle = os.open(base, _PASSED)
    for part in parts:
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
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
    """Yield the entries of a folder, in the system's order. They are usable while the iterator is open."""
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


def _moved() -> OSError:
    return OSError(MOVED, "path changed while it was opened")


def _check_kind(status: os.stat_result) -> None:
    # Devices are rejected before they are opened, which may have an effect.
    if stat.S_ISLNK(status.st_mode):
        raise _moved()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
