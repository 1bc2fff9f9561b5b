"""Independent search for everything a careless reader could take for a frame tag, to check finished contexts.

It shares no code with the escape, so that a fault of one is found by the other: tags and look-alikes are listed again,
characters are classified by the running Python's Unicode data, and tags are found by patterns. It is slower than the
escape and never changes a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from nexus.text.frames.escaping import Scope


class Sighting(NamedTuple):
    """A possible frame tag: its position in the text, and the tag that it resembles."""

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
# Unassigned characters are not in the list: one of a newer Unicode version may be a letter.
_UNSEEN_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Mn", "Me")

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
    """Return every possible tag of the scope in the text, in order, the frame's own tags included."""
    sightings = set(_sightings(text, scope))
    # Invisible tag characters count as the ASCII characters that they mirror.
    plain = "".join(chr(ord(char) - 0xE0000) if "\U000e0020" <= char <= "\U000e007e" else char for char in text)
    if plain != text:
        sightings.update(_sightings(plain, scope))
    return tuple(sorted(sightings))


def _sightings(text: str, scope: Scope) -> Iterator[Sighting]:
    pieces: list[str] = []
    positions: list[int] = []
    for position, char in enumerate(text):
        glyphs = _glyphs(char)
        pieces.append(glyphs)
        positions.extend([position] * len(glyphs))
    plain = "".join(pieces)
    for pattern, tags in _patterns(scope):
        for match in pattern.finditer(plain):
            name = match.lastgroup or ""
            yield Sighting(positions[match.start(name)], tags[name])


@lru_cache(1 << 14)
def _glyphs(char: str) -> str:
    """Return how a character reads: empty, a blank, a line break, a dash, letters, or the character itself."""
    if char in _LINE_ENDS:
        return "\n"
    if char.isascii():
        lower = char.lower()
        if char.isprintable():
            return _TAKEN_FOR.get(lower, lower)
        if char == "\t":
            return " "
        return ""
    category = unicodedata.category(char)
    if category == "Zs" or char == "\u2800":
        return " "
    if category in _UNSEEN_CATEGORIES or char in _HIDDEN:
        return ""
    if category in ("Pd", "Pc"):
        return "-"
    if char in _TAKEN_FOR:
        parts = char
    else:
        parts = unicodedata.normalize("NFKD", char)
    plain = "".join(_TAKEN_FOR.get(part) or part.lower() for part in parts if not unicodedata.combining(part))
    if plain.strip():
        return "".join(_TAKEN_FOR.get(letter, letter) for letter in plain)
    return char


@cache
def _patterns(scope: Scope) -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """Return each pattern with the tags of its groups."""
    patterns = [_pattern("^ *(?:{})", _LINE_MARKS), _pattern("(?:{})", _MARKS_ANYWHERE)]
    if scope == "memory":
        calls = _loosely("[tool use:")  # a line that begins so lists tool calls, whatever their arguments contain
        patterns.append(_pattern(rf"^ *(?:(?!{calls})\[[^\]\n]*\] *)?(?:{{}})", _SPEAKERS))
    return tuple(patterns)


def _pattern(frame: str, tags: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    names = {f"tag{number}": tag for number, tag in enumerate(tags)}
    choices = "|".join(f"(?P<{name}>{_loosely(tag)})" for name, tag in names.items())
    return re.compile(frame.format(choices), re.MULTILINE), names


def _loosely(tag: str) -> str:
    """Return a pattern for a tag with optional blanks and dashes between any two characters.

    Right after a bracket only white space is allowed. An opening tag with white space there has to be closed.
    """
    blank = "[ \n]*"
    between = "[ _-]*" if tag in _SPEAKERS else "[ _\n-]*"
    signs = [_ALIKE.get(sign, re.escape(sign)) for sign in tag if sign != " "]
    rest = between.join(signs[1:])
    if tag[0] == "<" and tag[1] != "/":
        return rf"<(?:{rest}|[ \n]+{rest}{between}[>/])"
    if tag[0] in "<[;":
        return f"{signs[0]}{blank}{rest}"
    return f"{signs[0]}{between}{rest}"
