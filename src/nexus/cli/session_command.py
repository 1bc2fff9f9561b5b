"""`nexus session`: what is known of one session. The commands that change one are in `session_changes`."""

from __future__ import annotations

import click
import msgspec

from nexus.cli import session_changes
from nexus.cli.listing import dotted, entries_of, label_of, moment, turns_of
from nexus.cli.portrait import lines_of, portrait
from nexus.cli.shared import common, emit, emit_each, handed_down, open_here
from nexus.cli.table import print_table
from nexus.ledger import replay
from nexus.ledger.replay import Turn

TOKENS = ("input", "cached", "output")


@click.group("session")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Look at one session, rename, archive or delete it, give it aliases and facts. Names may be aliases everywhere.

    Example: nexus session show main
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("show")
@click.argument("name")
@common
def show(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show what is known of session NAME. That is its facts and counts, where it comes from, what is shown of it, pins.

    Example: nexus session show main
    """
    with open_here(workspace, ledger) as nx:
        found = portrait(nx, name)
    if as_json:
        emit(found)
    else:
        click.echo("\n".join(lines_of(found)))


@command.command("turns")
@click.argument("name")
@click.option("--last", type=click.IntRange(min=1), help="Only so many, the newest.")
@common
def turns(name: str, last: int | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the turns of session NAME. Tokens are as the provider reported them.

    Input includes what was read from the provider's cache. A turn that was not closed is shown as interrupted: from
    here it cannot be seen whether a program is at work on it.

    Example: nexus session turns main --last 10
    """
    with open_here(workspace, ledger) as nx:
        found = turns_of(nx, label_of(nx, name), last)
    if as_json:
        emit_each(map(msgspec.to_builtins, found))
        return
    names = ["turn", "status", "started", "model", "messages", "calls", *TOKENS]
    names += ["error"] * any(turn.error for turn in found)
    rows = (_turn(turn)[: len(names)] for turn in found)
    print_table(names, rows, numbers=("turn", "messages", "calls", *TOKENS), wraps=("model", "error"))


def _turn(turn: Turn) -> list[str]:
    tokens = (turn.input_tokens, turn.cache_read_tokens, turn.output_tokens)
    numbers = [f"{number:,}" for number in (turn.messages, turn.calls, *tokens)]
    return [f"{turn.number:,}", turn.status, moment(turn.started_ms), turn.model, *numbers, turn.error]


@command.command("calls")
@click.argument("name")
@common
def calls(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the tool calls of session NAME. Each with its status, when it was asked for, and how long it took.

    Example: nexus session calls main
    """
    with open_here(workspace, ledger) as nx:
        found = replay.calls(entries_of(nx, label_of(nx, name)))
    if as_json:
        emit_each(map(msgspec.to_builtins, found))
        return
    names = ("turn", "entry", "tool", "status", "asked", "took", "call")
    rows = (
        (
            f"{call.turn:,}",
            dotted(call.place),
            call.name,
            call.status,
            moment(call.asked_ms, seconds=True),
            f"{(call.answered_ms - call.asked_ms) / 1000:,.1f} s" if call.answered_ms and call.asked_ms else "",
            call.call_id,
        )
        for call in found
    )
    print_table(names, rows, numbers=("turn", "took"), wraps=("tool", "call"))


@command.command("moves")
@click.argument("name")
@common
def moves(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the moves of session NAME. After each it points to a thread, which is what `rewind --move` goes back to.

    Example: nexus session moves main
    """
    with open_here(workspace, ledger) as nx:
        found = nx.ledger.ref_updates(label_of(nx, name))
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    rows = [
        (f"{move.number:,}", moment(move.at_ms), str(move.thread or "none"), move.facts.status, move.reason)
        for move in found
    ]
    print_table(("move", "time", "thread", "status", "reason"), rows, numbers=("move", "thread"), wraps=("reason",))


@command.command("ancestry")
@click.argument("name")
@click.option("--turn", type=click.IntRange(min=0), help="Of this turn [the newest].")
@common
def ancestry(name: str, turn: int | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show where a turn of session NAME comes from. That is stretches of turns by thread, the oldest first.

    Example: nexus session ancestry plan-b --turn 12
    """
    with open_here(workspace, ledger) as nx:
        found = nx.ledger.ancestry(label_of(nx, name), turn)
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    rows = [
        (
            str(part.thread),
            f"{part.first_turn:,} to {part.last_turn:,}" if part.first_turn < part.last_turn else f"{part.last_turn:,}",
            f"{part.last_seq:,}",
            ", ".join(part.sessions) or "(none)",
        )
        for part in found
    ]
    names = ("thread", "turns", "until entry", "sessions that point to it")
    print_table(names, rows, numbers=("thread", "until entry"), wraps=names[3:])


@command.command("aliases")
@click.option("--all", "every", is_flag=True, help="Every change there was, those taken back too.")
@common
def aliases(workspace: str | None, ledger: str | None, *, every: bool, as_json: bool) -> None:
    """List the aliases and the sessions that they lead to.

    Example: nexus session aliases --all
    """
    with open_here(workspace, ledger) as nx:
        found = nx.store.aliases(every=every)
    if as_json:
        emit(msgspec.to_builtins(found))
    elif not found:
        click.echo("There are no aliases. `nexus session alias NAME SESSION` makes one.")
    else:
        rows = [(one.name, one.target or "(taken back)", moment(one.at_ms), one.reason) for one in found]
        print_table(("alias", "leads to", "since", "reason"), rows, wraps=("alias", "leads to", "reason"))


for _change in session_changes.CHANGES:
    command.add_command(_change)
