"""What any request body can carry: text without lone surrogates, tool arguments as the JSON text of an object."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")
_object = msgspec.json.Decoder(dict[str, Any])


def arguments_as_object(arguments: str) -> str:
    """The arguments if they are the JSON text of an object; nothing and `null` as `{}`; all else under `_unparsed`."""
    try:
        _object.decode(arguments)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        if not arguments.strip() or arguments.strip() == "null":
            return "{}"
        return msgspec.json.encode({"_unparsed": legible(arguments)}).decode()
    return arguments


def legible(text: str) -> str:
    """The text with lone surrogates, which no request body can carry, as U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)
