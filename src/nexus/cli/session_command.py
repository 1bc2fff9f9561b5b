"""`nexus session`: facts of one session and changes to it. Changes are appended; only a permanent deletion removes data."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from nexus.cli._options import CommandOptions, check_new_name, command_options, resolve_session
from nexus.cli._output import emit, emit_each, format_ref, format_time, quoted
from nexus.cli._tables import print_table, session_facts, session_lines
from nexus.engine import Engine
from nexus.errors import BadReference, ForksDepend
from nexus.ledger import operations, replay
from nexus.ledger.replay import Turn
from nexus.ledger.sessions import EraseResult, RefUpdate, SessionMetadata, SessionStatus
from nexus.types.ledger_entries import Entry

TOKENS = ("input", "cached", "output")

SETTABLE = tuple(name for name in SessionMetadata.__struct_fields__ if name != "status")


@click.group("session")
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """Show, rename, merge, archive or delete one session, and set its aliases and facts. NAME may be an alias.

    Example: nexus session show main
    """
    options.pass_on(ctx, command.commands)


@command.command("show")
@click.argument("name")
@command_options
def show(name: str, options: CommandOptions) -> None:
    """Show session NAME: facts, counts, forks, pins.

    Example: nexus session show main
    """
    with options.open() as nx:
        facts = session_facts(nx, name)
    if options.as_json:
        emit(facts)
    else:
        click.echo("\n".join(session_lines(facts)))


@command.command("turns")
@click.argument("name")
@click.option("--last", type=click.IntRange(min=1), help="Number of turns, the newest [all].")
@command_options
def turns(name: str, last: int | None, options: CommandOptions) -> None:
    """List the turns of session NAME.

    Tokens are those that the provider reported; input includes tokens read from the provider's cache. An open turn is shown as interrupted: another process may
    still be working on it.

    Example: nexus session turns main --last 10
    """
    with options.open() as nx:
        recorded = _turns(nx, resolve_session(nx, name), last)
    if options.as_json:
        emit_each(map(msgspec.to_builtins, recorded))
        return
    names = ["turn", "status", "started", "model", "messages", "calls", *TOKENS]
    names += ["error"] * any(turn.error for turn in recorded)
    rows = (_turn_row(turn)[: len(names)] for turn in recorded)
    print_table(names, rows, numbers=("turn", "messages", "calls", *TOKENS), wraps=("model", "error"))


def _turns(nx: Engine, label: str, last: int | None) -> Sequence[Turn]:
    """Return the turns of a session, or the newest ones; memory holds these and one block of entries."""
    result: deque[Turn] = deque(maxlen=last)
    entries: list[Entry] = []
    newest = 0
    for entry in nx.ledger.iter_entries(label, _entry_before_turns(nx, label, last) if last else 0):
        if entry.turn > newest and len(entries) >= operations.READ_ENTRIES:
            result += replay.turns(entries)
            entries = []
        newest = max(newest, entry.turn)
        entries.append(entry)
    result += replay.turns(entries)
    return result


def _entry_before_turns(nx: Engine, label: str, last: int) -> int:
    """Return an entry before the newest `last` turns, near them."""
    thread = nx.ledger.thread_info(label)
    size = operations.READ_ENTRIES
    while size < thread.head_seq:
        seq = thread.head_seq - size
        if next(nx.ledger.iter_entries(label, seq - 1, seq)).turn <= thread.turn - last:
            return seq
        size *= 4
    return 0


def _turn_row(turn: Turn) -> list[str]:
    tokens = (turn.input_tokens, turn.cache_read_tokens, turn.output_tokens)
    numbers = [f"{number:,}" for number in (turn.messages, turn.calls, *tokens)]
    return [f"{turn.number:,}", turn.status, format_time(turn.started_ms), turn.model, *numbers, turn.error]


@command.command("calls")
@click.argument("name")
@command_options
def calls(name: str, options: CommandOptions) -> None:
    """List the tool calls of session NAME.

    Each call has its status, time and duration.

    Example: nexus session calls main
    """
    with options.open() as nx:
        recorded = replay.calls(nx.ledger.iter_entries(resolve_session(nx, name)))
    if options.as_json:
        emit_each(map(msgspec.to_builtins, recorded))
        return
    names = ("turn", "entry", "tool", "status", "requested", "duration", "call")
    rows = (
        (
            f"{call.turn:,}",
            format_ref(call.ref),
            call.name,
            call.status,
            format_time(call.asked_ms, seconds=True),
            f"{(call.answered_ms - call.asked_ms) / 1000:,.1f} s" if call.answered_ms and call.asked_ms else "",
            call.call_id,
        )
        for call in recorded
    )
    print_table(names, rows, numbers=("turn", "duration"), wraps=("tool", "call"))


@command.command("reflog")
@click.argument("name")
@command_options
def reflog(name: str, options: CommandOptions) -> None:
    """List the moves of session NAME.

    After each move it points to a thread, to which `nexus rewind NAME --move` goes back.

    Example: nexus session reflog main
    """
    with options.open() as nx:
        moves = nx.ledger.ref_updates(resolve_session(nx, name))
    if options.as_json:
        emit(msgspec.to_builtins(moves))
        return
    rows = [
        (f"{move.number:,}", format_time(move.at_ms), str(move.thread or "none"), move.facts.status, move.reason)
        for move in moves
    ]
    print_table(("move", "time", "thread", "status", "reason"), rows, numbers=("move", "thread"), wraps=("reason",))


@command.command("ancestry")
@click.argument("name")
@click.option("--turn", type=click.IntRange(min=0), help="Turn whose ancestry is shown [the newest].")
@command_options
def ancestry(name: str, turn: int | None, options: CommandOptions) -> None:
    """Show the threads from which a turn descends.

    The oldest thread of session NAME comes first.

    Example: nexus session ancestry plan-b --turn 12
    """
    with options.open() as nx:
        ancestors = nx.ledger.ancestry(resolve_session(nx, name), turn)
    if options.as_json:
        emit(msgspec.to_builtins(ancestors))
        return
    rows = [
        (
            str(part.thread),
            f"{part.first_turn:,} to {part.last_turn:,}" if part.first_turn < part.last_turn else f"{part.last_turn:,}",
            f"{part.last_seq:,}",
            ", ".join(part.sessions) or "(none)",
        )
        for part in ancestors
    ]
    names = ("thread", "turns", "until entry", "sessions on this thread")
    print_table(names, rows, numbers=("thread", "until entry"), wraps=names[3:])


@command.command("aliases")
@click.option("--all", "every", is_flag=True, help="Every change, including removed aliases.")
@command_options
def aliases(options: CommandOptions, *, every: bool) -> None:
    """List the aliases and their sessions.

    Example: nexus session aliases --all
    """
    with options.open() as nx:
        rows = nx.ledger.aliases(every=every)
    if options.as_json:
        emit(msgspec.to_builtins(rows))
    elif not rows:
        click.echo("No aliases (add one: nexus session alias NAME SESSION).")
    else:
        cells = [(row.name, row.target or "(removed)", format_time(row.at_ms), row.reason) for row in rows]
        print_table(("alias", "session", "since", "reason"), cells, wraps=("alias", "session", "reason"))


@command.command("set", epilog=f"Facts: {', '.join(SETTABLE)}.")
@click.argument("name")
@click.argument("facts", nargs=-1, required=True, metavar="FACTS…")
@command_options
def set_(name: str, facts: tuple[str, ...], options: CommandOptions) -> None:
    """Set facts of session NAME. FACTS are NAME=VALUE pairs; an empty value removes a fact.

    Example: nexus session set scout persona=Scout task="find the slow query" parent_session=main
    """
    values = _parse_facts(facts)
    with options.open() as nx:
        label = resolve_session(nx, name)
        move = nx.ledger.update(label, f"set {', '.join(values)}", **values)
    _print_move(move, f"Session {quoted(label)}: set {', '.join(values)}.", options)


def _parse_facts(facts: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of `name=value` pairs. Raises UsageError."""
    values: dict[str, Any] = {}
    for fact in facts:
        name, equals, value = fact.partition("=")
        if not equals:
            raise click.UsageError(f"{fact!r} is not NAME=VALUE, such as persona=Scout")
        if name == "status":
            raise click.UsageError("the status is set by `nexus session archive`, `restore` and `delete`")
        if name not in SETTABLE:
            raise click.UsageError(f"unknown fact {name!r} (facts: {', '.join(SETTABLE)})")
        if name == "parent_turn" and not (value or "0").isdecimal():
            raise click.UsageError(f"parent_turn is not a turn number: {value!r}")
        values[name] = int((value or "0")[:15]) if name == "parent_turn" else value
    return values


@command.command("rename")
@click.argument("old")
@click.argument("new", callback=check_new_name)
@command_options
def rename(old: str, new: str, options: CommandOptions) -> None:
    """Rename session OLD to NEW. The old name stays as an alias.

    Example: nexus session rename guest-17 maria
    """
    with options.open() as nx:
        label = resolve_session(nx, old)
        move = nx.ledger.rename(label, new)
    _print_move(move, f"Renamed session {quoted(label)} to {quoted(new)}; the old name is an alias now.", options)


@command.command("merge")
@click.argument("name")
@click.argument("into")
@command_options
def merge(name: str, into: str, options: CommandOptions) -> None:
    """Redirect session NAME to session INTO. The two histories are not mixed.

    The messages of NAME stay as the archived session NAME~merged.

    Example: nexus session merge guest-17 maria
    """
    with options.open() as nx:
        label, target = resolve_session(nx, name), resolve_session(nx, into)
        move = nx.ledger.merge(label, target)
    history = f"its own history is the archived session {quoted(move.label)}"
    _print_move(move, f"{quoted(label)} redirects to {quoted(target)} now; {history}.", options)


@command.command("alias")
@click.argument("name", callback=check_new_name)
@click.argument("session")
@command_options
def alias(name: str, session: str, options: CommandOptions) -> None:
    """Make NAME an alias of SESSION. An existing alias is redirected.

    Example: nexus session alias latest main
    """
    with options.open() as nx:
        label = resolve_session(nx, session)
        nx.ledger.alias(name, label)
    if options.as_json:
        emit({"name": name, "target": label})
    else:
        click.echo(f"{quoted(name)} is an alias of session {quoted(label)} now.")


@command.command("unalias")
@click.argument("name")
@command_options
def unalias(name: str, options: CommandOptions) -> None:
    """Remove the alias NAME. Its session does not change.

    Example: nexus session unalias latest
    """
    with options.open() as nx:
        nx.ledger.unalias(name)
    if options.as_json:
        emit({"name": name, "target": None})
    else:
        click.echo(f"Removed the alias {quoted(name)}.")


@command.command("archive")
@click.argument("name")
@command_options
def archive(name: str, options: CommandOptions) -> None:
    """Archive session NAME.

    It is not listed any more, and can still be continued.

    Example: nexus session archive plan-b
    """
    _set_status(name, "archived", options)


@command.command("restore")
@click.argument("name")
@command_options
def restore(name: str, options: CommandOptions) -> None:
    """Restore session NAME after archive or delete.

    Example: nexus session restore plan-b
    """
    _set_status(name, "active", options)


@command.command("delete")
@click.argument("name")
@click.option("--for-good", is_flag=True, help="Permanently erase its text from the storage.")
@click.option("--with-forks", is_flag=True, help="With --for-good: also erase the sessions that continue it.")
@click.option("--yes", is_flag=True, help="With --for-good: do not ask for confirmation.")
@command_options
def delete(name: str, options: CommandOptions, *, for_good: bool, with_forks: bool, yes: bool) -> None:
    """Mark session NAME as deleted, or erase it. A marked session is not listed; `restore` brings it back.

    With --for-good its text is erased from the storage, and the storage is searched for the text afterwards.

    Example: nexus session delete plan-b --for-good
    """
    if not for_good:
        if with_forks or yes:
            raise click.UsageError("--with-forks and --yes require --for-good")
        _set_status(name, "deleted", options)
        return
    with options.open() as nx:
        label = resolve_session(nx, name)
        if label != name:
            raise BadReference(f"{quoted(name)} is an alias of {quoted(label)} (name the session itself to erase it)")
        if not yes:
            _confirm_erasure(nx, [label, *(nx.ledger.dependents(label) if with_forks else ())])
        before = [session.label for session in nx.sessions(include_inactive=True)]
        try:
            result = nx.ledger.erase(label, with_forks=with_forks)
        except ForksDepend as error:
            raise ForksDepend(f"{error}; --with-forks erases them too") from error
        remaining = {session.label for session in nx.sessions(include_inactive=True)}
    labels = [label, *(other for other in before if other not in remaining and other != label)]
    if options.as_json:
        emit({"sessions": labels, **msgspec.to_builtins(result)})
    else:
        click.echo("\n".join(_erase_lines(labels, result)))


def _set_status(name: str, status: SessionStatus, options: CommandOptions) -> None:
    with options.open() as nx:
        label = resolve_session(nx, name)
        unchanged = nx.ledger.metadata(label).status == status
        if not unchanged:
            {"archived": nx.ledger.archive, "deleted": nx.ledger.delete, "active": nx.ledger.restore}[status](label)
        move = nx.ledger.ref_updates(label)[-1]
    text = f"Session {quoted(label)} {'was' if unchanged else 'is'} {status}{' already' if unchanged else ' now'}."
    if status != "active":
        text += " Its messages stay (list it again: nexus session restore)."
    _print_move(move, text, options)


def _confirm_erasure(nx: Engine, labels: list[str]) -> None:
    """Ask for confirmation on a terminal. Raises UsageError without one, Abort for no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("permanent deletion not confirmed: no terminal (add --yes)")
    sessions = {session.label: session for session in nx.sessions(include_inactive=True)}
    for label in labels:
        click.echo(f"{quoted(label)}: {sessions[label].turns:,} turns, {sessions[label].messages:,} messages", err=True)
    click.confirm("Erase all of this for good? It cannot be undone", abort=True, err=True)


def _erase_lines(labels: list[str], result: EraseResult) -> list[str]:
    threads = ", ".join(map(str, result.threads)) or "none"
    images = f", {result.blobs:,} images" if result.blobs else ""
    searched = f"The storage was searched for {result.needles:,} pieces of their text: {result.remaining:,} were found."
    return [
        f"Erased for good: {', '.join(map(quoted, labels))}.",
        f"Deleted: {result.entries:,} entries, {result.messages:,} messages{images} (threads {threads}).",
        searched if result.needles else "There was no text that only they had.",
    ]


def _print_move(move: RefUpdate, text: str, options: CommandOptions) -> None:
    if options.as_json:
        emit(msgspec.to_builtins(move))
    else:
        click.echo(text)
