"""What an error says: status, codes and texts, from any exception of a provider's package, a body, or a text.

Nothing is imported to know the errors: they are read by the names that their fields have in openai, anthropic,
google-genai, botocore, mistralai, groq, cerebras, ollama, litellm and httpx. Only fields in which a provider puts its
own words are read, so a prompt that is echoed in an error is not taken for one. An error can be anything: what raises
when it is looked at counts as not there, and how much is looked at is limited.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import msgspec

HEAD_CHARS, TAIL_CHARS = 4_500, 1_500
"""Of a longer text only this much of both ends is looked at."""

_MOST_JSON_CHARS = 65_536
_MOST_VALUES, _MOST_LEVELS, _MOST_TEXTS, _MOST_ERRORS = 200, 8, 12, 16

_STATUS = frozenset({"statuscode", "status", "httpstatus", "httpstatuscode", "code", "errorcode"})
_CODE = frozenset({"code", "type", "status", "reason", "errorcode", "errortype"})
_TEXT = frozenset(
    [
        "message",
        "msg",
        "error",
        "errors",
        "errordescription",
        "errormessage",
        "errormsg",
        "detail",
        "details",
        "description",
        "title",
        "raw",
        "text",
        "content",
        "body",
        "originalmessage",
        "data",
    ]
)
_WITHIN = frozenset(
    [
        "error",
        "errors",
        "detail",
        "details",
        "metadata",
        "raw",
        "body",
        "response",
        "responsemetadata",
        "data",
        "innererror",
    ]
)

_BODIES = ("body", "response", "details", "error", "errors", "detail", "data", "raw_response")
_OWN = ("status_code", "status", "http_status", "code", "type", "error_code", "reason")
_OF_RESPONSE = ("status_code", "status", "error", "text", "content")
_OF_OBJECT = (*_OWN, "message", "error", "detail")

_CODE_IN_TEXT = re.compile(
    r"""\\{0,7}["'](?:code|type|status|reason|__type|error_code)\\{0,7}["']\s{0,4}:\s{0,4}\\{0,7}["']([\w.-]{3,80})"""
)
_STATUS_IN_TEXT = re.compile(
    r"""(?:^\s{0,9}\(?|\b(?:code|status|statuscode|http(?:/\d(?:\.\d)?| error)?)\\{0,7}["']?\s?[:=]?\s?["'(]?)"""
    r"""([45]\d\d)\b(?! ?tokens)""",
    re.IGNORECASE,
)
_NUMBER_IN_TEXT = re.compile(r"""\b(n_ctx|n_prompt_tokens)\\{0,7}["']?\s{0,4}[:=]\s{0,4}(\d{1,12})\b""")


class ErrorDetails(msgspec.Struct, frozen=True):
    """What one error says. `codes` are pairs of field and value; `limit` and `requested` are llama.cpp's own fields."""

    status: int
    codes: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    limit: int = 0
    requested: int = 0


def extract_details(error: object) -> Iterator[ErrorDetails]:
    """What the error says, and then each error that it was raised from or is a group of, at most 16 in all.

    A pair of a status and a body is one error too. Never raises.
    """
    waiting: deque[object] = deque([error])
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_ERRORS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        reading = _Reading()
        with suppress(Exception):  # an object can refuse even to be looked at; what was read before that is kept
            if issubclass(type(one), BaseException):
                reading.exception(one)
            else:
                reading.value(one)
        waiting += [found for found in _causes(one) if issubclass(type(found), BaseException)]
        yield reading.said()


def _causes(error: object) -> list[object]:
    group = _field(error, "exceptions")
    inner = [_field(error, name) for name in ("__cause__", "original_exception", "original_error")]
    return [*inner, *(cast("tuple[object, ...]", group)[:_MOST_ERRORS] if type(group) is tuple else ())]


def _field(one: object, name: str) -> object:
    """The attribute, None when it is missing or cannot be had."""
    with suppress(Exception):
        return getattr(one, name, None)
    return None


def _entries(one: Mapping[Any, Any]) -> list[tuple[object, object]]:
    with suppress(Exception):
        return list(islice(one.items(), _MOST_VALUES))
    return []


def _words(one: object) -> str:
    """What an exception prints as."""
    with suppress(Exception):
        return str.__str__(str(one))
    return ""


def truncate_error_text(text: str) -> str:
    """Both ends of a long text, the text itself if it is not long."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]} … {text[-TAIL_CHARS:]}"


class _Reading:
    """What has been read of one error so far."""

    def __init__(self) -> None:
        self.status = 0
        self.codes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.numbers: dict[str, int] = {}
        self.left = _MOST_VALUES

    def said(self) -> ErrorDetails:
        """All of it; a status, codes and numbers that stand in texts included where no field has them."""
        for text in self.texts:
            found = _STATUS_IN_TEXT.search(text)
            self.status = self.status or int(found[1] if found else 0)
            self.codes += [("code", code) for code in _CODE_IN_TEXT.findall(text)[:12]]
            for name, digits in _NUMBER_IN_TEXT.findall(text)[:4]:
                self.numbers.setdefault(name.replace("_", ""), int(digits))
        numbers = self.numbers
        return ErrorDetails(
            self.status,
            tuple(dict.fromkeys(self.codes)),
            tuple(self.texts),
            numbers.get("nctx", 0),
            numbers.get("nprompttokens", 0),
        )

    def exception(self, error: object) -> None:
        """An exception: its own fields, then the body, and only where that has no words the exception's message."""
        for name in _OWN:
            self._take(name, _field(error, name), 0)
        for name in _BODIES:
            self._take(name, _field(error, name), 0)
            if self.texts:
                break
        if not self.texts:
            self._take("message", _field(error, "message"), 0)
            self._take("message", _words(error), 0)
        names = [kind.__name__ for kind in type(error).__mro__[:-3]]
        self.codes += [("class", name) for name in names[:8]]

    def value(self, value: object) -> None:
        """A status, a text, a body, or a pair of a status and one of the others."""
        if issubclass(type(value), tuple):
            for one in cast("tuple[object, ...]", value)[:2]:
                self.value(one) if not issubclass(type(one), tuple) else self._take("body", one, 0)
        elif issubclass(type(value), int):
            self._take("status_code", value, 0)
        else:
            self._take("body", value, 0)

    def _take(self, name: str, value: object, level: int) -> None:
        """One named value, with all that stands in it."""
        waiting: deque[tuple[str, object, int]] = deque([(name, value, level)])
        while waiting and self.left > 0:
            name, value, level = waiting.popleft()
            self.left -= 1
            kind = type(value)
            key = name.lower().replace("_", "").replace("-", "")
            if issubclass(kind, int):
                self._number(key, cast("int", value))
            elif issubclass(kind, (str, bytes, bytearray)):
                inside = self._string(key, cast("str | bytes | bytearray", value))
                if inside is not None and level < _MOST_LEVELS:
                    waiting.append((name, inside, level + 1))
            elif value is not None and level < _MOST_LEVELS:
                waiting += self._inside(name, key, value, level + 1)

    def _inside(self, name: str, key: str, value: object, level: int) -> list[tuple[str, object, int]]:
        if issubclass(type(value), Mapping):
            entries = _entries(cast("Mapping[Any, Any]", value))
            return [(field, inner, level) for field, inner in entries if type(field) is str and _is_known(field)]
        if issubclass(type(value), (list, tuple)):
            return [(name, one, level) for one in cast("list[object]", value)[:20]]
        if key in _WITHIN and level <= 3:
            fields = _OF_RESPONSE if key.endswith("response") else _OF_OBJECT
            return [(field, _field(value, field), level) for field in fields]
        return []

    def _number(self, key: str, value: int) -> None:
        number = int.__add__(value, 0)
        if key in ("nctx", "nprompttokens") and 0 < number < 10**12:
            self.numbers.setdefault(key, number)
        elif key in _STATUS and 100 <= number <= 599:
            self.status = self.status or number
        elif key in _CODE and 0 <= number < 10**6 and type(value) is not bool:
            self.codes.append((key, str(number)))

    def _string(self, key: str, value: str | bytes | bytearray) -> object:
        """Takes a string as what its field says it is; a text of JSON is given back as its value, to be read further."""
        text = str.__str__(cast("str", value)) if issubclass(type(value), str) else _decoded(cast("bytes", value))
        bare = text.strip() if len(text) <= _MOST_JSON_CHARS else text[:1]
        if key in _STATUS and len(bare) == 3 and bare.isdecimal():
            self.status = self.status or int(bare)
        elif key in _CODE and len(bare) <= 80:
            self.codes.append((key, bare))
        if bare[:1] in ("{", "[") and len(bare) > 1 and key in _TEXT:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
                return msgspec.json.decode(bare)
        if key in _TEXT:
            self._text(text)
        return None

    def _text(self, text: str) -> None:
        short = truncate_error_text(text)
        if len(self.texts) < _MOST_TEXTS and short.strip() and not any(short in known for known in self.texts):
            self.texts.append(short)


def _is_known(field: str) -> bool:
    key = field.lower().replace("_", "").replace("-", "")
    known = key in _STATUS or key in _CODE or key in _TEXT or key in _WITHIN or key in ("nctx", "nprompttokens")
    return known or key.endswith(("exception", "error"))


def _decoded(data: bytes | bytearray) -> str:
    """Bytes as text; of many bytes only both ends."""
    seen, most = memoryview(data), _MOST_JSON_CHARS
    whole = seen.nbytes <= most
    ends = seen.tobytes() if whole else seen[: most // 2].tobytes() + b" " + seen[-most // 2 :].tobytes()
    return ends.decode("utf-8", "replace")
