"""The verdict on an error or a reply: did the request not fit, was it one too many, or is it about something else."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.providers.errors import messages as patterns
from nexus.providers.errors.extract import ErrorDetails, extract_details
from nexus.providers.errors.messages import Rule, TokenNumbers, TooMuch, normalize_code
from nexus.types.request import TokenUsage
from nexus.types.sanitize import sanitize_text

Kind: TypeAlias = Literal["overflow", "rate_limit", "other"]


class OverflowVerdict(Struct, frozen=True):
    """What a provider said of a request, and which rule found it (`source`, as `code:…`, `text:…`, `status:…`).

    `part` of an overflow is what to make smaller: `input`; `output`, when the input fits and the tokens asked for the
    answer do not; or `bytes`, when the body was refused before anyone counted tokens. All numbers are tokens, 0 when
    they were not told: `limit` is what may be used at most (`limit_of` the whole window or the input alone),
    `requested` all that the request would have used, of it `input_tokens` and `output_tokens`. With `at_least`, the
    provider stopped counting: `requested` and `input_tokens` are lower bounds. A `rate_limit` has a limit and a request
    too, if told: when the request is the larger one, waiting never helps. `text` is the provider's own, shortened.
    """

    kind: Kind
    source: str
    part: TooMuch = ""
    limit: int = 0
    limit_of: Literal["", "window", "input"] = ""
    requested: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    at_least: bool = False
    text: str = ""


def learned_window(verdict: OverflowVerdict) -> int | None:
    """The model's real limit in tokens if the provider told it, else None.

    It is the window, or the input alone where `limit_of` says so. Rates and sizes in bytes are none.
    """
    told = verdict.kind == "overflow" and verdict.part != "bytes" and verdict.limit > 0
    return verdict.limit if told else None


FULL_PERCENT = 99
"""An answer that is empty for its length, at an input of this share of the window or more, had no room."""

RAN_OUT = frozenset({"modelcontextwindowexceeded", "modellength", "contextlengthexceeded", "contextlength"})
"""Stop reasons of Anthropic, Bedrock and z.ai; of Mistral; of gateways."""

LENGTH = frozenset({"length", "maxtokens", "maxoutputtokens", "maxlength"})
"""Stop reasons of an answer that was ended for its length: OpenAI, Ollama; Anthropic, Gemini, Bedrock; Responses."""

_BLOCK = 1_024
_CUT_PERCENT = 80


def detect_silent_overflow(
    usage: TokenUsage,
    *,
    window: int,
    stop_reason: str = "",
    output_tokens: int | None = None,
    text_empty: bool = False,
    sent: int = 0,
) -> OverflowVerdict | None:
    """The overflow that a reply shows though there was no error; None if it shows none.

    `usage` is the reply's, `window` the model's in tokens (0: unknown), `sent` an estimate of the prompt's tokens (0:
    none). `output_tokens` replaces the usage's; `text_empty` says that the answer has no text and no tool call. A
    prompt counts as cut (Ollama does so without a word) when the server counted fewer than half of `sent`, or at most
    80 % and exactly full blocks of 1,024: only then is the count also told as the `limit`.
    """
    used = usage.input_tokens
    output = usage.output_tokens if output_tokens is None else output_tokens
    reason = normalize_code(stop_reason)
    if reason in RAN_OUT:
        return _overflow_of_usage(f"stop:{stop_reason}", used, output)
    if 0 < window < used:
        return _overflow_of_usage("usage:over the window", used, output)
    if reason in LENGTH and (output <= 0 or text_empty) and 0 < window * FULL_PERCENT <= used * 100:
        return _overflow_of_usage("usage:empty answer at the limit", used, output)
    if 0 < window == used:
        return _overflow_of_usage("usage:exactly the window", used, output, limit=window, requested=max(sent, used))
    if used > 0 and used * 100 <= sent * _CUT_PERCENT and used % _BLOCK == 0:
        return _overflow_of_usage("usage:cut to a full block", used, output, limit=used, requested=sent)
    if 0 < used * 2 < sent:
        return _overflow_of_usage("usage:less than was sent", used, output, requested=sent)
    return None


def _overflow_of_usage(source: str, used: int, output: int, *, limit: int = 0, requested: int = 0) -> OverflowVerdict:
    return OverflowVerdict(
        "overflow",
        source[:120],
        "input",
        limit,
        "window" if limit else "",
        requested or used + output,
        requested or used,
        output,
    )


SHOWN_CHARS = 300

_NO_WORDS = re.compile(
    r"^(?:api error occurred: )?(?:error |status )?(?:code:? ?)?[45]\d\d(?: status code)?"
    r"(?: \(no body\)| bad request|\. body:)?$|^$"
)


def classify(error: object, *, provider: str = "", window: int = 0) -> OverflowVerdict:
    """What an error of a provider means for the size of the request. Never raises, whatever it is given.

    `error` is an exception of any provider's package, an error body (dict or text), a status, or a pair of a status and
    a body. What an exception was raised from is read too, and the first that says something decides. A 429 is never an
    overflow unless a typed code says so. `provider` helps only with answers that have no words (Cerebras, Mistral) and
    with Zhipu's code 1261; `window` is the window believed so far, for sentences that tell only a difference.
    """
    company = provider.lower().partition("/")[0].strip()
    first = ""
    for said in extract_details(error):
        verdict = _verdict(said, company, window)
        if verdict is not None:
            return verdict
        first = first or next(iter(said.texts), "")
    return OverflowVerdict("other", "none", text=_shown(first))


def _verdict(said: ErrorDetails, company: str, window: int) -> OverflowVerdict | None:
    """What one error means; None when it says nothing of sizes and rates."""
    plain = [patterns.normalize_error_text(text) for text in said.texts]
    return _typed(said, plain, company, window) or _written(said, plain, window) or _without_words(said, plain, company)


def _typed(said: ErrorDetails, plain: list[str], company: str, window: int) -> OverflowVerdict | None:
    """The verdict of codes, types, class names and of status 429."""
    too_long = (
        patterns.TOO_LONG_CODES | {patterns.ZHIPU_TOO_LONG} if company in patterns.ZHIPU else patterns.TOO_LONG_CODES
    )
    if source := _code_of(said, patterns.UNRELATED_CODES):
        return OverflowVerdict("other", source, text=_shown("".join(said.texts[:1])))
    if source := _code_of(said, too_long):
        return _overflow(said, plain, source, window, "input")
    if source := _code_of(said, patterns.RATE_LIMIT_CODES):
        return _rate(said, plain, source)
    if said.status == 429:
        return _rate(said, plain, "status:429")
    source = _code_of(said, patterns.TOO_LARGE_CODES)
    if source and _rule_of((patterns.RATE_LIMIT_TEXT,), plain) is None:
        return _overflow(said, plain, source, window, "bytes")
    return None


def _written(said: ErrorDetails, plain: list[str], window: int) -> OverflowVerdict | None:
    """The verdict of the texts: what is no overflow is looked for first."""
    if said.status in patterns.NOT_ABOUT_SIZE:
        return None
    other = _rule_of(patterns.UNRELATED_TEXTS, plain)
    if other is not None:
        rule, _, index = other
        return OverflowVerdict("other", f"text:{rule.name}", text=_shown(said.texts[index]))
    rate = _rule_of((patterns.RATE_LIMIT_TEXT,), plain)
    if rate is not None:
        return _rate(said, plain, f"text:{rate[0].name}")
    if _rule_of(patterns.OVERFLOW, plain) is not None:
        return _overflow(said, plain, "", window, "input")
    return None


def _without_words(said: ErrorDetails, plain: list[str], company: str) -> OverflowVerdict | None:
    """The verdict of a status alone: 413, and 400 of the providers that give no body."""
    silent = all(_NO_WORDS.match(text) for text in plain)
    if silent and said.status in (400, 413) and company in patterns.EMPTY_IS_OVERFLOW:
        return OverflowVerdict(
            "overflow", f"status:{said.status} without a body", "input", text=_shown("".join(said.texts[:1]))
        )
    if said.status == 413:
        return OverflowVerdict("overflow", "status:413", "bytes", text=_shown("".join(said.texts[:1])))
    return None


def _overflow(said: ErrorDetails, plain: list[str], source: str, window: int, part: TooMuch) -> OverflowVerdict:
    """An overflow, with the numbers that the texts tell."""
    found = _rule_of(patterns.OVERFLOW, plain)
    if found is None:
        verdict = OverflowVerdict(
            "overflow", source, part, said.limit, requested=said.requested, input_tokens=said.requested
        )
        index = 0
    else:
        rule, match, index = found
        numbers = patterns.parse_token_numbers(match, window)
        verdict = OverflowVerdict(
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


def _part(rule: Rule, numbers: TokenNumbers, window: int) -> TooMuch:
    """Where input and output are both told, the output is too much if the input alone fits."""
    limit = numbers.limit or window
    if limit and numbers.input_tokens and numbers.output_tokens:
        return "output" if numbers.input_tokens < limit else "input"
    return rule.part


def _rate(said: ErrorDetails, plain: list[str], source: str) -> OverflowVerdict:
    """A rate limit, with its limit and what was requested where they are told."""
    for index, text in enumerate(plain):
        told = patterns.RATE.search(text)
        if told is not None:
            limit, requested = patterns.parse_number(told["limit"]), patterns.parse_number(told["requested"])
            return OverflowVerdict(
                "rate_limit", source, limit=limit, requested=requested, text=_shown(said.texts[index])
            )
    return OverflowVerdict("rate_limit", source, text=_shown("".join(said.texts[:1])))


def _rule_of(rules: tuple[Rule, ...], plain: list[str]) -> tuple[Rule, re.Match[str], int] | None:
    """The first rule that one of the texts meets, and which text."""
    for rule in rules:
        for index, text in enumerate(plain):
            match = rule.pattern.search(text)
            if match is not None:
                return rule, match, index
    return None


def _code_of(said: ErrorDetails, known: frozenset[str]) -> str:
    """The first code, type or class name that is among the known ones, with its field; empty if none is."""
    found = (f"{field}:{value}" for field, value in said.codes if normalize_code(value) in known)
    return sanitize_text(next(found, ""))


def _shown(text: str) -> str:
    clean = " ".join(sanitize_text(text[: 4 * SHOWN_CHARS]).split())
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[: SHOWN_CHARS - 1]}…"
