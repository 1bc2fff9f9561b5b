"""Tolerant JSON reader: one value a line, or the complete file as one value, decided by its content.

Lines are read one at a time, so memory depends on the longest line. Traces of crashes and editors are tolerated: a byte
order mark, CRLF, runs of NUL, several objects on one line, a last line that was cut off, bytes that are not UTF-8 (kept
as lone surrogates). A line that is not JSON has a problem instead of a value.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
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

_decode = msgspec.json.Decoder().decode
_decode_first = json.JSONDecoder().raw_decode
_SPACE = re.compile("[\\x00 \\t]*")
_UNPARSED = ("(torn last line)", "(not JSON)")
_EDGES = b"\x00 \t\r\n"


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

    Raises UnreadableFile if the path is not a regular file, cannot be opened or read, or is empty.
    """
    try:
        if not path.is_file():
            raise UnreadableFile(f"{path} not found or not a regular file (give the path of a session file)")
        with path.open("rb") as file:
            head = next((raw for raw in _lines(file) if raw is None or raw.strip(_EDGES)), b"")
            if head == b"":
                raise UnreadableFile(f"{path} is empty")
            if head is not None and not isinstance(_value(head.removeprefix(codecs.BOM_UTF8)), _Parsed):
                # The first line is no value: the file may be one indented value.
                file.seek(0)
                data = file.read(MAX_LINE_BYTES + 1)
                data = data.removeprefix(codecs.BOM_UTF8).strip(_EDGES) if len(data) <= MAX_LINE_BYTES else b""
                document = _value(data)
                if isinstance(document, _Parsed) and isinstance(document.value, (dict, list)):
                    if on_read is not None:
                        on_read(file.tell())
                    yield JsonLine(1, cast("Any", document.value))
                    return
            file.seek(0)
            for number, raw in enumerate(_lines(file), 1):
                if on_read is not None:
                    on_read(file.tell())
                yield from _rows(number, raw)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


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


def _rows(number: int, raw: bytes | None) -> Iterator[JsonLine]:
    """Yield a line's value. Programs that write at the same time may leave several objects on one line."""
    row = _row(number, raw)
    text = raw.strip(_EDGES).decode(errors="surrogateescape") if row.kind in _UNPARSED and raw is not None else ""
    end = 0
    while text.startswith("{", end):
        try:
            value, after = _decode_first(text, end)
        except (ValueError, RecursionError):
            break
        problem = Problem(number, "several values", "several JSON objects on this line: each was read") if end else None
        yield JsonLine(number, value, problem=problem)
        space = _SPACE.match(text, after)
        end = space.end() if space else after
    if not end or end < len(text):
        yield row


def _row(number: int, raw: bytes | None) -> JsonLine:
    if raw is None:
        return _bad(number, "(line too long)", f"skipped: longer than {MAX_LINE_BYTES // 2**20} MiB")
    text = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
    stripped = text.strip(_EDGES)
    padded = b"\x00" in text[: len(text) - len(text.lstrip(_EDGES))] or text.rstrip(b" \t\r\n").endswith(b"\x00")
    if not stripped and not padded:
        return JsonLine(number, kind="(blank)")
    if not stripped:
        return _bad(number, "(NUL bytes)", "only NUL bytes, as after a crash: the content is lost")
    parsed = _value(stripped)
    if isinstance(parsed, _Parsed):
        problem = Problem(number, "NUL bytes", "NUL bytes around the line were skipped") if padded else None
        if parsed.damaged:
            problem = Problem(number, "not UTF-8", "bytes that are not UTF-8 were kept as lone surrogates")
        return JsonLine(number, parsed.value, problem=problem)
    if not raw.endswith(b"\n"):
        return _bad(number, "(torn last line)", "last line incomplete (import the file again when it is complete)")
    return _bad(number, "(not JSON)", f"skipped: not JSON ({parsed})")


def _bad(number: int, kind: str, text: str) -> JsonLine:
    return JsonLine(number, kind=kind, problem=Problem(number, kind.strip("()"), text))


class _Parsed(Struct, frozen=True):
    """A parsed value; `damaged` if its bytes were not UTF-8."""

    value: Any
    damaged: bool = False


def _value(raw: bytes) -> _Parsed | str:
    """Return the JSON value or an error message. The strict, fast parser is tried before the permissive one."""
    try:
        return _Parsed(_decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text, damaged = raw.decode(), False
    except UnicodeDecodeError:
        text, damaged = raw.decode("utf-8", "surrogateescape"), True
    try:
        return _Parsed(json.loads(text), damaged)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return str(error)[:80]
