"""Reading a file that somebody named: a regular file, its size capped before it is read, inside a folder where that is asked.

What a user names by hand may lie anywhere; what a workspace or an event names has to lie inside the workspace. Links are
followed and judged by where they lead.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nexus.errors import UnreadableFile


def read_given(path: str | Path, most_bytes: int, *, inside: Path | None = None) -> bytes:
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
