"""JSON as text: members of objects and items of lists as they were written, so that no number and no order is changed.

Values are cut out of the text, never read and written again: `1.0`, `1e400` and `0.10` stay what they are, whichever
program reads the file next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from nexus.errors import BadTurnLog

Members: TypeAlias = tuple[tuple[str, str], ...]
"""The members of an object in order: name, and the value's JSON text without spaces."""

MOST_LEVELS = 64
"""How deep the arguments of a call may nest to be shown as parameters; deeper ones are kept as text."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SPACED = re.compile(r"[ \t\n\r]")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_LONG_NUMBER = re.compile(r"\d{300}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_values = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refused)
"""Finds where a value ends. Numbers stay text: some have too many digits for a number of Python."""


class JsonItem(Struct, frozen=True):
    """One item of a list: its text, and the line of the text that it begins on (from 1)."""

    text: str
    line: int


def items(text: str) -> Iterator[JsonItem]:
    """The items of the list that a text is, one at a time.

    Raises BadTurnLog, which says where, when the text is no JSON or no list, also after items were given.
    """
    at, line, counted = _after_space(text, 0), 1, 0
    if text[at : at + 1] != "[":
        _parsed(text, at)
        raise BadTurnLog("it is not a JSON array of entries")
    at = _after_space(text, at + 1)
    if text[at : at + 1] == "]":
        at += 1
    else:
        while True:
            _, end = _parsed(text, at)
            line, counted = line + text.count("\n", counted, at), at
            yield JsonItem(text[at:end], line)
            at = _after_space(text, end)
            sign = text[at : at + 1]
            at = _after_space(text, at + 1) if sign == "," else at + 1
            if sign == "]":
                break
            if sign != ",":
                raise BadTurnLog(f"it is not JSON: `,` or `]` is missing at {_where(text, at - 1)}")
    if _after_space(text, at) != len(text):
        raise BadTurnLog(f"it is not JSON: more text after the array, at {_where(text, _after_space(text, at))}")


def members(text: str) -> Members | None:
    """The members of the object that a JSON text is, names that stand twice included; None if it is something else."""
    try:
        return tuple(_members(text))
    except (ValueError, BadTurnLog):
        return None


def shallow_members(text: str) -> Members | None:
    """`members`, but None where a name stands twice, or where not every reader could follow: deep nesting, long numbers."""
    if _LONG_NUMBER.search(text):
        return None
    level = deepest = 0
    if text.count("[") + text.count("{") > MOST_LEVELS:
        for token in _TOKEN.finditer(text):
            level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            deepest = max(deepest, level)
    found = members(text) if deepest <= MOST_LEVELS else None
    return found if found is not None and len(dict(found)) == len(found) else None


def _members(text: str) -> Iterator[tuple[str, str]]:
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("no object")
    at = _after_space(text, at + 1)
    sign = "" if text[at : at + 1] != "}" else "}"
    while sign != "}":
        if text[at : at + 1] != '"':
            raise ValueError("no name")
        name, at = _parsed(text, at)
        at = _after_space(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("no value")
        at = _after_space(text, at + 1)
        _, end = _parsed(text, at)
        yield name, minified(text[at:end])
        at = _after_space(text, end)
        sign = text[at : at + 1]
        if sign not in (",", "}"):
            raise ValueError("no end")
        at = _after_space(text, at + 1) if sign == "," else at
    if _after_space(text, at + 1) != len(text):
        raise ValueError("more text")


def minified(text: str) -> str:
    """JSON text without the spaces between its tokens."""
    return "".join(_TOKEN.findall(text)) if _SPACED.search(text) else text


def same(text: str) -> str:
    """A form in which two JSON texts are equal that differ only in spaces and in how their strings are written."""
    return "".join(_plain_string(token) for token in _TOKEN.findall(text))


def _plain_string(token: str) -> str:
    return json_string(json.loads(token)) if token[0] == '"' and "\\" in token else token


def json_string(text: str) -> str:
    """A text as a JSON string. Lone surrogates, which no file can hold, are written as escapes."""
    return escape_surrogates(json.dumps(text, ensure_ascii=False))


def string_of(text: str) -> str | None:
    """The text that a JSON string holds; None if the JSON text is something else."""
    return json.loads(text) if text[:1] == '"' else None


def object_text(members: Members) -> str:
    """The JSON object with these members."""
    return "{" + ",".join(f"{json_string(name)}:{text}" for name, text in members) + "}"


def value_text(value: Any) -> str:
    """Any value of JSON as text without spaces."""
    return escape_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escape_surrogates(text: str) -> str:
    """JSON text that can be encoded as UTF-8: lone surrogates, which stand in strings only, as escapes."""
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def indent(text: str, level: int = 0) -> Iterator[str]:
    """The lines of a JSON text as the document prints them: two spaces a level, empty lists and objects on one line."""
    line, before = "  " * level, ""
    for sign in _TOKEN.findall(text):
        if sign in "}]":
            level -= 1
            if before not in "{[":
                yield line
                line = "  " * level
        elif before and before in "{[":
            yield line
            line = "  " * level
        line += sign
        if sign == ":":
            line += " "
        elif sign == ",":
            yield line
            line = "  " * level
        elif sign in "{[":
            level += 1
        before = sign
    yield line


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _parsed(text: str, at: int) -> tuple[Any, int]:
    """The value at a place, its numbers as text, and where it ends. Raises BadTurnLog where there is none."""
    try:
        return _values.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise BadTurnLog(f"it is not JSON: {error.msg} at {_where(text, error.pos)}") from None
    except RecursionError:
        raise BadTurnLog(f"it is nested too deeply to be read, at {_where(text, at)}") from None
    except ValueError as error:
        raise BadTurnLog(f"it is not JSON: {error}, at {_where(text, at)}") from None


def _where(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
