"""Values that are valid in every request body: text without lone surrogates, tool arguments as a JSON object."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")
_object = msgspec.json.Decoder(dict[str, Any])
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)

MAX_LEVELS = 64
"""Deeper arguments are kept as text: the limits of JSON readers differ between providers and Python versions."""


def arguments_as_object(arguments: str) -> str:
    """Return arguments that are a JSON object unchanged; empty ones and `null` as `{}`; others under `_unparsed`."""
    try:
        _object.decode(arguments)
        readable = _levels(arguments) <= MAX_LEVELS
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        readable = False
    if readable:
        return arguments
    if not arguments.strip() or arguments.strip() == "null":
        return "{}"
    return msgspec.json.encode({"_unparsed": sanitize_text(arguments)}).decode()


def _levels(arguments: str) -> int:
    """Return the nesting depth of the arguments, or an upper bound if there are only few brackets."""
    brackets = arguments.count("[") + arguments.count("{")
    if brackets <= MAX_LEVELS:
        return brackets
    deepest = level = 0
    for token in _TOKEN.finditer(arguments):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, level)
    return deepest


def sanitize_text(text: str) -> str:
    """Return the text with lone surrogates, which are not valid UTF-8, as U+FFFD."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)
