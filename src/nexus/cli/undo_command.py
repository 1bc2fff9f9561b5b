"""`nexus undo` and `nexus redo`: revert the current compaction, or restore it."""

from __future__ import annotations

from typing import Any

import click

from nexus.cli._options import CommandOptions, command_options, resolve_session
from nexus.cli._output import emit, quoted
from nexus.engine import Engine
from nexus.types.ledger_entries import Entry


@click.command("undo")
@click.argument("name")
@command_options
def command(name: str, options: CommandOptions) -> None:
    """Undo the current compaction of session NAME. The messages it covers are shown again; nothing is deleted.

    Example: nexus undo main
    """
    with options.open() as nx:
        label = resolve_session(nx, name)
        _print_change(nx, label, nx.ledger.undo(label), "undone", options)


@click.command("redo")
@click.argument("name")
@command_options
def redo(name: str, options: CommandOptions) -> None:
    """Redo the compaction of session NAME that was undone last.

    Example: nexus redo main
    """
    with options.open() as nx:
        label = resolve_session(nx, name)
        _print_change(nx, label, nx.ledger.redo(label), "redone", options)


def _print_change(nx: Engine, label: str, compaction: Entry, change: str, options: CommandOptions) -> None:
    """Print the compaction that was undone or redone, and what later calls see now."""
    with nx.ledger.snapshot():
        visible, checkpoint = nx.ledger.visible(label), nx.ledger.live(label).checkpoint
    state: dict[str, Any] = {"first_entry": visible.first_seq, "messages": len(visible.rows)}
    text = f"{len(visible.rows):,} messages"
    if checkpoint is None:
        text = f"all {text}"
    elif checkpoint.kind == "clear":
        state["clear"] = checkpoint.seq
        text += f" since the clear at entry {checkpoint.seq}"
    else:
        covers = {name: checkpoint.body[name] for name in ("covers_from", "covers_to")}
        state["compaction"] = {"entry": checkpoint.seq, **covers, "summary": visible.summary}
        text = (
            f"the summary of entries {covers['covers_from']} to {covers['covers_to']} (compaction at entry "
            f"{checkpoint.seq}), then {text} from entry {visible.first_seq} on"
        )
    first, last = int(compaction.body["covers_from"]), int(compaction.body["covers_to"])
    if options.as_json:
        changed = {"entry": compaction.seq, "covers_from": first, "covers_to": last}
        emit({"session": label, change: changed, "shown": state})
        return
    summary = f"a summary of entries {first} to {last}"
    click.echo(f"Session {quoted(label)}: {change} the compaction at entry {compaction.seq}, {summary}.")
    click.echo(f"Shown now: {text}.")
