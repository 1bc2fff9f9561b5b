"""An excerpt of a message on one line: its beginning, or what stands around the words that were searched for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from nexus.ledger.search_text import words
from nexus.render.console import printable

Pieces: TypeAlias = list[tuple[str, bool]]
"""Pieces of a line, and of each whether it was searched for."""

BEFORE, AFTER = 60, 140
"""Characters shown before the first word that was found, and from it on."""

_SPACES = re.compile(r"\s+")
_NEAR_SPACE = re.compile(r"\S{0,20}\s+")


def beginning(text: str, size: int = AFTER) -> str:
    """The text's beginning on one line, without power over a terminal."""
    line = _SPACES.sub(" ", text[: 4 * size]).strip()
    return printable(line if len(line) <= size and len(text) <= 4 * size else f"{line[:size]}…")


def around(text: str, wanted: list[list[str]]) -> Pieces:
    """What stands around the first place where one of the phrases (from `words.phrases`) is; empty if none is there."""
    text = unicodedata.normalize("NFC", text)
    first = next(_places(text, wanted), None)
    if first is None:
        return []
    start, end = max(0, first[0] - BEFORE), first[0] + AFTER
    near = _NEAR_SPACE.match(text, start, first[0]) if start else None
    start = near.end() if near else start
    pieces: Pieces = [("… " if start else "", False)]
    at = start
    for low, high in _places(text[start : max(end, first[1])], wanted):
        pieces += [(text[at : start + low], False), (text[start + low : start + high], True)]
        at = start + high
    end = max(end, at)
    pieces += [(text[at:end], False), (" …" if end < len(text) else "", False)]
    return [(printable(_SPACES.sub(" ", piece)), found) for piece, found in pieces if piece]


def _places(text: str, wanted: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Where phrases stand in a text, from left to right, none inside another."""
    longest = max(map(len, wanted), default=0)
    last: list[tuple[str, int, int]] = []
    free_from = 0
    for token in _words(text):
        last = [*last, token][-longest:] if longest else []
        for phrase in wanted:
            tail = last[-len(phrase) :]
            if [word for word, _, _ in tail] == phrase and tail[0][1] >= free_from:
                free_from = token[2]
                yield tail[0][1], token[2]
                break


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text, as they are compared, each with its place."""
    word, start, end = "", 0, 0
    for at, character in enumerate(text):
        letters, kind = _kind(character)
        if kind == "mark":
            end = at + 1
            continue
        if kind != "letter" and word:
            yield word, start, end
            word = ""
        if kind == "word":
            yield letters, at, at + 1
        elif kind == "letter":
            start = start if word else at
            word, end = word + letters, at + 1
    if word:
        yield word, start, end


@lru_cache(maxsize=1 << 14)
def _kind(character: str) -> tuple[str, str]:
    """A character as it is compared, and what it does to a word: a letter of it, a word itself, a mark, or its end."""
    between = words(f"a{character}a")
    if len(between) == 1:
        return between[0][1:-1], "letter" if len(between[0]) > 2 else "mark"
    return (between[1], "word") if len(between) == 3 else ("", "end")
