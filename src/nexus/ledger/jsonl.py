"""A ledger as a text file with one record a line, for archives, other backends and other tools.

The file begins with the header record and ends with a line that counts and hashes all earlier lines, so truncation at
any point is noticed. Bytes are base64. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from nexus.errors import LedgerDamaged, LedgerUnusable, UnreadableFile
from nexus.ledger.integrity import check
from nexus.ledger.maintenance.files import Progress, check_target, replacing, writing
from nexus.ledger.records import FORMAT, Header, Record
from nexus.ledger.store import LedgerStore
from nexus.ledger.text_encoding import encode_text
from nexus.types.decoding import decodable

STANDARD = "-"
"""The name that stands for standard input and output."""

LONGEST_HEADER = 65_536
LONGEST_LINE = 1_500_000_000
"""A database's row holds at most 1,000,000,000 bytes, which is a third more in base64."""

EVERY = 1_000
"""Records between two reports of progress."""


class End(Struct, frozen=True, tag="end", tag_field="record"):
    """The last line: how many records there are, and the SHA-256 of all bytes before this line."""

    records: int
    sha256: str


class ExportReport(Struct, frozen=True):
    """Number of exported records by kind, and the file's size in bytes."""

    records: dict[str, int]
    bytes: int


class LoadReport(Struct, frozen=True):
    """Number of imported records by kind, and how many of them were new."""

    records: dict[str, int]
    added: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(decodable(Record | End)).decode


class _Tag(Struct, frozen=True):
    """Kind and version of a first line, readable for every version of the format."""

    record: str = ""
    format: int = 0


def export(
    store: LedgerStore, file: str | Path, *, force: bool = False, progress: Progress | None = None
) -> ExportReport:
    """Write all records of the store's tenant to `file` (`-`: standard output), checking each.

    Raises LedgerDamaged and leaves no file. Standard output then lacks its last line, so that an import rejects it.
    Raises UnreadableFile when the file exists (unless `force`), LedgerFull, LedgerError.
    """
    if str(file) == STANDARD:
        report = _write(store, sys.stdout.buffer, progress)
        sys.stdout.buffer.flush()
        return report
    check_target(store.location, file)
    with replacing(Path(file).expanduser(), force=force) as half, half.open("wb") as stream:
        return _write(store, stream, progress)


def load(store: LedgerStore, file: str | Path, *, progress: Progress | None = None) -> LoadReport:
    """Import an exported file in one transaction. Records that the store already has are skipped.

    The whole file is checked before anything is stored. Raises UnreadableFile (with the line), LedgerUnusable,
    LedgerDamaged, LedgerError.
    """
    with _open_twice(file) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        reader = _RecordReader(stream, str(file), store.tenant)
        damage = next(check(_with_progress(reader.records(), stream, progress, size * 2)), None)
        if damage is not None:
            raise LedgerDamaged(
                f"{file} line {damage.number}: {damage} (nothing was stored; export again from the original ledger)"
            )
        stream.seek(0)
        second_pass = _RecordReader(stream, str(file), store.tenant, wanted=reader.sha256)
        added = store.load(_with_progress(second_pass.records(), stream, progress, size * 2, size))
    return LoadReport(dict(second_pass.counts), added)


def _write(store: LedgerStore, stream: BinaryIO, progress: Progress | None) -> ExportReport:
    """Write the records and raise at the first damage."""
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    size = 0

    def passing(records: Iterator[Record]) -> Generator[Record]:
        nonlocal size
        for record in records:
            yield record
            line = _encode(record) + b"\n"
            digest.update(line)
            stream.write(line)
            size += len(line)
            counts[str(record.__struct_config__.tag)] += 1
            if progress is not None and not counts.total() % EVERY:
                progress(counts.total(), 0)

    with closing(record for record in store.dump()) as records:  # a generator, whose snapshot ends with it
        damage = next(check(passing(records)), None)
    if damage is not None:
        raise LedgerDamaged(
            f"{store.location} is damaged: {damage} (nothing was exported; list all damage: nexus ledger verify, "
            "save the rest: nexus ledger repair)"
        )
    line = _encode(End(counts.total(), digest.hexdigest())) + b"\n"
    stream.write(line)
    return ExportReport(dict(counts), size + len(line))


class _RecordReader:
    """Reads a file's lines as records. `sha256` and `counts` are complete at the end."""

    def __init__(self, stream: BinaryIO, name: str, tenant: str, *, wanted: str = "") -> None:
        self._stream = stream
        self._name = name
        self._tenant = tenant
        self._wanted = wanted
        self._hash = hashlib.sha256()
        self._line = 0
        self.counts: Counter[str] = Counter()

    @property
    def sha256(self) -> str:
        """The hash of all lines that were read."""
        return self._hash.hexdigest()

    def records(self) -> Iterator[Record]:
        """Yield the records. Raises UnreadableFile at the first line that is none, or when the end is missing."""
        yield self._header()
        while True:
            line = self._next(LONGEST_LINE)
            record = self._decoded(line)
            if isinstance(record, End):
                break
            self._take(line, record)
            yield record
        if (record.records, record.sha256) != (self.counts.total(), self.sha256):
            what = (
                f"counts {record.records:,} records with another hash than the {self.counts.total():,} before it have"
            )
            raise self._unreadable(what, "the file was changed: export again")
        if self._wanted not in ("", self.sha256):
            raise self._unreadable("does not end as before: the file changed while it was read", "import again")
        if self._stream.read(1):
            self._line += 1
            raise self._unreadable("comes after the end", "one file holds one export")

    def _header(self) -> Header:
        line = self._next(LONGEST_HEADER)
        tag = _Tag()
        with suppress(msgspec.DecodeError):
            tag = msgspec.json.decode(line, type=decodable(_Tag))
        if tag.record != "ledger":
            raise self._unreadable("is no export of a ledger", "`nexus ledger export` writes one")
        if tag.format < FORMAT:
            what = f"says format {tag.format}, which no Nexus wrote"
            raise self._unreadable(what, "export again from the ledger it came from")
        if tag.format > FORMAT:
            raise LedgerUnusable(
                f"{self._name} line 1: export format {tag.format} is newer than {FORMAT} (nothing was stored; upgrade Nexus)",
                code="ledger_too_new",
            )
        header = self._decoded(line)
        assert isinstance(header, Header)
        if header.tenant != encode_text(self._tenant):
            raise self._unreadable(
                f"has the records of tenant {header.tenant!r}, and this ledger is open for {self._tenant!r}",
                "open it for that tenant",
            )
        self._take(line, header)
        return header

    def _next(self, limit: int) -> bytes:
        line = self._stream.readline(limit)
        self._line += 1
        if not line:
            raise self._unreadable("is missing: the file was cut off before its last line", "export again")
        if not line.endswith(b"\n"):
            if len(line) < limit:
                what = "is cut off"
            else:
                what = f"is longer than {limit:,} bytes"
            raise self._unreadable(what, "export again")
        return line

    def _decoded(self, line: bytes) -> Record | End:
        try:
            return _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable(f"is no record ({error})", "export again, or repair this line") from error

    def _take(self, line: bytes, record: Record) -> None:
        self._hash.update(line)
        self.counts[str(record.__struct_config__.tag)] += 1

    def _unreadable(self, what: str, todo: str) -> UnreadableFile:
        return UnreadableFile(f"{self._name} line {self._line} {what} (nothing was stored; {todo})")


def _with_progress(
    records: Iterator[Record], stream: BinaryIO, progress: Progress | None, total: int, before: int = 0
) -> Iterator[Record]:
    """Yield the records and report progress in the file."""
    for number, record in enumerate(records):
        yield record
        if progress is not None and not number % EVERY:
            progress(before + stream.tell(), total)


@contextmanager
def _open_twice(file: str | Path) -> Generator[BinaryIO]:
    """Open the file for reading twice. Standard input is copied to a temporary file first."""
    if str(file) == STANDARD:
        with writing("a copy of standard input"), tempfile.TemporaryFile() as copy:
            if sys.stdin is not None:
                shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.seek(0)
            yield copy
        return
    path = Path(file).expanduser()
    if path.is_fifo():  # to open a pipe without a writer would wait forever
        raise UnreadableFile(f"{file} cannot be read twice (use - and standard input)")
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror or error}") from error
    with stream:
        if not stream.seekable():
            raise UnreadableFile(f"{file} cannot be read twice (use - and standard input)")
        yield stream
