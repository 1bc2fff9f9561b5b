"""Finds every place that a careless reader could take for a mark, to check contexts that are ready.

It is written apart from the escape, so that a fault of one is seen by the other: marks, look-alikes and the way of
reading are its own, characters are judged by the running Python's Unicode data, and marks by patterns over the text as
it is read, with white space where it stands. It reads more slowly, and never changes a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from nexus.text.frames.places import Scope


class Sighting(NamedTuple):
    """What could be taken for a mark, and where in the text it begins."""

    at: int
    mark: str


_LINE_MARKS = (
    "[capabilities", "[shared memory", "[friends info", "[this moment", "[mood", "[constraints",
    "[previous conversation summary", "[runtime context", "[context summary", "[session started:",
    "[result unavailable:", "[earlier messages left out", "[event metadata", "[hook data", "[attached file:",
    "[memory facts", "[system message]", "[the conversation starts with the assistant",
)  # fmt: skip
_MARKS_ANYWHERE = (
    "<human input", "<current time", "</human input", "</current time", "[tool use:", ";tool use:",
)  # fmt: skip
_SPEAKERS = ("human:", "nexus:")

_LINE_ENDS = frozenset("\x0a\x0b\x0c\x0d\x1c\x1d\x1e\x85\u2028\u2029")
_NOT_SEEN = ("Cc", "Cf", "Co", "Cs", "Mn", "Me")
"""Not the unassigned ones: what this Python does not know yet may well be a letter."""

_HIDDEN = frozenset("\u115f\u1160\u3164\uffa0\ufffd")
_ALSO = {
    "a": "аαɑ", "b": "ьв", "c": "сϲϹ", "d": "ԁ", "e": "еҽ℮", "f": "ꜰ", "h": "һհнΗ", "i": "іιıɩӏ|l1ⅼ", "j": "јϳ", "k": "кκ",
    "n": "ոηпΝ", "o": "оοօσ0", "p": "рρ", "q": "ԛ", "r": "гʀ", "s": "ѕꜱ", "t": "тτ", "u": "սυ", "v": "ѵν", "w": "ԝω", "x": "хχ",
    "y": "уүγΥ", "<": "‹〈⟨❮˂ᐸ«《", ">": "›〉⟩❯˃ᐳ»》", "[": "【〔⟦「『〖", "]": "】〕⟧」』〗", "/": "∕⁄⧸╱",
    ":": "꞉∶˸ː։", ";": "\u037e⁏", "-": "−⁻",
}  # fmt: skip
_ALIKE = {"m": "(?:m|rn)", "l": "i"}
_TAKEN_FOR = {char: plain for plain, chars in _ALSO.items() for char in chars}


def scan(text: str, scope: Scope = "block") -> tuple[Sighting, ...]:
    """All places where the text, read without care, has a mark of the scope, in order; the frame's own among them."""
    found = set(_sightings(text, scope))
    said = "".join(chr(ord(char) - 0xE0000) if "\U000e0020" <= char <= "\U000e007e" else char for char in text)
    if said != text:
        found.update(_sightings(said, scope))
    return tuple(sorted(found))


def _sightings(text: str, scope: Scope) -> Iterator[Sighting]:
    read: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text):
        glyphs = _glyphs(char)
        read.append(glyphs)
        places.extend([place] * len(glyphs))
    whole = "".join(read)
    for pattern, marks in _patterns(scope):
        for found in pattern.finditer(whole):
            name = found.lastgroup or ""
            yield Sighting(places[found.start(name)], marks[name])


@lru_cache(1 << 14)
def _glyphs(char: str) -> str:
    """What is read for a character: nothing, a blank, a line's end, a dash, letters, or the character itself."""
    if char in _LINE_ENDS:
        return "\n"
    if char.isascii():
        lower = char.lower()
        return _TAKEN_FOR.get(lower, lower) if char.isprintable() else (" " if char == "\t" else "")
    category = unicodedata.category(char)
    if category == "Zs" or char == "\u2800":
        return " "
    if category in _NOT_SEEN or char in _HIDDEN:
        return ""
    if category in ("Pd", "Pc"):
        return "-"
    whole = char if char in _TAKEN_FOR else unicodedata.normalize("NFKD", char)
    plain = "".join(_TAKEN_FOR.get(one) or one.lower() for one in whole if not unicodedata.combining(one))
    return "".join(_TAKEN_FOR.get(one, one) for one in plain) if plain.strip() else char


@cache
def _patterns(scope: Scope) -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """Each pattern with the marks that its groups stand for."""
    found = [_pattern("^ *(?:{})", _LINE_MARKS), _pattern("(?:{})", _MARKS_ANYWHERE)]
    if scope == "memory":
        used = _loosely("[tool use:")  # a line that begins so is read as that, whatever its arguments hold
        found.append(_pattern(rf"^ *(?:(?!{used})\[[^\]\n]*\] *)?(?:{{}})", _SPEAKERS))
    return tuple(found)


def _pattern(around: str, marks: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    names = {f"mark{number}": mark for number, mark in enumerate(marks)}
    choices = "|".join(f"(?P<{name}>{_loosely(mark)})" for name, mark in names.items())
    return re.compile(around.format(choices), re.MULTILINE), names


def _loosely(mark: str) -> str:
    """A pattern for a mark in which blanks and dashes may stand between any two signs, and need not where the mark has some.

    Right after a bracket it is white space only. An opening tag with white space there has to be closed.
    """
    blank, between = "[ \n]*", "[ _-]*" if mark in _SPEAKERS else "[ _\n-]*"
    signs = [_ALIKE.get(sign, re.escape(sign)) for sign in mark if sign != " "]
    rest = between.join(signs[1:])
    if mark[0] == "<" and mark[1] != "/":
        return rf"<(?:{rest}|[ \n]+{rest}{between}[>/])"
    return f"{signs[0]}{blank}{rest}" if mark[0] in "<[;" else f"{signs[0]}{between}{rest}"
