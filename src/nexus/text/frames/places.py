"""Search for frame tags: the places at which escaping puts a backslash.

A place is the position of a run of backslashes, possibly empty: right after the bracket of a tag that counts anywhere,
and before the first visible character of a line that begins with a tag. A place depends on the text before and after the
run, never on the run itself, and no tag's letters contain another place. So the places stay the same however many
backslashes are added. Each character is read a bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from nexus.text.frames.fold import BLANK, BREAK, JOINT, UNSEEN, characters, skeleton, skeletons, unmapped_characters
from nexus.text.frames.vocabulary import CALLS, HEADS, ROLES, TAGS

Scope: TypeAlias = Literal["block", "memory"]
"""Where a text is shown: in a block or framed message, or in the flattened memory, where lines also have speakers."""

_RUN = "\\"
_WITH_ROLES: dict[Scope, bool] = {"block": False, "memory": True}


class TagSpan(NamedTuple):
    """Position and length of a run of backslashes; the length is 0 where there is none yet."""

    at: int
    run: int


class Words(NamedTuple):
    """Skeletons of tags, and every proper beginning of one."""

    complete: frozenset[str]
    prefixes: frozenset[str]


def spans(text: str) -> Iterator[TagSpan]:
    """Yield the places of tags that count anywhere."""
    for match in _openers().finditer(text):
        opener = skeleton(match[1]) or ""
        end = _end_of(text, match.end(), _tails()[opener])
        if end >= 0 and (opener != "<" or _is_tag(text, match.end(), end)):
            yield TagSpan(match.start(2), len(match[2]))


def lines(text: str, scope: Scope) -> Iterator[TagSpan]:
    """Yield the places of tags that count at the beginning of a line."""
    roles = _WITH_ROLES[scope]
    for start in chain((0,), (match.end() for match in _line_starts(roles).finditer(text))):
        place = _line_place(text, start, roles=roles)
        if place is not None:
            yield place


def _line_place(text: str, at: int, *, roles: bool) -> TagSpan | None:
    """Return the place of the line whose first characters, up to `at`, are blank."""
    at = _skip_blank(text, at)
    run = _run_length(text, at)
    first = _skip_blank(text, at + run)
    if first == len(text) or skeleton(text[first]) == BREAK:
        return None
    if _end_of(text, first, _heads()) >= 0 or (roles and _is_role(text, first)):
        return TagSpan(at, run)
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


def _run_length(text: str, at: int) -> int:
    end = at
    while text.startswith(_RUN, end):
        end += 1
    return end - at


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
    tags = _heads().complete | _roles().complete if roles else _heads().complete
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
