"""`nexus undo` and `nexus redo`: a compaction that should not hold, or should hold again."""

from __future__ import annotations

from typing import Any

import click

from nexus.cli.listing import label_of, quoted
from nexus.cli.shared import common, emit, open_here
from nexus.engine import Engine
from nexus.types.ledger_entries import Entry


@click.command("undo")
@click.argument("name")
@common
def command(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Undo the compaction that holds in session NAME. What it covered is shown again; nothing is deleted.

    Example: nexus undo main
    """
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        entry = nx.ledger.undo(label)
        _tell(nx, label, entry, "undone", "is undone", as_json=as_json)


@click.command("redo")
@click.argument("name")
@common
def redo(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Take the newest undo in session NAME back. The compaction holds again.

    Example: nexus redo main
    """
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        entry = nx.ledger.redo(label)
        _tell(nx, label, entry, "redone", "holds again", as_json=as_json)


def _tell(nx: Engine, label: str, entry: Entry, key: str, what: str, *, as_json: bool) -> None:
    """Prints which compaction it was, and what is shown now."""
    shown = _shown(nx, label)
    covers = [int(entry.body["covers_from"]), int(entry.body["covers_to"])]
    if as_json:
        done = {"entry": entry.seq, "covers_from": covers[0], "covers_to": covers[1]}
        emit({"session": label, key: done, "shown": shown})
        return
    click.echo(
        f"Session {quoted(label)}: the compaction at entry {entry.seq}, a summary of entries {covers[0]} to {covers[1]}, "
        f"{what}."
    )
    click.echo(f"Shown now: {_told(shown)}.")


def _shown(nx: Engine, label: str) -> dict[str, Any]:
    with nx.store.snapshot():
        seen, mark = nx.ledger.visible(label), nx.ledger.live(label).mark
    shown: dict[str, Any] = {"first_entry": seen.first_seq, "messages": len(seen.rows)}
    if mark is None:
        return shown
    if mark.kind == "clear":
        return {**shown, "clear": mark.seq}
    covers = {name: mark.body[name] for name in ("covers_from", "covers_to")}
    return {**shown, "compaction": {"entry": mark.seq, **covers, "summary": seen.summary}}


def _told(shown: dict[str, Any]) -> str:
    count, first = f"{shown['messages']:,} messages", shown["first_entry"]
    if "compaction" in shown:
        held = shown["compaction"]
        return (
            f"the summary of entries {held['covers_from']} to {held['covers_to']} (compaction at entry {held['entry']}), "
            f"then {count} from entry {first} on"
        )
    return f"{count} since the clear at entry {shown['clear']}" if "clear" in shown else f"all {count}"
