"""Reads a file as JSON: one value a line, or the whole file as one value, decided by its content.

Lines come one by one, so memory follows the longest line and not the file. What crashes and editors leave behind is
read as far as it goes: a byte order mark, CRLF, runs of NUL, a last line that was cut off, bytes that are not UTF-8
(kept as lone surrogates). Each line that is no JSON comes with the problem instead of a value.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from nexus.errors import UnreadableFile
from nexus.interop.transcript import Problem

MAX_LINE_BYTES = 256 * 2**20
"""A longer line is reported and passed over."""

_decode = msgspec.json.Decoder().decode
_EDGES = b"\x00 \t\r\n"


class JsonLine(Struct, frozen=True):
    """One line: its number (from 1) and value, or in `kind` why it has none. A problem may stand beside a value."""

    line: int
    value: Any = None
    kind: str = ""
    problem: Problem | None = None


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """All lines of a JSON Lines file, blank ones included; a file that is one JSON value over many lines is one row.

    Raises UnreadableFile when the path is not a regular file, cannot be opened or read, or is empty.
    """
    try:
        if not path.is_file():
            raise UnreadableFile(f"{path} is not there or no regular file: give the path of a session file")
        with path.open("rb") as file:
            yield from _rows(file, path)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error


def _rows(file: BinaryIO, path: Path) -> Iterator[JsonLine]:
    head = next((raw for raw in _lines(file) if raw is None or raw.strip(_EDGES)), b"")
    if head == b"":
        raise UnreadableFile(f"{path} is empty: there is nothing to read")
    if head is not None and not isinstance(_value(head.removeprefix(codecs.BOM_UTF8)), _Found):
        whole = _whole(file)
        if whole is not None:
            yield JsonLine(1, whole.value)
            return
    file.seek(0)
    for number, raw in enumerate(_lines(file), 1):
        yield _row(number, raw)


def _whole(file: BinaryIO) -> _Found | None:
    """The whole file as one value, if it is one and not too large."""
    file.seek(0)
    data = file.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        return None
    found = _value(data.removeprefix(codecs.BOM_UTF8).strip(_EDGES))
    return found if isinstance(found, _Found) and isinstance(found.value, (dict, list)) else None


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The file's lines with their ends; None for one that is too long."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        if len(raw) <= MAX_LINE_BYTES:
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES)
        yield None


def _row(number: int, raw: bytes | None) -> JsonLine:
    if raw is None:
        return _bad(number, "(line too long)", f"longer than {MAX_LINE_BYTES // 2**20} MiB: passed over")
    text = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
    stripped = text.strip(_EDGES)
    padded = b"\x00" in text[: len(text) - len(text.lstrip(_EDGES))] or text.rstrip(b" \t\r\n").endswith(b"\x00")
    if not stripped and not padded:
        return JsonLine(number, kind="(blank)")
    if not stripped:
        return _bad(number, "(NUL bytes)", "nothing but NUL bytes, as a crash leaves them: what stood here is lost")
    found = _value(stripped)
    if isinstance(found, _Found):
        return JsonLine(number, found.value, problem=_blemish(number, damaged=found.damaged, padded=padded))
    if not raw.endswith(b"\n"):
        return _bad(number, "(torn last line)", "the last line is incomplete: read the file again when it is whole")
    return _bad(number, "(not JSON)", f"not JSON ({found}): passed over")


def _blemish(number: int, *, damaged: bool, padded: bool) -> Problem | None:
    if damaged:
        return Problem(number, "not UTF-8", "bytes that are not UTF-8 were kept as lone surrogates")
    return Problem(number, "NUL bytes", "NUL bytes around the line were passed over") if padded else None


def _bad(number: int, kind: str, text: str) -> JsonLine:
    return JsonLine(number, kind=kind, problem=Problem(number, kind.strip("()"), text))


class _Found(Struct, frozen=True):
    """A value that was read; `damaged` when its bytes were not UTF-8."""

    value: Any
    damaged: bool = False


def _value(raw: bytes) -> _Found | str:
    """The JSON value, or what is wrong with it. The strict and fast reader first, then the permissive one."""
    try:
        return _Found(_decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text, damaged = raw.decode(), False
    except UnicodeDecodeError:
        text, damaged = raw.decode("utf-8", "surrogateescape"), True
    try:
        return _Found(json.loads(text), damaged)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return str(error)[:80]
