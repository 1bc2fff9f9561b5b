"""`nexus sessions`: what the ledger holds."""

from __future__ import annotations

import click
import msgspec

from nexus.cli.listing import NO_LEDGER, moment, shortened
from nexus.cli.shared import common, emit, open_here
from nexus.cli.table import print_table
from nexus.ledger.sessions import SessionInfo
from nexus.render.console import printable

NUMBERS = ("turns", "messages", "tokens")


@click.command("sessions")
@click.option("--all", "every", is_flag=True, help="Archived and deleted sessions too.")
@common
def command(workspace: str | None, ledger: str | None, *, every: bool, as_json: bool) -> None:
    """List the sessions, newest first. A session that another one spawned shows its parent.

    Example: nexus sessions --all
    """
    with open_here(workspace, ledger) as nx:
        found, place = nx.sessions(include_inactive=every), nx.store.place
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    if not found:
        absent = f"There is no ledger {printable(ledger) if ledger else 'here'} yet"
        where = absent if place == NO_LEDGER else f"No sessions in {printable(place)} yet"
        click.echo(f"{where}. `nexus import FILE` or `nexus record` brings sessions.")
        return
    _print(found)


def _print(found: list[SessionInfo]) -> None:
    names = ["session", *NUMBERS, "last"]
    names += ["status"] * any(one.status != "active" for one in found)
    names += ["parent"] * any(one.parent_session for one in found)
    names.append("title")
    rows = (_cells(one) for one in found)
    print_table(
        names,
        ([cells[name] for name in names] for cells in rows),
        numbers=NUMBERS,
        wraps=("session", "parent", "title"),
    )


def _cells(one: SessionInfo) -> dict[str, str]:
    return {
        "session": shortened(printable(one.label)) + (" (open turn)" if one.open_turn else ""),
        "turns": f"{one.turns:,}",
        "messages": f"{one.messages:,}",
        "tokens": f"{one.tokens:,}",
        "last": moment(one.last_ms),
        "status": one.status,
        "parent": shortened(printable(one.parent_session)),
        "title": one.title,
    }
