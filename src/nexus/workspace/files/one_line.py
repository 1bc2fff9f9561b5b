"""Values on one line that they cannot break: whatever a value holds, what follows on the next line is ours."""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast

MOST_LEVELS = 32
"""Values that nest deeper are no data for a prompt."""

_BREAKING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON allows in a text although it ends a line for somebody, turns its direction, or is no text."""


def one_line(value: str) -> str:
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
