"""Which later statement replaces which earlier one: the same matter, another value.

A clause is read as values of a kind (money, date, port, zone, person, branch, …) and the words that say what they are
of. Two clauses speak of one matter when these words agree, or, after a word of change ("now", "moved to"), when those of
one are all among the other's. Different scopes (project budget, travel budget) stay apart, and so do two prohibitions
that name things (two ports never to use): both hold. No grammar, no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive.patterns import KIND_WORDS, SAME_WORD, STOP_WORDS

_NUMBER = r"(?:a|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|hundred|thousand|million)"
_MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?|"
    r"sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)"
)
_VALUES: tuple[tuple[str, str], ...] = (
    (
        "money",
        (
            rf"[$€£¥]\s?\d[\d,.]*\d?(?:\s?[km]\b)?|\b\d[\d,.]*\s?(?:k\s)?(?:dollars?|euros?|usd|eur|gbp|chf|pounds?)\b|\d[\d,.]*\s?元|"
            rf"\b{_NUMBER}(?:[ -]{_NUMBER}){{0,4}} (?:dollars?|euros?|pounds?)\b"
        ),
    ),
    (
        "date",
        (
            rf"\b\d{{4}}-\d\d-\d\d\b|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?\b|\b\d{{1,2}}\.? (?:de )?{_MONTH}\b|\b\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{2,4}}\b|"
            r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\d{1,2}\s?月\s?\d{1,2}\s?[日号]|周[一二三四五六日]"
        ),
    ),
    (
        "zone",
        (
            r"\b(?:utc|gmt|cet|cest|est|edt|cst|pst|pdt|ist|jst|bst)(?:[+-]\d{1,2})?\b|"
            r"\b(?:pacific|eastern|central|mountain)(?: standard| daylight)? time\b|\b(?-i:[A-Z][a-z]{2,12}/[A-Z][A-Za-z_]{2,20})\b"
        ),
    ),
    ("port", r"\bport(?:s)?\b\D{0,12}\d{2,5}\b|\b\d{2,5}\s?端口|端口\D{0,6}\d{2,5}"),
    ("place", r"\bhttps?://\S+|\b[a-z0-9][\w-]*\.(?:internal|local|com|org|net|io|dev|ai)\b"),
    ("email", r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"),
    ("branch", r"\b[\w.-]+/[\w./-]+\b|\b(?:main|master|develop|trunk)\b"),
    ("version", r"\bv?\d+\.\d+(?:\.\d+)*\b"),
    ("hash", r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b"),
    ("code", r"\b[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*[-_]\d+\b|\b(?=[a-z]*\d)[a-z0-9]{5,12}\b"),
    ("units", r"\b(?:metric|imperial)\b"),
    ("indent", r"\b(?:tabs|spaces)\b"),
    (
        "code language",
        r"\b(?:python|javascript|typescript|rust|java|kotlin|swift|ruby|php|scala|haskell)\b|\b(?-i:Go)\b|\bc(?:\+\+|#)",
    ),
    (
        "tone",
        (
            r"\b(?!answer|code|coding|writing|response|preferred|this|the)[\w-]{3,20}(?= style\b)|(?<=\bstyle is )[\w-]{3,20}|"
            r"\b(?:terse|curt|dry|formal|informal|casual|playful|warm|friendly|light|serious|humorous|cheerful)\b"
        ),
    ),
    ("length", r"\b(?:terse|curt|short|brief|concise|detailed|verbose|lengthy)\b"),
    (
        "language",
        (
            r"\b(?:english|german|french|spanish|chinese|italian|japanese|korean|portuguese|russian|deutsch|englisch|"
            r"französisch|français|anglais|español|inglés)\b|中文|英文|英语|日语"
        ),
    ),
    ("progress", r"\b\d+ (?:of|/) \d+\b"),
    (
        "measure",
        (
            r"\b\d[\d,.]*\s?(?:ms|s|sec(?:ond)?s?|min(?:ute)?s?|h(?:our)?s?|days?|weeks?|months?|[kmgt]i?b|%|px|percent|tokens?|"
            r"retries|times|items|rows|users|people|characters|lines)(?!\w)|\d+\s?(?:秒|分钟|小时|天|个|次|人)"
        ),
    ),
    ("number", r"(?:\b(?:is|to|of|at|be|ist|es|est|auf|à|a)\b|=|[:：]|是|为|改成)\s*\d[\d,.]*\b"),
    ("person", r"\b(?-i:[A-ZÄÖÜÉ][a-zäöüßéèñ]+ [A-ZÄÖÜÉ][a-zäöüßéèñ]+)\b"),
)
_FIND = tuple((kind, re.compile(form, re.IGNORECASE)) for kind, form in _VALUES)
_NEEDS: dict[str, re.Pattern[str]] = {
    "branch": re.compile(r"\b(?:branch|rebased?|checked out|checkout|zweig|branche|rama)\b|分支", re.IGNORECASE),
    "person": re.compile(
        r"\b(?:own(?:s|er|ed)?|on-?call|pager|duty|leads?|reviewer|approver|contact|assign(?:ed|ee)|approv(?:e|es|ed|er|ing|al)|belongs|manager|responsible|"
        r"handl(?:es|ing)|in charge|zuständig|verantwortlich|responsable|encargad[oa])\b|负责",
        re.IGNORECASE,
    ),
    "hash": re.compile(r"\b(?:base[ds]?|branched|head|pinned|basiert)\b", re.IGNORECASE),
    "code language": re.compile(
        r"\b(?:examples?|code|snippets?|language|sprache|langage|lenguaje)\b|代码", re.IGNORECASE
    ),
    "units": re.compile(r"\bunits?|measure|answer|repl|respon", re.IGNORECASE),
    "tone": re.compile(r"\b(?:answer|repl|respon|tone|style|messages?|write|keep it|be )", re.IGNORECASE),
    "length": re.compile(r"\b(?:answer|repl|respon|summar|keep it|be |messages?)", re.IGNORECASE),
    "language": re.compile(r"\b(?:answer|repl|respon|write|speak|language|in |auf |en )|用|说", re.IGNORECASE),
}
_ALONE = frozenset({"zone", "units", "tone", "length", "branch", "language", "indent", "port", "hash", "code language"})
"""Kinds of which a conversation has one unless it says of what: the words may be missing on one side."""

_NAMED = frozenset({"port", "place", "email", "branch", "version", "hash", "language", "code language", "person"})
"""Kinds of which several may be forbidden at once. A new amount or secret code is the old one's next value."""

_FORBIDS = re.compile(
    r"\b(?:never|do not|don['’]t|must(?: not|n['’]t)|may not|avoid|niemals|nie|nicht|keine?n?|jamais|n['’e] ?\w+ pas|nunca|no "
    r"(?:uses|toques|cambies|borres|modifiques))\b|不要|不能|不得|不可|禁止|切勿|请勿",
    re.IGNORECASE,
)

_CLAUSE = re.compile(
    r"[;；]\s*|,\s+(?:and|but|und|et|y)\s+|\s+(?:and|but|und)\s+(?=(?:must|never|do|don|always|keep|use|stick)\b)|(?<=[.!])\s+|，|。"
)
_WORD = re.compile(r"[^\W\d_][\w'’-]*|[\u3400-\u9fff]+")
_CJK = re.compile(r"[\u3400-\u9fff]")
_CJK_STOP = re.compile(r"[的了是为在和与把将用到成改现这那个我你他们请要应该已经新旧吧于]+")


class Clause(Struct, frozen=True):
    """One clause: its text, the values by kind, the words they are of, and whether it speaks of a change."""

    text: str
    values: dict[str, frozenset[str]]
    words: frozenset[str]
    change: bool


def parse_clauses(sentence: str) -> tuple[Clause, ...]:
    """The clauses of a sentence that hold a value, as read."""
    change = cues.UPDATE.search(sentence) is not None
    return tuple(
        found for part in _CLAUSE.split(sentence) if part and (found := _clause(part, change=change)) is not None
    )


def remaining_text(sentence: str, stale: Clause) -> str:
    """What is left of a sentence without a clause; empty where the rest says nothing that must hold by itself."""
    kept = [part for part in _CLAUSE.split(sentence) if part.strip() and part != stale.text]
    left = " … ".join(part.strip() for part in kept)
    return left if len(left.split()) >= 3 and cues.requested_kind(left) == "constraint" else ""


def replaces(later: Clause, earlier: Clause) -> bool:
    """Whether the later clause gives another value of the matter that the earlier one speaks of."""
    kinds = [kind for kind in later.values if kind in earlier.values and not later.values[kind] & earlier.values[kind]]
    if not kinds:
        return False
    forbidding = _FORBIDS.search(later.text) is not None and _FORBIDS.search(earlier.text) is not None
    if forbidding and not later.change and _NAMED.issuperset(kinds):
        return False
    ours, theirs = later.words, earlier.words
    if ours == theirs:
        return bool(ours) or later.change or any(kind in _ALONE for kind in kinds)
    if not ours or not theirs:
        return any(kind in _ALONE for kind in kinds)
    if any(kind in ("tone", "units", "length", "indent") for kind in kinds):
        return True
    if ours <= theirs or theirs <= ours:
        return later.change or "progress" in kinds or min(len(ours), len(theirs)) > 1
    return later.change and any(kind in ("branch", "zone") for kind in kinds)


def superseded_sentences(sentences: Sequence[str]) -> dict[int, str]:
    """The index of every sentence that a later one replaces in part, with what is left of it (often nothing)."""
    live: dict[str, list[tuple[int, Clause]]] = {}
    left: dict[int, str] = {}
    for index, sentence in enumerate(sentences):
        for clause in parse_clauses(sentence):
            for kind in clause.values:
                older = live.setdefault(kind, [])
                gone = [(at, old) for at, old in older if at < index and replaces(clause, old)]
                for at, old in gone:
                    left[at] = remaining_text(left.get(at, sentences[at]), old)
                if gone:
                    live[kind] = [entry for entry in older if entry not in gone]
                live[kind] = [*live[kind][-199:], (index, clause)]
    return left


def _clause(text: str, *, change: bool) -> Clause | None:
    values: dict[str, frozenset[str]] = {}
    bare = text
    for kind, form in _FIND:
        if (needed := _NEEDS.get(kind)) and not needed.search(text):
            continue
        source = text if kind in ("length", "tone") else bare
        if found := frozenset(_norm(hit[0]) for hit in form.finditer(source)):
            values[kind] = found
            bare = form.sub(" ", bare)
    if not values:
        return None
    drop = STOP_WORDS.union(*(KIND_WORDS.get(kind, frozenset()) for kind in values))
    words: set[str] = set()
    for hit in _WORD.finditer(bare.lower()):
        if _CJK.match(hit[0]):
            words.update(piece for piece in _CJK_STOP.split(hit[0]) if piece)
            continue
        word = hit[0].replace("’s", "").replace("'s", "")
        for part in (word,) if word in SAME_WORD else word.split("-"):
            stem = SAME_WORD.get(part, _stem(part))
            if part not in drop and stem not in drop and len(part) > 1:
                words.add(stem)
    if "port" in values:
        words.discard("端口")
    return Clause(text, values, frozenset(words), change)


def _norm(value: str) -> str:
    return re.sub(r"[\s,]+", "", value.lower()).rstrip(".")


def _stem(word: str) -> str:
    for ending in ("ies", "ing", "ed", "ly", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
