"""What any request body can carry: text without lone surrogates, tool arguments as the JSON text of an object."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")
_object = msgspec.json.Decoder(dict[str, Any])
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)

MOST_LEVELS = 64
"""Deeper arguments are kept as text: how deep a JSON reader goes differs between providers and Python versions."""


def arguments_as_object(arguments: str) -> str:
    """The arguments if they are the JSON text of an object; nothing and `null` as `{}`; all else under `_unparsed`."""
    try:
        _object.decode(arguments)
        readable = _levels(arguments) <= MOST_LEVELS
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        readable = False
    if readable:
        return arguments
    if not arguments.strip() or arguments.strip() == "null":
        return "{}"
    return msgspec.json.encode({"_unparsed": sanitize_text(arguments)}).decode()


def _levels(arguments: str) -> int:
    """How deep the arguments nest; a bound where they have too few brackets to nest deeply."""
    brackets = arguments.count("[") + arguments.count("{")
    if brackets <= MOST_LEVELS:
        return brackets
    deepest = level = 0
    for token in _TOKEN.finditer(arguments):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, level)
    return deepest


def sanitize_text(text: str) -> str:
    """The text with lone surrogates, which no request body can carry, as U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
