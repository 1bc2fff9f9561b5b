"""Status, codes and texts of errors: exceptions of any provider's package, bodies, or texts.

No package is imported: errors are read by the field names of openai, anthropic, google-genai, botocore, mistralai, groq,
cerebras, ollama, litellm and httpx. Only fields with a provider's own text are read, so that a prompt that is echoed in an
error is not mistaken for one. An error can be any object: a field that raises counts as missing, and the amount of data
that is read is limited.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import msgspec

HEAD_CHARS = 4_500
"""Part at the beginning of a longer text that is read."""
TAIL_CHARS = 1_500
"""Part at its end that is read."""

_MAX_JSON_CHARS = 65_536
_MAX_VALUES = 200
_MAX_LEVELS = 8
_MAX_TEXTS = 12
_MAX_ERRORS = 16

# Names of fields in lower case, without underscores and dashes.
_STATUS = frozenset({"statuscode", "status", "httpstatus", "httpstatuscode", "code", "errorcode"})
_CODE = frozenset({"code", "type", "status", "reason", "errorcode", "errortype"})
_TEXT = frozenset({
    "message", "msg", "error", "errors", "errordescription", "errormessage", "errormsg", "detail", "details",
    "description", "title", "raw", "text", "content", "body", "originalmessage", "data",
})  # fmt: skip
_WITHIN = frozenset({
    "error", "errors", "detail", "details", "metadata", "raw", "body", "response", "responsemetadata", "data", "innererror",
})  # fmt: skip
_NUMBERS = frozenset({"nctx", "nprompttokens"})
_KNOWN = _STATUS | _CODE | _TEXT | _WITHIN | _NUMBERS

_BODIES = ("body", "response", "details", "error", "errors", "detail", "data", "raw_response")
_ERROR_FIELDS = ("status_code", "status", "http_status", "code", "type", "error_code", "reason")
_OF_RESPONSE = ("status_code", "status", "error", "text", "content")
_OF_OBJECT = (*_ERROR_FIELDS, "message", "error", "detail")

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
    """Contents of one error."""

    status: int
    codes: tuple[tuple[str, str], ...]
    """Pairs of field and value."""
    texts: tuple[str, ...]
    limit: int = 0
    """In llama.cpp's own field, as `requested`."""
    requested: int = 0


def extract_details(error: object) -> Iterator[ErrorDetails]:
    """Yield the details of the error, then of its causes and the members of a group, at most 16 in all.

    A pair of a status and a body is one error too. Never raises.
    """
    waiting: deque[object] = deque([error])
    visited: set[int] = set()
    while waiting and len(visited) < _MAX_ERRORS:
        current = waiting.popleft()
        if id(current) in visited:
            continue
        visited.add(id(current))
        reader = _ErrorReader()
        with suppress(Exception):  # any attribute access can raise; what was read before that is kept
            if issubclass(type(current), BaseException):
                reader.read_exception(current)
            else:
                reader.read_value(current)
        causes = [_field(current, name) for name in ("__cause__", "original_exception", "original_error")]
        group = _field(current, "exceptions")
        causes += cast("tuple[object, ...]", group)[:_MAX_ERRORS] if type(group) is tuple else ()
        waiting += [cause for cause in causes if issubclass(type(cause), BaseException)]
        yield reader.details()


def _field(value: object, name: str) -> object:
    """Return the attribute, None if it is missing or raises."""
    with suppress(Exception):
        return getattr(value, name, None)
    return None


def truncate_error_text(text: str) -> str:
    """Return both ends of a long text; a short one unchanged."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]} … {text[-TAIL_CHARS:]}"


class _ErrorReader:
    """Collects the contents of one error."""

    def __init__(self) -> None:
        self.status = 0
        self.codes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.numbers: dict[str, int] = {}
        self._remaining = _MAX_VALUES

    def details(self) -> ErrorDetails:
        """Return everything, with status, codes and numbers from the texts where no field has them."""
        for text in self.texts:
            match = _STATUS_IN_TEXT.search(text)
            self.status = self.status or int(match[1] if match else 0)
            self.codes += [("code", code) for code in _CODE_IN_TEXT.findall(text)[:12]]
            for name, digits in _NUMBER_IN_TEXT.findall(text)[:4]:
                self.numbers.setdefault(name.replace("_", ""), int(digits))
        numbers = self.numbers
        limit = numbers.get("nctx", 0)
        requested = numbers.get("nprompttokens", 0)
        return ErrorDetails(self.status, tuple(dict.fromkeys(self.codes)), tuple(self.texts), limit, requested)

    def read_exception(self, error: object) -> None:
        """Read an exception's fields, then its body, and its message only if the body has no text."""
        for name in _ERROR_FIELDS:
            self._take(name, _field(error, name))
        for name in _BODIES:
            self._take(name, _field(error, name))
            if self.texts:
                break
        if not self.texts:
            self._take("message", _field(error, "message"))
            with suppress(Exception):
                self._take("message", str.__str__(str(error)))
        names = [kind.__name__ for kind in type(error).__mro__[:-3]]
        self.codes += [("class", name) for name in names[:8]]

    def read_value(self, value: object) -> None:
        """Read a status, a text, a body, or a pair of a status and one of the others."""
        if issubclass(type(value), tuple):
            for item in cast("tuple[object, ...]", value)[:2]:
                if issubclass(type(item), tuple):
                    self._take("body", item)
                else:
                    self.read_value(item)
        elif issubclass(type(value), int):
            self._take("status_code", value)
        else:
            self._take("body", value)

    def _take(self, name: str, value: object) -> None:
        """Read one named value with everything in it."""
        waiting: deque[tuple[str, object, int]] = deque([(name, value, 0)])
        while waiting and self._remaining > 0:
            name, value, level = waiting.popleft()
            self._remaining -= 1
            kind = type(value)
            key = _plain_name(name)
            if issubclass(kind, int):
                self._number(key, cast("int", value))
            elif issubclass(kind, (str, bytes, bytearray)):
                inside = self._string(key, cast("str | bytes | bytearray", value))
                if inside is not None and level < _MAX_LEVELS:
                    waiting.append((name, inside, level + 1))
            elif value is not None and level < _MAX_LEVELS:
                waiting += self._inside(name, key, value, level + 1)

    def _inside(self, name: str, key: str, value: object, level: int) -> list[tuple[str, object, int]]:
        """Return the named values in a mapping, a sequence, or an object with an error's fields."""
        if issubclass(type(value), Mapping):
            with suppress(Exception):
                entries = list(islice(cast("Mapping[Any, Any]", value).items(), _MAX_VALUES))
                return [(field, inner, level) for field, inner in entries if type(field) is str and _is_known(field)]
        elif issubclass(type(value), (list, tuple)):
            return [(name, item, level) for item in cast("list[object]", value)[:20]]
        elif key in _WITHIN and level <= 3:
            fields = _OF_OBJECT
            if key.endswith("response"):
                fields = _OF_RESPONSE
            return [(field, _field(value, field), level) for field in fields]
        return []

    def _number(self, key: str, value: int) -> None:
        number = int.__add__(value, 0)
        if key in _NUMBERS and 0 < number < 10**12:
            self.numbers.setdefault(key, number)
        elif key in _STATUS and 100 <= number <= 599:
            self.status = self.status or number
        elif key in _CODE and 0 <= number < 10**6 and type(value) is not bool:
            self.codes.append((key, str(number)))

    def _string(self, key: str, value: str | bytes | bytearray) -> object:
        """Store a string by its field; return the value of JSON text, to be read further."""
        # The base types' methods: a subclass may have its own, which raise.
        if issubclass(type(value), str):
            text = str.__str__(cast("str", value))
        else:
            text = _decoded(cast("bytes", value))
        if len(text) <= _MAX_JSON_CHARS:
            bare = text.strip()
        else:
            bare = text[:1]
        if key in _STATUS and len(bare) == 3 and bare.isdecimal():
            self.status = self.status or int(bare)
        elif key in _CODE and len(bare) <= 80:
            self.codes.append((key, bare))
        if key not in _TEXT:
            return None
        # OpenRouter and LiteLLM wrap the provider's own body as JSON text.
        if bare[:1] in ("{", "[") and len(bare) > 1:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
                return msgspec.json.decode(bare)
        short = truncate_error_text(text)
        if len(self.texts) < _MAX_TEXTS and short.strip() and not any(short in text for text in self.texts):
            self.texts.append(short)
        return None


def _plain_name(field: str) -> str:
    return field.lower().replace("_", "").replace("-", "")


def _is_known(field: str) -> bool:
    key = _plain_name(field)
    # Botocore and others name a field for the error's class.
    return key in _KNOWN or key.endswith(("exception", "error"))


def _decoded(data: bytes | bytearray) -> str:
    """Return bytes as text; of many bytes only both ends."""
    view = memoryview(data)
    half = _MAX_JSON_CHARS // 2
    if view.nbytes <= _MAX_JSON_CHARS:
        return view.tobytes().decode("utf-8", "replace")
    ends = view[:half].tobytes() + b" " + view[-half:].tobytes()
    return ends.decode("utf-8", "replace")
