"""Detection of statements that a later statement replaces: the same subject with another value.

A clause is parsed into values of a kind (money, date, port, zone, person, branch, …) and the words that name their
subject. Two clauses have one subject when these words agree or, after a word of change ("now", "moved to"), when one set
of words contains the other. Different scopes (project budget, travel budget) stay apart. Two prohibitions with different
names (two ports never to use) both stay in force. It uses neither a grammar nor a model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from nexus.compaction.extractive import patterns
from nexus.compaction.extractive.patterns import KIND_WORDS, SAME_WORD, STOP_WORDS

_SINGLETONS = frozenset(
    {"zone", "units", "tone", "length", "branch", "language", "indent", "port", "hash", "code language"}
)
"""Kinds that a conversation usually has one value of: the words may be missing on one side."""

_NAMES = frozenset({"port", "place", "email", "branch", "version", "hash", "language", "code language", "person"})
"""Kinds of which several may be forbidden at once. A new amount or secret code replaces the old one instead."""

_FORBIDS = re.compile(
    r"\b(?:never|do not|don['’]t|must(?: not|n['’]t)|may not|avoid|niemals|nie|nicht|keine?n?|jamais|n['’e] ?\w+ pas|nunca|no "
    r"(?:uses|toques|cambies|borres|modifiques))\b|不要|不能|不得|不可|禁止|切勿|请勿",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[;；]\s*|,\s+(?:and|but|und|et|y)\s+|\s+(?:and|but|und)\s+(?=(?:must|never|do|don|always|keep|use|stick)\b)|(?<=[.!])\s+|，|。"
)
_WORDS = re.compile(r"[^\W\d_][\w'’-]*|[\u3400-\u9fff]+")
_CJK = re.compile(r"[\u3400-\u9fff]")
_CJK_STOP = re.compile(r"[的了是为在和与把将用到成改现这那个我你他们请要应该已经新旧吧于]+")
_LIVE_CLAUSES = 200
"""Clauses of a kind that a later one is compared with: bounds the time for a text of any length."""


class Clause(Struct, frozen=True):
    """A clause with its values by kind, the words that name their subject, and whether it announces a change."""

    text: str
    values: dict[str, frozenset[str]]
    words: frozenset[str]
    change: bool


def parse_clauses(sentence: str) -> tuple[Clause, ...]:
    """Return the clauses of a sentence that contain a value."""
    change = patterns.CHANGE.search(sentence) is not None
    clauses = (_parse_clause(part, change=change) for part in _CLAUSE.split(sentence) if part)
    return tuple(clause for clause in clauses if clause is not None)


def remaining_text(sentence: str, stale: Clause) -> str:
    """Return a sentence without a clause; empty unless the rest is a constraint by itself."""
    parts = [part.strip() for part in _CLAUSE.split(sentence) if part.strip() and part != stale.text]
    rest = " … ".join(parts)
    return rest if len(rest.split()) >= 3 and patterns.requested_kind(rest) == "constraint" else ""


def replaces(later: Clause, old: Clause) -> bool:
    """Return true if the later clause gives another value to the subject of the old one."""
    kinds = [kind for kind in later.values if kind in old.values and not later.values[kind] & old.values[kind]]
    if not kinds:
        return False
    forbidding = _FORBIDS.search(later.text) is not None and _FORBIDS.search(old.text) is not None
    if forbidding and not later.change and _NAMES.issuperset(kinds):
        return False
    ours, theirs = later.words, old.words
    singleton = any(kind in _SINGLETONS for kind in kinds)
    if ours == theirs:
        return bool(ours) or later.change or singleton
    if not ours or not theirs:
        return singleton
    if any(kind in ("tone", "units", "length", "indent") for kind in kinds):
        return True
    if ours <= theirs or theirs <= ours:
        return later.change or "progress" in kinds or min(len(ours), len(theirs)) > 1
    return later.change and any(kind in ("branch", "zone") for kind in kinds)


def superseded_sentences(sentences: Sequence[str]) -> dict[int, str]:
    """Return the index of every sentence that a later one replaces in part, with the rest of it (often empty)."""
    live: dict[str, list[tuple[int, Clause]]] = {}
    rests: dict[int, str] = {}
    for index, sentence in enumerate(sentences):
        for clause in parse_clauses(sentence):
            for kind in clause.values:
                older = live.setdefault(kind, [])
                stale = [(at, old) for at, old in older if at < index and replaces(clause, old)]
                for at, old in stale:
                    rests[at] = remaining_text(rests.get(at, sentences[at]), old)
                if stale:
                    live[kind] = [entry for entry in older if entry not in stale]
                live[kind] = [*live[kind][-(_LIVE_CLAUSES - 1) :], (index, clause)]
    return rests


def _parse_clause(text: str, *, change: bool) -> Clause | None:
    values: dict[str, frozenset[str]] = {}
    bare = text
    for kind, form, needs in patterns.VALUES:
        if not needs.search(text):
            continue
        # Tone and length share words ("terse" is both), so they are searched in the whole clause.
        source = text if kind in ("length", "tone") else bare
        if hits := frozenset(re.sub(r"[\s,]+", "", hit[0].lower()).rstrip(".") for hit in form.finditer(source)):
            values[kind] = hits
            bare = form.sub(" ", bare)
    if not values:
        return None
    ignored = STOP_WORDS.union(*(KIND_WORDS.get(kind, frozenset()) for kind in values))
    words: set[str] = set()
    for hit in _WORDS.finditer(bare.lower()):
        if _CJK.match(hit[0]):
            words.update(piece for piece in _CJK_STOP.split(hit[0]) if piece)
            continue
        token = hit[0].replace("’s", "").replace("'s", "")
        for part in (token,) if token in SAME_WORD else token.split("-"):
            stem = SAME_WORD.get(part, _stem(part))
            if part not in ignored and stem not in ignored and len(part) > 1:
                words.add(stem)
    if "port" in values:
        words.discard("端口")
    return Clause(text, values, frozenset(words), change)


def _stem(term: str) -> str:
    for ending in ("ies", "ing", "ed", "ly", "es", "s"):
        if term.endswith(ending) and len(term) - len(ending) >= 4:
            return term[: -len(ending)]
    return term
