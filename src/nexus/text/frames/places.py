"""Where a text holds what a reader could take for a mark: the places at which escaping puts a backslash.

A place is where a run of backslashes stands, or could: right after the bracket of a mark that counts anywhere, and
before the first thing that is seen on a line that begins with a mark. Whether there is a place depends on what stands
before the run and behind it, never on the run, and no mark's letters hold another place: so the places of a text stay
the same however many backslashes stand in them. Every character is read a bounded number of times.
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
"""Where text stands: in a block or a message that has frames, or in the flattened memory, where lines have roles too."""

_RUN = "\\"
_WITH_ROLES: dict[Scope, bool] = {"block": False, "memory": True}


class TagSpan(NamedTuple):
    """Where a run of backslashes begins, and how long it is (0: there is none yet)."""

    at: int
    run: int


class Words(NamedTuple):
    """Marks in the shapes of their letters, and everything that one of them begins with."""

    whole: frozenset[str]
    begun: frozenset[str]


def spans(text: str) -> Iterator[TagSpan]:
    """The places of the marks that count anywhere."""
    for found in _openers().finditer(text):
        opener = skeleton(found[1]) or ""
        end = _end_of(text, found.end(), _tails()[opener])
        if end >= 0 and (opener != "<" or _is_tag(text, found.end(), end)):
            yield TagSpan(found.start(2), len(found[2]))


def lines(text: str, scope: Scope) -> Iterator[TagSpan]:
    """The places of the marks that count where a line begins with them."""
    roles = _WITH_ROLES[scope]
    for begin in chain((0,), (found.end() for found in _line_starts(roles).finditer(text))):
        place = _line_place(text, begin, roles=roles)
        if place is not None:
            yield place


def _line_place(text: str, at: int, *, roles: bool) -> TagSpan | None:
    """The place of the line whose first characters, up to `at`, are blank."""
    at = _seen(text, at)
    run = _run(text, at)
    first = _seen(text, at + run)
    if first == len(text) or skeleton(text[first]) == BREAK:
        return None
    if _end_of(text, first, _heads()) >= 0 or (roles and _is_role(text, first)):
        return TagSpan(at, run)
    return None


def _is_role(text: str, at: int) -> bool:
    """Whether a speaker's name and a colon stand here, or after one bracket."""
    if at < len(text) and skeleton(text[at]) == "[":
        closing = _bracket_ends().search(text, at + 1)
        if closing is None or skeleton(closing[0]) == BREAK:
            return False
        at = closing.end()
    return _end_of(text, _seen(text, at), _roles(), in_line=True) >= 0


def _is_tag(text: str, at: int, end: int) -> bool:
    """Whether what is a tag's name from `at` to `end` is a tag: no comparison with a variable of that name."""
    while skeleton(text[at]) == UNSEEN:
        at += 1
    if skeleton(text[at]) not in (BLANK, BREAK):
        return True
    name = next(found for found in map(skeleton, text[at:end]) if found not in (BLANK, BREAK, UNSEEN))
    while end < len(text) and skeleton(text[end]) in (BLANK, BREAK, UNSEEN, JOINT):
        end += 1
    return name == "/" or (end < len(text) and skeleton(text[end]) in (">", "/"))


def _end_of(text: str, at: int, words: Words, *, in_line: bool = False) -> int:
    """Where the first of the words ends that stands here, blanks, joints and what is unseen left out; -1 for none."""
    read = ""
    for index in range(at, len(text)):
        folded = skeleton(text[index])
        if folded is None or (folded == BREAK and in_line) or (folded == JOINT and not read):
            return -1
        if folded in (UNSEEN, BLANK, BREAK, JOINT):
            continue
        for letter in folded:
            read += letter
            if read in words.whole:
                return index + 1
            if read not in words.begun:
                return -1
    return -1


def _seen(text: str, at: int) -> int:
    """The first place from `at` on where something is seen or the line ends."""
    while at < len(text) and skeleton(text[at]) in (BLANK, UNSEEN):
        at += 1
    return at


def _run(text: str, at: int) -> int:
    end = at
    while text.startswith(_RUN, end):
        end += 1
    return end - at


@cache
def _tails() -> dict[str, Words]:
    """What has to follow each opening bracket, by the bracket's shape."""
    tails = {"<": [f"{slash}{name}" for name in TAGS for slash in ("", "/")]}
    for mark in CALLS:
        tails.setdefault(skeletons(mark[0]), []).append(mark[1:])
    return {opener: _words(marks) for opener, marks in tails.items()}


@cache
def _heads() -> Words:
    return _words(HEADS)


@cache
def _roles() -> Words:
    return _words(ROLES)


def _words(marks: Iterable[str]) -> Words:
    whole = frozenset(map(skeletons, marks))
    return Words(whole, frozenset(mark[:length] for mark in whole for length in range(1, len(mark))))


@cache
def _openers() -> re.Pattern[str]:
    """An opening bracket and its run, where what follows may begin a mark."""
    brackets = "".join(re.escape(char) for opener in _tails() for char in characters(opener))
    words = (word for words in _tails().values() for word in words.whole)
    return re.compile(rf"([{brackets}])(\\*+)(?=[^{_strangers(words)}])")


@cache
def _line_starts(roles: bool) -> re.Pattern[str]:
    """A line break and plain blanks, where what follows may begin a mark."""
    words = _heads().whole | _roles().whole if roles else _heads().whole
    breaks = characters(BREAK)
    return re.compile(rf"[{breaks}][ \t]*+(?=[^{breaks}{_strangers((*words, _RUN))}])")


@cache
def _bracket_ends() -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters(']'))}{characters(BREAK)}]")


def _strangers(words: Iterable[str]) -> str:
    """The inside of a class of characters: those that begin none of the words, or almost all."""
    first = {word[0] for word in words}
    visible = map(chr, range(0x21, 0x7F))
    return unmapped_characters() + "".join(
        re.escape(char) for char in visible if (skeleton(char) or char)[0] not in first
    )
