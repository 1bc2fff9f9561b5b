"""Recorded calls of a proxy, by the id that each answer has in its header `x-nexus-call`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from nexus.cli._options import CommandOptions
from nexus.engine import Engine, open_engine
from nexus.errors import NotFound
from nexus.ledger.address import is_address
from nexus.ledger.location import open_ledger
from nexus.ledger.recorded_calls import RecordedCall
from nexus.proxy.pages import recorded_call_of
from nexus.proxy.reports import CallReport, stored_report
from nexus.workspace.files.reader import home_folder

LEDGER = "proxy.db"
MAX_DIGITS = 9


def ledger_of(options: CommandOptions) -> str:
    """Return the place of a proxy's ledger: the one that was named, else the user's."""
    return options.ledger or str(home_folder() / LEDGER)


@contextmanager
def open_call(options: CommandOptions, call_id: str) -> Generator[tuple[Engine, CallReport]]:
    """Open the ledger that has a proxy's call, and return it with the call's report. Raises NotFound, LedgerError."""
    place = ledger_of(options)
    if not is_address(place) and not Path(place).expanduser().exists():
        raise NotFound(
            f"call {call_id[:100]!r} not found: no ledger {place} (name the proxy's with --ledger)", code="no_such_call"
        )
    store = open_ledger(None, place, home_folder(), create=False)
    try:
        nx = open_engine(None, ledger=store)
    except BaseException:
        store.close()
        raise
    with nx:
        report = stored_report(nx.ledger.store, call_id)
        if report is None:
            advice = "take it from the header x-nexus-call or `nexus proxy status --json`; other ledgers: --ledger"
            raise NotFound(f"call {call_id[:100]!r} not found in {place} ({advice})", code="no_such_call")
        yield nx, report


@contextmanager
def open_recorded_call(options: CommandOptions, call_id: str) -> Generator[tuple[Engine, RecordedCall]]:
    """Open the ledger that has a proxy's call, and return it with the call as it was recorded. Raises as `open_call`."""
    with open_call(options, call_id) as (nx, report):
        yield nx, recorded_call_of(nx, report)


def call_number(call: str | None) -> int | None:
    """Return the value of --call as a call's number in a turn. Raises UsageError."""
    if call is None:
        return None
    if not call.isdecimal() or len(call) > MAX_DIGITS or int(call) < 1:
        raise click.UsageError(
            f"--call {call[:100]!r} is no number of a call in TURN (without SESSION: a proxy's call)"
        )
    return int(call)
