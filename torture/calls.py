"""System calls that fail when told: SQLite's Unix layer calls these in place of the operating system's.

SQLite sees what it would see on a failing or full disk: -1 and an error number, or a write that is cut short. Its own
handling of that is then real, down to the shared-memory file. Syncing is no call that SQLite lets others replace; the
layer's `xSync` is replaced instead, in the table of methods of each file that it opens (sqlite.org/c3ref/io_methods.html).
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Any, Final

import apsw

_KINDS: Final = {
    "open": CFUNCTYPE(c_int, c_char_p, c_int, c_int, use_errno=True),
    "openDirectory": CFUNCTYPE(c_int, c_char_p, c_void_p, use_errno=True),
    "access": CFUNCTYPE(c_int, c_char_p, c_int, use_errno=True),
    "fstat": CFUNCTYPE(c_int, c_int, c_void_p, use_errno=True),
    "ftruncate": CFUNCTYPE(c_int, c_int, c_int64, use_errno=True),
    "mmap": CFUNCTYPE(c_ssize_t, c_void_p, c_size_t, c_int, c_int, c_int, c_int64, use_errno=True),
    "pread": CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True),
    "pread64": CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True),
    "pwrite": CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True),
    "pwrite64": CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True),
    "unlink": CFUNCTYPE(c_int, c_char_p, use_errno=True),
}
_WRITES: Final = ("pwrite", "pwrite64")
_OPEN: Final = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), c_int, c_void_p)
_SYNC: Final = CFUNCTYPE(c_int, c_void_p, c_int)

Rule = Callable[[str, tuple[Any, ...]], int]
"""Is asked before a call, with its name and arguments: 0 to make it, an error number to fail it."""


class _Layer(ctypes.Structure):
    """The head of SQLite's `sqlite3_vfs`."""

    _fields_ = (
        ("version", c_int),
        ("size_of_file", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
    )


class _Methods(ctypes.Structure):
    """SQLite's `sqlite3_io_methods`, of version 3."""

    _fields_ = (
        ("version", c_int),
        ("close_to_truncate", c_void_p * 4),
        ("sync", c_void_p),
        ("size_to_unfetch", c_void_p * 13),
    )


class Calls:
    """The replaced calls of this process. `rule` is asked before each; with `room` set, files may grow by so many bytes."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        self.room: int | None = None
        self.refused = 0
        layer = apsw.VFS("nexus-torture", apsw.vfs_names()[0])
        self._kept: list[Any] = [self._replaced(layer, name) for name in _names(layer) if name in _KINDS]
        layer.unregister()
        self._tables: dict[int, Any] = {}
        self._replace_open()

    def _failing(self, name: str, arguments: tuple[Any, ...]) -> int:
        return self.rule(name, arguments) if self.rule is not None else 0

    def _replaced(self, layer: apsw.VFS, name: str) -> Any:
        kind = _KINDS[name]
        pointer = layer.xGetSystemCall(name)
        assert pointer is not None
        real = kind(pointer)

        def call(*arguments: Any) -> int:
            failing = self._failing(name, arguments)
            if failing:
                ctypes.set_errno(failing)
                return -1
            if self.room is not None and name in _WRITES:
                return self._limited(real, *arguments)
            return real(*arguments)

        replacement = kind(call)
        layer.xSetSystemCall(name, ctypes.cast(replacement, c_void_p).value or 0)
        return replacement, real

    def _limited(self, real: Callable[..., int], file: int, data: int, size: int, offset: int) -> int:
        """A write on a disk with so much room: what fits is written, then there is no space left."""
        assert self.room is not None
        grows = max(0, offset + size - os.fstat(file).st_size)
        if grows <= self.room:
            self.room -= grows
            return real(file, data, size, offset)
        fits = size - grows + self.room
        self.refused += 1
        if fits <= 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        self.room = 0
        return real(file, data, fits, offset)

    def _replace_open(self) -> None:
        """Has every file that SQLite opens from now on sync through `_sync_of`."""
        pointer = c_void_p()
        with tempfile.TemporaryDirectory() as folder:
            db = apsw.Connection(str(Path(folder) / "any.db"))
            db.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
            db.close()
        layer = _Layer.from_address(pointer.value or 0)
        real = _OPEN(layer.open)

        def opened(of: int, name: int, file: Any, flags: int, out: int) -> int:
            result = real(of, name, file, flags, out)
            if result == apsw.SQLITE_OK:
                file[0] = self._table(file[0])
            return result

        replacement = _OPEN(opened)
        layer.open = ctypes.cast(replacement, c_void_p)
        self._kept.append((replacement, real))

    def _table(self, methods: int) -> int:
        """A table of methods like the one at this address, with another `xSync`."""
        if methods not in self._tables:
            table = _Methods.from_buffer_copy(ctypes.string_at(methods, ctypes.sizeof(_Methods)))
            real = _SYNC(table.sync)

            def sync(file: int, flags: int) -> int:
                return apsw.SQLITE_IOERR_FSYNC if self._failing("fsync", (file, flags)) else real(file, flags)

            replacement = _SYNC(sync)
            table.sync = ctypes.cast(replacement, c_void_p)
            self._tables[methods] = (table, replacement, real)
        return ctypes.addressof(self._tables[methods][0])


def _names(layer: apsw.VFS) -> list[str]:
    found: list[str] = []
    name = layer.xNextSystemCall(None)
    while name is not None:
        found.append(name)
        name = layer.xNextSystemCall(name)
    return found
