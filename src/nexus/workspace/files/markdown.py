"""What of Markdown matters where a text is shortened or put into another one: code fences."""

from __future__ import annotations

import re

from msgspec import Struct

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)


class Fence(Struct, frozen=True):
    """A code fence: where its first line begins and its last one ends, and what closes it. `open`: nothing does."""

    start: int
    end: int
    run: str
    open: bool = False


def fences(text: str) -> tuple[Fence, ...]:
    """The code fences of a text, in order; one that is never closed reaches to the end."""
    found: list[Fence] = []
    start, run = -1, ""
    for line in _FENCE.finditer(text):
        marks, rest = line[1], line[2]
        if not run:
            if marks[0] == "`" and "`" in rest:
                continue  # code within one line
            start, run = line.start(), marks
        elif marks[0] == run[0] and len(marks) >= len(run) and not rest.strip():
            found.append(Fence(start, line.end(), run))
            run = ""
    if run:
        found.append(Fence(start, len(text), run, open=True))
    return tuple(found)


def close_fences(text: str) -> str:
    """The text with a last line that closes its code fence, if one is open."""
    found = fences(text)
    return f"{text}\n{found[-1].run}" if found and found[-1].open else text
