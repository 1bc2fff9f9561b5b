"""Rules for provider errors, from `messages.toml`: codes, message patterns, and the token numbers in a message."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from nexus.types.decoding import decodable

TooMuch: TypeAlias = Literal["", "input", "output", "bytes"]
"""The part of a request that is too large."""

_NUMBER = r"\d{1,3}(?:[,._ ]\d{3}){1,3}(?!\d)|\d{1,12}(?:\.0)?(?:k\b)?(?!\d)"
_PLACE = re.compile(r"(?<!\?P)<(\w+)>")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S+")
_QUOTES = str.maketrans(dict.fromkeys("'\"`’‘“”\\", ""))


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern of an error message, the part that is too large, and the subject of its limit."""

    name: str
    pattern: re.Pattern[str]
    part: TooMuch = "input"
    limit_of: Literal["window", "input"] = "window"


class Codes(Struct, frozen=True, forbid_unknown_fields=True):
    """Codes, types and class names, as `normalize_code` returns them."""

    too_long: frozenset[str]
    too_large: frozenset[str]
    rate_limit: frozenset[str]
    unrelated: frozenset[str]


class ErrorRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `messages.toml`; the file explains each table."""

    overflow: tuple[Rule, ...]
    unrelated: tuple[Rule, ...]
    rate_limit: Rule
    codes: Codes


@cache
def error_rules() -> ErrorRules:
    """Return the shipped rules, with compiled patterns."""
    # At the first error, not at import: compiling all patterns takes some 30 ms.
    text = files("nexus.providers.errors").joinpath("messages.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=decodable(ErrorRules), dec_hook=lambda _kind, pattern: _pattern(pattern))


def _pattern(text: Any) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(lambda match: rf"\(?(?P<{match[1]}>{_NUMBER})\)?", text))


def normalize_code(code: str) -> str:
    """Return the code for comparison: lower case, letters and digits, without a final `error` or `exception`."""
    plain = re.sub(r"[^a-z0-9]", "", code.lower())
    return plain.removesuffix("exception").removesuffix("error") or plain


def normalize_error_text(text: str) -> str:
    """Return the text for comparison: lower case, without addresses, quotes and escapes."""
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace("\\n", " ").translate(_QUOTES)
    return " ".join(_ADDRESS.sub(" ", text).lower().split())


def parse_number(digits: str | None) -> int:
    """Return the value of a number with separators or a final `k`; 0 for None."""
    if not digits:
        return 0
    thousands = 1000 if digits.endswith("k") else 1
    digits = digits.removesuffix("k").removesuffix(".0")
    return int("".join(digit for digit in digits if digit.isdecimal())) * thousands


# Numbers of OpenAI's and Groq's rate limits: continuedev/continue#10218, vanna-ai/vanna-flask#11.
RATE_NUMBERS = _pattern(r"limit:? <limit>(?:, used:? \d{1,12})?,? (?:/ )?requested:? <requested>")
_PARTS = _pattern(
    r"<n> (?:tokens )?(?:\(?(?:in|of|for|from) (?:the |your )?(?P<of>messages|prompt|text input|tool input|image input|"
    r"audio input|file input|input messages|functions|tools|completion|output)|(?P<side>input|output) tokens)"
)
_TOTAL = _pattern(
    r"(?:requested(?: a total of| about| at least)?|resulted in|total of(?: at least)?|contains|prompt is) <n> tokens"
)
_BOUND = re.compile(r"at least|upper bound")


class TokenNumbers(Struct, frozen=True):
    """The numbers in an error message; 0 for missing ones."""

    limit: int = 0
    requested: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    at_least: bool = False


def parse_token_numbers(match: re.Match[str], window: int) -> TokenNumbers:
    """Return the numbers of a matched message: those in the rule's groups, else those around the match."""
    groups = {name: parse_number(digits) for name, digits in match.groupdict().items()}
    limit = groups.get("limit", 0)
    requested = groups.get("requested", 0)
    inputs = groups.get("input", 0)
    outputs = groups.get("output", 0)
    if groups.get("over") and window:
        requested = window + groups["over"]  # Ollama reports only the excess
    if requested or inputs or outputs:
        return TokenNumbers(limit, requested or inputs + outputs, inputs, outputs)
    # OpenAI and its many imitators itemize the request in the sentences around the limit.
    nearby = match.string[max(0, match.start() - 200) : match.end() + 400]
    for part in _PARTS.finditer(nearby):
        if "completion" in part[0] or "output" in part[0]:
            outputs += parse_number(part["n"])
        else:
            inputs += parse_number(part["n"])
    total = _TOTAL.search(nearby)
    if total:
        requested = parse_number(total["n"])
    else:
        requested = inputs + outputs
    return TokenNumbers(limit, requested, inputs, outputs, bool(requested and _BOUND.search(nearby)))
