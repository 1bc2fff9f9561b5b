"""Searchable text of messages and the parsing of queries, the same on every backend.

Words are runs of letters and digits, compared without case and accents. Chinese, Japanese and Korean have no spaces
between words, so each of their characters is a word, and a run of them in a query is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from nexus.types.message import Part, Text, Thinking, ToolCall, ToolResult, Unknown

_CJK_RANGES = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Ranges of characters that are words of their own: Chinese, Japanese and Korean."""

_CJK = re.compile(f"([{_CJK_RANGES}])")
_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_PIECE = re.compile(r'"([^"]*)"|(\S+)')


def search_text(parts: Iterable[Part]) -> str:
    """Return the searchable text of a message's parts: text, thinking, arguments and results of calls."""
    return space_cjk(all_text(parts))


def all_text(parts: Iterable[Part]) -> str:
    """Return all texts of a message's parts that are searched, one a line."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, (Text, Thinking)):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts += [part.name, part.arguments]
        elif isinstance(part, ToolResult):
            texts += [item.text for item in part.content if isinstance(item, Text)]
        elif isinstance(part, Unknown):
            texts.append(part.raw)
    return "\n".join(texts)


def space_cjk(text: str) -> str:
    """Return the text as it is indexed: without accents and capitals, and with spaces around CJK characters."""
    if text.isascii():
        return text.replace("\x00", " ")
    try:
        text.encode()  # the fastest way to see that a text has no lone surrogates, as most have none
        text = text.replace("\x00", " ").replace("\x1a", " ")
    except UnicodeEncodeError:
        text = _UNSAFE.sub(" ", text)
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if not line.isascii():
            bare = _MARKS.sub("", unicodedata.normalize("NFD", line))
            lines[place] = " ".join(_CJK.split(unicodedata.normalize("NFC", bare).casefold()))
    return "\n".join(lines)


def parse_query(query: str) -> list[list[str]]:
    """Parse a query into phrases of words, all of which a message must contain."""
    phrases = (words(quoted or bare) for quoted, bare in _PIECE.findall(query))
    return [phrase for phrase in phrases if phrase]


def words(text: str) -> list[str]:
    """Return the words of a text, in the form in which they are compared."""
    return "".join(map(_plain, space_cjk(text))).split()


def matches(text: str, wanted: list[list[str]]) -> bool:
    """Return True if a text contains all phrases."""
    have = words(text)
    starts = range(len(have))
    return all(any(have[at : at + len(phrase)] == phrase for at in starts) for phrase in wanted)


def _plain(character: str) -> str:
    """Return a letter or digit in lower case; a space for all else."""
    if character.isascii():
        return character.lower() if character.isalnum() else " "
    kind = unicodedata.category(character)
    return character if kind[0] in "LN" or kind == "Co" else " "
