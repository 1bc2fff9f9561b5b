"""Redaction of secrets before a summarizer or a log reads the text: each becomes `[secret: kind]`.

The patterns are the documented formats of keys (`redact.toml`). No library fits: detect-secrets reads files line by line,
brings an HTTP client and has had no release since May 2024, and the smaller ones also remove paths, hosts and addresses,
which a summary has to keep. A password in prose without any cue is not found.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct

from nexus.types.decoding import decodable


class _Secret(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    hint: str
    """Part of every match; a text without it is not searched."""
    pattern: re.Pattern[str]


class _Assignment(Struct, frozen=True, forbid_unknown_fields=True):
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    other_name: re.Pattern[str]
    other_value: re.Pattern[str]


class _Patterns(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `redact.toml`; the file explains each table."""

    keys: tuple[_Secret, ...]
    prefixed: tuple[_Secret, ...]
    flag: re.Pattern[str]
    assignment: _Assignment


@cache
def _patterns() -> _Patterns:
    text = files("nexus.text").joinpath("redact.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=decodable(_Patterns), dec_hook=lambda _kind, pattern: re.compile(pattern))


class RedactedText(Struct, frozen=True):
    """A text without its secrets, and the number of removed secrets by kind."""

    text: str
    counts: dict[str, int]


def redact(text: str) -> RedactedText:
    """Replace every recognizable secret by `[secret: kind]`. Idempotent; time is linear in the length.

    Covers private keys, keys and tokens of well-known services, JWTs, bearer and basic headers, cookies, signed links,
    passwords in URLs, flags and assignments (`PASSWORD=…`, `"api_key": "…"`).
    """
    patterns = _patterns()
    counts = Counter[str]()
    assignments = patterns.assignment

    def placeholder(kind: str) -> str:
        counts[kind] += 1
        return f"[secret: {kind}]"

    def after_prefix(match: re.Match[str], kind: str) -> str:
        if "[secret:" in match[2] or assignments.other_value.match(match[2]):
            return match[0]
        return match[1] + placeholder(kind)

    def assignment(match: re.Match[str]) -> str:
        if not _assigns_secret(match, assignments):
            return match[0]
        kind = "credential"
        if match[0][:4].lower() in ("pass", "pwd=", "pwd:"):
            kind = "password"
        return match[0].removesuffix(match["quoted"] or match["bare"]) + placeholder(kind)

    # Keys of well-known forms first: an assignment to `token` would hide their kind.
    for secret in patterns.keys:
        if secret.hint in text:
            text = secret.pattern.sub(lambda _, kind=secret.kind: placeholder(kind), text)
    lowered = text.lower()
    for secret in patterns.prefixed:
        if secret.hint in lowered:
            text = secret.pattern.sub(lambda match, kind=secret.kind: after_prefix(match, kind), text)
    if any(hint in lowered for hint in assignments.hints):
        text = assignments.pattern.sub(assignment, text)
        text = patterns.flag.sub(lambda match: after_prefix(match, "password"), text)
    return RedactedText(text, dict(sorted(counts.items())))


def _assigns_secret(match: re.Match[str], assignments: _Assignment) -> bool:
    """Return False if the name or the value of an assignment shows that it is not a secret."""
    value = match["quoted"] or match["bare"]
    quoted = match["quoted"]
    if assignments.other_name.match(match["tail"]) or assignments.other_value.match(value) or len(value.strip()) < 3:
        return False
    if "=" in match["sign"]:
        return True
    # After a colon or "is", plain words are prose: "the password is required", "token: see below".
    if quoted:
        return not (" " in value.strip() and value.replace(" ", "").isalpha())
    return not (value.isalpha() or value.isspace() or value.rstrip(".,;:!?").isalpha())
