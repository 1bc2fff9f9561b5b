"""Searchable text of messages and the parsing of queries, the same on every backend.

Words are runs of letters and digits, compared without case and accents. Chinese, Japanese and Korean have no spaces
between words, so each of their characters is a word, and a run of them in a query is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from nexus.types.message import Part, Text, Thinking, ToolCall, ToolResult, Unknown

_CJK_RANGES = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Ranges of characters that are words of their own: Chinese, Japanese and Korean."""

_CJK = re.compile(f"([{_CJK_RANGES}])")
_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_PARTIAL_WORD = re.compile(r"\S{0,20}\s+")
_PIECE = re.compile(r'"([^"]*)"|(\S+)')

Pieces: TypeAlias = list[tuple[str, bool]]
"""Pieces of a text, each with True if it matches the search."""


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
    return space_cjk(text).translate(_plain_forms).split()


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


class _PlainForms(dict[int, str]):
    """Each character's form by its number, computed when it is first needed."""

    def __missing__(self, number: int) -> str:
        self[number] = form = _plain(chr(number))
        return form


_plain_forms = _PlainForms()


def excerpt_pieces(text: str, phrases: list[list[str]], *, before: int, chars: int) -> Pieces:
    """Return the text around its first match of a phrase (from `parse_query`); empty if nothing matches.

    Args:
        text: The text as it was written.
        phrases: The phrases, of which any may match.
        before: Characters before the first match.
        chars: Characters from the first match on.
    """
    normalized = unicodedata.normalize("NFC", text)
    match = next(_matches(normalized, phrases), None)
    if match is None:
        return []
    # An excerpt is longer than its limit only if the first match is.
    start, end = max(0, match[0] - before), match[0] + chars
    # The excerpt begins at a word, not within one.
    partial = _PARTIAL_WORD.match(normalized, start, match[0]) if start else None
    start = partial.end() if partial else start
    pieces: Pieces = [("… " if start else "", False)]
    at = start
    for low, high in _matches(normalized[start : max(end, match[1])], phrases):
        pieces += [(normalized[at : start + low], False), (normalized[start + low : start + high], True)]
        at = start + high
    end = max(end, at)
    pieces += [(normalized[at:end], False), (" …" if end < len(normalized) else "", False)]
    return [piece for piece in pieces if piece[0]]


def _matches(text: str, phrases: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield the positions of phrases in a text, from left to right, without overlaps."""
    longest = max(map(len, phrases), default=0)
    tokens: list[tuple[str, int, int]] = []
    free_from = 0
    for token in _tokens(text):
        tokens = [*tokens, token][-longest:] if longest else []
        for phrase in phrases:
            tail = tokens[-len(phrase) :]
            if [text for text, _, _ in tail] == phrase and tail[0][1] >= free_from:
                free_from = token[2]
                yield tail[0][1], token[2]
                break


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text in their search form, each with its start and end."""
    token, start, end = "", 0, 0
    for at, character in enumerate(text):
        letters, kind = _kind(character)
        if kind == "mark":
            end = at + 1
            continue
        if kind != "letter" and token:
            yield token, start, end
            token = ""
        if kind == "word":
            yield letters, at, at + 1
        elif kind == "letter":
            start = start if token else at
            token, end = token + letters, at + 1
    if token:
        yield token, start, end


@lru_cache(maxsize=1 << 14)
def _kind(character: str) -> tuple[str, str]:
    """Return a character's search form and its role: letter, word (a word by itself), mark (ignored) or end.

    The search index decides: the character is put between two letters and split as the index splits text.
    """
    parts = words(f"a{character}a")
    if len(parts) == 1:
        return parts[0][1:-1], "letter" if len(parts[0]) > 2 else "mark"
    return (parts[1], "word") if len(parts) == 3 else ("", "end")
