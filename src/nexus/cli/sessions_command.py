"""`nexus sessions`: what the ledger holds."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from nexus.cli.shared import common, console, emit, open_here
from nexus.render.console import printable

LABEL_CHARS = 60


@click.command("sessions")
@common
def command(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List all sessions, newest first."""
    with open_here(workspace, ledger) as nx:
        found, place = nx.sessions(), nx.ledger.place
    if place == ":memory:" and ledger:
        place = f"{ledger} (it is not there yet)"
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    if not found:
        where = "There is no ledger here yet" if place == ":memory:" else f"No sessions in {place} yet"
        click.echo(f"{where}. `nexus import FILE` or `nexus record` brings sessions.")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("session", "turns", "messages", "tokens", "last", "title"):
        table.add_column(
            name, justify="right" if name in ("turns", "messages", "tokens") else "left", no_wrap=name != "title"
        )
    for one in found:
        last = datetime.fromtimestamp(one.last_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M") if one.last_ms else ""
        label = shortened(printable(one.label)) + (" (open turn)" if one.open_turn else "")
        table.add_row(label, f"{one.turns:,}", f"{one.messages:,}", f"{one.tokens:,}", last, printable(one.title))
    console().print(table)


def shortened(label: str) -> str:
    """A very long label, so that the other columns stay readable."""
    return label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"
