"""Read-only examination of a ledger's environment: file system, SQLite, owner, space, locks, log, version, clock."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from nexus.errors import LedgerError
from nexus.ledger.maintenance.verification import open_readonly
from nexus.ledger.sqlite import open_ledgers
from nexus.ledger.sqlite.connection import SQLITE_VERSION
from nexus.ledger.sqlite.files import leftovers
from nexus.ledger.sqlite.schema import VERSION

LOG_LIMIT = 64 * 1024 * 1024
"""To this size the log is cut back when it was folded in."""

LEAST_FREE = 50 * 1024 * 1024
CLOCK_TOLERANCE_MS = 300_000

MOUNTS = Path("/proc/self/mountinfo")

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
"""File systems whose locks or shared memory do not reach everybody who has the file open."""

_PASSING = {
    "tmpfs": "it is in memory and gone after a restart",
    "ramfs": "it is in memory and gone after a restart",
    "overlay": "it is a container's layer and gone with the container",
}


class DoctorFinding(Struct, frozen=True):
    """One thing that was looked at: how it is, and what to do about it if it is not well."""

    level: Literal["ok", "warn", "bad"]
    name: str
    what: str
    do: str = ""


class Mount(NamedTuple):
    """Mount of a path: type of the file system, mount point, and whether it is writable."""

    kind: str
    at: str
    readonly: bool


def examine(path: str | Path, *, now_ms: int | None = None, mounts: str | None = None) -> list[DoctorFinding]:
    """Return all findings about the ledger at `path`.

    `now_ms` and `mounts` replace the clock and the system's list of mounts.
    """
    file = Path(path).expanduser()
    wrong = _not_a_file(file)
    if wrong:
        advice = "name the ledger with --ledger, or make one: nexus init"
        return [DoctorFinding("bad", "file", f"{path} {wrong}", advice)]
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return [
        _links(file),
        _file_system(file, mounts),
        _sqlite(SQLITE_VERSION),
        _permissions(file),
        _space(file),
        _forked(file),
        *_companions(file),
        *_content(file, now),
    ]


def _not_a_file(file: Path) -> str:
    """Return the fault of a path without a regular file, or an empty string."""
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if file.is_symlink():
            return f"is a link to {file.readlink()}, which is not there"
        return "is not there"
    except OSError as error:
        return f"cannot be looked at: {error.strerror or error}"
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISDIR(mode):
        return "is a folder"
    return "is no regular file"


def worst_level(findings: list[DoctorFinding]) -> Literal["ok", "warn", "bad"]:
    """Return the most severe level among findings."""
    levels = {finding.level for finding in findings}
    if "bad" in levels:
        return "bad"
    if "warn" in levels:
        return "warn"
    return "ok"


def mount_of(path: str, mounts: str) -> Mount | None:
    """Return the mount of a real path from the text of `/proc/self/mountinfo`, or None."""
    mount: Mount | None = None
    for line in mounts.splitlines():
        fields_before, _, right = line.partition(" - ")
        fields = fields_before.split()
        kinds = right.split()
        if len(fields) < 6 or not kinds:
            continue
        first, *parts = fields[4].split("\\")  # the kernel writes octal escapes for spaces and the like
        at = first + "".join(chr(int(p[:3], 8)) + p[3:] if p[:3].isdigit() else f"\\{p}" for p in parts)
        inside = path == at or path.startswith(at.rstrip("/") + "/")
        if inside and (mount is None or len(at) >= len(mount.at)):
            mount = Mount(kinds[0], at, "ro" in fields[5].split(","))
    return mount


def has_log_bug(version: str) -> bool:
    """Return True for versions of SQLite that can lose commits when the log restarts (3.7.0 to 3.51.2)."""
    number = tuple(int(part) for part in version.split(".")[:3])
    if number[:2] == (3, 44):
        return number < (3, 44, 6)
    if number[:2] == (3, 50):
        return number < (3, 50, 7)
    return (3, 7, 0) <= number <= (3, 51, 2)


def _links(file: Path) -> DoctorFinding:
    if file.stat().st_nlink > 1:
        what = f"{file} is one of {file.stat().st_nlink} names of the same file"
        return DoctorFinding("bad", "links", what, "SQLite keeps a log for each name: delete all names but one")
    if file.is_symlink():
        what = f"{file} is a link to {file.resolve()}; the log stands there"
        return DoctorFinding("warn", "links", what, "name the file itself, and back up from there")
    return DoctorFinding("ok", "links", "one file, one name")


def _file_system(file: Path, mounts: str | None) -> DoctorFinding:
    if str(file).startswith(("\\\\", "//")):
        return DoctorFinding("bad", "file system", "a network share", _LOCAL)
    if mounts is None and sys.platform.startswith("linux") and MOUNTS.exists():
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    if mounts is None:
        return DoctorFinding("ok", "file system", "not known on this system", "make sure that it is a local disk")
    mount = mount_of(str(file.resolve()), mounts)
    if mount is None:
        what = "not in the system's list of mounts"
        return DoctorFinding("warn", "file system", what, "make sure that it is a local disk")
    kind = mount.kind.removeprefix("fuse.")
    where = f"{mount.kind} at {mount.at}"
    if mount.readonly:
        return DoctorFinding("bad", "file system", f"{where} is mounted for reading only", "mount it for writing")
    if kind in _NETWORK:
        what = f"{where}: locks and the log's shared memory are not safe there"
        return DoctorFinding("bad", "file system", what, _LOCAL)
    if mount.kind.startswith("fuse"):
        what = f"{where}: whether its locks and shared memory are safe is not known"
        return DoctorFinding("warn", "file system", what, _LOCAL)
    if kind in _PASSING:
        what = f"{where}: {_PASSING[kind]}"
        return DoctorFinding("warn", "file system", what, "put the ledger on a disk or a volume")
    return DoctorFinding("ok", "file system", where)


_LOCAL = "move the ledger to a local disk, and name it with --ledger"


def _sqlite(version: str) -> DoctorFinding:
    if has_log_bug(version):
        what = f"{version} can damage a ledger that two connections write to at once"
        return DoctorFinding("bad", "SQLite", what, "upgrade the package apsw to 3.51.3 or newer")
    return DoctorFinding("ok", "SQLite", version)


def _permissions(file: Path) -> DoctorFinding:
    """Check the owner and the access rights of the file and its folder."""
    folder = file.resolve().parent
    for place, name in ((file, "the ledger"), (folder, "its folder")):
        if not os.access(place, os.W_OK):
            what = f"{name} cannot be written by this user"
            return DoctorFinding("bad", "permissions", what, f"chown or chmod {place}")
    if os.name != "posix":
        return DoctorFinding("ok", "permissions", "the ledger and its folder can be written")
    file_stat = file.stat()
    folder_mode = folder.stat().st_mode
    if file_stat.st_uid != os.geteuid():
        what = f"the ledger belongs to user {file_stat.st_uid}, and this is user {os.geteuid()}"
        do = "its log may end up with another owner: run as the ledger's owner"
        return DoctorFinding("warn", "permissions", what, do)
    if folder_mode & stat.S_IWOTH and not folder_mode & stat.S_ISVTX:
        return DoctorFinding("bad", "permissions", f"everyone may replace files in {folder}", f"chmod o-w {folder}")
    # Others can open the file only if they may enter every folder above it.
    is_reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents))
    if file_stat.st_mode & (stat.S_IROTH | stat.S_IWOTH) and is_reachable:
        what = "every user of this machine may read the conversations"
        return DoctorFinding("warn", "permissions", what, f"chmod 600 {file}")
    return DoctorFinding("ok", "permissions", "only this user and group")


def _space(file: Path) -> DoctorFinding:
    free = shutil.disk_usage(file.resolve().parent).free
    size = file.stat().st_size
    log = _size_of(file, "-wal")
    what = f"{free:,} bytes are free; the ledger has {size:,}, its log {log:,}"
    if free < max(LEAST_FREE, log):
        do = "make room: without it nothing can be appended, and the log not folded in"
        return DoctorFinding("bad", "space", what, do)
    if free < size // 10:
        return DoctorFinding("warn", "space", what, "make room: a backup or a repair needs as much as the ledger")
    return DoctorFinding("ok", "space", what)


def _forked(file: Path) -> DoctorFinding:
    others = [(name, pid) for name, pid in open_ledgers() if pid != os.getpid()]
    parents = [pid for name, pid in others if Path(name).exists() and file.samefile(name)]
    if parents:
        what = f"process {parents[0]} opened it before this one was forked"
        return DoctorFinding("bad", "processes", what, "open the ledger after the fork, in each process for itself")
    return DoctorFinding("ok", "processes", "no connection came through a fork")


def _companions(file: Path) -> Iterator[DoctorFinding]:
    """Check the log, and that no other program left a journal."""
    log = _size_of(file, "-wal")
    if log > 2 * LOG_LIMIT:
        what = f"{log:,} bytes, where it is cut back to {LOG_LIMIT:,}"
        do = "a reader does not end its snapshot: find and restart that process"
        yield DoctorFinding("warn", "log", what, do)
    else:
        yield DoctorFinding("ok", "log", f"{log:,} bytes")
    if _size_of(file, "-journal"):
        what = f"{file.name}-journal is left: a program with other settings wrote here and was interrupted"
        do = "leave it beside the ledger: opening the ledger rolls it back"
        yield DoctorFinding("warn", "journal", what, do)
    else:
        yield DoctorFinding("ok", "journal", "none is left")
    parts = leftovers(file.resolve().parent)
    if parts:
        size = sum(part.stat().st_size for part in parts)
        names = ", ".join(part.name for part in parts)
        what = f"interrupted backups or restores left {names}: {size:,} bytes with conversations"
        yield DoctorFinding("warn", "copies", what, "the next backup, restore or erasure here deletes them")
    else:
        yield DoctorFinding("ok", "copies", "no unfinished one is left")


def _size_of(file: Path, end: str) -> int:
    real = file.resolve()
    companion = real.with_name(real.name + end)
    if companion.exists():
        return companion.stat().st_size
    return 0


_SAVE = "`nexus ledger restore` brings a backup back, `nexus ledger repair` saves what is whole"

_ADVICE = {
    "ledger_too_new": "upgrade Nexus; the ledger is not damaged, and needs no restore and no repair",
    "not_a_ledger": f"name the ledger's own file with --ledger; if this was it, {_SAVE}",
    "ledger_damaged": f"`nexus ledger verify` lists all damage, {_SAVE}",
    "ledger_busy": "look again when the other process is done",
}
"""What to do when a ledger's content cannot be examined, by the error's code."""


def _content(file: Path, now_ms: int) -> Iterator[DoctorFinding]:
    """Check the file's content. The first fault of its identity ends the check."""
    try:
        with open_readonly(file) as db:
            version = int(db.value("PRAGMA user_version"))
            if version < VERSION:
                do = "opening migrates it; `nexus ledger migrate` makes a backup first"
                yield DoctorFinding("warn", "version", f"{version}, this Nexus writes {VERSION}", do)
            else:
                yield DoctorFinding("ok", "version", str(version))
            mode = str(db.value("PRAGMA journal_mode"))
            if mode == "wal":
                yield DoctorFinding("ok", "journal mode", mode)
            else:
                do = "a backup, or another tool changed it: opening sets it to wal"
                yield DoctorFinding("warn", "journal mode", mode, do)
            faults = [str(text) for (text,) in db.rows("PRAGMA quick_check(3)") if text != "ok"]
            if faults:
                do = f"`nexus ledger verify` lists all damage, {_SAVE}"
                yield DoctorFinding("bad", "structure", "; ".join(faults), do)
            else:
                yield DoctorFinding("ok", "structure", "SQLite's quick check finds nothing")
            newest = int(db.value("SELECT ifnull(max(at_ms),0) FROM entry WHERE typeof(at_ms)='integer'"))
            if newest > now_ms + CLOCK_TOLERANCE_MS:
                what = f"the newest entry is {(newest - now_ms) // 1_000:,} seconds in the future"
                do = "set this machine's clock; the order of entries does not depend on it"
                yield DoctorFinding("warn", "clock", what, do)
            else:
                yield DoctorFinding("ok", "clock", "after the newest entry")
    except LedgerError as error:
        advice = _ADVICE.get(error.code, "see permissions, space and disk")
        yield DoctorFinding("bad", "content", str(error), advice)
