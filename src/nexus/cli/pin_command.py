"""`nexus pin` and `nexus unpin`: messages that a session keeps."""

from __future__ import annotations

import re

import click
import msgspec

from nexus.cli.excerpt import beginning
from nexus.cli.listing import dotted, label_of, quoted
from nexus.cli.shared import common, emit, open_here
from nexus.cli.table import print_table
from nexus.engine import Engine
from nexus.errors import BadEntry
from nexus.ledger.search_text import all_text
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Role

_PLACE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?", re.ASCII)


def _place(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    """`12` is an entry, `12.0` its first message."""
    if value is None:
        return None
    found = _PLACE.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no place: 12 is an entry, 12.0 its first message")
    return int(found[1]), int(found[2]) if found[2] else None


@click.command("pin")
@click.argument("name")
@click.argument("entry", required=False, callback=_place)
@click.option("--reason", default="", help="Why, for those who read the list.")
@common
def command(
    name: str,
    entry: tuple[int, int | None] | None,
    reason: str,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Keep a message of session NAME. ENTRY is an entry with all its messages (12), or one of them (12.0).

    Forks inherit pins. Without ENTRY the pins are listed. `nexus history NAME --entry-numbers` shows the numbers.

    Example: nexus pin main 12.0 --reason "the user's requirements"
    """
    if entry is None and reason:
        raise click.UsageError("--reason is for a pin: name the ENTRY")
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        if entry is None:
            _list(nx, label, as_json=as_json)
            return
        pinned = nx.ledger.live(label).pins
        places = [place for place in _places(nx, label, *entry) if reason or place not in pinned]
        for place in places:
            nx.ledger.pin(label, place, reason)
        _tell(nx, label, "pinned", places, as_json=as_json)


@click.command("unpin")
@click.argument("name")
@click.argument("entry", callback=_place)
@click.option("--reason", default="", help="Why, for those who read the history.")
@common
def unpin(
    name: str,
    entry: tuple[int, int | None],
    reason: str,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Take a pin of session NAME back. ENTRY alone takes back all pins of its messages.

    Example: nexus unpin main 12.0
    """
    seq, order = entry
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        own = [place for place in nx.ledger.live(label).pins if place.seq == seq]
        places = own if order is None else [MessageRef(seq, order)]
        if not places:
            raise BadEntry(f"no message of entry {seq} of session {label!r} is pinned; `nexus pin NAME` lists the pins")
        for place in places:
            nx.ledger.unpin(label, place, reason)
        _tell(nx, label, "unpinned", places, as_json=as_json)


def _places(nx: Engine, label: str, seq: int, order: int | None) -> list[MessageRef]:
    """The messages that were named. Raises BadEntry if there are none."""
    entries = nx.ledger.entries(label, seq - 1, seq) if seq else []
    places = [row.place for entry in entries for row in entry.rows if order in (None, row.place.ord)]
    if not places:
        of = f"entry {seq} of session {label!r}"
        wrong = (
            f"{of} has {'no messages' if order is None else f'no message {order}'}" if entries else f"there is no {of}"
        )
        raise BadEntry(f"{wrong}; `nexus history NAME --entry-numbers` shows what there is")
    return places


def _list(nx: Engine, label: str, *, as_json: bool) -> None:
    reasons: dict[MessageRef, str] = {}
    for mark in nx.store.marks(nx.ledger.thread(label)):
        if mark.kind == "pin":
            reasons.setdefault(MessageRef(mark.body["seq"], mark.body["ord"]), str(mark.body.get("reason", "")))
    found: list[tuple[MessageRef, int, Role, str]] = [
        (row.place, entry.turn, row.message.role, all_text(row.message.parts))
        for pin in nx.ledger.live(label).pins
        for entry in nx.ledger.entries(label, pin.seq - 1, pin.seq)
        for row in entry.rows
        if row.place == pin
    ]
    if as_json:
        names = ("seq", "ord", "turn", "role", "text", "reason")
        rows = ((place.seq, place.ord, *rest, reasons[place]) for place, *rest in found)
        emit([dict(zip(names, row, strict=True)) for row in rows])
    elif not found:
        click.echo(f"Session {quoted(label)} has no pins.")
    else:
        print_table(
            ("entry", "turn", "role", "text", "reason"),
            [(dotted(place), f"{turn:,}", role, beginning(text), reasons[place]) for place, turn, role, text in found],
            numbers=("turn",),
            wraps=("text", "reason"),
        )


def _tell(nx: Engine, label: str, what: str, places: list[MessageRef], *, as_json: bool) -> None:
    pins = nx.ledger.live(label).pins
    if as_json:
        emit({"session": label, what: msgspec.to_builtins(places), "pins": msgspec.to_builtins(pins)})
    elif places:
        click.echo(f"Session {quoted(label)}: {what} {', '.join(map(dotted, places))}. Pins now: {len(pins):,}.")
    else:
        click.echo(f"Session {quoted(label)}: pinned already.")
