"""Conformance suite for ledger stores: short checks of each promise of `LedgerStore`.

Pass your own store as a `Backend`: an empty storage, and a way to open stores on it. With pytest:

    import pytest
    from nexus.testing.ledger_conformance import CHECKS, Check

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

from nexus.testing.ledger_conformance import (
    appending,
    copying,
    erasing,
    forking,
    marking,
    naming,
    once,
    searching,
    sharing,
)
from nexus.testing.ledger_conformance.running import Backend, Case, Check, Report, run_checks

__all__ = ["CHECKS", "Backend", "Case", "Check", "Report", "check_name", "run"]

CHECKS: tuple[Check, ...] = (
    *appending.CHECKS,
    *once.CHECKS,
    *forking.CHECKS,
    *marking.CHECKS,
    *naming.CHECKS,
    *searching.CHECKS,
    *erasing.CHECKS,
    *copying.CHECKS,
    *sharing.CHECKS,
)
"""All checks. The name of each is the sentence that it checks."""


def run(make_backend: Callable[[], Backend]) -> Report:
    """Run all checks, each on a new backend, and return the report."""
    return run_checks(CHECKS, make_backend)


def check_name(words: str) -> Check:
    """Return the check whose name contains these words. Raises KeyError unless there is exactly one."""
    matches = [check for check in CHECKS if words in check.name]
    if len(matches) != 1:
        raise KeyError(f"{len(matches)} checks have {words!r} in their names")
    return matches[0]
