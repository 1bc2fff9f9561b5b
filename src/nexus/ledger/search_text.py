"""Searchable text of messages and the parsing of queries, the same on every backend.

Words are runs of letters and digits, compared without case, marks (accents, vowel signs, tones) and compatibility forms
(NFKC). Some scripts have no spaces between words, such as Chinese, Japanese, Thai and Khmer, so each of their letters is
a word, and a run of them in a query is a phrase. Emoji are words. The parts of a name in camel case are words as well, and
so is a name in snake case without its underscores.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice
from typing import TypeAlias

from nexus.types.message import Part, Text, Thinking, ToolCall, ToolResult, Unknown

_WITHOUT_SPACES = (
    # Chinese, Japanese and Korean
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00016fe0-\U00018cff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff"
    # Thai, Lao, Burmese, Khmer
    "\u0e01-\u0e4f\u0e80-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9ff"
    "\uaa60-\uaa7f\u1780-\u17df"
    # Tai Le, New Tai Lue, Tai Tham, Balinese, Javanese, Tai Viet
    "\u1950-\u19cf\u1a20-\u1a7f\u1b00-\u1b4f\ua980-\ua9cf\uaa80-\uaadf"
)
"""Ranges of letters that are words of their own, because their scripts have no spaces between words."""

_LETTER_WORD = re.compile(f"([{_WITHOUT_SPACES}])")
_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_PARTIAL_WORD = re.compile(r"\S{0,20}\s+")
_PIECE = re.compile(r'"([^"]*)"|(\S+)')

_SYMBOLS = re.compile("[\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff]")
"""Emoji and symbols that are used as such; skin tones are left out."""

_HALF_WIDTH_KANA = re.compile("[\uff66-\uff9f]+")
"""Kana whose voice marks are characters of their own."""
_KANA_VOICE_MARKS = "\u3099\u309a"
_UNSPACED_FORMATS = "\u0640"
"""Arabic letter that only lengthens a word; it is removed like format characters."""
_ZERO_WIDTH_SPACE = "\u200b"

LONGEST_NAME = 80
"""Characters of a name whose parts are words. Longer ones are data."""

_PLAIN_SIGNS = "¡-§©«¬®°±¶·»¿×÷–-―‘-•‰‹›←-↙─-◿"
"""Signs that stay as they are in the comparable form. Texts of programs have one in most lines."""

SHORTEST_STEM = 4
"""Letters of the shortest stem of a word."""

_ENDINGS = (
    "ments",
    "ment",
    "ings",
    "ing",
    "ions",
    "ion",
    "ies",
    "ied",
    "ers",
    "er",
    "ed",
    "es",
    "en",
    "ly",
    "s",
    "y",
    "e",
    "",
)
"""Endings of words in English, and some of other languages. The first that leaves a stem is removed."""

_MOST_PLACES = 5_000
"""Words of a text that decide about an excerpt, at most."""

_SEARCHED_CHARS = 20_000
"""Characters in which an excerpt is searched by the words' comparable forms, which takes long."""

_PARTS_FOLLOW = "\U000ffffd"
"""Word between a text's own words and the parts of its names, so that no phrase is in both."""

Pieces: TypeAlias = list[tuple[str, bool]]
"""Pieces of a text, each with True if it matches the search."""


def search_text(parts: Iterable[Part]) -> str:
    """Return the searchable text of a message's parts: text, thinking, arguments and results of calls."""
    return index_text(all_text(parts))


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


def index_text(text: str) -> str:
    """Return a text as it is indexed: in its comparable form, followed by the parts of its names."""
    names = dict.fromkeys(name for name, _ in _names(text))
    parts = " ".join(dict.fromkeys(part for name in names for part in _parts_of(name)))
    plain = comparable(text)
    if parts:
        return f"{plain}\n{_PARTS_FOLLOW}\n{comparable(parts)}"
    return plain


def comparable(text: str) -> str:
    """Return a text without marks, capitals and compatibility forms, with spaces around letters that are words."""
    if text.isascii():
        return text.replace("\x00", " ")
    try:
        text.encode()  # the fastest way to see that a text has no lone surrogates, as most have none
        text = text.replace("\x00", " ").replace("\x1a", " ")
    except UnicodeEncodeError:
        text = _UNSAFE.sub(" ", text)
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if line.isascii():
            continue
        if not _formed().search(line):
            lines[place] = line.lower()
            continue
        bare = unicodedata.normalize("NFKD", line).translate(_bare_forms)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFC", bare).casefold())
        lines[place] = _SYMBOLS.sub(_symbol_word, " ".join(_LETTER_WORD.split(folded)))
    return "\n".join(lines)


@cache
def _formed() -> re.Pattern[str]:
    """Return the pattern of a character that may have another comparable form, or change that of its neighbors."""
    return re.compile(f"[^\x00-\x7f{_PLAIN_SIGNS}]")


class _BareForms(dict[int, str]):
    """Characters by code point; empty text for marks and format characters."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        kind = unicodedata.category(character)
        is_mark = kind[0] == "M" and character not in _KANA_VOICE_MARKS
        is_format = kind == "Cf" and character != _ZERO_WIDTH_SPACE
        self[number] = form = "" if is_mark or is_format or character in _UNSPACED_FORMATS else character
        return form


_bare_forms = _BareForms()


def _symbol_word(match: re.Match[str]) -> str:
    """Return a symbol as a word: a character for private use, because indexes take symbols for spaces."""
    return f" {chr(0xF0000 + (ord(match[0]) & 0xFFFF))} "


def _letters(*, is_upper: bool) -> str:
    """Return the upper or lower case letters of Latin, Greek, Cyrillic, Armenian and Georgian, for a pattern."""
    return "".join(c for c in map(chr, range(0x2000)) if (c.isupper() if is_upper else c.islower()))


_UPPER = _letters(is_upper=True)
_LOWER = _letters(is_upper=False)
_ASCII_LETTERS = f"{string.ascii_letters}{string.digits}_"
_NAME_AT = re.compile(r"\w+")
_ASCII_SEAM = re.compile("[A-Z_](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z])|(?<=[A-Za-z0-9]_)(?=[A-Za-z0-9]))")
_SEAM = re.compile(
    rf"[{_UPPER}_](?:(?<=[{_LOWER}\d][{_UPPER}])|(?<=[{_UPPER}][{_UPPER}])(?=[{_LOWER}])|(?<=[^\W_]_)(?=[^\W_]))"
)
"""First characters of the parts of names, and underscores within names."""

_ASCII_PART = re.compile("[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_PART = re.compile(rf"[{_UPPER}]?[{_LOWER}\d]+|[{_UPPER}\d]+(?![{_LOWER}])|[^\W{_UPPER}{_LOWER}\d_]+")


def _names(text: str) -> Iterator[tuple[str, int]]:
    """Yield the names in camel or snake case with their positions."""
    seams = _ASCII_SEAM if text.isascii() else _SEAM
    end = 0
    while seam := seams.search(text, end):
        start = seam.start()
        first = max(end, start - LONGEST_NAME - 1)
        before = text[first:start]
        start = first + len(before.rstrip(_ASCII_LETTERS))
        while start > first and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
        name = _NAME_AT.match(text, start)
        end = name.end() if name else seam.end()
        if name and end - start <= LONGEST_NAME:
            yield name[0], start


@lru_cache(maxsize=1 << 14)
def _parts_of(name: str) -> tuple[str, ...]:
    """Return the words of a name that a split at `_` misses: camel-case parts, and all parts joined."""
    joined = name.replace("_", "")
    parts = [part[0] for part in _split_name(name)]
    is_snake = parts == [part for part in name.split("_") if part]
    return (*(() if is_snake else parts), *((joined,) if joined != name else ()))


def _split_name(name: str) -> Iterator[re.Match[str]]:
    return (_ASCII_PART if name.isascii() else _PART).finditer(name)


def parse_query(query: str) -> list[list[str]]:
    """Parse a query into phrases of words, all of which a message must contain."""
    phrases = (words(quoted or bare) for quoted, bare in _PIECE.findall(query))
    return [phrase for phrase in phrases if phrase]


def words(text: str) -> list[str]:
    """Return the words of a text, in the form in which they are compared."""
    return comparable(text).translate(_plain_forms).split()


def word_stem(word: str) -> str:
    """Return the beginning that other forms of a word share: `decid` of `decided`; empty for a short word."""
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if len(stem) >= SHORTEST_STEM and (stem != word or not ending):
            if len(stem) > SHORTEST_STEM and stem[-1] == stem[-2]:  # `stopp` of `stopped`
                return stem[:-1]
            return stem
    return ""


def stems_of(phrases: list[list[str]]) -> list[str]:
    """Return the stems of the phrases of one word, each once."""
    stems = (word_stem(phrase[0]) for phrase in phrases if len(phrase) == 1)
    return list(dict.fromkeys(filter(None, stems)))


def matches(text: str, wanted: list[list[str]]) -> bool:
    """Return True if a text contains all phrases."""
    have = index_text(text).translate(_plain_forms).split()
    starts = range(len(have))
    return all(any(have[at : at + len(phrase)] == phrase for at in starts) for phrase in wanted)


def _plain(character: str) -> str:
    """Return a letter or digit in lower case; a space for all else."""
    if character.isascii():
        if character.isalnum():
            return character.lower()
        return " "
    kind = unicodedata.category(character)
    if kind[0] in "LN" or kind == "Co":
        return character
    return " "


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
    normalized = _HALF_WIDTH_KANA.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)
    normalized = unicodedata.normalize("NFC", normalized)
    match = next(_matches(normalized, phrases), None)
    if match is None:
        return []
    # An excerpt is longer than its limit only if the first match is.
    start = max(0, match[0] - before)
    end = match[0] + chars
    # The excerpt begins at a word, not within one.
    partial = None
    if start:
        partial = _PARTIAL_WORD.match(normalized, start, match[0])
    start = partial.end() if partial else start
    pieces: Pieces = [("… " if start else "", False)]
    at = start
    for low, high in _matches(normalized[start : max(end, match[1])], phrases):
        pieces += [(normalized[at : start + low], False), (normalized[start + low : start + high], True)]
        at = start + high
    end = max(end, at)
    pieces += [(normalized[at:end], False), (" …" if end < len(normalized) else "", False)]
    return [piece for piece in pieces if piece[0]]


def best_excerpt(text: str, phrases: list[list[str]], before: int, chars: int) -> str:
    """Return the part of a text that has most of the words of phrases (from `parse_query`), the rare ones of it first.

    Args:
        text: The text as it was written.
        phrases: The phrases. Words count one by one, also in other forms.
        before: Characters before the first of the words.
        chars: Characters from the first of the words on.
    """
    if len(text) <= before + chars:
        return text
    beginnings = {word_stem(word) or word for phrase in phrases for word in phrase}
    pattern = re.compile("|".join(map(re.escape, sorted(beginnings, key=len, reverse=True))), re.IGNORECASE)
    places = [(match.start(), match[0].lower()) for match in islice(pattern.finditer(text), _MOST_PLACES)]
    if not places:  # the words are written with accents, or in another form of characters
        pieces = excerpt_pieces(text[:_SEARCHED_CHARS], phrases, before=before, chars=chars)
        return "".join(piece for piece, _ in pieces) or f"{text[: before + chars]} …"
    weights = {term: 1 / count for term, count in Counter(term for _, term in places).items()}
    inside = Counter[str]()
    best = (0.0, 0)
    first = 0
    weight = 0.0
    for at, term in places:
        inside[term] += 1
        weight += weights[term] if inside[term] == 1 else 0.0
        while places[first][0] < at - chars:
            old = places[first][1]
            inside[old] -= 1
            weight -= 0.0 if inside[old] else weights[old]
            first += 1
        if weight > best[0] + 1e-9:
            best = (weight, places[first][0])
    start = max(0, best[1] - before)
    partial = _PARTIAL_WORD.match(text, start, best[1]) if start else None
    start = partial.end() if partial else start
    end = best[1] + chars
    return f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"


def _matches(text: str, phrases: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield the positions of phrases in a text, from left to right, without overlaps."""
    free_from = 0
    places = [*_phrases_in(_tokens(text), phrases)]
    for name, start in _names(text):
        parts = (
            (term, start + part.start(), start + part.end()) for part in _split_name(name) for term in words(part[0])
        )
        places += _phrases_in(parts, phrases)
        joined = [("".join(words(name)), start, start + len(name))]
        places += _phrases_in(joined, phrases)
    for low, high in sorted(places, key=lambda place: (place[0], -place[1])):
        if low >= free_from:
            free_from = next((at for at in range(high, len(text)) if _pieces(text[at]) != ("",)), len(text))
            yield low, free_from  # with the marks of the last letter


def _phrases_in(tokens: Iterable[tuple[str, int, int]], phrases: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield the positions of phrases in a sequence of words with their positions, without overlaps."""
    longest = max(map(len, phrases), default=0)
    last: list[tuple[str, int, int]] = []
    free_from = 0
    for token in tokens:
        last = [*last, token][-longest:] if longest else []
        for phrase in phrases:
            tail = last[-len(phrase) :]
            if [text for text, _, _ in tail] == phrase and tail[0][1] >= free_from:
                free_from = token[2]
                yield tail[0][1], token[2]
                break


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text in their search form, each with its start and end."""
    token = ""
    start = 0
    end = 0
    for at, character in enumerate(text):
        first, *others = _pieces(character)
        if others and token + first:
            yield token + first, start if token else at, at + 1 if first else end
        for letter in others[:-1]:
            yield letter, at, at + 1
        if others:
            token = others[-1]
            start = at
            end = at + 1
        elif token or first:
            start = start if token else at
            token = token + first
            end = at + 1
    if token:
        yield token, start, end


@lru_cache(maxsize=1 << 14)
def _pieces(character: str) -> tuple[str, ...]:
    """Return the text that a character adds to the word before it, its own words, and the start of the next word.

    The search index decides: the character is put between two letters and split as the index splits text. One that is
    ignored, such as a mark, adds an empty text.
    """
    first, *others = words(f"a{character}a")
    if others:
        return (first[1:], *others[:-1], others[-1][:-1])
    return (first[1:-1],)
