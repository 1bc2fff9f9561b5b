"""Tolerant JSON reader: one value a line, or the complete file as one value, decided by its content.

Lines are read one at a time, so memory depends on the longest line. Traces of crashes and editors are tolerated: a byte
order mark, UTF-16, CRLF, runs of NUL, several objects on one line, a broken copy before a whole record, raw line breaks
in strings, a last line that was cut off, bytes that are not UTF-8 (kept as lone surrogates). A line that is not JSON has
a problem instead of a value.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec
from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.interop.transcript import Problem

MAX_LINE_BYTES = 256 * 2**20
"""A longer line is reported and skipped."""

MAX_SKIPPED_BYTES = 2**30
"""A line that goes on for so long is no session's: the file is a disk image or sparse."""

MAX_JOINED_LINES = 10_000
"""Lines of a file that are joined with a record whose strings contain raw line breaks, and most lines of one record."""

MAX_CANDIDATES = 2_000
"""Objects on a damaged line that may be the whole record behind a broken copy."""

_decode = msgspec.json.Decoder().decode
_permissive = json.JSONDecoder(strict=False)
"""Accepts control characters in strings."""

_SPACE = re.compile("[\\x00 \\t\\r\\n]*")
_UNPARSED = ("(torn last line)", "(not JSON)")
_EDGES = b"\x00 \t\r\n"

_FIRST_KEY = re.compile(r'\{(?=\s*"((?:[^"\\]|\\.)*))')
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\]]', re.DOTALL)

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NUL_PLACES = {".0.0": "utf-16-le", "0.0.": "utf-16-be"}
"""Encodings without a mark by the places of NUL (`0`) among the first four bytes, which are ASCII in JSON."""


class JsonLine(Struct, frozen=True):
    """A line: its number from 1, and its value or, in `kind`, the reason for none. A value may have a problem too."""

    line: int
    value: Any = None
    kind: str = ""
    problem: Problem | None = None


OnRead: TypeAlias = Callable[[int], None]
"""Called while a file is read, with the number of bytes read so far."""


def read_json_lines(path: Path, on_read: OnRead | None = None) -> Iterator[JsonLine]:
    """Yield all lines of a JSON Lines file, blank ones included; a file that is one JSON value is one row.

    Lines that are one record are one row, with the number of the first.
    Raises UnreadableFile if the path is not a regular file, cannot be opened or read, or is empty.
    """
    try:
        if not path.is_file():
            raise UnreadableFile(f"{path} not found or not a regular file (give the path of a session file)")
        with open_as_utf8(path) as file:
            head = next((raw for raw in _lines(file) if raw is None or raw.strip(_EDGES)), b"")
            if head == b"":
                raise UnreadableFile(f"{path} is empty")
            if head is not None and not isinstance(_value(head.removeprefix(codecs.BOM_UTF8)), _Parsed):
                # The first line is no value: the file may be one indented value.
                file.seek(0)
                data = file.read(MAX_LINE_BYTES + 1)
                if len(data) > MAX_LINE_BYTES:
                    data = b""
                document = _value(data.removeprefix(codecs.BOM_UTF8).strip(_EDGES))
                if isinstance(document, _Parsed) and isinstance(document.value, (dict, list)):
                    if on_read is not None:
                        on_read(file.tell())
                    yield JsonLine(1, cast("Any", document.value), problem=document.problem_at(1))
                    return
            file.seek(0)
            lines = _LineReader(file)
            while lines.has_more():
                number, raw = lines.take()
                rows = [*_rows(number, raw)]
                if raw is not None and rows[-1].kind in _UNPARSED and (joined := lines.take_rest_of(raw)) is not None:
                    problem = Problem(number, "several lines", "the record has several lines: they were joined")
                    rows = [*rows[:-1], JsonLine(number, joined, problem=problem)]
                if on_read is not None:
                    on_read(file.tell())
                yield from rows
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


@contextmanager
def open_as_utf8(path: Path) -> Generator[BinaryIO]:
    """Open a file for reading; one in another encoding of Unicode, as PowerShell writes, is read as UTF-8."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        encoding = _encoding_of(start)
        if not encoding:
            yield file
            return
        with io.TextIOWrapper(file, encoding, "replace", newline="\n") as text:
            yield cast("BinaryIO", _Transcoded(file, text))


def _encoding_of(start: bytes) -> str:
    """Return the encoding of a file by its first four bytes; empty for UTF-8."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            return encoding
    return _NUL_PLACES.get("".join("." if byte else "0" for byte in start), "")


class _Transcoded:
    """A file in UTF-16 or UTF-32, read as UTF-8. Characters that are not valid become U+FFFD."""

    def __init__(self, file: BinaryIO, text: io.TextIOWrapper) -> None:
        self._file = file
        self._text = text

    def readline(self, size: int) -> bytes:
        return self._text.readline(size).encode(errors="replace")

    def read(self, size: int) -> bytes:
        return self._text.read(size).encode(errors="replace")

    def seek(self, offset: int) -> None:
        self._text.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the file's lines with their ends; None for one that is too long."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        if len(raw) <= MAX_LINE_BYTES:
            yield raw
            continue
        start = file.tell()
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES)
            if file.tell() - start > MAX_SKIPPED_BYTES:
                raise UnreadableFile(f"line longer than {MAX_SKIPPED_BYTES // 2**30} GiB (give a session file)")
        yield None


class _LineReader:
    """Numbered lines of a file, some of which are read ahead to complete a record."""

    def __init__(self, file: BinaryIO) -> None:
        self._source = enumerate(_lines(file), 1)
        self._waiting = deque[tuple[int, bytes | None]]()
        self._joins_left = MAX_JOINED_LINES * 10

    def has_more(self) -> bool:
        """Return True if there is another line."""
        if not self._waiting and (line := next(self._source, None)) is not None:
            self._waiting.append(line)
        return bool(self._waiting)

    def take(self) -> tuple[int, bytes | None]:
        """Return the next line with its number."""
        return self._waiting.popleft()

    def take_rest_of(self, raw: bytes) -> Any | None:
        """Take the lines that complete a record, and return it; None, and no line taken, if they do not."""
        if not _is_open(raw):
            return None
        joined = bytearray(raw)
        ahead_lines = list[tuple[int, bytes | None]]()
        start = _first_key(raw)
        while len(ahead_lines) < MAX_JOINED_LINES and self._joins_left and self.has_more():
            self._joins_left -= 1
            ahead_lines.append(self.take())
            line = ahead_lines[-1][1]
            if line is None or len(joined) + len(line) > MAX_LINE_BYTES or (start and _first_key(line) == start):
                break  # the next record begins: this one was cut off
            joined += line
            if line.rstrip(_EDGES).endswith(b"}"):
                value = _value(bytes(joined).strip(_EDGES))
                if isinstance(value, _Parsed):
                    return value.value
                if not _is_open(joined):
                    break
        self._waiting.extendleft(reversed(ahead_lines))
        return None


def _first_key(raw: bytes) -> str:
    """Return the first key of the object that a line begins; empty if it begins none."""
    match = _FIRST_KEY.match(raw[:200].decode(errors="replace"))
    if match:
        return match[1]
    return ""


def _is_open(raw: bytes | bytearray) -> bool:
    """Return True if a text begins a JSON object that ends later: it lacks nothing else so far."""
    text = raw.strip(_EDGES).decode(errors="surrogateescape")
    if not text.startswith("{"):
        return False
    try:
        _permissive.raw_decode(text)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or error.pos >= len(text)
    except (ValueError, RecursionError):
        return False
    return False


def _rows(number: int, raw: bytes | None) -> Iterator[JsonLine]:
    """Yield a line's values. Programs that write at the same time may leave several objects on one line.

    A program that failed to write a record and tried again left a broken copy before the whole one.
    """
    row = _row(number, raw)
    if raw is None or row.kind not in _UNPARSED:
        yield row
        return
    text = raw.strip(_EDGES).decode(errors="surrogateescape")
    end = 0
    problem: Problem | None = None
    while end < len(text):
        record = _record_at(text, end)
        if record is None:
            record = _behind_fragment(text, end)
            problem = Problem(number, "broken copy", "a broken copy of the record before it was skipped")
        if record is None:
            break
        value, after = record
        yield JsonLine(number, value, problem=problem)
        end = _skip_space(text, after)
        problem = Problem(number, "several values", "several JSON objects on this line: each was read")
    if not end or end < len(text):
        yield row


def _record_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """Return the JSON object that begins at a position, and where it ends; None if there is none."""
    if not text.startswith("{", start):
        return None
    try:
        return _permissive.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _skip_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    if space:
        return space.end()
    return start


def _behind_fragment(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """Return the whole record behind its fragment at `start`, and its end; None if there is none.

    Objects inside the fragment do not count: the record has all the fragment's own fields, and the line ends or another
    object begins after it.
    """
    fragment = _FIRST_KEY.match(text, start)
    first_key = fragment[1].partition("{")[0] if fragment else ""
    starts = (match.start() for match in _FIRST_KEY.finditer(text, start + 1) if match[1].startswith(first_key))
    own_keys: set[str] | None = None
    for candidate in islice(starts, MAX_CANDIDATES):
        if own_keys is None:
            own_keys = _own_keys(text[start:candidate])
        record = _record_at(text, candidate)
        if record is None or not own_keys <= record[0].keys():
            continue
        rest = _skip_space(text, record[1])
        if rest == len(text) or text.startswith("{", rest):
            return record
    return None


def _own_keys(fragment: str) -> set[str]:
    """Return the keys of a broken object's own fields, without the keys of nested objects."""
    depth = 0
    keys = set[str]()
    for token in _TOKENS.finditer(fragment):
        if token[0][0] in "{[":
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
        elif token[1] and depth == 1:
            keys.add(token[0].partition('"')[2].rpartition('"')[0])
    return keys


def _row(number: int, raw: bytes | None) -> JsonLine:
    if raw is None:
        return _bad(number, "(line too long)", f"skipped: longer than {MAX_LINE_BYTES // 2**20} MiB")
    if number > 1 and raw.startswith(b"{") and raw.endswith(b"}\n") and isinstance(parsed := _value(raw), _Parsed):
        return JsonLine(number, parsed.value, problem=parsed.problem_at(number))
    text = raw
    if number == 1:
        text = raw.removeprefix(codecs.BOM_UTF8)
    stripped = text.strip(_EDGES)
    leading = text[: len(text) - len(text.lstrip(_EDGES))]
    padded = b"\x00" in leading or text.rstrip(b" \t\r\n").endswith(b"\x00")
    if not stripped and not padded:
        return JsonLine(number, kind="(blank)")
    if not stripped:
        return _bad(number, "(NUL bytes)", "only NUL bytes, as after a crash: the content is lost")
    parsed = _value(stripped)
    if isinstance(parsed, _Parsed):
        problem = parsed.problem_at(number)
        if padded and problem is None:
            problem = Problem(number, "NUL bytes", "NUL bytes around the line were skipped")
        return JsonLine(number, parsed.value, problem=problem)
    if not raw.endswith(b"\n"):
        return _bad(number, "(torn last line)", "last line incomplete (import the file again when it is complete)")
    return _bad(number, "(not JSON)", f"skipped: not JSON ({parsed})")


def _bad(number: int, kind: str, text: str) -> JsonLine:
    return JsonLine(number, kind=kind, problem=Problem(number, kind.strip("()"), text))


_DAMAGES = {
    "not UTF-8": "bytes that are not UTF-8 were kept as lone surrogates",
    "raw characters": "line breaks or other control characters inside strings were not escaped",
}
"""What was wrong with a value that was read nevertheless, by kind."""


class _Parsed(Struct, frozen=True):
    """A parsed value, and the kind of its damage."""

    value: Any
    damage: str = ""

    def problem_at(self, line: int) -> Problem | None:
        """Return the damage as a problem of a line; None without one."""
        if not self.damage:
            return None
        return Problem(line, self.damage, _DAMAGES[self.damage])


def _value(raw: bytes) -> _Parsed | str:
    """Return the JSON value or an error message. The strict, fast parser is tried before the permissive one."""
    try:
        return _Parsed(_decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = raw.decode()
        damage = ""
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "surrogateescape")
        damage = "not UTF-8"
    try:
        return _Parsed(json.loads(text), damage)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        reason = str(error)[:80]
    try:
        return _Parsed(_permissive.decode(text), damage or "raw characters")
    except (ValueError, RecursionError):
        return reason
