"""Conformance suite for ledger stores: short checks of each promise of `LedgerStore`.

Pass your own store as a `LedgerBackend`: an empty storage, and a way to open stores on it. With pytest:

    import pytest
    from nexus.testing.ledger_conformance import CHECKS, LedgerCheck

    class MyBackend:
        durable = True

        def __init__(self, folder):
            self.folder = folder

        def open(self, tenant="local", clock_ms=None):
            return MyLedger(self.folder / "ledger", tenant=tenant, clock_ms=clock_ms)

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_my_ledger(check, tmp_path):
        check(MyBackend(tmp_path))

Without pytest: `print(run(lambda: MyBackend(new_folder())))`. Every check gets an empty storage, sets the clock that it
passes to `open`, and closes its stores. A failed check raises AssertionError with the expected and the actual value.
"""

from __future__ import annotations

from collections.abc import Callable

from nexus.testing.conformance_report import ConformanceReport
from nexus.testing.ledger_conformance import (
    appending,
    documents,
    history,
    leases,
    queue,
    relations,
    sessions,
    storage,
    transactions,
)
from nexus.testing.ledger_conformance.harness import LedgerBackend, LedgerCase

__all__ = ["CHECKS", "ConformanceReport", "LedgerBackend", "LedgerCase", "LedgerCheck", "check_name", "run"]


class LedgerCheck:
    """Promise of the protocol. `name` is its sentence; calling it raises AssertionError if it is broken."""

    def __init__(self, function: Callable[[LedgerCase], None]) -> None:
        self.name = " ".join((function.__doc__ or function.__name__).split()).removesuffix(".")
        self._function = function

    def __call__(self, backend: LedgerBackend) -> None:
        """Run the check on an empty storage."""
        case = LedgerCase(backend)
        try:
            self._function(case)
        finally:
            case.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


CHECKS: tuple[LedgerCheck, ...] = tuple(
    LedgerCheck(function)
    for module in (appending, transactions, history, sessions, relations, leases, queue, documents, storage)
    for name, function in vars(module).items()
    if name.startswith("check_")
)
"""All checks, which are the functions `check_…` of these modules. The docstring of each is the sentence it checks."""


def run(make_backend: Callable[[], LedgerBackend]) -> ConformanceReport:
    """Run all checks, each on a new backend, and return the report. An error of any kind is a failure."""
    passed: list[str] = []
    failed: list[tuple[str, str]] = []
    for check in CHECKS:
        try:
            check(make_backend())
        except AssertionError as error:
            failed.append((check.name, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a store raises is what the report is for
            failed.append((check.name, f"raised {type(error).__name__}: {error}"))
        else:
            passed.append(check.name)
    return ConformanceReport(tuple(passed), tuple(failed))


def check_name(words: str) -> LedgerCheck:
    """Return the check whose name contains these words. Raises KeyError unless there is exactly one."""
    matches = [check for check in CHECKS if words in check.name]
    if len(matches) != 1:
        raise KeyError(f"{len(matches)} checks have {words!r} in their names")
    return matches[0]
