"""`nexus fork` and `nexus rewind`: another session from an earlier place, or the same one back at it."""

from __future__ import annotations

import shlex
from typing import Any

import click

from nexus.cli.listing import label_of, new_name, quoted
from nexus.cli.shared import common, emit, open_here
from nexus.engine import Engine
from nexus.errors import BadReference
from nexus.ledger.sessions import NewRefUpdate
from nexus.render.console import printable


@click.command("fork")
@click.argument("new", callback=new_name)
@click.argument("source")
@click.option("--turn", type=click.IntRange(min=0), help="Share up to the end of this turn [everything].")
@click.option("--entry", type=click.IntRange(min=0), help="Share up to this entry [everything].")
@common
def command(
    new: str,
    source: str,
    turn: int | None,
    entry: int | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Make a session NEW that goes on from a place of SOURCE. It shares the history up to there; SOURCE stays as it is.

    `nexus session turns SOURCE` shows the turns, `nexus history SOURCE --entry-numbers` the entries.

    Example: nexus fork plan-b main --turn 12
    """
    _one_of(turn=turn, entry=entry)
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, source)
        thread = nx.store.thread(nx.ledger.fork(new, label, turn=turn, seq=entry))
    if as_json:
        emit({"session": new, "source": label, "thread": thread.id, "entry": thread.fork_seq, "turn": thread.turn})
        return
    click.echo(
        f"Made session {quoted(new)}: it shares {quoted(label)} up to entry {thread.fork_seq} "
        f"({_turn(thread.turn, open_turn=thread.open_turn)})."
    )


@click.command("rewind")
@click.argument("name")
@click.option("--turn", type=click.IntRange(min=0), help="Go back to the end of this turn (0: the beginning).")
@click.option("--entry", type=click.IntRange(min=0), help="Go back to this entry.")
@click.option("--move", type=click.IntRange(min=1), help="Go where NAME pointed after this move: takes a rewind back.")
@common
def rewind(
    name: str,
    turn: int | None,
    entry: int | None,
    move: int | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Take session NAME back to an earlier place. The next turn goes on from there, and nothing is deleted.

    What came after the place stays on the old thread. `nexus session moves NAME` lists the moves.

    Example: nexus rewind main --turn 12
    """
    if not _one_of(turn=turn, entry=entry, move=move):
        raise click.UsageError("say how far: --turn, --entry or --move")
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        old = nx.ledger.ref_updates(label)[-1]
        if move is None:
            nx.ledger.rewind(label, turn=turn, seq=entry)
        else:
            _back(nx, label, move)
        done = _done(nx, label, old.thread or 0, old.number)
    if as_json:
        emit(done)
    else:
        _tell(done)


def _one_of(**places: int | None) -> bool:
    """Whether a place was named. Raises UsageError for several."""
    named = [f"--{name}" for name, place in places.items() if place is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} name different places; give one of them")
    return bool(named)


def _back(nx: Engine, label: str, number: int) -> None:
    """Points a session to the thread that it had after an earlier move."""
    moves = nx.ledger.ref_updates(label)
    target = next((move.thread for move in moves if move.number == number), None)
    if target is None:
        raise BadReference(
            f"session {label!r} has no move {number} that led to a thread; `nexus session moves NAME` lists its moves"
        )
    nx.store.move([NewRefUpdate(label, target, f"back to move {number}", None, moves[-1].number)])


def _done(nx: Engine, label: str, old_thread: int, old_move: int) -> dict[str, Any]:
    """Where the session is now, and what of the old thread it no longer has: entries first to last, if any."""
    with nx.store.snapshot():
        now, old = nx.store.thread(nx.ledger.thread(label)), nx.store.thread(old_thread)
        shared = 0
        for mine, theirs in zip(nx.store.path(now.id), nx.store.path(old.id), strict=False):
            if mine.thread != theirs.thread:
                break
            shared = min(mine.high, theirs.high)
    left: dict[str, Any] | None = None
    if shared < old.head_seq:
        left = {
            "thread": old.id,
            "first_entry": shared + 1,
            "last_entry": old.head_seq,
            "turn": old.turn,
            "move": old_move,
        }
    place = {"entry": now.head_seq, "turn": now.turn, "open_turn": now.open_turn}
    return {"session": label, "thread": now.id, **place, "left_behind": left}


def _tell(done: dict[str, Any]) -> None:
    label, left = done["session"], done["left_behind"]
    turn = _turn(done["turn"], open_turn=done["open_turn"])
    click.echo(f"Session {quoted(label)} is at entry {done['entry']} now ({turn}), on thread {done['thread']}.")
    if left is None:
        click.echo("Nothing is left behind.")
        return
    entries = f"entries {left['first_entry']} to {left['last_entry']}, up to turn {left['turn']}"
    back = f"nexus rewind {shlex.quote(printable(label))} --move {left['move']}"
    click.echo(f"Left behind on thread {left['thread']}, and still there: {entries}. To go back to them: {back}")


def _turn(turn: int, *, open_turn: bool) -> str:
    if not turn:
        return "before the first turn"
    return f"inside turn {turn}, which is open" if open_turn else f"the end of turn {turn}"
