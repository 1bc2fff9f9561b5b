"""Guards for values and texts from outside: names of arguments, types of fields, JSON values, JSON and TOML texts.

Each raises ValueError with the reason, and nothing else; the callers make it their own error.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeVar, cast

import msgspec

from nexus.errors import BadSetting
from nexus.types.decoding import decodable
from nexus.types.sanitize import MAX_LEVELS, sanitize_text

MAX_PARSED_LEVELS = 200
"""Nesting of a file's value, which may contain values of up to `MAX_LEVELS`."""

MAX_DIGITS = 300
"""Digits of an integer: readers of JSON stop at different lengths above."""

MAX_INTEGER = 2**63
"""Bound of the integers in structs, which the ledger stores in 64 bits."""

T = TypeVar("T")

_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % MAX_PARSED_LEVELS  # noqa: UP031 - braces
)

_KEPT_TYPES = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal)
# Types that msgspec would convert to text: no field of a request has them.


def check_options(function: str, options: Mapping[str, object], kind: type, others: str = "") -> None:
    """Raise BadSetting if an option of a public function is not a key of the TypedDict `kind`.

    `others` are the function's other keyword arguments, which may have been meant.
    """
    if wrong := next((name for name in options if name not in kind.__annotations__), None):
        names = [*kind.__annotations__, *others.split()]
        # Swapped letters first: `modle` is `model`, although `mode` is nearer.
        close = [name for name in names if sorted(name) == sorted(wrong)] or get_close_matches(wrong[:80], names, 1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        else:
            hint = f"its arguments: {', '.join(sorted(names))}"
        raise BadSetting(f"{function}() has no argument {wrong!r} ({hint})", code="unknown_argument")


def checked(value: object, kind: type[T], max_integer: int = MAX_INTEGER) -> T:
    """Return a struct, or a list of them, with the type of every field checked, which constructors do not do.

    Raises ValueError.
    """
    try:
        if isinstance(kind, type) and not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")  # noqa: TRY301 - caught as all others
        plain = msgspec.to_builtins(value, builtin_types=_KEPT_TYPES, enc_hook=_plain_scalar)
        check_json(plain, max_integer=max_integer)
        return msgspec.convert(plain, decodable(kind))
    except RecursionError as error:
        raise ValueError("nested too deeply, or contains itself") from error
    except (TypeError, ValueError) as error:
        text = str(error)
        raise ValueError(f"{text[:1].lower()}{text[1:]}") from error


def _plain_scalar(value: object) -> object:
    """Return a value of a subclass of text or integer as its base type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"values of type {type(value).__name__} have no JSON form")


def json_copy(value: object) -> Any:
    """Return a copy of plain dicts, lists, numbers and text without lone surrogates. Raises ValueError.

    Mappings become dicts, tuples lists, and keys text.
    """
    try:
        plain = msgspec.to_builtins(value, enc_hook=_plain_container)
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_LEVELS} levels deep") from error
    except TypeError as error:
        raise ValueError(str(error)) from error
    check_json(plain)
    return _clean(plain)


def has_lone_surrogates(value: object) -> bool:
    """Return True if text in JSON values has lone surrogates, which no request can carry."""
    try:
        msgspec.json.encode(value, enc_hook=_plain_container)
    except UnicodeEncodeError:
        return True
    except (TypeError, ValueError, RecursionError):  # what else is wrong with a value is reported where it is read
        return False
    return False


def _plain_container(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return _plain_scalar(value)


def is_json(value: object) -> bool:
    """Return True for dicts with text as keys, lists, tuples, text, numbers, booleans and None. They contain no circle."""
    layer = [cast("Any", value)]
    while layer:
        inner: list[Any] = []
        for item in layer:
            if isinstance(item, dict):
                fields = cast("dict[Any, Any]", item)
                if not all(isinstance(key, str) for key in fields):
                    return False
                inner.extend(fields.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(cast("list[Any]", item))
            elif item is not None and not isinstance(item, (str, int, float)):
                return False
        layer = inner
    return True


def check_json(value: object, max_levels: int = MAX_LEVELS, max_integer: int = 10**MAX_DIGITS) -> None:
    """Check the depth and the integers of a value of dicts and lists. Raises ValueError."""
    levels = 0
    layer = [cast("Any", value)]
    while layer:
        inner: list[Any] = []
        containers = 0
        for item in layer:
            if type(item) is str:  # most values, on the way of every call
                continue
            if isinstance(item, int):
                if abs(item) >= max_integer:
                    raise ValueError(f"integer of {item.bit_length()} bits, too large")
            elif isinstance(item, (dict, list, tuple)):
                containers += 1
                inner.extend(
                    cast("dict[Any, Any]", item).values() if isinstance(item, dict) else cast("list[Any]", item)
                )
        if levels > max_levels and containers:
            raise ValueError(f"nested more than {max_levels} levels deep")
        levels += 1
        layer = inner


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[object, Any]", value)
        return {sanitize_text(str(key)): _clean(item) for key, item in items.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if isinstance(value, str):
        return sanitize_text(value)
    return value


def repair_json(body: bytes, *, nan_as_null: bool = False) -> bytes:
    """Return a JSON text that other readers accept: without a byte order mark, lone surrogates and invalid bytes.

    Valid JSON is returned unchanged. In other text invalid bytes are replaced, and leading white space is removed.
    """
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    else:
        return body
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        value = json.loads(text, strict=False, parse_constant=(lambda _: None) if nan_as_null else _refuse_constant)
        return msgspec.json.encode(_clean(value))
    except (ValueError, OverflowError, RecursionError):
        return text.encode()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    return _parsed(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises ValueError."""
    if _LONG_KEY.search(text):  # the time to read a key grows with the square of its parts
        raise ValueError(f"nested more than {MAX_PARSED_LEVELS} levels deep")
    return _parsed(tomllib.loads, text)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        value = parse(text)
        check_json(value, MAX_PARSED_LEVELS)
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_PARSED_LEVELS} levels deep") from error
    except ValueError as error:
        if "integer string conversion" in str(error):  # Python's own limit, whose text names a Python function
            raise ValueError("integer too large") from error
        raise
    return value
