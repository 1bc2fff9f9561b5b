"""JSON as text: members of objects and items of arrays exactly as they were written.

Values are cut out of the text and never parsed and formatted again: `1.0`, `1e400` and `0.10` stay what they are for
whichever program reads the file next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from nexus.errors import UnreadableFile

Members: TypeAlias = tuple[tuple[str, str], ...]
"""Members of an object in order: name, and JSON text of the value without spaces."""

MOST_LEVELS = 64
"""Nesting depth up to which the arguments of a call are shown as parameters; deeper ones are kept as text."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SPACED = re.compile(r"[ \t\n\r]")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_LONG_NUMBER = re.compile(r"\d{300}", re.ASCII)


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Finds the ends of values. Numbers stay text: Python refuses to parse integers of more than 4,300 digits.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject_constant)


class JsonItem(Struct, frozen=True):
    """Text of an array item, the line on which it begins (from 1), and its end in the array's text."""

    text: str
    line: int
    end: int


def items(text: str) -> Iterator[JsonItem]:
    """Yield the items of a JSON array.

    Raises UnreadableFile with the position if the text is not JSON or not an array, possibly after some items.
    """
    at = _after_space(text, 0)
    line = 1
    counted_to = 0
    if text[at : at + 1] != "[":
        _parse_value(text, at)
        raise UnreadableFile("not a JSON array of entries", code="bad_turn_log")
    at = _after_space(text, at + 1)
    sign = text[at : at + 1]
    if sign == "]":
        at += 1
    while sign != "]":
        _, end = _parse_value(text, at)
        line += text.count("\n", counted_to, at)
        counted_to = at
        yield JsonItem(text[at:end], line, end)
        at = _after_space(text, end)
        sign = text[at : at + 1]
        if sign not in (",", "]"):
            raise UnreadableFile(f"not JSON: `,` or `]` missing at {_where(text, at)}", code="bad_turn_log")
        at = _after_space(text, at + 1) if sign == "," else at + 1
    if _after_space(text, at) != len(text):
        raise UnreadableFile(
            f"not JSON: more text after the array, at {_where(text, _after_space(text, at))}", code="bad_turn_log"
        )


def members(text: str) -> Members | None:
    """Return the members of a JSON object, repeated names included; None for anything else."""
    pairs: list[tuple[str, str]] = []
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        return None
    at = _after_space(text, at + 1)
    sign = text[at : at + 1]
    try:
        while sign != "}":
            if text[at : at + 1] != '"':  # a parsed number is text too
                return None
            name, at = _parse_value(text, at)
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                return None
            at = _after_space(text, at + 1)
            _, end = _parse_value(text, at)
            pairs.append((name, minified(text[at:end])))
            at = _after_space(text, end)
            sign = text[at : at + 1]
            if sign not in (",", "}"):
                return None
            at = _after_space(text, at + 1) if sign == "," else at
    except UnreadableFile:
        return None
    if _after_space(text, at + 1) == len(text):
        return tuple(pairs)
    return None


def shallow_members(text: str) -> Members | None:
    """Return `members`, but None for repeated names, deep nesting and long numbers, which other readers reject."""
    if _LONG_NUMBER.search(text):
        return None
    level = deepest = 0
    # Only a text with that many brackets can be nested so deeply: few need the slower walk.
    if text.count("[") + text.count("{") > MOST_LEVELS:
        for token in _TOKEN.finditer(text):
            level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            deepest = max(deepest, level)
    if deepest > MOST_LEVELS:
        return None
    pairs = members(text)
    if pairs is None or len(dict(pairs)) < len(pairs):
        return None
    return pairs


def minified(text: str) -> str:
    """Return JSON text without the spaces between its tokens."""
    if _SPACED.search(text):
        return "".join(_TOKEN.findall(text))
    return text


def canonical(text: str) -> str:
    """Return a form that is equal for JSON texts which differ only in spaces and in escapes of strings."""
    tokens: list[str] = _TOKEN.findall(text)
    return "".join(json_string(json.loads(t)) if t[0] == '"' and "\\" in t else t for t in tokens)


def json_string(text: str) -> str:
    """Return a text as a JSON string, with lone surrogates, which UTF-8 cannot encode, as escapes."""
    return escape_surrogates(json.dumps(text, ensure_ascii=False))


def string_of(text: str) -> str | None:
    """Return the content of a JSON string; None for any other JSON text."""
    if text[:1] == '"':
        return json.loads(text)
    return None


def object_text(members: Members) -> str:
    """Return the JSON object with these members."""
    return "{" + ",".join(f"{json_string(name)}:{text}" for name, text in members) + "}"


def value_text(value: Any) -> str:
    """Return a value as JSON text without spaces."""
    return escape_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escape_surrogates(text: str) -> str:
    """Return JSON text with lone surrogates, which occur in strings only, as escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def indent(text: str, level: int = 0) -> Iterator[str]:
    """Yield the lines of a JSON text as the document prints them: two spaces a level, empty arrays on one line."""
    line = "  " * level
    before = ""
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
    space = _SPACE.match(text, at)
    if space:
        return space.end()
    return at


def _parse_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value at an offset, its numbers as text, and its end. Raises UnreadableFile if there is none."""
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise UnreadableFile(f"not JSON: {error.msg} at {_where(text, error.pos)}", code="bad_turn_log") from None
    except RecursionError:
        raise UnreadableFile(f"nested too deeply, at {_where(text, at)}", code="bad_turn_log") from None
    except ValueError as error:
        raise UnreadableFile(f"not JSON: {error}, at {_where(text, at)}", code="bad_turn_log") from None


def _where(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
