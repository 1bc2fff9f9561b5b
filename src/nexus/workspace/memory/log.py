"""HISTORY.md as text: entries `[2026-03-06 14:30] text`, further lines indented. Nothing in it is ever rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nexus.workspace.memory.normalize import INDENT

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\] ?")


class LogEntry(Struct, frozen=True):
    """An entry of the log: its number from 1, the time as it is written there ("" if none), its text."""

    number: int
    at: str
    text: str


def log_line(at: str, text: str) -> str:
    """The entry as it is appended."""
    first, *more = text.split("\n")
    return "\n".join([f"[{at}] {first}", *(f"{INDENT}{line}".rstrip() for line in more)]) + "\n"


def log_entries(lines: Iterable[str]) -> Iterator[LogEntry]:
    """The entries, oldest first. A line that begins with a time in brackets begins one; what stands before is one too."""
    number, at, kept = 0, "", list[str]()
    for line in lines:
        found = _STAMP.match(line)
        if found is None:
            kept.append(line.rstrip("\r\n").removeprefix(INDENT))
            continue
        if text := "\n".join(kept).strip():
            number += 1
            yield LogEntry(number, at, text)
        at, kept = found[1], [line[found.end() :].rstrip("\r\n")]
    if text := "\n".join(kept).strip():
        yield LogEntry(number + 1, at, text)
