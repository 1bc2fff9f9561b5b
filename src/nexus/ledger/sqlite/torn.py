"""Recognition of a ledger whose header was torn by a power cut, by its journal or log.

SQLite repairs a torn page from there when it opens the file. Formats: sqlite.org/fileformat.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nexus.ledger.sqlite.schema import APPLICATION_ID

_JOURNAL = bytes.fromhex("d9d505f920a163d7")
_LOG = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
_ID_AT = 68
"""Where a file's first page has its application id."""


def is_ours(path: str) -> bool:
    """Return True if journal or log contain a ledger's first page, or show that the file was new."""
    for end, first_pages in (("-journal", _in_journal), ("-wal", _in_log)):
        try:
            with Path(path + end).open("rb") as stream:
                if any(
                    page[_ID_AT : _ID_AT + 4] == APPLICATION_ID.to_bytes(4) or not page for page in first_pages(stream)
                ):
                    return True
        except OSError:
            continue
    return False


def _in_journal(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the first page as a rollback journal has it; empty for a file that had no page."""
    header = stream.read(28)
    if len(header) < 28 or not header.startswith(_JOURNAL):
        return
    pages, sector, size = (int.from_bytes(header[at : at + 4]) for at in (16, 20, 24))
    if not pages:
        yield b""
        return
    yield from _records(stream, sector, size, head=4, tail=4)


def _in_log(stream: BinaryIO) -> Iterator[bytes]:
    """Yield every version of the first page that a write-ahead log has."""
    header = stream.read(32)
    if len(header) == 32 and header.startswith(_LOG):
        yield from _records(stream, 32, int.from_bytes(header[8:12]), head=24, tail=0)


def _records(stream: BinaryIO, begin: int, size: int, *, head: int, tail: int) -> Iterator[bytes]:
    """Yield the records of page 1, each behind a head that begins with the page's number."""
    at = begin
    while size >= 512:
        stream.seek(at)
        number = stream.read(head)
        if len(number) < head:
            return
        if int.from_bytes(number[:4]) == 1:
            yield stream.read(128)
        at += head + size + tail
