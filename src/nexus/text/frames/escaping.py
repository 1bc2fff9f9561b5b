r"""Escaping of frame tags by one more backslash, and the exact reverse.

`</human_input>` becomes `<\/human_input>`, and `<\/human_input>` in the original text becomes `<\\/human_input>`.
Unescaping removes one backslash. Text without tags is unchanged.

The place of a tag is the position of a run of backslashes, possibly empty: right after the bracket of a tag that counts
anywhere, and before the first visible character of a line that begins with a tag. A place depends on the text before and
after the run, never on the run itself, and no tag's letters contain another place. So the places stay the same however
many backslashes are added. Each character is read a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from nexus.text.frames.tags import (
    BLANK,
    BREAK,
    CALLS,
    HEADS,
    JOINT,
    ROLES,
    TAGS,
    UNSEEN,
    characters,
    skeleton,
    skeletons,
    unmapped_characters,
)

Scope: TypeAlias = Literal["block", "memory"]
"""Where a text is shown: in a block or framed message, or in the flattened memory, where lines also have speakers."""

_RUN = "\\"

LONG_CHARS = 2_000
"""Length from which the last escaped texts are remembered."""


class TagSpan(NamedTuple):
    """Position and length of a run of backslashes; the length is 0 where there is none yet."""

    at: int
    run: int


class Words(NamedTuple):
    """Skeletons of tags, and every proper beginning of one."""

    complete: frozenset[str]
    prefixes: frozenset[str]


Finder: TypeAlias = Callable[[str], Iterable[TagSpan]]

# Unicode's tag characters are invisible, and some models read them as the ASCII characters that they mirror. The
# backslash's is left out: the searches must not take it for an escape that is already there.
_TAG_CHARACTERS = {code: code - 0xE0000 for code in range(0xE0020, 0xE007F) if code != 0xE005C}
_TAG_CHARACTER = re.compile("[\U000e0020-\U000e007e]")


def escape(text: str, scope: Scope = "block") -> str:
    """Return the text with every frame tag of the scope escaped; the same object if there is none.

    Call it once with all the text of one place in a frame: two pieces can form a tag together.
    """
    if len(text) < LONG_CHARS:
        return _escape(text, scope)
    return _escape_long(text, scope)


def _escape(text: str, scope: Scope) -> str:
    for find in _passes(text, scope):
        text = _escaped(text, find(text))
    return text


# Counting, fitting and rendering escape the same message again, dozens of times where it does not fit.
_escape_long = lru_cache(maxsize=8)(_escape)


def unescape(text: str, scope: Scope = "block") -> str:
    """Reverse `escape`: `unescape(escape(text, scope), scope) == text` for every text."""
    for find in reversed(_passes(text, scope)):
        text = _unescaped(text, find(text))
    return text


def _passes(text: str, scope: Scope) -> list[Finder]:
    """Return the searches in their order. Each finds the same places before and after its backslashes are added."""
    passes: list[Finder] = [spans, partial(lines, scope=scope)]
    if text.isascii() or not _TAG_CHARACTER.search(text):
        return passes
    return [
        *passes,
        lambda text: spans(text.translate(_TAG_CHARACTERS)),
        lambda text: lines(text.translate(_TAG_CHARACTERS), scope),
    ]


def _escaped(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    end = 0
    for place in places:
        pieces += (text[end : place.at], "\\")
        end = place.at
    if pieces:
        return "".join((*pieces, text[end:]))
    return text


def _unescaped(text: str, places: Iterable[TagSpan]) -> str:
    pieces: list[str] = []
    end = 0
    for place in places:
        if place.run:
            pieces.append(text[end : place.at])
            end = place.at + 1
    if pieces:
        return "".join((*pieces, text[end:]))
    return text


def spans(text: str) -> Iterator[TagSpan]:
    """Yield the places of tags that count anywhere."""
    for match in _openers().finditer(text):
        opener = skeleton(match[1]) or ""
        plain = _plain_tails()[opener].match(text, match.end())
        if plain:
            end = plain.end()
        else:
            end = _end_of(text, match.end(), _tails()[opener])
        if end >= 0 and (opener != "<" or _is_tag(text, match.end(), end)):
            yield TagSpan(match.start(2), len(match[2]))


def lines(text: str, scope: Scope) -> Iterator[TagSpan]:
    """Yield the places of tags that count at the beginning of a line."""
    roles = scope == "memory"
    for start in chain((0,), (match.end() for match in _line_starts(roles).finditer(text))):
        place = _line_place(text, start, roles=roles)
        if place is not None:
            yield place


def _line_place(text: str, at: int, *, roles: bool) -> TagSpan | None:
    """Return the place of the line whose first characters, up to `at`, are blank."""
    at = _skip_blank(text, at)
    run = at
    while text.startswith(_RUN, run):
        run += 1
    first = _skip_blank(text, run)
    if first == len(text) or skeleton(text[first]) == BREAK:
        return None
    if _plain_heads().match(text, first) is not None:
        return TagSpan(at, run - at)
    if _end_of(text, first, _heads()) >= 0 or (roles and _is_role(text, first)):
        return TagSpan(at, run - at)
    return None


def _is_role(text: str, at: int) -> bool:
    """Return True if a speaker's name and a colon begin at `at`, directly or after one bracket."""
    if at < len(text) and skeleton(text[at]) == "[":
        closing = _bracket_ends().search(text, at + 1)
        if closing is None or skeleton(closing[0]) == BREAK:
            return False
        at = closing.end()
    return _end_of(text, _skip_blank(text, at), _roles(), in_line=True) >= 0


def _is_tag(text: str, at: int, end: int) -> bool:
    """Return True if the tag name from `at` to `end` belongs to a tag, not to a comparison with a variable."""
    while skeleton(text[at]) == UNSEEN:
        at += 1
    if skeleton(text[at]) not in (BLANK, BREAK):
        return True
    name = next(shape for shape in map(skeleton, text[at:end]) if shape not in (BLANK, BREAK, UNSEEN))
    while end < len(text) and skeleton(text[end]) in (BLANK, BREAK, UNSEEN, JOINT):
        end += 1
    return name == "/" or (end < len(text) and skeleton(text[end]) in (">", "/"))


def _end_of(text: str, at: int, words: Words, *, in_line: bool = False) -> int:
    """Return the end of the first word at `at`, or -1; blanks, joints and unseen characters are skipped."""
    letters = ""
    for index in range(at, len(text)):
        shape = skeleton(text[index])
        if shape is None or (shape == BREAK and in_line) or (shape == JOINT and not letters):
            return -1
        if shape in (UNSEEN, BLANK, BREAK, JOINT):
            continue
        for letter in shape:
            letters += letter
            if letters in words.complete:
                return index + 1
            if letters not in words.prefixes:
                return -1
    return -1


def _skip_blank(text: str, at: int) -> int:
    """Return the first position from `at` on with a visible character or a line break."""
    while at < len(text) and skeleton(text[at]) in (BLANK, UNSEEN):
        at += 1
    return at


@cache
def _tails() -> dict[str, Words]:
    """Return what has to follow each opening bracket, by the bracket's skeleton."""
    tails = {"<": [f"{slash}{name}" for name in TAGS for slash in ("", "/")]}
    for tag in CALLS:
        tails.setdefault(skeletons(tag[0]), []).append(tag[1:])
    return {opener: _words(tags) for opener, tags in tails.items()}


@cache
def _heads() -> Words:
    return _words(HEADS)


@cache
def _plain_heads() -> re.Pattern[str]:
    return _plain(HEADS)


@cache
def _plain_tails() -> dict[str, re.Pattern[str]]:
    """Return the patterns of `_tails` in plain letters, which need no step for each of them."""
    calls = {skeletons(tag[0]): _plain([tag[1:]]) for tag in CALLS}
    return {"<": _plain(f"{slash}{name}" for name in TAGS for slash in ("", "/")), **calls}


def _plain(tags: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of tags in ASCII letters."""
    return re.compile("|".join(map(re.escape, tags)), re.ASCII | re.IGNORECASE)


@cache
def _roles() -> Words:
    return _words(ROLES)


def _words(tags: Iterable[str]) -> Words:
    complete = frozenset(map(skeletons, tags))
    return Words(complete, frozenset(tag[:length] for tag in complete for length in range(1, len(tag))))


@cache
def _openers() -> re.Pattern[str]:
    """Return the pattern of an opening bracket and its run, where a tag may follow."""
    brackets = "".join(re.escape(char) for opener in _tails() for char in characters(opener))
    tails = (tail for words in _tails().values() for tail in words.complete)
    return re.compile(rf"([{brackets}])(\\*+)(?=[^{_unmapped(tails)}])")


@cache
def _line_starts(roles: bool) -> re.Pattern[str]:
    """Return the pattern of a line break and plain blanks, where a tag may follow."""
    if roles:
        tags = _heads().complete | _roles().complete
    else:
        tags = _heads().complete
    breaks = characters(BREAK)
    return re.compile(rf"[{breaks}][ \t]*+(?=[^{breaks}{_unmapped((*tags, _RUN))}])")


@cache
def _bracket_ends() -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters(']'))}{characters(BREAK)}]")


def _unmapped(tags: Iterable[str]) -> str:
    """Return the inside of a character class: almost all characters that begin none of the tags."""
    first = {tag[0] for tag in tags}
    visible = map(chr, range(0x21, 0x7F))
    return unmapped_characters() + "".join(
        re.escape(char) for char in visible if (skeleton(char) or char)[0] not in first
    )
