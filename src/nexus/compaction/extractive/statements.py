"""Whether a sentence states something, and how exactly: the ground on which sentences without a cue are kept."""

from __future__ import annotations

import re

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive import values as slots
from nexus.compaction.extractive.identifiers import identifiers

VALUE, EXACT, PLAIN = 75, 55, 36
"""Weights of a user's statement: one that gives something a value, one with an exact name or number, any other."""

MOST_CHARS = 220
LEAST_WORDS = 5
"""A statement with nothing exact in it has at least so many words; two Chinese characters are one."""

LETTERS = 0.7
"""What part of a sentence is letters and blanks; a Chinese character is two."""

_NUMBER = re.compile(r"\d{2,}|\d[.,:/]\d")
_NAME = re.compile(
    r"(?<=[\w,;:] )(?!I\b)[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+ (?:(?:van|von|de|der|di|la|le) )?[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+"
)
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_JOINED = re.compile(r"\b\w+(?:[_/]\w+)+|\b\w+(?:-\w+)*-\d\w*")


def states_value(sentence: str) -> bool:
    """Whether it is a short statement that gives something a value (a date, a name, an amount, an address)."""
    return _is_statement(sentence) and bool(slots.clauses(sentence) or cues.OWN.search(sentence))


def is_exact(sentence: str) -> bool:
    """Whether it is a short statement with something in it that is of no use when a character is wrong."""
    return has_figure(sentence) or (
        _is_statement(sentence)
        and (_JOINED.search(sentence) is not None or next(identifiers(sentence), None) is not None)
    )


def has_figure(sentence: str) -> bool:
    """Whether it is a short statement with a number or a person's name in it."""
    return _is_statement(sentence) and any(form.search(sentence) for form in (_NUMBER, _NAME))


def weight_of(sentence: str) -> int:
    """What a user's sentence without a cue weighs; 0 if it is no statement (a question, a heading, two words)."""
    if states_value(sentence):
        return VALUE
    if is_exact(sentence):
        return EXACT
    return PLAIN if _is_statement(sentence) and is_prose(sentence) and not _is_courtesy(sentence) else 0


def is_prose(sentence: str) -> bool:
    """Whether most of it is letters, as in a sentence and not in code, paths, tables or output."""
    wide = len(WIDE.findall(sentence))
    letters = sum(letter.isalpha() or letter == " " for letter in sentence) + wide
    return letters >= LETTERS * (len(sentence) + wide)


def _is_courtesy(sentence: str) -> bool:
    """Whether it is so short, or so soft, that nobody misses it."""
    words = len(sentence.split()) + (0 if sentence.isascii() else len(WIDE.findall(sentence)) // 2)
    return words < LEAST_WORDS or cues.THANKS.match(sentence) is not None or cues.is_soft(sentence)


def _is_statement(sentence: str) -> bool:
    return (
        len(sentence) <= MOST_CHARS
        and len(sentence.split()) + 4 * (not sentence.isascii()) > 2
        and not sentence.rstrip().endswith(("?", "？", ":", "：", "]"))
    )
