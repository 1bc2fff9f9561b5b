"""A secret value that is not shown when printed, formatted, logged, encoded, copied or in a traceback."""

from __future__ import annotations

from typing import NoReturn

from nexus.errors import CredentialError

MAX_BYTES = 65_536
"""Size limit in UTF-8. Certificates and service accounts take a few thousand bytes."""

HIDDEN = "[secret]"


class Secret:
    """A text that only `reveal` returns. It cannot be pickled, and JSON encoders reject it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = lambda: value  # tracebacks with local variables show a function, not the value

    def reveal(self) -> str:
        """Return the value. Pass it on at once, without storing it in a variable."""
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
        raise TypeError("a Secret cannot be pickled or copied")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Secret has no state to copy")


def check_secret(secret: Secret) -> Secret:
    """Return the secret. Raises CredentialError if it is empty, too long, or impossible for keyrings or variables."""
    problem = _problem(secret)
    if problem:
        raise CredentialError(f"value {problem} (nothing was stored)", code="bad_credential")
    return secret


def _problem(secret: Secret) -> str:
    # In a function of its own, so that no frame of the traceback contains the value.
    value = secret.reveal()
    if not value.strip():
        return "is empty"
    if "\0" in value:
        return "has a NUL character, which variables and keyrings reject"
    if len(value) > MAX_BYTES:
        return f"is longer than {MAX_BYTES:,} bytes"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if size > MAX_BYTES:
        return f"is longer than {MAX_BYTES:,} bytes"
    return ""
