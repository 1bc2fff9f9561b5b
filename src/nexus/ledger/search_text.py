"""Searchable text of messages and the parsing of queries, the same on every backend.

Words are runs of letters and digits, compared without case and accents. Chinese, Japanese and Korean have no spaces
between words, so each of their characters is a word, and a run of them in a query is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from nexus.types.message import Part, Text, Thinking, ToolCall, ToolResult, Unknown

_WORDS = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Ranges of characters that are words of their own: Chinese, Japanese and Korean."""

_CJK = re.compile(f"([{_WORDS}])")
_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_PIECE = re.compile(r'"([^"]*)"|(\S+)')


def search_text(parts: Iterable[Part]) -> str:
    """Return the searchable text of a message's parts: text, thinking, arguments and results of calls."""
    return space_cjk(all_text(parts))


def all_text(parts: Iterable[Part]) -> str:
    """Return all texts of a message's parts that are searched, one a line."""
    return "\n".join(_texts(parts))


def space_cjk(text: str) -> str:
    """Return the text as it is indexed.

    Text beyond ASCII has no accents and no capitals there, and a space on each side of a character that is a word.
    """
    if text.isascii():
        return text.replace("\x00", " ")
    # Nothing of it reaches over the end of a line, and most lines have nothing to do.
    lines = _without_unsafe(text).split("\n")
    return "\n".join([line if line.isascii() else _spaced(line) for line in lines])


def _spaced(line: str) -> str:
    bare = _MARKS.sub("", unicodedata.normalize("NFD", line))
    return " ".join(_CJK.split(unicodedata.normalize("NFC", bare).casefold()))


def _without_unsafe(text: str) -> str:
    """Return the text with spaces for characters that a database may reject.

    Most texts have none, which encoding detects fastest.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _UNSAFE.sub(" ", text)
    return text.replace("\x00", " ").replace("\x1a", " ")


def parse_query(query: str) -> list[list[str]]:
    """Parse a query into phrases of words, all of which a message must contain.

    A query without any word gives none.
    """
    phrases = (words(quoted or bare) for quoted, bare in _PIECE.findall(query))
    return [phrase for phrase in phrases if phrase]


def words(text: str) -> list[str]:
    """Return the words of a text, in the form in which they are compared."""
    return "".join(map(_plain, space_cjk(text))).split()


def matches(text: str, wanted: list[list[str]]) -> bool:
    """Return True if a text contains all phrases."""
    have = words(text)
    return all(_has(have, phrase) for phrase in wanted)


def _has(have: list[str], phrase: list[str]) -> bool:
    size = len(phrase)
    return any(have[at : at + size] == phrase for at in range(len(have) - size + 1))


def _plain(character: str) -> str:
    """Return a letter or digit in lower case; a space for all else."""
    if character.isascii():
        return character.lower() if character.isalnum() else " "
    kind = unicodedata.category(character)
    return character if kind[0] in "LN" or kind == "Co" else " "


def _texts(parts: Iterable[Part]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, (Text, Thinking)):
            yield part.text
        elif isinstance(part, ToolCall):
            yield part.name
            yield part.arguments
        elif isinstance(part, ToolResult):
            yield from (item.text for item in part.content if isinstance(item, Text))
        elif isinstance(part, Unknown):
            yield part.raw
