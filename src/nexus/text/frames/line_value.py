r"""Values that stand on one line of a frame: whatever is in them, the line ends where Nexus ends it.

Line breaks become `\n`, `\r`, `\v`, `\f`, `\x1c`, `\x1d`, `\x1e`, `\x85`, `\u2028`, `\u2029`. Backslashes that stand
right before such a code, or before a line break, are doubled, so that both stay apart; all others stay as they are, and
with them most paths and patterns. Marks are left to `escape`, which is used on top.
"""

from __future__ import annotations

import re

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


def one_line(value: str) -> str:
    """The value without line breaks of any kind; the same object where nothing is to do."""
    return _TO_WRITE.sub(_written, value)


def un_one_line(value: str) -> str:
    """The value that `one_line` was given: `un_one_line(one_line(value)) == value` for every text."""
    return _TO_READ.sub(_read, value)


def _written(found: re.Match[str]) -> str:
    return f"\\{_CODES[found[0]]}" if found[0] in _CODES else found[0] * 2


def _read(found: re.Match[str]) -> str:
    kept, broken = divmod(len(found[1]), 2)
    return "\\" * kept + (_BREAKS[found[2]] if broken else found[2])
