"""Frame tags that text from elsewhere must not be able to write, and the skeletons of characters (UTS #39).

Most tags are named by the documented prompt formats; Nexus writes the others around messages and in place of omitted
ones. Tags are recognized in any case, in look-alike letters and brackets, and with or without white space, dashes,
underscores or invisible characters between their letters. Skeletons, the letters that characters look like, are from a
shipped table of one Unicode version.
"""

from __future__ import annotations

import json
import pkgutil
from bisect import bisect_right
from functools import cache, lru_cache

MARKS_VERSION = 1
"""Raised with every change of a tag or of the table of shapes: text is unescaped by the version that escaped it."""

HEADS = (
    "[CAPABILITIES",
    "[SHARED_MEMORY",
    "[FRIENDS_INFO",
    "[THIS_MOMENT",
    "[MOOD",
    "[CONSTRAINTS",
    "[Previous conversation summary",
    "[Runtime Context",
    "[CONTEXT SUMMARY",
    "[Session started:",
    "[result unavailable:",
    "[Earlier messages left out",
    "[Event metadata",
    "[Hook data",
    "[Attached file:",
    "[Memory — facts",
    "[System message]",
    "[The conversation starts with the assistant",
)
"""Tags at the beginning of a line; the first ten are from the documented formats."""

CALLS = ("[tool_use:", "; tool_use:")
"""Tags anywhere: the first and each further entry of a line of tool calls."""

TAGS = ("human_input", "current_time")
"""Tags anywhere, as `<name` and `</name`. With white space after the `<`, an opening tag counts only if it is closed:
code contains comparisons such as `now < current_time`."""

ROLES = ("Human:", "Nexus:")
"""Tags at the beginning of a line of the flattened memory, alone or after a bracket (`[2025-12-10 15:30]`)."""

BREAK = "\n"
BLANK = " "
UNSEEN = ""
JOINT = "_"

CACHED_CHARACTERS = 1 << 14
"""Characters whose skeleton is cached; a text seldom has more distinct ones."""


@cache
def characters_by_skeleton() -> dict[str, str]:
    """Return the shipped table: skeletons with their characters, as hexadecimal ranges (`380+3`: U+0380 to U+0383).

    `scripts/build_fold_table.py` writes it. A change needs a new `MARKS_VERSION`.
    """
    # Python's own `unicodedata` differs between versions, and an escape must be undone by the rules that made it.
    return json.loads(pkgutil.get_data("nexus.text.frames", "data/shapes.json") or b"")["shapes"]


@lru_cache(CACHED_CHARACTERS)
def skeleton(char: str) -> str | None:
    """Return the letters that a character looks like, in lower case; None if it cannot be part of a tag.

    `BREAK` is a line break of any kind, `BLANK` white space, `UNSEEN` an invisible character, `JOINT` a dash or an
    underscore. Letters that are easily confused share a skeleton: i, l and 1 are "i", 0 is "o", m is "rn".
    """
    starts, ends, shapes = _ranges()
    code = ord(char)
    index = bisect_right(starts, code) - 1
    if index >= 0 and code <= ends[index]:
        return shapes[index]
    return None


def skeletons(text: str) -> str:
    """Return the skeleton of a tag of the vocabulary: letters only, without blanks and joints.

    Raises ValueError for a character that cannot be part of a tag.
    """
    shapes = [(char, skeleton(char)) for char in text]
    if unmapped := next((char for char, shape in shapes if shape is None), ""):
        raise ValueError(f"{text!r} cannot be a tag: character {unmapped!r} has no skeleton")
    return "".join(shape for _, shape in shapes if shape and shape not in (BREAK, BLANK, JOINT))


def characters(shape: str) -> str:
    """Return all characters with this skeleton, in order."""
    spans = _parse(characters_by_skeleton()[shape])
    return "".join(chr(code) for start, end in spans for code in range(start, end + 1))


@cache
def unmapped_characters() -> str:
    """Return the characters up to U+FFFF without a skeleton, as the inside of a regular expression's class."""
    starts, ends, _ = _ranges()
    gaps = zip((0x80, *(end + 1 for end in ends)), starts, strict=False)
    return "".join(f"{chr(first)}-{chr(after - 1)}" for first, after in gaps if 0x80 <= first < after <= 0x10000)


@cache
def _ranges() -> tuple[list[int], list[int], list[str]]:
    """Return starts, ends and skeletons of all ranges, sorted by start."""
    ordered = sorted((*span, shape) for shape, listed in characters_by_skeleton().items() for span in _parse(listed))
    return [start for start, _, _ in ordered], [end for _, end, _ in ordered], [shape for _, _, shape in ordered]


def _parse(listed: str) -> list[tuple[int, int]]:
    pairs = (entry.partition("+") for entry in listed.split(" "))
    return [(int(start, 16), int(start, 16) + int(more or "0", 16)) for start, _, more in pairs]
