r"""Values on one line: line breaks escaped reversibly, white space collapsed, or JSON.

`escape_line_breaks` writes line breaks as `\n`, `\r`, `\v`, `\f`, `\x1c`, `\x1d`, `\x1e`, `\x85`, `\u2028`, `\u2029`.
Backslashes right before such a code, or before a line break, are doubled, so that both can be told apart. All other
backslashes stay, and with them most paths and patterns. Frame tags are left to `frames.escape`, which runs afterwards.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

_CODES = {
    "\n": "n",
    "\r": "r",
    "\v": "v",
    "\f": "f",
    "\x1c": "x1c",
    "\x1d": "x1d",
    "\x1e": "x1e",
    "\x85": "x85",
    "\u2028": "u2028",
    "\u2029": "u2029",
}
_BREAKS = {code: char for char, code in _CODES.items()}
_ANY_BREAK = "".join(_CODES)
_ANY_CODE = "|".join(_BREAKS)

_TO_WRITE = re.compile(rf"(?<!\\)\\++(?={_ANY_CODE}|[{_ANY_BREAK}])|[{_ANY_BREAK}]")
_TO_READ = re.compile(rf"(?<!\\)(\\++)({_ANY_CODE})")

MAX_LEVELS = 32
"""Deepest nesting of a JSON value that may be shown in a prompt."""

# Allowed in JSON text, but a line break for some readers, a change of text direction, or not a character at all.
_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_line_breaks(value: str) -> str:
    """Return the value with line breaks of all kinds escaped; the same object if there are none."""
    return _TO_WRITE.sub(_encode, value)


def unescape_line_breaks(value: str) -> str:
    """Reverse `escape_line_breaks`: `unescape_line_breaks(escape_line_breaks(value)) == value` for every text."""
    return _TO_READ.sub(_decode, value)


def _encode(match: re.Match[str]) -> str:
    if match[0] in _CODES:
        return f"\\{_CODES[match[0]]}"
    return match[0] * 2


def _decode(match: re.Match[str]) -> str:
    backslashes, is_break = divmod(len(match[1]), 2)
    return "\\" * backslashes + (_BREAKS[match[2]] if is_break else match[2])


def collapse_whitespace(value: str) -> str:
    """Return the text with each run of white space, line breaks included, as one space."""
    return " ".join(value.split())


def json_line(value: object) -> str:
    """Return the value as JSON on one line, keys sorted. Raises TypeError or ValueError for other values."""
    _check(value, "", 0)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def value_line(value: object) -> str:
    """Return plain text that fits on one line unchanged, any other value as `json_line`. Raises as `json_line` does."""
    if isinstance(value, str) and value.strip() and not _UNSAFE.search(value) and min(value) >= " ":
        return value
    return json_line(value)


def _check(value: object, where: str, level: int) -> None:
    if level > MAX_LEVELS:
        raise ValueError(f"value nested more than {MAX_LEVELS} levels deep")
    match value:
        case None | bool() | int() | str():
            return
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{where or 'value'} is {value}, not a JSON number")
        case list() | tuple():
            for index, item in enumerate(cast("list[Any]", value)):
                _check(item, f"{where}[{index}]", level + 1)
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise TypeError(f"a key of {where or 'value'} is {type(key).__name__}, not text")
                _check(item, f"{where}.{key[:40]}", level + 1)
        case _:
            raise TypeError(f"{where or 'value'} is {type(value).__name__}, not a JSON value")
