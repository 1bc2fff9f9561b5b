"""A secret value that does not show itself: not when printed, formatted, logged, encoded, copied or in a traceback."""

from __future__ import annotations

from typing import NoReturn

from nexus.errors import BadCredential

MOST_BYTES = 65_536
"""No secret is longer, in UTF-8: certificates and service accounts take a few thousand bytes."""

HIDDEN = "[secret]"


class Secret:
    """A text that only `reveal` shows. It cannot be pickled, and encoders of JSON do not know it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = lambda: value

    def reveal(self) -> str:
        """The value. Give it to what needs it at once, and keep it in no variable."""
        return self._value()

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._value().strip())

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not written anywhere: it cannot be pickled or copied")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Secret is not written anywhere: it gives no state")


def check_secret(secret: Secret) -> Secret:
    """The same secret. Raises BadCredential for one that is empty, too long, or that no keyring or variable can hold."""
    problem = _problem(secret)
    if problem:
        raise BadCredential(f"the value {problem}; nothing was stored")
    return secret


def _problem(secret: Secret) -> str:
    """What is wrong with the value. It is looked at here, so that no frame of a traceback holds it."""
    value = secret.reveal()
    if not value.strip():
        return "is empty"
    if "\0" in value:
        return "has a NUL character, which neither variables nor keyrings hold"
    if len(value) > MOST_BYTES:
        return f"is longer than {MOST_BYTES:,} bytes"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return f"is longer than {MOST_BYTES:,} bytes" if size > MOST_BYTES else ""
