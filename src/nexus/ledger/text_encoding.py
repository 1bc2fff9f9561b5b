"""Lossless encoding of NUL and lone surrogates, which databases reject or truncate.

Message parts are JSON text, where both have an escape. Plain text columns (IDs, labels, sources) encode NUL, U+001A
and each surrogate as U+001A and four hexadecimal digits; all other text is stored unchanged.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")


def encode_text(text: str) -> str:
    """Return the text with every character that a database may refuse in its escaped form."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda hit: f"\x1a{ord(hit[0]):04x}", text)


def decode_text(text: str) -> str:
    """Undo `storable`."""
    if "\x1a" in text:
        return _ESCAPED.sub(lambda hit: chr(int(hit[1], 16)), text)
    return text


def to_json(value: Any) -> str:
    """Return compact JSON text of a stored value. Lone surrogates become their JSON escapes."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":"))


def from_json(text: str, decoder: msgspec.json.Decoder[T]) -> T:
    """Read what `to_json` wrote. Raises msgspec.ValidationError if the text is of another shape."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), decoder.type)
