"""Checks, the backend they run on, and the report of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from nexus.ledger.store import LedgerStore
from nexus.testing import FixedClock

START_MS = 1_700_000_000_000
"""Time at the start of a check, in milliseconds since 1970."""


class Backend(Protocol):
    """Storage that is empty when a check begins, supplied by the author of a store."""

    @property
    def durable(self) -> bool:
        """True if the content survives closing all stores."""
        ...

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> LedgerStore:
        """Open a store for this tenant, always on the same storage. `clock_ms` supplies the time."""
        ...


class Case:
    """Stores of one check on an empty storage, and their clock. All are closed at the end."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.clock = FixedClock(START_MS)
        self._opened: list[LedgerStore] = []
        self.store = self.open()

    def open(self, tenant: str = "local") -> LedgerStore:
        """Return one more store on the same storage."""
        store = self.backend.open(tenant, self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close all stores."""
        for store in self._opened:
            store.close()
        self._opened.clear()


class Check:
    """Promise of the protocol. `name` is its sentence; calling it raises AssertionError if it is broken."""

    def __init__(self, name: str, function: Callable[[Case], None]) -> None:
        self.name = name
        self._function = function

    def __call__(self, backend: Backend) -> None:
        """Run the check on an empty storage."""
        case = Case(backend)
        try:
            self._function(case)
        finally:
            case.close()

    def __repr__(self) -> str:
        return f"Check({self.name!r})"


class Checks:
    """Collects a module's checks: `@checks.add` over a function whose docstring is the sentence."""

    def __init__(self) -> None:
        self._found: list[Check] = []

    def add(self, function: Callable[[Case], None]) -> Callable[[Case], None]:
        """Take a function as a check."""
        name = " ".join((function.__doc__ or function.__name__).split()).removesuffix(".")
        self._found.append(Check(name, function))
        return function

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks in the order in which they were added."""
        return tuple(self._found)


class Report(Struct, frozen=True):
    """Names of passed checks, and of failed ones with their messages."""

    passed: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """True if every check passed."""
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} of {len(self.passed) + len(self.failed)} checks passed"]
        return "\n".join([*lines, *(f"FAILED {name}\n       {message}" for name, message in self.failed)])


def run_checks(checks: Iterable[Check], make_backend: Callable[[], Backend]) -> Report:
    """Run the checks one after the other, each on a new backend. An error of any kind is a failure."""
    passed: list[str] = []
    failed: list[tuple[str, str]] = []
    for check in checks:
        try:
            check(make_backend())
        except AssertionError as error:
            failed.append((check.name, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a store raises is what the report is for
            failed.append((check.name, f"raised {type(error).__name__}: {error}"))
        else:
            passed.append(check.name)
    return Report(tuple(passed), tuple(failed))
