"""Verdicts on errors and replies: the request did not fit, a rate limit was hit, or something else."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.providers.errors.error_rules import (
    RATE_NUMBERS,
    Rule,
    TokenNumbers,
    TooMuch,
    error_rules,
    normalize_code,
    normalize_error_text,
    parse_number,
    parse_token_numbers,
)
from nexus.providers.errors.extract import ErrorDetails, extract_details
from nexus.providers.received import mapping, text_of
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
    if is_reported:
        return verdict.limit
    return None


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
    if output_tokens is None:
        output = usage.output_tokens
    else:
        output = output_tokens
    reason = normalize_code(stop_reason)
    limit = requested = 0
    if reason in RAN_OUT:
        source = f"stop:{stop_reason}"
    elif 0 < window < used:
        source = "usage:over the window"
    elif reason in LENGTH and (output <= 0 or text_empty) and 0 < window * FULL_PERCENT <= used * 100:
        source = "usage:empty answer at the limit"
    elif 0 < window == used:
        source = "usage:exactly the window"
        limit = window
        requested = max(sent_tokens, used)
    # Ollama cuts a prompt to its configured window without an error; such windows are multiples of 1,024.
    elif used > 0 and used * 100 <= sent_tokens * _CUT_PERCENT and used % _BLOCK == 0:
        source = "usage:cut to a full block"
        limit = used
        requested = sent_tokens
    elif 0 < used * 2 < sent_tokens:
        source = "usage:less than was sent"
        requested = sent_tokens
    else:
        return None
    total = requested or used + output
    limit_of = "window" if limit else ""
    return OverflowVerdict("overflow", source[:120], "input", limit, limit_of, total, requested or used, output)


SHOWN_CHARS = 300

ZHIPU_TOO_LONG = "1261"
"""Zhipu's code for a prompt that is too long; other providers could use the number for anything."""
ZHIPU = frozenset({"", "zhipu", "zhipuai", "zai", "z.ai", "bigmodel", "glm"})

NOT_ABOUT_SIZE = frozenset({401, 402, 403, 404, 405, 408, 409})
"""Statuses whose text is not searched: keys, credit, unknown names."""

EMPTY_IS_OVERFLOW = frozenset({"cerebras", "mistral"})
"""Providers that reject a long prompt with 400 or 413 and an empty body: zhy0216/pigo `overflow.ts`."""

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
        plain = [normalize_error_text(text) for text in details.texts]
        verdict = _by_code(details, plain, company, window) or _by_text(details, plain, company, window)
        if verdict is not None:
            return verdict
        first_text = first_text or next(iter(details.texts), "")
    return OverflowVerdict("other", "none", text=_truncated(first_text))


def error_text(error: object) -> str:
    """Return the text of a provider's error, with its code or the text within it where its own does not say the kind.

    `classify` gives the same kind for the text as for the error. Empty without a text and a code.
    """
    fields = mapping(error)
    text = text_of(fields.get("message")) or text_of(error) or str(fields.get("code") or fields.get("type") or "")
    if fields:
        verdict = classify({"error": error})
    else:
        verdict = OverflowVerdict("other", "none")
    if verdict.kind == classify(text).kind:
        return text
    rule, _, code = verdict.source.partition(":")
    if rule == "text":
        return f"{text}: {verdict.text}"
    return f'{text} ("code": "{code}")'


def _by_code(details: ErrorDetails, plain: list[str], company: str, window: int) -> OverflowVerdict | None:
    """Return the verdict of codes, types, class names and status 429."""
    codes = error_rules().codes
    too_long = codes.too_long
    if company in ZHIPU:
        too_long |= {ZHIPU_TOO_LONG}
    # First: the text of OpenAI's `string_above_max_length` can read like an overflow.
    if source := _code_of(details, codes.unrelated):
        return OverflowVerdict("other", source, text=_truncated("".join(details.texts[:1])))
    if source := _code_of(details, too_long):
        return _overflow(details, plain, source, window, "input")
    if source := _code_of(details, codes.rate_limit):
        return _rate_limit(details, plain, source)
    if details.status == 429:
        return _rate_limit(details, plain, "status:429")
    # Groq answers 413, too large, to a request over the tokens per minute.
    source = _code_of(details, codes.too_large)
    if source and _first_match((error_rules().rate_limit,), plain) is None:
        return _overflow(details, plain, source, window, "bytes")
    return None


def _by_text(details: ErrorDetails, plain: list[str], company: str, window: int) -> OverflowVerdict | None:
    """Return the verdict of the texts, or else of the status alone; texts on other subjects are checked first."""
    rules = error_rules()
    status = details.status
    if status in NOT_ABOUT_SIZE:
        return None
    if unrelated := _first_match(rules.unrelated, plain):
        rule, _, index = unrelated
        return OverflowVerdict("other", f"text:{rule.name}", text=_truncated(details.texts[index]))
    if _first_match((rules.rate_limit,), plain):
        return _rate_limit(details, plain, f"text:{rules.rate_limit.name}")
    if _first_match(rules.overflow, plain):
        return _overflow(details, plain, "", window, "input")
    text = _truncated("".join(details.texts[:1]))
    if status in (400, 413) and company in EMPTY_IS_OVERFLOW and all(map(_NO_WORDS.match, plain)):
        return OverflowVerdict("overflow", f"status:{status} without a body", "input", text=text)
    if status == 413:
        return OverflowVerdict("overflow", "status:413", "bytes", text=text)
    return None


def _overflow(details: ErrorDetails, plain: list[str], source: str, window: int, part: TooMuch) -> OverflowVerdict:
    """Return an overflow with the numbers in the texts; `part` is the part to shrink if no text tells."""
    numbers = TokenNumbers()
    limit_of = "window"
    index = 0
    if matched := _first_match(error_rules().overflow, plain):
        rule, match, index = matched
        source = source or f"text:{rule.name}"
        part = rule.part
        limit_of = rule.limit_of
        numbers = parse_token_numbers(match, window)
        limit = numbers.limit or window
        if limit and numbers.input_tokens and numbers.output_tokens:
            # With both reported, a smaller answer is enough if the input alone fits.
            part = "output" if numbers.input_tokens < limit else "input"
    limit = numbers.limit or details.limit
    return OverflowVerdict(
        "overflow",
        source,
        part,
        limit,
        limit_of if limit else "",
        numbers.requested or details.requested,
        numbers.input_tokens or details.requested,
        numbers.output_tokens,
        numbers.at_least,
        _truncated(details.texts[index] if details.texts else ""),
    )


def _rate_limit(details: ErrorDetails, plain: list[str], source: str) -> OverflowVerdict:
    """Return a rate limit, with its limit and the request if they are reported."""
    for index, text in enumerate(plain):
        if match := RATE_NUMBERS.search(text):
            limit = parse_number(match["limit"])
            requested = parse_number(match["requested"])
            shown = _truncated(details.texts[index])
            return OverflowVerdict("rate_limit", source, limit=limit, requested=requested, text=shown)
    return OverflowVerdict("rate_limit", source, text=_truncated("".join(details.texts[:1])))


def _first_match(rules: tuple[Rule, ...], plain: list[str]) -> tuple[Rule, re.Match[str], int] | None:
    """Return the first rule that matches one of the texts, its match, and the text's index."""
    for rule in rules:
        for index, text in enumerate(plain):
            if match := rule.pattern.search(text):
                return rule, match, index
    return None


def _code_of(details: ErrorDetails, codes: frozenset[str]) -> str:
    """Return the first code, type or class name that is in `codes`, with its field; empty if none is."""
    matches = (f"{field}:{value}" for field, value in details.codes if normalize_code(value) in codes)
    return sanitize_text(next(matches, ""))


def _truncated(text: str) -> str:
    clean = " ".join(sanitize_text(text[: 4 * SHOWN_CHARS]).split())
    if len(clean) <= SHOWN_CHARS:
        return clean
    return f"{clean[: SHOWN_CHARS - 1]}…"
