"""What a character looks like to a reader of marks, by a table that no version of Python changes."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, lru_cache

from nexus.text.frames.table import SHAPES

BREAK, BLANK, UNSEEN, JOINT = "\n", " ", "", "_"

KEPT_SHAPES = 1 << 14
"""Characters whose shape is kept; a text seldom has more."""


@lru_cache(KEPT_SHAPES)
def skeleton(char: str) -> str | None:
    """The letters that a character looks like, in lower case; None when it can be in no mark.

    `BREAK` for a line break of any kind, `BLANK` for white space, `UNSEEN` for what nobody sees, `JOINT` for a dash or
    an underscore. Letters that are easily confused are one: i, l and 1 are "i", 0 is "o", m is "rn".
    """
    starts, ends, shapes = _ranges()
    code = ord(char)
    place = bisect_right(starts, code) - 1
    return shapes[place] if place >= 0 and code <= ends[place] else None


def skeletons(text: str) -> str:
    """A mark of the vocabulary as it is looked for: letters only, without blanks and joints.

    Raises ValueError for a character that is nothing in a mark.
    """
    found = [(char, skeleton(char)) for char in text]
    unknown = [char for char, folded in found if folded is None]
    if unknown:
        raise ValueError(f"{text!r} cannot be a mark: nothing looks like {unknown[0]!r}")
    return "".join(folded for _, folded in found if folded and folded not in (BREAK, BLANK, JOINT))


def characters(wanted: str) -> str:
    """All characters that look like this, in order."""
    return "".join(chr(code) for code, end in _parsed(SHAPES[wanted]) for code in range(code, end + 1))


@cache
def unmapped_characters() -> str:
    """The characters up to U+FFFF that look like nothing in a mark, as the inside of a pattern's class of characters."""
    starts, ends, _ = _ranges()
    gaps = zip((0x80, *(end + 1 for end in ends)), starts, strict=False)
    return "".join(f"{chr(first)}-{chr(after - 1)}" for first, after in gaps if 0x80 <= first < after <= 0x10000)


@cache
def _ranges() -> tuple[list[int], list[int], list[str]]:
    ordered = sorted((*span, folded) for folded, listed in SHAPES.items() for span in _parsed(listed))
    return [row[0] for row in ordered], [row[1] for row in ordered], [row[2] for row in ordered]


def _parsed(listed: str) -> list[tuple[int, int]]:
    pairs = (one.partition("+") for one in listed.split(" "))
    return [(int(first, 16), int(first, 16) + int(more or "0", 16)) for first, _, more in pairs]
