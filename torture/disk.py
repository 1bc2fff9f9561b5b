"""A disk that loses power: an APSW file layer that knows what was synced, and drops or tears the rest.

Files are written through to real ones, so that all connections of the process see them. Beside each stands what a disk
would surely have: its content at the last sync, and the writes since. At the loss a random part of those writes is kept,
a torn one to a random byte, and the process ends at once. Nothing is really synced, so a round is quick.

Made and deleted files follow the directory: that lasts only when SQLite syncs it, which its Unix layer does at the first
sync of a log or journal that it opened, and when it deletes one for good. Otherwise the loss may take it back. Bytes
beside a torn write are left alone, as SQLite assumes by default (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw
from msgspec import Struct

SECTOR: Final = 512
LAYER: Final = "nexus-torture-disk"
LOST: Final = 33
"""The exit code of a process whose disk lost power."""

_JOURNALS: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_TEMPORARY: Final = apsw.SQLITE_OPEN_DELETEONCLOSE


class Change(Struct, frozen=True):
    """A write at an offset, or (without data) a new size."""

    offset: int
    data: bytes | None


class State(Struct):
    """What the disk surely has of one file (None: not even its name), and what came since."""

    durable: bytes | None
    exists: bool
    changes: list[Change]


class Disk:
    """All files of one process, and the moment at which power is lost: before change number `until`.

    With `unsynced=False` nothing survives that was not synced, so only what makes something durable counts as a change;
    otherwise a random part of it does.
    """

    def __init__(
        self, dice: random.Random, until: int, told: Callable[[Counter[str]], None], *, unsynced: bool = True
    ) -> None:
        self._dice, self._until, self._told, self._unsynced = dice, until, told, unsynced
        self._files: dict[str, State] = {}
        self._done = 0
        self._layer = _Layer(self)

    def opened(self, path: str, before: bytes | None) -> None:
        """A file is open; `before` is its content before that, None if it was not there."""
        state = self._files.get(path)
        if state is None:
            self._files[path] = State(durable=before, exists=True, changes=[])
        elif not state.exists:
            state.exists, state.changes = True, [Change(0, None)]

    def changed(self, path: str, change: Change) -> None:
        """A write or a new size is about to be made."""
        if self._unsynced:
            self.step()
        self._files[path].changes.append(change)

    def synced(self, path: str, *, directory: bool) -> None:
        """A file's content, and if so its directory, are about to be made durable."""
        self.step()
        state = self._files[path]
        state.durable = _applied(state.durable or b"", state.changes)
        state.changes = []
        if directory:
            self._sync_directory()
        elif not state.exists:
            state.durable = None

    def deleted(self, path: str, *, directory: bool) -> None:
        """A file is about to be deleted, and if so the directory synced."""
        self.step()
        if path in self._files:
            self._files[path].exists = False
        if directory:
            self._sync_directory()

    def step(self) -> None:
        """Counts a change and loses power if it is time."""
        self._done += 1
        if self._done >= self._until:
            self.lose()

    def lose(self) -> None:
        """Leaves on the real files what a disk might have, and ends the process."""
        seen = Counter[str](losses=1)
        part, keep = self._dice.random() < 0.5, self._dice.random()
        for path, state in self._files.items():
            content = self._surviving(state, seen, keep, suffix=part)
            if content is None:
                Path(path).unlink(missing_ok=True)
            else:
                Path(path).write_bytes(content)
            if self._dice.random() < 0.5:
                Path(f"{path}-shm").unlink(missing_ok=True)
        self._told(seen)
        os._exit(LOST)

    def _sync_directory(self) -> None:
        for state in self._files.values():
            if not state.exists:
                state.durable, state.changes = None, []
            elif state.durable is None:
                state.durable = b""

    def _surviving(self, state: State, seen: Counter[str], keep: float, *, suffix: bool) -> bytes | None:
        """What is there after the loss: all changes up to a random one, or a random subset of them."""
        if not self._unsynced:
            seen["writes dropped"] += len(state.changes)
            return state.durable
        if not state.exists and (state.durable is None or self._dice.random() < 0.5):
            return None
        if state.durable is None and self._dice.random() < 0.5:
            seen["new files lost"] += 1
            return None
        last = self._dice.randint(0, len(state.changes))
        kept: list[Change] = []
        for number, change in enumerate(state.changes):
            there = number <= last if suffix else self._dice.random() < keep
            if there and change.data and (number == last if suffix else self._dice.random() < 0.2):
                seen["writes torn"] += 1
                kept.append(self._torn(change.offset, change.data))
            elif there:
                kept.append(change)
            else:
                seen["writes dropped"] += 1
        return _applied(state.durable or b"", kept)

    def _torn(self, offset: int, data: bytes) -> Change:
        """A write of which the first sectors are there, and of the next one a part, then nothing or rubbish."""
        end = self._dice.randint(0, len(data))
        kept = data[:end]
        if self._dice.random() < 0.5:
            rest = min(len(data) - end, SECTOR - (offset + end) % SECTOR)
            kept += self._dice.randbytes(rest)
        return Change(offset, kept)


def _applied(content: bytes, changes: list[Change]) -> bytes:
    found = bytearray(content)
    for change in changes:
        end = change.offset + len(change.data or b"")
        if change.data is None:
            del found[end:]
        if len(found) < end:
            found.extend(bytes(end - len(found)))
        if change.data:
            found[change.offset : end] = change.data
    return bytes(found)


class _Layer(apsw.VFS):
    """The file layer, which every connection of this process uses from now on."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.below = apsw.vfs_names()[0]
        super().__init__(LAYER, self.below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - APSW's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")
        if not path or flags[0] & _TEMPORARY:
            return super().xOpen(name, flags)
        real = Path(path)
        before = real.read_bytes() if real.exists() else None
        if before is None and flags[0] & apsw.SQLITE_OPEN_CREATE:
            self._disk.step()
        return _File(self._disk, self.below, path, name, flags, before)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - APSW's name
        self._disk.deleted(filename, directory=syncdir)
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, below: str, path: str, name: Any, flags: list[int], before: bytes | None) -> None:
        self._disk, self._path = disk, path
        self._syncs_directory = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__(below, name, flags)
        disk.opened(path, before)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - APSW's name
        self._disk.changed(self._path, Change(offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - APSW's stub

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - APSW's name
        self._disk.changed(self._path, Change(newsize, None))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802 - APSW's name; nothing is synced for real
        self._disk.synced(self._path, directory=self._syncs_directory)
        self._syncs_directory = False
