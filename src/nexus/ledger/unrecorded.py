"""Replies that were paid for and that the ledger could not store: a file next to it keeps them until it can.

The file's room is reserved before it is needed, so that a full disk can take a reply. Records are appended and synced one
by one; a torn one is ignored. Programs that share a ledger share the file, under a lock.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from nexus.errors import LedgerError, UnreadableFile
from nexus.ledger.sessions import SessionMetadata
from nexus.types.ledger_entries import Commit

RESERVED_BYTES = 1_000_000

_MAGIC = b"NXREPLY1"
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32


class UnrecordedReply(Struct, frozen=True):
    """A reply that waits to be recorded."""

    tenant: str
    session: str
    turn: int
    """Number of the turn that it answers; 0 if it brings its own event."""
    base: tuple[int, int] | None
    """Thread and seq behind which it is stored if its turn is superseded."""
    commit: Commit
    facts: SessionMetadata | None = None
    principal: str = ""


Record = Callable[[UnrecordedReply], None]
"""Records a reply. Raises LedgerError while the ledger cannot store it."""


class UnrecordedReplies:
    """The replies of one ledger and tenant that wait to be recorded: in a file, or in memory without one.

    Args:
        path: The file; None for a ledger in memory.
        tenant: Whose replies they are: tenants may share the file.
    """

    def __init__(self, path: Path | None, tenant: str) -> None:
        self.path, self._tenant = path, tenant
        self._in_memory: list[UnrecordedReply] = []
        self._lock = Lock()
        self._is_reserved = False

    def reserve(self) -> None:
        """Reserve the room of the file, once. A failure is no error: then replies are kept in memory alone."""
        if self._is_reserved or self.path is None:
            return
        self._is_reserved = True
        with suppress(OSError), self._open(create=True) as file:
            missing = RESERVED_BYTES - os.fstat(file).st_size
            if missing > 0:
                _allocate(file, RESERVED_BYTES)
                os.pwrite(file, _MAGIC, 0)
                os.fsync(file)

    def add(self, reply: UnrecordedReply) -> str:
        """Keep a reply; return the path of the file that has it, or an empty text if only this program's memory has it."""
        payload = msgspec.msgpack.encode(reply)
        row = hashlib.sha256(payload).digest() + payload
        with self._lock:
            with suppress(OSError), self._open() as file:
                at = sum(_LENGTH.size + _DIGEST_BYTES + len(data) for data in _payloads(file)) + len(_MAGIC)
                room = os.fstat(file).st_size - at - 2 * _LENGTH.size
                if len(row) <= room:
                    os.pwrite(file, row, at + _LENGTH.size)
                    os.pwrite(file, _LENGTH.pack(len(payload)), at)
                    os.fsync(file)
                    return str(self.path)
            self._in_memory.append(reply)
            return ""

    def pending(self) -> list[UnrecordedReply]:
        """Return the replies of this tenant that wait."""
        return [*self._in_memory, *(reply for reply in self._stored() if reply.tenant == self._tenant)]

    def count(self) -> int:
        """Return the number of replies that wait, of all tenants."""
        return len(self._in_memory) + len(self._stored())

    def record_all(self, record: Record) -> int:
        """Record what waits, and forget what was recorded. Returns how many were recorded; the others go on waiting."""
        if not self._in_memory and not self._may_have_records():
            return 0
        with self._lock:
            before = len(self._in_memory)
            self._in_memory = [reply for reply in self._in_memory if not _is_recorded(record, reply)]
            recorded = before - len(self._in_memory)
            if self._may_have_records():
                with suppress(OSError), self._open() as file:
                    replies = _decoded(file)
                    waiting = [r for r in replies if r.tenant != self._tenant or not _is_recorded(record, r)]
                    if len(waiting) != len(replies):
                        _rewrite(file, waiting)
                        recorded += len(replies) - len(waiting)
        return recorded

    def erase(self, *, sessions: Collection[str] = (), principal: str = "", everything: bool = False) -> int:
        """Forget the replies of sessions, of a principal, or all of the tenant; return their number."""

        def is_erased(reply: UnrecordedReply) -> bool:
            is_of = reply.session in sessions or (bool(principal) and reply.principal == principal)
            return reply.tenant == self._tenant and (everything or is_of)

        with self._lock:
            waiting = [reply for reply in self._in_memory if not is_erased(reply)]
            erased, self._in_memory = len(self._in_memory) - len(waiting), waiting
            if self._may_have_records():
                with self._open() as file:
                    replies = _decoded(file)
                    remaining = [reply for reply in replies if not is_erased(reply)]
                    if len(remaining) != len(replies):
                        _rewrite(file, remaining)
                        erased += len(replies) - len(remaining)
        return erased

    def _may_have_records(self) -> bool:
        """Return whether the file has a record. It costs one small read, because every turn asks."""
        if self.path is None:
            return False
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_MAGIC) + _LENGTH.size)
        except OSError:
            return False
        return head.startswith(_MAGIC) and any(head[len(_MAGIC) :])

    def _stored(self) -> list[UnrecordedReply]:
        if not self._may_have_records():
            return []
        try:
            with self._open() as file:
                return _decoded(file)
        except OSError as error:
            raise UnreadableFile(f"'{self.path}' not read: {error.strerror or error}") from error

    @contextmanager
    def _open(self, *, create: bool = False) -> Generator[int]:
        """Open the file, locked against other programs. Raises OSError."""
        if self.path is None:
            raise FileNotFoundError
        if create:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.open(self.path, flags, 0o600)
        try:
            _lock(file)
            yield file
        finally:
            os.close(file)  # which unlocks it


def unrecorded_path(location: str, *, is_file: bool, tenant: str, home: Path) -> Path | None:
    """Return the file of a ledger's unrecorded replies: next to a SQLite file, else in the user's folder."""
    if location == ":memory:":
        return None
    if is_file:
        return Path(f"{location}.unrecorded")
    digest = hashlib.sha256(f"{location}\0{tenant}".encode()).hexdigest()[:16]
    return home / "unrecorded" / f"{digest}.replies"


def _is_recorded(record: Record, reply: UnrecordedReply) -> bool:
    try:
        record(reply)
    except LedgerError:
        return False
    return True


def _payloads(file: int) -> list[bytes]:
    """Return the whole records of a file, up to the first torn one."""
    size = os.fstat(file).st_size
    if os.pread(file, len(_MAGIC), 0) != _MAGIC:
        return []
    payloads: list[bytes] = []
    at = len(_MAGIC)
    while at + _LENGTH.size + _DIGEST_BYTES <= size:
        (length,) = _LENGTH.unpack(os.pread(file, _LENGTH.size, at))
        digest = os.pread(file, _DIGEST_BYTES, at + _LENGTH.size)
        payload = os.pread(file, length, at + _LENGTH.size + _DIGEST_BYTES) if length else b""
        if not length or hashlib.sha256(payload).digest() != digest:
            break
        payloads.append(payload)
        at += _LENGTH.size + _DIGEST_BYTES + length
    return payloads


def _decoded(file: int) -> list[UnrecordedReply]:
    replies: list[UnrecordedReply] = []
    for payload in _payloads(file):
        with suppress(msgspec.MsgspecError):  # of another version
            replies.append(msgspec.msgpack.decode(payload, type=UnrecordedReply))
    return replies


def _rewrite(file: int, replies: Collection[UnrecordedReply]) -> None:
    """Replace the records of a file. The room behind them is filled with zeros: nothing of the others stays."""
    rows = bytearray(_MAGIC)
    for reply in replies:
        payload = msgspec.msgpack.encode(reply)
        rows += _LENGTH.pack(len(payload)) + hashlib.sha256(payload).digest() + payload
    rows += bytes(max(os.fstat(file).st_size - len(rows), 0))
    os.pwrite(file, bytes(rows), 0)
    os.fsync(file)


def _allocate(file: int, size: int) -> None:
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        allocate(file, 0, size)
    else:
        os.pwrite(file, bytes(size), 0)


def _lock(file: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: programs of one machine rarely share a ledger there
        return
    fcntl.flock(file, fcntl.LOCK_EX)
