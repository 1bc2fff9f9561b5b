"""`nexus sessions`: the sessions of a ledger, with project, dates and cost."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import PurePath
from typing import Any

import click
import msgspec

from nexus.cli._listing import Column, Listing, number, time, wrapped
from nexus.cli._options import TENANT_OPTION, CommandOptions, nexus_command
from nexus.cli._output import beginning, format_time, shortened
from nexus.cli._sessions import NO_LEDGER
from nexus.cli._usage import project_of, reported_calls
from nexus.engine import Engine
from nexus.errors import LedgerError
from nexus.ledger.sessions import SessionInfo
from nexus.render.console import printable

WIDE_COLUMNS = 180
TITLE_CHARS = 50
USUAL_ROWS = 100
ID_CHARS = 8
"""Characters of an id that identify a session of a few thousand."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

NUMBERS = ("turns", "messages", "tokens")


def _name(value: dict[str, Any]) -> str:
    return shortened(printable(value["label"])) + (" (open turn)" if value["open_turn"] else "")


def _short_name(value: dict[str, Any]) -> str:
    """Return the name, of an id only the beginning: commands take it too."""
    label = value["label"]
    return _name({**value, "label": label[:ID_CHARS] if _ID.fullmatch(label) else label})


def _project_end(value: dict[str, Any]) -> str:
    return "/".join(PurePath(value["project"]).parts[-2:])


USD = number("USD", lambda value: "" if value["dollars"] is None else f"{value['dollars']:,.2f}", usual="")
LISTING = Listing(
    wrapped("session", _name),
    *map(number, NUMBERS),
    time("first", "first_ms"),
    time("last", "last_ms"),
    USD,
    wrapped("project", usual=""),
    Column("status", usual="active"),
    wrapped("parent", lambda value: shortened(printable(value["parent_session"])), usual=""),
    wrapped("title"),
)
NARROW_LISTING = Listing(
    wrapped("session", _short_name),
    number("turns"),
    Column("last", lambda value: format_time(value["last_ms"])[:10]),
    USD,
    wrapped("project", _project_end, usual=""),
    Column("status", usual="active"),
    wrapped("title", lambda value: beginning(value["title"], TITLE_CHARS)),
)
"""For terminals of fewer than `WIDE_COLUMNS`."""


@nexus_command("sessions")
@TENANT_OPTION
@click.option("--all", "every", is_flag=True, help="Also list archived and deleted sessions.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    help=f"The newest N sessions; 0: all. Default: {USUAL_ROWS} rows, as JSON all.",
    metavar="N",
)
def command(options: CommandOptions, every: bool, limit: int | None) -> None:
    """List the sessions, newest first.

    USD is the reported usage at list prices; imported sessions have their project. Spawned sessions have a parent.
    A narrow terminal shows fewer columns, and of ids the beginning, which commands take too.

    Example: nexus sessions --all
    """
    if limit is None and not options.as_json:
        limit = USUAL_ROWS
    with options.open(reads_stored=True, needs_config=False) as nx:
        listed = nx.sessions(include_inactive=every, limit=limit + 1 if limit else None)
        place = nx.ledger.location
        if place == NO_LEDGER:
            state = "No ledger here yet"
        else:
            state = f"No sessions in {printable(place)} yet"
        page = listed[: limit or None]
        values = [_listed(nx, session) for session in page]
    is_narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE_COLUMNS
    listing = NARROW_LISTING if is_narrow else LISTING
    listing.print(values, options, empty=f"{state} (add sessions: nexus import FILE or nexus record).")
    if len(listed) > len(page):
        click.echo("There are older sessions: --limit 0 lists all.", err=True)


def _listed(nx: Engine, session: SessionInfo) -> dict[str, Any]:
    """Return a session's facts with project, cost and whether its newest turn waits for an answer here."""
    try:
        calls = reported_calls(nx, session.label)
        project = project_of(nx, session.label)
        is_open = session.open_turn and not is_turn_of_file(nx, session.label)
    except LedgerError:  # a damaged session is listed too; `nexus ledger verify` describes the damage
        calls = []
        project = ""
        is_open = session.open_turn
    priced = [call.dollars for call in calls if call.dollars is not None]
    value = msgspec.to_builtins(session)
    return {**value, "open_turn": is_open, "project": project, "dollars": sum(priced) if priced else None}


def is_turn_of_file(nx: Engine, label: str) -> bool:
    """Return True if the newest turn was imported, so that nothing here will answer it."""
    thread = nx.ledger.thread_info(label)
    entries = nx.ledger.iter_entries(label, max(thread.head_seq - 1, 0))
    return bool(nx.ledger.sessions.metadata(label).origin) and not any("model" in entry.body for entry in entries)
