"""Assertions of the checks. A failure names the expected and the actual value."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

Error = TypeVar("Error", bound=Exception)

MOST_SHOWN = 600
"""Characters of a value that a failure shows."""


class Caught(Generic[Error]):
    """Error that `raises` caught, for inspection after its block."""

    def __init__(self) -> None:
        self._error: Error | None = None

    @property
    def error(self) -> Error:
        """The error. There is one once the block has ended."""
        assert self._error is not None
        return self._error

    def keep(self, error: Error) -> None:
        """Keep the error."""
        self._error = error


def equal(actual: Any, wanted: Any, what: str) -> None:
    """Raise AssertionError unless the two are equal."""
    if actual != wanted:
        raise AssertionError(f"{what}: expected {_abbreviated(wanted)}, found {_abbreviated(actual)}")


def holds(condition: bool, what: str) -> None:
    """Raise AssertionError with `what` unless the condition is true."""
    if not condition:
        raise AssertionError(what)


@contextmanager
def raises(kind: type[Error], what: str) -> Generator[Caught[Error]]:
    """Raise AssertionError unless the block raises an error of this kind."""
    caught = Caught[Error]()
    try:
        yield caught
    except kind as error:
        caught.keep(error)
        return
    except Exception as error:
        raise AssertionError(f"{what}: expected {kind.__name__}, found {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: expected {kind.__name__}, and no error was raised")


def _abbreviated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text)} characters)"
