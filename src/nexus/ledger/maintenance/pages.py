"""Rows read straight from a SQLite file's pages, for files that SQLite itself rejects. Read-only.

Every page is read by itself (sqlite.org/fileformat.html), so a broken inner page, free list or schema has no effect.
Older states of a page in the file and its write-ahead log are read too, deleted rows included. Each row has a flag for
whether it is current. Whether it is true is for the reader to prove.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

Cell: TypeAlias = int | str | bytes | float | None

TABLE_LEAF = 0x0D
TABLE_INTERIOR = 0x05
INDEX_LEAF = 0x0A
INDEX_INTERIOR = 0x02
_KINDS = (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR)
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of a value by its serial type, 0 to 9."""

LOCK_BYTE = 1 << 30
"""Where SQLite locks a file; the page there is never used."""

MAGIC = b"SQLite format 3\0"
"""How a SQLite file begins."""

MOST_COLUMNS = 64
CACHED = 64
FRAME_HEADER = 24
LOG_HEADER = 32


class PageRow(NamedTuple):
    """Row with its start and end on its image.

    It `holds` when a pointer leads to it on the newest state of its page, or where damage leaves that open. Other rows
    were changed or deleted since.
    """

    at: int
    end: int
    row: list[Cell]
    holds: bool = True


class Pages:
    """Pages of a SQLite file and of its log. An image is one state of a page, numbered from 1.

    Numbers up to `count` are the file's own pages, higher ones are the committed frames of the log.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        header = self._file.read(100)
        self.size = _page_size(header)
        reserved = 0
        if len(header) > 20 and header.startswith(MAGIC) and header[20] < 64:
            reserved = header[20]
        self._usable = self.size - reserved
        self.count = max((self._file.seek(0, 2) + self.size - 1) // self.size, 1)
        log = path.with_name(path.name + "-wal")
        self._log: BinaryIO | None = log.open("rb") if log.exists() else None
        self._frames, last = _committed(self._log, self.size) if self._log is not None else ([], 0)
        self._last = last or self.count
        self._states: dict[int, list[int]] = defaultdict(list)
        for place, (page, _) in enumerate(self._frames, 1):
            self._states[page].append(self.count + place)
        self._whole: dict[int, bool] = {}
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._log is not None:
            self._log.close()

    @property
    def images(self) -> int:
        """Number of images."""
        return self.count + len(self._frames)

    def image(self, number: int) -> bytes:
        """Return one state of a page, padded with zeros."""
        cached = self._cache.get(number)
        if cached is not None:
            self._cache.move_to_end(number)
            return cached
        if number <= self.count:
            self._file.seek((number - 1) * self.size)
            data = self._file.read(self.size)
        else:
            assert self._log is not None
            self._log.seek(self._frames[number - self.count - 1][1])
            data = self._log.read(self.size)
        data = data.ljust(self.size, b"\0")
        self._cache[number] = data
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return data

    def newest(self, page: int) -> int:
        """Return the image that is a page's newest state."""
        if page in self._states:
            return self._states[page][-1]
        return page

    def broken(self) -> list[int]:
        """Return the pages that SQLite would not have written.

        These have no known kind, are not filled by their content, or are empty and not free.
        """
        free = self._free()
        return [
            page
            for page in range(1, min(self.count, self._last) + 1)
            if not self._is_whole(self.newest(page))
            or (page not in free and page != LOCK_BYTE // self.size + 1 and not any(self.image(self.newest(page))))
        ]

    def _free(self) -> set[int]:
        """Return the pages on the list of free ones, as far as it can be followed."""
        free_pages: set[int] = set()
        at = int.from_bytes(self.image(self.newest(1))[32:36])
        while 0 < at <= self._last and at not in free_pages:
            data = self.image(self.newest(at))
            free_pages.add(at)
            count = min(int.from_bytes(data[4:8]), self.size // 4 - 2)
            free_pages.update(int.from_bytes(data[8 + 4 * place : 12 + 4 * place]) for place in range(count))
            at = int.from_bytes(data[:4])
        return free_pages

    def rows(self, number: int) -> Iterator[PageRow]:
        """Yield the rows on an image. If its kind gives none, the other kinds are tried."""
        data = self.image(number)
        start = _start(number, data)
        named_kind = data[start]
        if named_kind == 0:
            return
        for kind in sorted(_KINDS, key=lambda kind: kind != named_kind):
            pointed = self._pointed(data, start, kind)
            if pointed:
                holds = self._holds(number)
                yield from pointed if holds else (row._replace(holds=False) for row in pointed)
                self._whole[number] = kind == named_kind and self._fill(data, start, pointed)
                holds = holds and not self._whole[number]
                yield from (row._replace(holds=holds) for row in self._between(data, start, kind, pointed))
                return

    def row(self, number: int, at: int) -> list[Cell]:
        """Return the row that begins at `at` on an image, as `rows` gave it."""
        data = self.image(number)
        start = _start(number, data)
        for kind in sorted(_KINDS, key=lambda kind: kind != data[start]):
            cell = self._cell(data, at, kind)
            if cell is not None:
                return cell.row
        return []

    def _holds(self, number: int) -> bool:
        """Return True if an image is the newest state of its page, or all newer ones are damaged."""
        if number <= self.count:
            page = number
        else:
            page = self._frames[number - self.count - 1][0]
        newer = (state for state in reversed(self._states.get(page, ())) if state > number)
        return page <= self._last and not any(self._is_whole(state) for state in newer)

    def _is_whole(self, number: int) -> bool:
        """Return True if an image has no rows or rows that fill it, as SQLite writes it."""
        cached = self._whole.get(number)
        if cached is None:
            data = self.image(number)
            start = _start(number, data)
            kind = data[start]
            cached = kind in (0, TABLE_INTERIOR) or (
                kind in _KINDS and self._fill(data, start, self._pointed(data, start, kind))
            )
            self._whole[number] = cached
        return cached

    def _pointed(self, data: bytes, start: int, kind: int) -> list[PageRow]:
        """Return the rows that the pointers of a page of one kind lead to."""
        array = start + (12 if kind == INDEX_INTERIOR else 8)
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        places = range(array, min(array + 2 * count, self._usable - 1), 2)
        pointers = dict.fromkeys(int.from_bytes(data[at : at + 2], "big") for at in places)
        cells = (self._cell(data, at, kind) for at in pointers if array <= at < self._usable - 4)
        return [cell for cell in cells if cell is not None]

    def _fill(self, data: bytes, start: int, rows: list[PageRow]) -> bool:
        """Return True if the rows match the page's count and fill it together with its free bytes."""
        count, content = (int.from_bytes(data[at : at + 2], "big") for at in (start + 3, start + 5))
        filled = sum(row.end - row.at for row in rows) + data[start + 7]
        at = int.from_bytes(data[start + 1 : start + 3], "big")
        before = 0
        while before < at < self._usable - 3:
            filled += int.from_bytes(data[at + 2 : at + 4], "big")
            at, before = int.from_bytes(data[at : at + 2], "big"), at
        return at == 0 and len(rows) == count and filled == self._usable - (content or 65_536)

    def _between(self, data: bytes, start: int, kind: int, rows: list[PageRow]) -> Iterator[PageRow]:
        """Yield the rows at the beginning of what no pointer leads to."""
        content = int.from_bytes(data[start + 5 : start + 7], "big")
        if start + 8 <= content < self._usable:
            at = content
        else:
            at = min(rows)[0]
        for begin, end in [*sorted((row.at, row.end) for row in rows), (self._usable, self._usable)]:
            while at < begin - 4:
                cell = self._cell(data, at, kind)
                if cell is None or cell.end > begin:
                    break
                yield cell
                at = cell.end
            at = max(at, end)

    def _cell(self, data: bytes, begin: int, kind: int) -> PageRow | None:
        """Return the row that begins at `begin`; None if no row does."""
        at = begin
        try:
            if kind == INDEX_INTERIOR:
                at += 4
            size, at = _varint(data, at)
            if kind == TABLE_LEAF:
                _, at = _varint(data, at)
            header, body = _varint(data, at)
            # What the row's own header adds up to is more certain than the size before it.
            types, total = _types(data, body, at + header)
            size = header + total
            local = self._local(size, table=kind == TABLE_LEAF)
            end = at + local + (4 if local < size else 0)
            if end > self._usable:
                return None
            payload = data[at : at + local]
            if local < size:
                payload += self._overflow(int.from_bytes(data[end - 4 : end], "big"), size - local)
            if len(payload) != size:
                return None
            return PageRow(begin, end, _values(payload, header, types))
        except (IndexError, ValueError):
            return None

    def _local(self, size: int, *, table: bool) -> int:
        """Return the number of a row's bytes that are on its own page."""
        if table:
            most_bytes = self._usable - 35
        else:
            most_bytes = (self._usable - 12) * 64 // 255 - 23
        if size <= most_bytes:
            return size
        least_bytes = (self._usable - 12) * 32 // 255 - 23
        fitting = least_bytes + (size - least_bytes) % (self._usable - 4)
        if fitting <= most_bytes:
            return fitting
        return least_bytes

    def _overflow(self, page: int, size: int) -> bytes:
        """Return the rest of a row, from the newest states of its overflow pages."""
        parts: list[bytes] = []
        if size > self.images * self.size:
            raise ValueError("the row is larger than the file")
        while size > 0:
            number = self.newest(page)
            if page == 0 or number > self.images or (number == page and page > self.count):
                raise ValueError("the row goes on outside the file")
            data = self.image(number)
            part = data[4 : min(4 + size, self._usable)]
            parts.append(part)
            size -= len(part)
            page = int.from_bytes(data[:4], "big")
        return b"".join(parts)


def _start(number: int, data: bytes) -> int:
    """Return the offset of a page on its image; the first page follows the file's header."""
    headed = number == 1 and data[0] not in (*_KINDS, TABLE_INTERIOR)
    if headed or data.startswith(MAGIC):
        return 100
    return 0


def _page_size(header: bytes) -> int:
    """Return the page size in the header, or 4,096 (a ledger's) for a damaged header."""
    if not header.startswith(MAGIC):
        return 4_096
    size = int.from_bytes(header[16:18], "big")
    size = 65_536 if size == 1 else size
    if 512 <= size <= 65_536 and size & (size - 1) == 0:
        return size
    return 4_096


def _committed(log: BinaryIO, size: int) -> tuple[list[tuple[int, int]], int]:
    """Return the frames of a log up to its last commit, and the file's pages after it (0: no commit).

    Each frame is a page number and an offset in the log. Frames belong to the log when they have its salt. Checksums
    are ignored, because one flipped bit would end the log.
    """
    header = log.read(LOG_HEADER)
    length = (log.seek(0, 2) - LOG_HEADER) // (FRAME_HEADER + size)
    headers: list[tuple[int, int, bytes, int]] = []
    for place in range(max(length, 0)):
        at = LOG_HEADER + place * (FRAME_HEADER + size)
        log.seek(at)
        head = log.read(16)
        page, commit = struct.unpack(">II", head[:8])
        headers.append((page, commit, head[8:16], at + FRAME_HEADER))
    salts = {salt for _, _, salt, _ in headers}
    if header[16:24] in salts or not headers:
        salt = header[16:24]
    else:
        salt = headers[0][2]
    frames = [(page, commit, at) for page, commit, frame_salt, at in headers if frame_salt == salt]
    last = max((place for place, (_, commit, _) in enumerate(frames) if commit), default=-1)
    return [(page, at) for page, _, at in frames[: last + 1]], frames[last][1] if last >= 0 else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer, and where it ends."""
    value = 0
    for place in range(9):
        byte = data[at + place]
        if place == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("no integer")


def _types(data: bytes, at: int, end: int) -> tuple[list[int], int]:
    """Return the serial types of a row, and how many bytes its values have together."""
    if not at < end <= len(data):
        raise ValueError("no row's header")
    types: list[int] = []
    total = 0
    while at < end:
        kind, at = _varint(data, at)
        if kind in (10, 11) or len(types) == MOST_COLUMNS:
            raise ValueError("no row's header")
        types.append(kind)
        total += _SIZES[kind] if kind < 12 else (kind - 12) // 2
    if at != end or total > 1 << 30:
        raise ValueError("no row's header")
    return types, total


def _values(payload: bytes, at: int, types: list[int]) -> list[Cell]:
    values: list[Cell] = []
    for kind in types:
        size = _SIZES[kind] if kind < 12 else (kind - 12) // 2
        raw = payload[at : at + size]
        at += size
        if kind == 0:
            values.append(None)
        elif kind == 7:
            values.append(struct.unpack(">d", raw)[0])
        elif kind < 12:
            values.append(kind - 8 if kind > 7 else int.from_bytes(raw, "big", signed=True))
        else:
            values.append(raw.decode() if kind % 2 else raw)
    return values
