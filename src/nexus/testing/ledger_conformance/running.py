"""A check, the backend that it is given, and the report of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from nexus.ledger.store import LedgerStore
from nexus.testing import FixedClock

START_MS = 1_700_000_000_000
"""Time at the start of a check, in milliseconds since 1970."""


class Backend(Protocol):
    """One storage, empty when a check begins. What the author of a store supplies."""

    @property
    def durable(self) -> bool:
        """Whether what was written is still there after all stores on the storage were closed."""
        ...

    def open(self, tenant: str = "local", clock_ms: Callable[[], int] | None = None) -> LedgerStore:
        """A store for this tenant, always on the same storage. `clock_ms` is where it takes the time from."""
        ...


class Case:
    """What one check works with: stores on an empty storage, and their clock. All stores are closed at its end."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.clock = FixedClock(START_MS)
        self._opened: list[LedgerStore] = []
        self.store = self.open()

    def open(self, tenant: str = "local") -> LedgerStore:
        """One more store on the same storage."""
        store = self.backend.open(tenant, self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Closes all stores."""
        for store in self._opened:
            store.close()
        self._opened.clear()


class Check:
    """One promise of the protocol. `name` is the sentence that says it; calling it raises AssertionError if it is broken."""

    def __init__(self, name: str, function: Callable[[Case], None]) -> None:
        self.name = name
        self._function = function

    def __call__(self, backend: Backend) -> None:
        """Runs the check on an empty storage."""
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
        """Takes a function as a check."""
        name = " ".join((function.__doc__ or function.__name__).split()).removesuffix(".")
        self._found.append(Check(name, function))
        return function

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks in the order in which they were added."""
        return tuple(self._found)


class Report(Struct, frozen=True):
    """What a run found: the names of the checks that passed, and of those that failed with what each said."""

    passed: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} of {len(self.passed) + len(self.failed)} checks passed"]
        return "\n".join([*lines, *(f"FAILED {name}\n       {said}" for name, said in self.failed)])


def run_checks(checks: Iterable[Check], make_backend: Callable[[], Backend]) -> Report:
    """Runs the checks one after the other, each on a backend of its own. An error of any kind is a failed check."""
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
