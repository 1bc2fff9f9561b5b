"""`nexus sessions`: the sessions of a ledger."""

from __future__ import annotations

import click
import msgspec

from nexus.cli._options import NO_LEDGER, CommandOptions, command_options
from nexus.cli._output import emit, format_time, shortened
from nexus.cli._tables import print_table
from nexus.ledger.sessions import SessionInfo
from nexus.render.console import printable

NUMBERS = ("turns", "messages", "tokens")


@click.command("sessions")
@click.option("--all", "every", is_flag=True, help="Also list archived and deleted sessions.")
@command_options
def command(options: CommandOptions, *, every: bool) -> None:
    """List the sessions, newest first.

    Spawned sessions have a parent.

    Example: nexus sessions --all
    """
    with options.open() as nx:
        sessions, place = nx.sessions(include_inactive=every), nx.ledger.place
    if options.as_json:
        emit(msgspec.to_builtins(sessions))
        return
    if not sessions:
        missing = f"No ledger {printable(options.ledger) if options.ledger else 'here'} yet"
        state = missing if place == NO_LEDGER else f"No sessions in {printable(place)} yet"
        click.echo(f"{state} (add sessions: nexus import FILE or nexus record).")
        return
    names = ["session", *NUMBERS, "last"]
    names += ["status"] * any(session.status != "active" for session in sessions)
    names += ["parent"] * any(session.parent_session for session in sessions)
    names.append("title")
    rows = ([cells[name] for name in names] for cells in map(_cells, sessions))
    print_table(names, rows, numbers=NUMBERS, wraps=("session", "parent", "title"))


def _cells(session: SessionInfo) -> dict[str, str]:
    return {
        "session": shortened(printable(session.label)) + (" (open turn)" if session.open_turn else ""),
        "turns": f"{session.turns:,}",
        "messages": f"{session.messages:,}",
        "tokens": f"{session.tokens:,}",
        "last": format_time(session.last_ms),
        "status": session.status,
        "parent": shortened(printable(session.parent_session)),
        "title": session.title,
    }
