"""Facts proposed from the messages of a user, each with its kind, its heading and its sources.

Only sentences that the user typed count, that are understood without the conversation, and that stay true after the session:
standing preferences and rules, who the user is, the parts of the work, decisions. The sentences and their cues are those
of `nexus.summarization.extractive`; `standing.toml` lists the wordings. A sentence that fits none is not proposed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.summarization.extractive.patterns import cued_kind, is_soft, parse_label
from nexus.summarization.extractive.statements import (
    limit_length,
    sentences,
    strip_markup,
    superseded_sentences,
    truncate_line,
)
from nexus.text.message_text import is_injected, typed_text
from nexus.text.redact import redact
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import StoredMessage
from nexus.workspace.memory.facts import comparison_key, normalize_fact

FactKind: TypeAlias = Literal["preference", "rule", "decision", "fact"]
About: TypeAlias = Literal["user", "work"]
Target: TypeAlias = Literal["memory", "log", "profile"]

TYPED_CHARS = 3_000
"""A longer message is mostly pasted material, and none of it is proposed."""
QUOTATION_CHARS = 240
MAX_CHARS = 240
MIN_CHARS = 8
MAX_WORDS = 40
MAX_SOURCES = 3


class _StandingTables(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `standing.toml`; the file explains each list."""

    lead: list[str]
    dependent: list[str]
    particular: list[str]
    identity: list[str]
    preference: list[str]
    trivial: list[str]
    unfinished: list[str]
    rule: list[str]
    occasion: list[str]
    narrative: list[str]
    work: list[str]
    decision: list[str]


def _compiled() -> dict[str, re.Pattern[str]]:
    data = files("nexus.workspace.memory").joinpath("standing.toml").read_bytes()
    tables = msgspec.structs.asdict(msgspec.toml.decode(data, type=decodable(_StandingTables)))
    return {name: re.compile("|".join(forms), re.IGNORECASE) for name, forms in tables.items()}


_FORMS = _compiled()
_QUOTED_LINE = re.compile(r"(?m)^[ \t]*(?:>|\|).*$")
_CLAUSE_END = re.compile(
    r"(?:,| -| –| —|;|:| \() ?(?=(?:so|because|since|which|while|though|although|plus|then|"
    r"(?:and|but)(?= (?:i|i['’]\w+|it|it['’]\w+|we|my|they|he|she|of course|the|both|there|now|that|this|you|as)\b)|"
    r"it|it['’]s|he|she|they|that|what|how|did|do|have|is|are|i|we|my|you|lol)\b)| (?:and|but|so|because|cause|since|while|though|although) "
    r"(?=(?:i|we|it|they|he|she|that|this|you|my|there|the)\b)| [-–—] |; |\.{2,3}",
    re.IGNORECASE,
)
_EDGES = re.compile(r"^\W*(?:and|but|plus|also)\b|(?:,? (?:too|as well|and|but|so|or|because))+[.!]*$", re.IGNORECASE)
_SLOT = re.compile(
    r"(?:my (?:[\w-]+ ){1,4}(?:is|are) (?!called|named)|i live in |(?:please )?call me |our (?:[\w-]+ ){1,4}(?:is|are) |"
    r"ich wohne in |mein(?:e|en)? (?:[\w-]+ ){1,3}ist |j['’]habite à |vivo en |我住在|我叫)",
    re.IGNORECASE,
)
"""Beginning of a statement that has one value at a time: the same beginning with another value replaces it."""


class Source(Struct, frozen=True):
    """A message that a fact is from."""

    session: str
    entry: str
    """Message reference, as `nexus history --entry` takes it."""
    role: str
    quotation: str
    at_ms: int = 0


class Proposal(Struct, frozen=True):
    """A fact that was proposed for memory."""

    id: str
    text: str
    kind: FactKind
    about: About
    section: str
    sources: tuple[Source, ...]
    replaces: str = ""
    """Text of the fact in memory that it replaces."""
    by: str = "rule"
    """`rule`, or the name of the model that proposed it."""
    principal: str | None = None
    """Who said it; empty for the local user, None if that is unknown."""


SECTIONS: dict[tuple[FactKind, About], str] = {
    ("fact", "user"): "User",
    ("preference", "user"): "User",
    ("decision", "work"): "Decisions",
    ("rule", "work"): "Rules",
}


def section_of(kind: FactKind, about: About) -> str:
    """Return the heading under which a fact of this kind is stored."""
    return SECTIONS.get((kind, about), "User" if about == "user" else "Facts")


def proposal_id(text: str, source: Source) -> str:
    """Return a short id that a fact of a message always has."""
    data = f"{comparison_key(text)}\0{source.session}\0{source.entry}"
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def user_text(row: StoredMessage) -> str:
    """Return the text that the user typed in a message, without secrets, quoted lines and tables; "" for pasted or injected text."""
    if row.message.role != "user" or is_injected(row.message):
        return ""
    text = strip_markup(limit_length(typed_text(row.message)))
    if len(text) > TYPED_CHARS:
        return ""
    return redact(_QUOTED_LINE.sub("", text)).text.strip()


def source_of(row: StoredMessage, session: str, quotation: str) -> Source:
    """Return a message as the source of a fact."""
    line = truncate_line(quotation, QUOTATION_CHARS)
    return Source(session, f"{row.ref.seq}.{row.ref.ord}", row.message.role, line, row.message.at_ms)


def propose_by_rule(rows: Iterable[StoredMessage], session: str) -> list[Proposal]:
    """Return the facts that a session's user states, in order, without repeats and those that a later one replaces."""
    proposals: list[Proposal] = []
    for row in rows:
        for sentence in sentences(user_text(row)):
            for text, kind, about in _facts(sentence):
                text = normalize_fact(text, MAX_CHARS * 2)  # noqa: PLW2901 - the same text, as memory stores it
                source = source_of(row, session, sentence)
                section = section_of(kind, about)
                proposals.append(Proposal(proposal_id(text, source), text, kind, about, section, (source,)))
    return newest(proposals)


def newest(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals without those that a later one replaces; equal ones are joined, with the sources of both."""
    single: dict[str, Proposal] = {}
    for proposal in proposals:
        key = fact_key(proposal.text)
        if (same := single.get(key)) is not None:
            sources = dict.fromkeys((*same.sources, *proposal.sources))
            proposal = replace(same, sources=tuple(sources)[:MAX_SOURCES])  # noqa: PLW2901 - the joined one
        single[key] = proposal
    current: list[Proposal] = []
    for proposal in single.values():
        stale = set(replaced_facts(proposal.text, [other.text for other in current]))
        current = [*(other for other in current if other.text not in stale), proposal]
    return current


def fact_key(text: str) -> str:
    """Return the key under which equal facts are found, whatever their last punctuation mark."""
    return comparison_key(text).rstrip(".!。！ ")


def replaced_facts(text: str, facts: Sequence[str]) -> list[str]:
    """Return the facts that a later text replaces as a whole: the same subject with another value."""
    slot = _SLOT.match(text)
    same_slot = [fact for fact in facts if slot and (other := _SLOT.match(fact)) and _slot(other) == _slot(slot)]
    # "Tabs over spaces" and "spaces over tabs" have the same words.
    same_words = [fact for fact in facts if sorted(_words(fact)) == sorted(_words(text))]
    rests = superseded_sentences([*facts, text])
    replaced = [facts[at] for at, rest in rests.items() if at < len(facts) and not rest]
    return [fact for fact in dict.fromkeys((*same_slot, *same_words, *replaced)) if fact_key(fact) != fact_key(text)]


def _slot(match: re.Match[str]) -> str:
    return comparison_key(match[0])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _facts(sentence: str) -> Iterator[tuple[str, FactKind, About]]:
    """Yield the facts of a sentence with kind and subject: its first clauses, each as short as it can be, or all of it."""
    label, text = parse_label(sentence)
    text = text.replace("**", "").strip(" -*•")
    while lead := _FORMS["lead"].match(text):
        text = text[lead.end() :].strip()
    ends = [match.start() for match in _CLAUSE_END.finditer(text)][:6]
    start = 0
    while start < len(text):
        for end in (*(end for end in ends if end > start), len(text)):
            clause = _EDGES.sub("", text[start:end]).strip(" ,;:-–—(")
            if _FORMS["trivial"].search(clause):
                start = end
                break
            is_whole = start == 0 and end == len(text)
            kind = _kind(clause, labeled=label in ("constraint", "preference"), is_whole=is_whole)
            if kind is not None:
                clause = clause[:1].upper() + clause[1:]
                yield clause if clause.endswith((".", "!", "。", "！")) else f"{clause}.", *kind
                start = end
                break
        else:
            return


def _kind(text: str, *, labeled: bool, is_whole: bool) -> tuple[FactKind, About] | None:
    """Return the kind and subject of a statement that needs no other; None for any other text."""
    if not MIN_CHARS <= len(text) * (1 + (not text.isascii())) <= MAX_CHARS or len(text.split()) > MAX_WORDS:
        return None
    if text.endswith(("?", "？", ":", "：", "…")) or _FORMS["dependent"].search(text):
        return None
    if _FORMS["unfinished"].search(text):
        return None
    if not _FORMS["particular"].search(text):
        if _FORMS["identity"].search(text):
            return "fact", "user"
        if _FORMS["preference"].search(text):
            return "preference", "user"
        if _FORMS["decision"].search(text):
            return "decision", "work"
        if _FORMS["work"].search(text):
            return "fact", "work"
    is_standing = labeled or _FORMS["rule"].search(text) is not None
    is_rule = (
        is_whole
        and is_standing
        and (
            cued_kind(text, by_user=True) in ("constraint", "preference") or _FORMS["occasion"].match(text) is not None
        )
    )
    if is_rule and not is_soft(text) and not _FORMS["narrative"].search(text):
        return "rule", "work"
    return None
