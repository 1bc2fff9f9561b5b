"""Patterns and word lists of extractive summarization.

The tables are data: `patterns.toml` lists the words and expressions by language. They are read once, when
this module is imported, and each is compiled when it is first used.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.text.late_pattern import late_pattern
from nexus.types.decoding import decodable

Kind: TypeAlias = Literal[
    "constraint", "preference", "fact", "decision", "done", "open", "file", "command", "identifier", "error", "recent"
]


class _Pattern(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    form: str
    weight: int = 0
    needs: str = ""


class _PatternTables(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `patterns.toml`; the file explains each table."""

    stop_words: str
    same_word: dict[str, str]
    kind_words: dict[str, str]
    tools: dict[str, str]
    cues: dict[str, list[str]]
    identifiers: list[_Pattern]
    value_names: dict[str, str]
    values: list[_Pattern]


_TABLES = msgspec.toml.decode(
    files("nexus.summarization.extractive").joinpath("patterns.toml").read_bytes(), type=decodable(_PatternTables)
)

# Words that do not name the subject of a value.
STOP_WORDS = frozenset(_TABLES.stop_words.split())
# Synonyms, by word: the name that stands for all of them.
SAME_WORD = {token: name for name, words in _TABLES.same_word.items() for token in words.split()}
# Words that accompany a kind of value without naming its subject.
KIND_WORDS = {kind: frozenset(words.split()) for kind, words in _TABLES.kind_words.items()}
# Usual names of agents' tools and of their arguments, in lower case.
TOOL_WORDS = {group: tuple(words.split()) for group, words in _TABLES.tools.items()}

_CUES = {name: late_pattern("|".join(forms), re.IGNORECASE) for name, forms in _TABLES.cues.items()}
THANKS = _CUES["thanks"]
CHANGE = _CUES["update"]
SELF_STATEMENT = _CUES["own"]
SLASH_COMMAND = late_pattern(r"\s*/[\w:-]+\s*\Z")
"""A command to the program without a request in it."""


def _compile_for_lower_case(forms: list[str]) -> re.Pattern[str]:
    """Return one expression for text in lower case: a third of the time of one that ignores case.

    The forms that begin with a word boundary share one test of it.
    """
    words = [form.removeprefix(r"\b") for form in forms if form.startswith(r"\b")]
    others = [form for form in forms if not form.startswith(r"\b")]
    return late_pattern("|".join([rf"\b(?:{'|'.join(words)})", *others]))


_QUESTION = late_pattern(r"[?？][\"'”’) ]*\Z")
_USER_CUES: tuple[tuple[Kind, str], ...] = (
    # A user's rule outranks a wish, a wish a note to remember, and so on: the strictest kind is tried first.
    ("constraint", "must"),
    ("preference", "prefer"),
    ("constraint", "remember"),
    ("decision", "decision"),
    ("open", "open"),
)
_ASSISTANT_CUES: tuple[tuple[Kind, str], ...] = (("done", "done"), ("open", "open"), ("decision", "chose"))
_KIND_CUES = {cue: _compile_for_lower_case(_TABLES.cues[cue]) for _, cue in (*_USER_CUES, *_ASSISTANT_CUES)}
_LABEL_WORDS: tuple[tuple[Kind, str], ...] = (
    (
        "constraint",
        "rule regel règle regla 规则 constraint requirement important wichtig 要求 must warning never always",
    ),
    ("preference", "preference prefer 偏好"),
    ("decision", "decision decided"),
    ("open", "goal todo open next task state"),
    ("fact", "fact note remember reminder hinweis remarque nota 注意 事实 info update fyi"),
)
_IDENTIFIER_CHARS = 160  # a longer match is pasted data, not an identifier
_IDENTIFIERS = tuple((row.kind, row.weight, late_pattern(row.form)) for row in _TABLES.identifiers)
# Values that a later statement may replace: kind, expression, and the wording that the sentence must have.
VALUES = tuple(
    (
        row.kind,
        late_pattern(re.sub(r"\{([a-z]+)\}", lambda name: _TABLES.value_names[name[1]], row.form), re.IGNORECASE),
        late_pattern(row.needs, re.IGNORECASE),
    )
    for row in _TABLES.values
)


def find_identifiers(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield every identifier in the text with its kind and weight, by kind, without parts of longer ones."""
    spans: list[tuple[int, int]] = []
    for kind, weight, form in _IDENTIFIERS:
        new: list[tuple[int, int]] = []
        for hit in form.finditer(text):
            start, end = hit.span(1) if hit.lastindex else hit.span()
            name = text[start:end].rstrip(".,;:!?'\"")
            # The spans are sorted and disjoint, so only the first one that ends later can overlap.
            at = bisect_right(spans, start, key=lambda span: span[1])
            if not name or len(name) > _IDENTIFIER_CHARS or (at < len(spans) and spans[at][0] < end):
                continue
            # A plain lower-case word in backticks is emphasis more often than a name.
            if (kind == "path" and not _is_path(name)) or (kind == "name" and name.isalpha() and name.islower()):
                continue
            new.append((start, end))
            yield name, kind, weight
        spans = sorted([*spans, *new])


def _is_path(name: str) -> bool:
    """Return true for a path, false for two words with a slash (`and/or`, `10/12`)."""
    if not any(letter.isalpha() for letter in name):
        return False
    sure = name.startswith(("/", "~", ".")) or name.count("/") != 1
    return sure or any(letter in "._-" or letter.isdigit() for letter in name)


def parse_label(sentence: str) -> tuple[Kind | None, str]:
    """Return the kind that a leading label such as `RULE:` names, and the sentence without the label."""
    hit = _CUES["label"].match(sentence)
    if hit is not None and (rest := sentence[hit.end() :]).strip():
        label_words = hit["label"].lower().split()
        for kind, names in _LABEL_WORDS:
            if any(name in label_words for name in names.split()):
                return kind, rest
    return None, sentence


def is_soft(sentence: str) -> bool:
    """Return true for talk about people and feelings in the words of a rule ("I always loved it", "never give up!")."""
    return _CUES["soft"].search(sentence) is not None and _CUES["addressed"].search(sentence) is None


def is_request(sentence: str) -> bool:
    """Return true for a question or wish, which states nothing but may contain a value."""
    return _CUES["asks"].match(sentence) is not None


def is_order(sentence: str) -> bool:
    """Return true for a sentence that tells the assistant to do something once."""
    return _CUES["orders"].match(sentence) is not None


def is_volatile(sentence: str) -> bool:
    """Return true for a sentence about code, a fault or the moment, or one that refers to another sentence."""
    return any(_CUES[name].search(sentence) for name in ("code", "fault", "moment", "refers"))


def refers_back(sentence: str) -> bool:
    """Return true for a sentence that says nothing without the one before it."""
    return _CUES["refers"].search(sentence) is not None


def reports_failure(text: str) -> bool:
    """Return true if a text says that something fails or could not be done."""
    return _CUES["failure"].search(text) is not None


def _describes(sentence: str) -> bool:
    return _CUES["describes"].search(sentence) is not None and _CUES["addressed"].search(sentence) is None


def cued_kind(sentence: str, *, by_user: bool) -> Kind | None:
    """Return the kind of a sentence by its cues; None without a cue, for a question and for an assistant's chatter.

    A sentence that reports what something always or never does is no constraint.
    """
    if _QUESTION.search(sentence) or _CUES["question" if by_user else "chatter"].search(sentence):
        return None
    lower = sentence.lower()
    for kind, cue in _USER_CUES if by_user else _ASSISTANT_CUES:
        if _KIND_CUES[cue].search(lower) and not (kind == "constraint" and _describes(sentence)):
            suggests = kind == "decision" and by_user and _CUES["suggestion"].match(sentence) is not None
            if suggests:
                return None
            return kind
    return None
