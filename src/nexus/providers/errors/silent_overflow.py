"""Overflows without an error: an accepted prompt that was larger than the window, was cut, or left no room to answer."""

from __future__ import annotations

from nexus.providers.errors.codes import plain_code
from nexus.providers.errors.verdict import Verdict
from nexus.types.request import TokenUsage

FULL_PERCENT = 99
"""An answer that is empty for its length, at an input of this share of the window or more, had no room."""

RAN_OUT = frozenset({"modelcontextwindowexceeded", "modellength", "contextlengthexceeded", "contextlength"})
"""Stop reasons of Anthropic, Bedrock and z.ai; of Mistral; of gateways."""

LENGTH = frozenset({"length", "maxtokens", "maxoutputtokens", "maxlength"})
"""Stop reasons of an answer that was ended for its length: OpenAI, Ollama; Anthropic, Gemini, Bedrock; Responses."""

_BLOCK = 1_024
_CUT_PERCENT = 80


def silent(
    usage: TokenUsage,
    *,
    window: int,
    stop_reason: str = "",
    output_tokens: int | None = None,
    text_empty: bool = False,
    sent: int = 0,
) -> Verdict | None:
    """The overflow that a reply shows though there was no error; None if it shows none.

    `usage` is the reply's, `window` the model's in tokens (0: unknown), `sent` an estimate of the prompt's tokens (0:
    none). `output_tokens` replaces the usage's; `text_empty` says that the answer has no text and no tool call. A
    prompt counts as cut (Ollama does so without a word) when the server counted fewer than half of `sent`, or at most
    80 % and exactly full blocks of 1,024: only then is the count also told as the `limit`.
    """
    used = usage.input_tokens
    output = usage.output_tokens if output_tokens is None else output_tokens
    reason = plain_code(stop_reason)
    if reason in RAN_OUT:
        return _verdict(f"stop:{stop_reason}", used, output)
    if 0 < window < used:
        return _verdict("usage:over the window", used, output)
    if reason in LENGTH and (output <= 0 or text_empty) and 0 < window * FULL_PERCENT <= used * 100:
        return _verdict("usage:empty answer at the limit", used, output)
    if 0 < window == used:
        return _verdict("usage:exactly the window", used, output, limit=window, requested=max(sent, used))
    if used > 0 and used * 100 <= sent * _CUT_PERCENT and used % _BLOCK == 0:
        return _verdict("usage:cut to a full block", used, output, limit=used, requested=sent)
    if 0 < used * 2 < sent:
        return _verdict("usage:less than was sent", used, output, requested=sent)
    return None


def _verdict(source: str, used: int, output: int, *, limit: int = 0, requested: int = 0) -> Verdict:
    return Verdict(
        "overflow",
        source[:120],
        "input",
        limit,
        "window" if limit else "",
        requested or used + output,
        requested or used,
        output,
    )
