"""What a check expects: each failure is an AssertionError that says what was expected and what was found."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

Error = TypeVar("Error", bound=Exception)

MOST_SHOWN = 600
"""Characters of a value that a failure shows."""


class Caught(Generic[Error]):
    """The error that `raises` caught, to be looked at after its block."""

    def __init__(self) -> None:
        self._error: Error | None = None

    @property
    def error(self) -> Error:
        """The error. There is one once the block has ended."""
        assert self._error is not None
        return self._error

    def keep(self, error: Error) -> None:
        """Keeps the error."""
        self._error = error


def equal(found: Any, wanted: Any, what: str) -> None:
    """Raises AssertionError unless the two are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: expected {_shown(wanted)}, found {_shown(found)}")


def holds(condition: bool, what: str) -> None:
    """Raises AssertionError unless the condition is true; `what` says what was expected and what was found."""
    if not condition:
        raise AssertionError(what)


@contextmanager
def raises(kind: type[Error], what: str) -> Generator[Caught[Error]]:
    """Raises AssertionError unless the block raises an error of this kind."""
    caught = Caught[Error]()
    try:
        yield caught
    except kind as error:
        caught.keep(error)
        return
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, found {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, and no error was raised")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text)} characters)"
