"""`nexus pin` and `nexus unpin`: messages that no cut or compaction omits."""

from __future__ import annotations

import re

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options, resolve_session
from nexus.cli._output import beginning, emit, format_ref, quoted
from nexus.cli._tables import print_table
from nexus.engine import Engine
from nexus.errors import BadEntry
from nexus.ledger.search_text import all_text
from nexus.types.ledger_entries import MessageRef

_REF = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?", re.ASCII)


def _parse_ref(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    """Return the entry and message of a reference; the message is None for a whole entry. Raises BadParameter."""
    if value is None:
        return None
    match = _REF.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a message reference: 12 is an entry, 12.0 its first message")
    return int(match[1]), int(match[2]) if match[2] else None


@click.command("pin")
@click.argument("name")
@click.argument("entry", required=False, callback=_parse_ref)
@click.option("--reason", default="", help="Reason, shown in the list of pins.")
@command_options
def command(name: str, entry: tuple[int, int | None] | None, reason: str, options: CommandOptions) -> None:
    """Pin a message of session NAME. ENTRY is an entry with all its messages (12), or one message (12.0).

    Forks inherit pins. Without ENTRY, list the pins. `nexus history NAME --refs` shows the references.

    Example: nexus pin main 12.0 --reason "the user's requirements"
    """
    if entry is None and reason:
        raise click.UsageError("--reason requires an ENTRY")
    with options.open() as nx:
        label = resolve_session(nx, name)
        if entry is None:
            _list_pins(nx, label, options)
            return
        pinned = nx.ledger.live(label).pins
        refs = [ref for ref in _message_refs(nx, label, *entry) if reason or ref not in pinned]
        for ref in refs:
            nx.ledger.pin(label, ref, reason)
        _print_change(nx, label, "pinned", refs, options)


@click.command("unpin")
@click.argument("name")
@click.argument("entry", callback=_parse_ref)
@click.option("--reason", default="", help="Reason, stored in the history.")
@command_options
def unpin(name: str, entry: tuple[int, int | None], reason: str, options: CommandOptions) -> None:
    """Remove a pin of session NAME. ENTRY without a message removes all pins of the entry.

    Example: nexus unpin main 12.0
    """
    seq, order = entry
    with options.open() as nx:
        label = resolve_session(nx, name)
        pins = [ref for ref in nx.ledger.live(label).pins if ref.seq == seq]
        refs = pins if order is None else [MessageRef(seq, order)]
        if not refs:
            raise BadEntry(f"entry {seq} of session {label!r} has no pins (list the pins: nexus pin NAME)")
        for ref in refs:
            nx.ledger.unpin(label, ref, reason)
        _print_change(nx, label, "unpinned", refs, options)


def _message_refs(nx: Engine, label: str, seq: int, order: int | None) -> list[MessageRef]:
    """Return the references of an entry's messages, or of one message. Raises BadEntry if there are none."""
    entries = nx.ledger.entries(label, seq - 1, seq) if seq else []
    refs = [row.ref for entry in entries for row in entry.rows if order in (None, row.ref.ord)]
    if not refs:
        entry = f"entry {seq} of session {label!r}"
        missing = "messages" if order is None else f"message {order}"
        problem = f"{entry} has no {missing}" if entries else f"{entry} not found"
        raise BadEntry(f"{problem} (show the references: nexus history NAME --refs)")
    return refs


def _list_pins(nx: Engine, label: str, options: CommandOptions) -> None:
    reasons: dict[MessageRef, str] = {}
    for checkpoint in nx.ledger.checkpoints(label):  # newest first: the last reason counts
        if checkpoint.kind == "pin":
            ref = MessageRef(checkpoint.body["seq"], checkpoint.body["ord"])
            reasons.setdefault(ref, str(checkpoint.body.get("reason", "")))
    pinned = [
        (row.ref, entry.turn, row.message.role, all_text(row.message.parts))
        for pin in nx.ledger.live(label).pins
        for entry in nx.ledger.entries(label, pin.seq - 1, pin.seq)
        for row in entry.rows
        if row.ref == pin
    ]
    if options.as_json:
        names = ("seq", "ord", "turn", "role", "text", "reason")
        values = ((ref.seq, ref.ord, *rest, reasons[ref]) for ref, *rest in pinned)
        emit([dict(zip(names, row, strict=True)) for row in values])
    elif not pinned:
        click.echo(f"Session {quoted(label)} has no pins.")
    else:
        print_table(
            ("entry", "turn", "role", "text", "reason"),
            [(format_ref(ref), f"{turn:,}", role, beginning(text), reasons[ref]) for ref, turn, role, text in pinned],
            numbers=("turn",),
            wraps=("text", "reason"),
        )


def _print_change(nx: Engine, label: str, change: str, refs: list[MessageRef], options: CommandOptions) -> None:
    pins = nx.ledger.live(label).pins
    if options.as_json:
        emit({"session": label, change: msgspec.to_builtins(refs), "pins": msgspec.to_builtins(pins)})
    elif refs:
        click.echo(f"Session {quoted(label)}: {change} {', '.join(map(format_ref, refs))}. Pins now: {len(pins):,}.")
    else:
        click.echo(f"Session {quoted(label)}: already pinned.")
