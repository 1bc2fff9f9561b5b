"""Replies that were paid for and that the ledger could not store: a file next to it keeps them until it can.

The file's room is reserved before it is needed, so that a full disk can take a reply. Records are appended and synced one
by one. Removing one overwrites it with zeros where it is, and moves no other: a program killed at any moment loses none of
them. Torn and removed records are skipped. Programs that share a ledger share the file, under a lock.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct, field

from nexus.errors import (
    LedgerError,
    UnreadableFile,
)
from nexus.ledger.sessions import SessionMetadata
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Commit
from nexus.types.request import AgentResult

_STORAGE_CODES = frozenset(
    {
        "ledger_busy",
        "ledger_closed",
        "ledger_damaged",
        "ledger_error",
        "ledger_full",
        "ledger_gone",
        "ledger_unavailable",
        "outcome_unknown",
    }
)

RESERVED_BYTES = 1_000_000

_MAGIC = b"NXREPLY1"
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32
_HEAD_BYTES = _LENGTH.size + _DIGEST_BYTES


def is_of_storage(error: LedgerError) -> bool:
    """Return True for an error of a ledger that stores nothing now, and may store the same later."""
    return error.code in _STORAGE_CODES


class UnrecordedReply(Struct, frozen=True):
    """A reply that waits to be recorded."""

    tenant: str
    session: str
    turn: int
    """Number of the turn that it answers; 0 if it brings its own event."""
    base: tuple[int, int] | None
    """Thread and seq behind which it is stored if its turn is superseded."""
    commit: Commit
    metadata: SessionMetadata | None = field(default=None, name="facts")
    principal: str = ""

    @property
    def reply(self) -> AgentResult:
        """The messages of the reply."""
        messages = (sized.message for entry in self.commit.entries for sized in entry.messages)
        return AgentResult(tuple(message for message in messages if message.role != "user"))


Record = Callable[[UnrecordedReply], None]
"""Records a reply. Raises LedgerError while the ledger cannot store it."""


class UnrecordedReplies:
    """The replies of one ledger and tenant that wait to be recorded: in a file, or in memory without one.

    Args:
        path: The file; None for a ledger in memory.
        tenant: Whose replies they are: tenants may share the file.
    """

    def __init__(self, path: Path | None, tenant: str) -> None:
        self.path = path
        self._tenant = tenant
        self._in_memory: list[UnrecordedReply] = []
        self._lock = Lock()
        self._is_reserved = False

    def reserve(self) -> None:
        """Reserve the room of the file, once. A failure is no error: then replies are kept in memory alone."""
        if self._is_reserved or self.path is None:
            return
        self._is_reserved = True
        with suppress(OSError), self._open(create=True) as file:
            if os.fstat(file.fileno()).st_size < RESERVED_BYTES:
                _allocate(file, RESERVED_BYTES)
            _begin(file)

    def add(self, reply: UnrecordedReply) -> str:
        """Keep a reply; return the path of the file that has it, or an empty text if only this program's memory has it."""
        payload = msgspec.msgpack.encode(reply)
        row = hashlib.sha256(payload).digest() + payload
        with self._lock:
            with suppress(OSError), self._open() as file:
                _begin(file)
                _, end = _read(file)
                if end + _LENGTH.size + len(row) <= os.fstat(file.fileno()).st_size:
                    _write(file, end + _LENGTH.size, row)
                    _write(file, end, _LENGTH.pack(len(payload)))  # last: until then there is no record
                    os.fsync(file.fileno())
                    return str(self.path)
            self._in_memory.append(reply)
            return ""

    def pending(self) -> list[UnrecordedReply]:
        """Return the replies of this tenant that wait."""
        return [*self._in_memory, *(reply for reply in self._stored() if reply.tenant == self._tenant)]

    def place_of(self, reply: UnrecordedReply) -> str:
        """Return the path of the file that has a reply, or an empty text if only this program's memory has it."""
        if reply in self._in_memory:
            return ""
        return str(self.path)

    def count(self) -> int:
        """Return the number of replies that wait, of all tenants."""
        return len(self._in_memory) + len(self._stored())

    def record_all(self, record: Record) -> int:
        """Record what waits, and forget what was recorded. Returns their number; the others are tried again next time."""
        if not self._in_memory and not self._may_have_records():
            return 0
        with self._lock:
            in_memory = _recorded(record, self._in_memory)
            self._in_memory = [reply for reply in self._in_memory if reply not in in_memory]
            in_file = self._forget(lambda replies: _recorded(record, replies))
        return len(in_memory) + in_file

    def erase(self, *, sessions: Collection[str] = (), principal: str = "", everything: bool = False) -> int:
        """Forget the replies of sessions, of a principal, or all of the tenant. Returns their number.

        Raises UnreadableFile if the file cannot be changed.
        """

        def erased(replies: Sequence[UnrecordedReply]) -> list[UnrecordedReply]:
            by_principal = [reply for reply in replies if principal and reply.principal == principal]
            by_session = [reply for reply in replies if reply.session in sessions]
            if everything:
                return list(replies)
            return [*by_principal, *by_session]

        with self._lock:
            in_memory = erased(self._in_memory)
            before = len(self._in_memory)
            self._in_memory = [reply for reply in self._in_memory if reply not in in_memory]
            return before - len(self._in_memory) + self._forget(erased, must_succeed=True)

    def _forget(
        self, choose: Callable[[list[UnrecordedReply]], list[UnrecordedReply]], *, must_succeed: bool = False
    ) -> int:
        """Remove the chosen ones of this tenant's replies from the file. Returns their number."""
        if not self._may_have_records():
            return 0
        try:
            with self._open() as file:
                records, _ = _read(file)
                chosen = choose([reply for reply in _replies(records) if reply.tenant == self._tenant])
                removed = [record for record in records if record.reply in chosen]
                for record in removed:
                    _write(file, record.at + _LENGTH.size, bytes(record.end - record.at - _LENGTH.size))
                if len(removed) == len(records):  # also what was torn is overwritten
                    size = os.fstat(file.fileno()).st_size
                    _write(file, len(_MAGIC), bytes(size - len(_MAGIC)))
                os.fsync(file.fileno())
                return len(removed)
        except OSError as error:
            if must_succeed:
                raise UnreadableFile(f"'{self.path}' not changed: {error.strerror or error}") from error
            return 0

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
                return _replies(_read(file)[0])
        except OSError as error:
            raise UnreadableFile(f"'{self.path}' not read: {error.strerror or error}") from error

    @contextmanager
    def _open(self, *, create: bool = False) -> Generator[FileIO]:
        """Open the file, locked against other programs. Raises OSError."""
        if self.path is None:
            raise FileNotFoundError
        if create:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        more_flags = (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0)
        with FileIO(self.path, "r+", opener=lambda path, flags: os.open(path, flags | more_flags, 0o600)) as file:
            _lock(file)
            yield file


def unrecorded_path(location: str, *, is_file: bool, tenant: str, home: Path) -> Path | None:
    """Return the file of a ledger's unrecorded replies: next to a SQLite file, else in the user's folder."""
    if location == ":memory:":
        return None
    if is_file:
        return Path(f"{os.path.realpath(location)}.unrecorded")
    return home / "unrecorded" / f"{_name(location)}-{_name(tenant)}.replies"


def count_unrecorded(location: str, *, is_file: bool, home: Path) -> int:
    """Return the number of replies of all tenants that wait to be recorded in a ledger. Raises UnreadableFile."""
    path = unrecorded_path(location, is_file=is_file, tenant="", home=home)
    if path is None:
        return 0
    if is_file:
        paths = [path]
    else:
        paths = path.parent.glob(f"{_name(location)}-*.replies")
    return sum(UnrecordedReplies(path, "").count() for path in paths)


class _Record(Struct, frozen=True):
    """A record of the file, at its position in bytes."""

    at: int
    end: int
    reply: UnrecordedReply | None
    """None if another version wrote it, which can read it."""


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recorded(record: Record, replies: Sequence[UnrecordedReply]) -> list[UnrecordedReply]:
    """Record replies; return those that were. A ledger that stores nothing is not asked again for the next ones."""
    recorded: list[UnrecordedReply] = []
    for reply in replies:
        try:
            record(reply)
        except LedgerError as error:
            if is_of_storage(error):
                break
            continue
        recorded.append(reply)
    return recorded


def _begin(file: FileIO) -> None:
    """Write the file's first bytes, once. Raises OSError if the file is another one."""
    file.seek(0)
    first = file.read(len(_MAGIC)) or b""
    if first == _MAGIC:
        return
    if any(first):
        raise OSError(errno.EEXIST, "another file has this name")
    _write(file, 0, _MAGIC)
    os.fsync(file.fileno())


def _read(file: FileIO) -> tuple[list[_Record], int]:
    """Return the whole records of a file, and the position behind the last one."""
    file.seek(0)
    data = file.readall()
    records: list[_Record] = []
    at = len(_MAGIC)
    if not data.startswith(_MAGIC):
        return records, at
    while at + _HEAD_BYTES <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + _HEAD_BYTES + length
        if not length or end > len(data):
            break
        payload = data[at + _HEAD_BYTES : end]
        if hashlib.sha256(payload).digest() == data[at + _LENGTH.size : at + _HEAD_BYTES]:
            records.append(_Record(at, end, _decode(payload)))
        at = end
    return records, at


def _decode(payload: bytes) -> UnrecordedReply | None:
    try:
        return msgspec.msgpack.decode(payload, type=decodable(UnrecordedReply))
    except msgspec.MsgspecError:
        return None


def _replies(records: Sequence[_Record]) -> list[UnrecordedReply]:
    return [record.reply for record in records if record.reply is not None]


def _write(file: FileIO, at: int, data: bytes) -> None:
    file.seek(at)
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _allocate(file: FileIO, size: int) -> None:
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        allocate(file.fileno(), 0, size)
    else:
        at = os.fstat(file.fileno()).st_size
        _write(file, at, bytes(size - at))


def _lock(file: FileIO) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: programs of one machine rarely share a ledger there
        return
    fcntl.flock(file, fcntl.LOCK_EX)
