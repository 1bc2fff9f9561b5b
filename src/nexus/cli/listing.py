"""Names, times and tables as the commands on sessions print them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import click

from nexus.cli.shared import console
from nexus.engine import Engine
from nexus.errors import NoSuchSession
from nexus.ledger.entries import Place
from nexus.render.console import printable

LABEL_CHARS = 60
NO_LEDGER = ":memory:"
"""The place of the empty ledger that is seen where there is none."""


def label_of(nx: Engine, name: str) -> str:
    """The label of the session that a name or alias leads to. Raises NoSuchSession."""
    label = nx.ledger.resolve(name)
    if label is None and nx.store.place == NO_LEDGER:
        raise NoSuchSession(
            f"there is no session {name!r}, for there is no ledger yet: `nexus import FILE` or `nexus record` makes one"
        )
    nx.ledger.thread(name)
    return label or name


def new_name(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Refuses an empty name, which no other command could be given with ease."""
    if not value.strip():
        raise click.BadParameter("a name cannot be empty")
    return value


def quoted(name: str) -> str:
    """A name in a sentence: in quotes and on its line, whatever stands in it."""
    return f"'{printable(name)}'"


def shortened(label: str) -> str:
    """A very long label, so that the other columns stay readable."""
    return label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"


def moment(at_ms: int, *, seconds: bool = False) -> str:
    """A time to the minute or second, UTC; empty if it is not known."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form) if at_ms else ""
    except (ValueError, OverflowError, OSError):
        return f"[no time: {at_ms}]"


def dotted(place: Place) -> str:
    """A message's place as commands take it: `12.0` is the first message of entry 12."""
    return f"{place.seq}.{place.ord}"


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    wraps: Collection[str] = (),
) -> None:
    """Prints a table: columns of `numbers` on the right, those that may take several lines in `wraps`."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=name not in wraps)
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table)
