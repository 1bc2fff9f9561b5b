"""Verdicts on errors and replies: the request did not fit, a rate limit was hit, or something else."""

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
    """A provider's answer to a request, classified. Numbers are tokens, 0 if not reported."""

    kind: Kind
    source: str
    """The rule that matched: `code:…`, `text:…` or `status:…`."""
    part: TooMuch = ""
    """Part of an overflow to make smaller: `input`; `output`, if the input fits and the requested answer does not; or
    `bytes`, if the body was rejected before tokens were counted."""
    limit: int = 0
    """Upper bound of `limit_of`. A rate limit has one too: a larger request never succeeds by waiting."""
    limit_of: Literal["", "window", "input"] = ""
    requested: int = 0
    """Everything that the request would have used: `input_tokens` and `output_tokens`."""
    input_tokens: int = 0
    output_tokens: int = 0
    at_least: bool = False
    """The provider stopped counting: `requested` and `input_tokens` are lower bounds."""
    text: str = ""
    """The provider's text, truncated."""


def learned_window(verdict: OverflowVerdict) -> int | None:
    """Return the model's real limit in tokens, of `limit_of`, if the provider reported it, else None.

    Rate limits and sizes in bytes do not count.
    """
    is_reported = verdict.kind == "overflow" and verdict.part != "bytes" and verdict.limit > 0
    return verdict.limit if is_reported else None


FULL_PERCENT = 99
"""Input in percent of the window from which an empty answer that hit its length limit counts as an overflow."""

RAN_OUT = frozenset({"modelcontextwindowexceeded", "modellength", "contextlengthexceeded", "contextlength"})
"""Stop reasons of Anthropic, Bedrock and z.ai; of Mistral; of gateways."""

LENGTH = frozenset({"length", "maxtokens", "maxoutputtokens", "maxlength"})
"""Stop reasons for the length of an answer: OpenAI, Ollama; Anthropic, Gemini, Bedrock; Responses."""

_BLOCK = 1_024
_CUT_PERCENT = 80


def detect_silent_overflow(
    usage: TokenUsage,
    *,
    window: int,
    stop_reason: str = "",
    output_tokens: int | None = None,
    text_empty: bool = False,
    sent_tokens: int = 0,
) -> OverflowVerdict | None:
    """Return the overflow that a reply without an error shows; None if it shows none.

    A prompt counts as cut (Ollama does so silently) if the server counted fewer than half of `sent_tokens`, or at most 80 % and
    exactly full blocks of 1,024. Only in the second case the count is also the `limit`.

    Args:
        usage: The reply's usage.
        window: The model's context window in tokens; 0 if unknown.
        stop_reason: The reply's stop reason.
        output_tokens: Replaces the usage's.
        text_empty: The answer has no text and no tool call.
        sent_tokens: Estimate of the prompt's tokens; 0 for none.
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
        return _overflow_of_usage(
            "usage:exactly the window", used, output, limit=window, requested=max(sent_tokens, used)
        )
    if used > 0 and used * 100 <= sent_tokens * _CUT_PERCENT and used % _BLOCK == 0:
        return _overflow_of_usage("usage:cut to a full block", used, output, limit=used, requested=sent_tokens)
    if 0 < used * 2 < sent_tokens:
        return _overflow_of_usage("usage:less than was sent", used, output, requested=sent_tokens)
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
    """Classify an error of a provider. Never raises.

    An exception's causes are read too, and the first error that matches a rule decides. A 429 is an overflow only if a
    typed code says so.

    Args:
        error: An exception of any provider's package, an error body (dict or text), a status, or a pair of both.
        provider: Needed only for answers without text (Cerebras, Mistral) and Zhipu's code 1261.
        window: The assumed context window, for texts that contain only a difference.
    """
    company = provider.lower().partition("/")[0].strip()
    first_text = ""
    for details in extract_details(error):
        plain = [patterns.normalize_error_text(text) for text in details.texts]
        verdict = (
            _by_code(details, plain, company, window)
            or _by_text(details, plain, window)
            or _by_status(details, plain, company)
        )
        if verdict is not None:
            return verdict
        first_text = first_text or next(iter(details.texts), "")
    return OverflowVerdict("other", "none", text=_truncated(first_text))


def _by_code(details: ErrorDetails, plain: list[str], company: str, window: int) -> OverflowVerdict | None:
    """Return the verdict of codes, types, class names and status 429."""
    too_long = (
        patterns.TOO_LONG_CODES | {patterns.ZHIPU_TOO_LONG} if company in patterns.ZHIPU else patterns.TOO_LONG_CODES
    )
    if source := _code_of(details, patterns.UNRELATED_CODES):
        return OverflowVerdict("other", source, text=_truncated("".join(details.texts[:1])))
    if source := _code_of(details, too_long):
        return _overflow(details, plain, source, window, "input")
    if source := _code_of(details, patterns.RATE_LIMIT_CODES):
        return _rate(details, plain, source)
    if details.status == 429:
        return _rate(details, plain, "status:429")
    source = _code_of(details, patterns.TOO_LARGE_CODES)
    if source and _rule_of((patterns.RATE_LIMIT_TEXT,), plain) is None:
        return _overflow(details, plain, source, window, "bytes")
    return None


def _by_text(details: ErrorDetails, plain: list[str], window: int) -> OverflowVerdict | None:
    """Return the verdict of the texts; texts that are not about overflows are checked first."""
    if details.status in patterns.NOT_ABOUT_SIZE:
        return None
    other = _rule_of(patterns.UNRELATED_TEXTS, plain)
    if other is not None:
        rule, _, index = other
        return OverflowVerdict("other", f"text:{rule.name}", text=_truncated(details.texts[index]))
    rate = _rule_of((patterns.RATE_LIMIT_TEXT,), plain)
    if rate is not None:
        return _rate(details, plain, f"text:{rate[0].name}")
    if _rule_of(patterns.OVERFLOW, plain) is not None:
        return _overflow(details, plain, "", window, "input")
    return None


def _by_status(details: ErrorDetails, plain: list[str], company: str) -> OverflowVerdict | None:
    """Return the verdict of a status alone: 413, and 400 of the providers that send no body."""
    silent = all(_NO_WORDS.match(text) for text in plain)
    if silent and details.status in (400, 413) and company in patterns.EMPTY_IS_OVERFLOW:
        return OverflowVerdict(
            "overflow", f"status:{details.status} without a body", "input", text=_truncated("".join(details.texts[:1]))
        )
    if details.status == 413:
        return OverflowVerdict("overflow", "status:413", "bytes", text=_truncated("".join(details.texts[:1])))
    return None


def _overflow(details: ErrorDetails, plain: list[str], source: str, window: int, part: TooMuch) -> OverflowVerdict:
    """Return an overflow with the numbers in the texts."""
    matched = _rule_of(patterns.OVERFLOW, plain)
    if matched is None:
        verdict = OverflowVerdict(
            "overflow", source, part, details.limit, requested=details.requested, input_tokens=details.requested
        )
        index = 0
    else:
        rule, match, index = matched
        numbers = patterns.parse_token_numbers(match, window)
        verdict = OverflowVerdict(
            "overflow",
            source or f"text:{rule.name}",
            _part(rule, numbers, window),
            numbers.limit or details.limit,
            rule.limit_of,
            numbers.requested or details.requested,
            numbers.input_tokens or details.requested,
            numbers.output_tokens,
            numbers.at_least,
        )
    text = details.texts[index] if details.texts else ""
    return replace(verdict, limit_of=(verdict.limit_of or "window") if verdict.limit else "", text=_truncated(text))


def _part(rule: Rule, numbers: TokenNumbers, window: int) -> TooMuch:
    """Return the part to shrink: if both are reported, the output if the input alone fits."""
    limit = numbers.limit or window
    if limit and numbers.input_tokens and numbers.output_tokens:
        return "output" if numbers.input_tokens < limit else "input"
    return rule.part


def _rate(details: ErrorDetails, plain: list[str], source: str) -> OverflowVerdict:
    """Return a rate limit, with its limit and the request if they are reported."""
    for index, text in enumerate(plain):
        match = patterns.RATE.search(text)
        if match is not None:
            limit, requested = patterns.parse_number(match["limit"]), patterns.parse_number(match["requested"])
            return OverflowVerdict(
                "rate_limit", source, limit=limit, requested=requested, text=_truncated(details.texts[index])
            )
    return OverflowVerdict("rate_limit", source, text=_truncated("".join(details.texts[:1])))


def _rule_of(rules: tuple[Rule, ...], plain: list[str]) -> tuple[Rule, re.Match[str], int] | None:
    """Return the first rule that matches one of the texts, its match, and the text's index."""
    for rule in rules:
        for index, text in enumerate(plain):
            match = rule.pattern.search(text)
            if match is not None:
                return rule, match, index
    return None


def _code_of(details: ErrorDetails, codes: frozenset[str]) -> str:
    """Return the first code, type or class name that is in `codes`, with its field; empty if none is."""
    matches = (f"{field}:{value}" for field, value in details.codes if normalize_code(value) in codes)
    return sanitize_text(next(matches, ""))


def _truncated(text: str) -> str:
    clean = " ".join(sanitize_text(text[: 4 * SHOWN_CHARS]).split())
    return clean if len(clean) <= SHOWN_CHARS else f"{clean[: SHOWN_CHARS - 1]}…"
