"""`nexus fork` and `nexus session rewind`: a new session from an earlier message, or the same session moved back to it."""

from __future__ import annotations

from typing import Any

import click

from nexus.cli._options import CommandOptions, check_new_name, line_to_type, nexus_command, session_argument
from nexus.cli._output import quoted
from nexus.ledger.sessions import Thread


@nexus_command("fork")
@click.argument("new", callback=check_new_name)
@session_argument("source")
@click.option("--turn", type=click.IntRange(min=0), help="Share up to the end of this turn [everything].")
@click.option("--entry", type=click.IntRange(min=0), help="Share up to this entry [everything].")
def command(new: str, source: str, turn: int | None, entry: int | None, options: CommandOptions) -> None:
    """Start a new session from an earlier message.

    NEW shares the history of SOURCE up to there; SOURCE does not change.

    `nexus session turns SOURCE` lists the turns, `nexus history SOURCE --refs` shows the entries.

    Example: nexus fork plan-b main --turn 12
    """
    _check_one(turn=turn, entry=entry)
    with options.session(source) as (nx, label):
        nx.ledger.fork(new, label, turn=turn, seq=entry)
        thread = nx.ledger.thread_info(new)
    options.report(
        {"session": new, "source": label, "thread": thread.id, "entry": thread.fork_seq, "turn": thread.turn},
        f"Created session {quoted(new)}: it shares {quoted(label)} up to entry {thread.fork_seq} "
        f"({_describe_turn(thread)}).",
    )


@nexus_command("rewind")
@session_argument("name")
@click.option("--turn", type=click.IntRange(min=0), help="Move back to the end of this turn (0: the beginning).")
@click.option("--entry", type=click.IntRange(min=0), help="Move back to this entry.")
@click.option(
    "--move", type=click.IntRange(min=1), help="Move to where NAME pointed after this move: reverts a rewind."
)
def rewind(name: str, turn: int | None, entry: int | None, move: int | None, options: CommandOptions) -> None:
    """Move session NAME back to an earlier message. The next turn continues from there, and nothing is deleted.

    Later messages stay on the old thread. `nexus session reflog NAME` lists the moves.

    Example: nexus session rewind main --turn 12
    """
    if not _check_one(turn=turn, entry=entry, move=move):
        raise click.UsageError("missing position: --turn, --entry or --move")
    with options.session(name) as (nx, label):
        before = nx.ledger.sessions.ref_updates(label)[-1]  # the move to go back to
        if move is None:
            nx.ledger.rewind(label, turn=turn, seq=entry)
        else:
            nx.ledger.sessions.restore_ref(label, move)
        with nx.ledger.snapshot():
            thread = nx.ledger.thread_info(label)
            old = nx.ledger.thread_info(before.thread or 0)
            shared = nx.ledger.sessions.last_shared_entry(thread.id, old.id)
    abandoned: dict[str, Any] | None = None
    left = "No entries are left behind."
    if shared < old.head_seq:
        abandoned = {
            "thread": old.id,
            "first_entry": shared + 1,
            "last_entry": old.head_seq,
            "turn": old.turn,
            "move": before.number,
        }
        entries = f"entries {shared + 1} to {old.head_seq}, up to turn {old.turn}"
        move_option = ("--move", str(before.number))
        undo = line_to_type(f"/rewind {' '.join(move_option)}", options, "session", "rewind", label, *move_option)
        left = f"Left behind on thread {old.id}: {entries}. Move back to them: {undo}"
    position = {"entry": thread.head_seq, "turn": thread.turn, "open_turn": thread.open_turn}
    now = f"entry {thread.head_seq} now ({_describe_turn(thread)})"
    options.report(
        {"session": label, "thread": thread.id, **position, "left_behind": abandoned},
        f"Session {quoted(label)} is at {now}, on thread {thread.id}.",
        left,
    )


def _check_one(**positions: int | None) -> bool:
    """Return True if a position was given. Raises UsageError for several."""
    options = [f"--{name}" for name, value in positions.items() if value is not None]
    if len(options) > 1:
        raise click.UsageError(f"{' and '.join(options)} exclude each other")
    return bool(options)


def _describe_turn(thread: Thread) -> str:
    if not thread.turn:
        return "before the first turn"
    if thread.open_turn:
        return f"inside turn {thread.turn}, which is open"
    return f"the end of turn {thread.turn}"
