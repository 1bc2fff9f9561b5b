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


def escape_line_breaks(value: str) -> str:
    """The value without line breaks of any kind; the same object where nothing is to do."""
    return _TO_WRITE.sub(_written, value)


def unescape_line_breaks(value: str) -> str:
    """The value that `escape_line_breaks` was given: `unescape_line_breaks(escape_line_breaks(value)) == value` for every text."""
    return _TO_READ.sub(_read, value)


def _written(found: re.Match[str]) -> str:
    return f"\\{_CODES[found[0]]}" if found[0] in _CODES else found[0] * 2


def _read(found: re.Match[str]) -> str:
    kept, broken = divmod(len(found[1]), 2)
    return "\\" * kept + (_BREAKS[found[2]] if broken else found[2])


MOST_LEVELS = 32
"""Values that nest deeper are no data for a prompt."""

_BREAKING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON allows in a text although it ends a line for somebody, turns its direction, or is no text."""


def collapse_whitespace(value: str) -> str:
    """The text with each run of white space, line breaks included, as one space."""
    return " ".join(value.split())


def json_line(value: object) -> str:
    """The value as JSON on one line, keys sorted. Raises TypeError or ValueError, which say what in it is no JSON value."""
    _check(value, "", 0)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    return _BREAKING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def value_line(value: object) -> str:
    """The value on one line: a text as it stands where nothing in it breaks a line, all else as JSON. Raises as `json_line` does."""
    if isinstance(value, str) and value.strip() and not _BREAKING.search(value) and min(value) >= " ":
        return value
    return json_line(value)


def _check(value: object, where: str, level: int) -> None:
    if level > MOST_LEVELS:
        raise ValueError(f"it nests more than {MOST_LEVELS} levels deep")
    match value:
        case None | bool() | int() | str():
            return
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{where or 'it'} is {value}, which JSON cannot say")
        case list() | tuple():
            for index, item in enumerate(cast("list[Any]", value)):
                _check(item, f"{where}[{index}]", level + 1)
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise TypeError(f"a key of {where or 'it'} is {type(key).__name__} and no text")
                _check(item, f"{where}.{key[:40]}", level + 1)
        case _:
            raise TypeError(f"{where or 'it'} is {type(value).__name__} and no JSON value")
