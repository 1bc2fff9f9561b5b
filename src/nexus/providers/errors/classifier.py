"""The decision: typed fields first, then what only sounds like an overflow, then the sentences of the providers."""

from __future__ import annotations

import re

from msgspec.structs import replace

from nexus.providers.errors import codes
from nexus.providers.errors import messages as texts
from nexus.providers.errors.codes import plain_code
from nexus.providers.errors.extract import Said, read
from nexus.providers.errors.messages import Counted, Rule
from nexus.providers.errors.verdict import TooMuch, Verdict
from nexus.types.sanitize import legible

SHOWN_CHARS = 300

_NO_WORDS = re.compile(
    r"^(?:api error occurred: )?(?:error |status )?(?:code:? ?)?[45]\d\d(?: status code)?"
    r"(?: \(no body\)| bad request|\. body:)?$|^$"
)


def classify(error: object, *, provider: str = "", window: int = 0) -> Verdict:
    """What an error of a provider means for the size of the request. Never raises, whatever it is given.

    `error` is an exception of any provider's package, an error body (dict or text), a status, or a pair of a status and
    a body. What an exception was raised from is read too, and the first that says something decides. A 429 is never an
    overflow unless a typed code says so. `provider` helps only with answers that have no words (Cerebras, Mistral) and
    with Zhipu's code 1261; `window` is the window believed so far, for sentences that tell only a difference.
    """
    company = provider.lower().partition("/")[0].strip()
    first = ""
    for said in read(error):
        verdict = _verdict(said, company, window)
        if verdict is not None:
            return verdict
        first = first or next(iter(said.texts), "")
    return Verdict("other", "none", text=_shown(first))


def _verdict(said: Said, company: str, window: int) -> Verdict | None:
    """What one error means; None when it says nothing of sizes and rates."""
    plain = [texts.plain(text) for text in said.texts]
    return _typed(said, plain, company, window) or _written(said, plain, window) or _without_words(said, plain, company)


def _typed(said: Said, plain: list[str], company: str, window: int) -> Verdict | None:
    """The verdict of codes, types, class names and of status 429."""
    too_long = codes.TOO_LONG | {codes.ZHIPU_TOO_LONG} if company in codes.ZHIPU else codes.TOO_LONG
    if source := _code_of(said, codes.ANOTHER_MATTER):
        return Verdict("other", source, text=_shown("".join(said.texts[:1])))
    if source := _code_of(said, too_long):
        return _overflow(said, plain, source, window, "input")
    if source := _code_of(said, codes.TOO_OFTEN):
        return _rate(said, plain, source)
    if said.status == 429:
        return _rate(said, plain, "status:429")
    source = _code_of(said, codes.TOO_LARGE)
    if source and _rule_of((texts.TOO_OFTEN,), plain) is None:
        return _overflow(said, plain, source, window, "bytes")
    return None


def _written(said: Said, plain: list[str], window: int) -> Verdict | None:
    """The verdict of the texts: what is no overflow is looked for first."""
    if said.status in codes.NOT_ABOUT_SIZE:
        return None
    other = _rule_of(texts.ANOTHER_MATTER, plain)
    if other is not None:
        rule, _, index = other
        return Verdict("other", f"text:{rule.name}", text=_shown(said.texts[index]))
    rate = _rule_of((texts.TOO_OFTEN,), plain)
    if rate is not None:
        return _rate(said, plain, f"text:{rate[0].name}")
    if _rule_of(texts.OVERFLOW, plain) is not None:
        return _overflow(said, plain, "", window, "input")
    return None


def _without_words(said: Said, plain: list[str], company: str) -> Verdict | None:
    """The verdict of a status alone: 413, and 400 of the providers that give no body."""
    silent = all(_NO_WORDS.match(text) for text in plain)
    if silent and said.status in (400, 413) and company in codes.EMPTY_IS_OVERFLOW:
        return Verdict(
            "overflow", f"status:{said.status} without a body", "input", text=_shown("".join(said.texts[:1]))
        )
    if said.status == 413:
        return Verdict("overflow", "status:413", "bytes", text=_shown("".join(said.texts[:1])))
    return None


def _overflow(said: Said, plain: list[str], source: str, window: int, part: TooMuch) -> Verdict:
    """An overflow, with the numbers that the texts tell."""
    found = _rule_of(texts.OVERFLOW, plain)
    if found is None:
        verdict = Verdict("overflow", source, part, said.limit, requested=said.requested, input_tokens=said.requested)
        index = 0
    else:
        rule, match, index = found
        numbers = texts.counted(match, window)
        verdict = Verdict(
            "overflow",
            source or f"text:{rule.name}",
            _part(rule, numbers, window),
            numbers.limit or said.limit,
            rule.limit_of,
            numbers.requested or said.requested,
            numbers.input_tokens or said.requested,
            numbers.output_tokens,
            numbers.at_least,
        )
    text = said.texts[index] if said.texts else ""
    return replace(verdict, limit_of=(verdict.limit_of or "window") if verdict.limit else "", text=_shown(text))


def _part(rule: Rule, numbers: Counted, window: int) -> TooMuch:
    """Where input and output are both told, the output is too much if the input alone fits."""
    limit = numbers.limit or window
    if limit and numbers.input_tokens and numbers.output_tokens:
        return "output" if numbers.input_tokens < limit else "input"
    return rule.part


def _rate(said: Said, plain: list[str], source: str) -> Verdict:
    """A rate limit, with its limit and what was requested where they are told."""
    for index, text in enumerate(plain):
        told = texts.RATE.search(text)
        if told is not None:
            limit, requested = texts.number(told["limit"]), texts.number(told["requested"])
            return Verdict("rate_limit", source, limit=limit, requested=requested, text=_shown(said.texts[index]))
    return Verdict("rate_limit", source, text=_shown("".join(said.texts[:1])))


def _rule_of(rules: tuple[Rule, ...], plain: list[str]) -> tuple[Rule, re.Match[str], int] | None:
    """The first rule that one of the texts meets, and which text."""
    for rule in rules:
        for index, text in enumerate(plain):
            match = rule.pattern.search(text)
            if match is not None:
                return rule, match, index
    return None


def _code_of(said: Said, known: frozenset[str]) -> str:
    """The first code, type or class name that is among the known ones, with its field; empty if none is."""
    found = (f"{field}:{value}" for field, value in said.codes if plain_code(value) in known)
    return legible(next(found, ""))


def _shown(text: str) -> str:
    clean = " ".join(legible(text[: 4 * SHOWN_CHARS]).split())
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[: SHOWN_CHARS - 1]}…"
