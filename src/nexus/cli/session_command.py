"""`nexus session`: one session's metadata, and changes to it.

Changes are appended; only a permanent deletion removes data.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from nexus.cli._listing import Column, Listing, number, time, wrapped
from nexus.cli._options import SESSION, TENANT_OPTION, CommandOptions, NexusGroup, check_new_name, session_argument
from nexus.cli._output import count_noun, format_ref, format_time, quoted
from nexus.cli._sessions import resolve_session
from nexus.cli._usage import project_of, reported_usage
from nexus.cli._worker_tree import worker_tree
from nexus.cli.sessions_command import NUMBERS, is_turn_of_file
from nexus.engine import Engine
from nexus.errors import BadReference, LedgerError
from nexus.ledger import history_operations, replay
from nexus.ledger.replay import RecordedTurn
from nexus.ledger.sessions import SessionMetadata, SessionStatus, Thread
from nexus.render.console import printable
from nexus.types.ledger_entries import Entry

TURNS = Listing(
    number("turn", "number"),
    Column("status"),
    time("started", "started_ms"),
    wrapped("model"),
    number("messages"),
    number("calls"),
    number("input", "input_tokens"),
    number("cached", "cache_read_tokens"),
    number("output", "output_tokens"),
    wrapped("error", usual=""),
)
CALLS = Listing(
    number("turn"),
    Column("entry", lambda call: format_ref(call.ref)),
    wrapped("tool", "name"),
    Column("status"),
    time("requested", "asked_ms", seconds=True),
    number("duration", lambda call: _duration(call.asked_ms, call.answered_ms)),
    wrapped("call", "call_id"),
)
MOVES = Listing(
    number("move", "number"),
    time("time", "at_ms"),
    number("thread", lambda move: str(move.thread or "none")),
    Column("status", lambda move: move.metadata.status),
    wrapped("reason"),
)
ANCESTRY = Listing(
    number("thread", lambda part: str(part.thread)),
    Column(
        "turns", lambda part: f"{part.first_turn:,} to " * (part.first_turn < part.last_turn) + f"{part.last_turn:,}"
    ),
    number("until entry", "last_seq"),
    wrapped("sessions on this thread", lambda part: ", ".join(part.sessions) or "(none)"),
)
ALIASES = Listing(
    wrapped("alias", "name"),
    wrapped("session", lambda change: change.target or "(removed)"),
    time("since", "at_ms"),
    wrapped("reason"),
    empty="No aliases (add one: nexus session alias NAME SESSION).",
)


def _duration(asked_ms: int, answered_ms: int) -> str:
    if answered_ms and asked_ms:
        return f"{(answered_ms - asked_ms) / 1000:,.1f} s"
    return ""


SETTABLE = tuple(name for name in SessionMetadata.__struct_fields__ if name != "status")


@click.group(
    "session",
    cls=NexusGroup,
    modules={"pin": "compact.pin", "unpin": "compact.unpin", "rewind": "fork.rewind", "diff": "replay.diff"},
)
def command() -> None:
    """Show and change one session: details, turns, calls, pins, position, name, status.

    NAME may be an alias, the beginning of one name, or `last`. Each subcommand takes it with -s, too.

    Example: nexus session show main
    """


@command.subcommand("show")
@TENANT_OPTION
@session_argument("name")
def show(name: str, options: CommandOptions) -> None:
    """Show session NAME: metadata, counts, pins, workers.

    Sessions that it spawned are a tree. Each has the state of its newest turn, the turn and call that spawned it, and
    the input + output tokens and cost that its calls reported.

    Example: nexus session show main
    """
    with options.open(reads_stored=True, needs_config=False) as nx:
        details = _session_details(nx, name)
        usage = reported_usage(nx, details["session"])
        workers = worker_tree(nx, details["session"])
    count = sum(worker.count() for worker in workers)
    rows = [*_detail_rows(details), *zip(("reported", "cost"), usage.lines(), strict=True)]
    rows.append(("spawned", f"{count:,} session{'s' if count != 1 else ''}" if count else ""))
    value = {**details, "reported": msgspec.to_builtins(usage), "workers": msgspec.to_builtins(workers)}
    tree = (line for worker in workers for line in worker.lines())
    options.report(value, *(f"{name:<14} {printable(text)}" for name, text in rows if text), *tree)


def _session_details(nx: Engine, name: str) -> dict[str, Any]:
    """Return the metadata, counts and relations of a session, read in one snapshot. Raises NoSuchSession."""
    with nx.ledger.snapshot():
        label = resolve_session(nx, name)
        info = nx.ledger.sessions.info(label)
        thread = nx.ledger.thread_info(label)
        metadata = nx.ledger.sessions.metadata(label)
        live = nx.ledger.live(label)
        checkpoint = live.checkpoint
        return {
            "session": label,
            "thread": thread.id,
            **msgspec.to_builtins(metadata),
            "status": metadata.status,
            **{name: getattr(info, name) for name in NUMBERS},
            "entries": thread.head_seq,
            "first_ms": info.first_ms,
            "last_ms": info.last_ms,
            "project": project_of(nx, label),
            "open_turn": thread.turn if thread.open_turn and not is_turn_of_file(nx, label) else None,
            "shown_from": checkpoint and {"kind": checkpoint.kind, "entry": checkpoint.seq, **checkpoint.body},
            "undone": sorted(live.undone),
            "pins": msgspec.to_builtins(live.pins),
            "aliases": sorted(nx.ledger.store.names_of(label)[1:]),
            "forked_from": _fork_source(nx, thread),
            "spawned": [session.label for session in nx.ledger.sessions.spawned(label)],
        }


def _fork_source(nx: Engine, thread: Thread) -> dict[str, Any] | None:
    """Return the thread that this one continues, with the sessions that point to it, or did if none does now."""
    if thread.parent is None:
        return None
    current = nx.ledger.store.labels_of(thread.parent, every=True)
    former: list[str] = []
    if not current:
        former = nx.ledger.store.former_labels_of(thread.parent)
    return {"thread": thread.parent, "entry": thread.fork_seq, "sessions": current, "once_of": former}


def _detail_rows(details: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of details; a text is empty for a detail that the session lacks."""
    for name in ("session", "title", "status", "persona", "task", "task_status", "origin", "origin_id", "routing_key"):
        yield name.replace("_", " "), details.get(name, "")
    if parent := details.get("parent_session"):
        turn = ""
        if "parent_turn" in details:
            turn = f", turn {details['parent_turn']}"
        call = ""
        if "parent_call_id" in details:
            call = f", call {details['parent_call_id']}"
        yield "spawned by", f"{parent}{turn}{call}"
    yield "project", details["project"]
    yield "aliases", ", ".join(details["aliases"])
    yield "thread", str(details["thread"])
    if source := details["forked_from"]:
        former = "of no current session"
        if source["once_of"]:
            former = f"formerly of {', '.join(source['once_of'])}"
        owner = ", ".join(source["sessions"]) or former
        yield "forked from", f"thread {source['thread']} ({owner}), at entry {source['entry']}"
    for name in (*NUMBERS, "entries"):
        yield name, f"{details[name]:,}"
    yield "first", format_time(details["first_ms"])
    yield "last", format_time(details["last_ms"])
    yield "open turn", str(details["open_turn"] or "")
    checkpoint = details["shown_from"]
    shown = "all messages"
    if checkpoint and checkpoint["kind"] == "clear":
        shown = f"messages after the clear at entry {checkpoint['entry']}"
    elif checkpoint:
        shown = (
            f"a summary of entries {checkpoint['covers_from']} to {checkpoint['covers_to']} "
            f"(compaction at entry {checkpoint['entry']}), then messages from entry {checkpoint['first_kept']} on"
        )
    yield "shown", shown
    yield "undone", ", ".join(f"compaction at entry {seq}" for seq in details["undone"])
    yield "pins", ", ".join(f"{pin['seq']}.{pin['ord']}" for pin in details["pins"])


@command.subcommand("turns")
@TENANT_OPTION
@session_argument("name")
@click.option("--last", type=click.IntRange(min=1), help="Number of turns, the newest [all].")
def turns(name: str, last: int | None, options: CommandOptions) -> None:
    """List the turns of session NAME.

    Tokens are those that the provider reported; input includes tokens read from the provider's cache. An open turn is shown as interrupted: another process may
    still be working on it.

    Example: nexus session turns main --last 10
    """
    with options.session(name) as (nx, label):
        recorded = _turns(nx, label, last)
    TURNS.print(recorded, options)


def _turns(nx: Engine, label: str, last: int | None) -> Sequence[RecordedTurn]:
    """Return the turns of a session, or the newest ones; memory holds these and one block of entries."""
    thread = nx.ledger.thread_info(label)
    size = history_operations.READ_ENTRIES
    after = 0
    # Look back in growing steps for an entry before the newest `last` turns: long sessions are not read as a whole.
    while last and size < thread.head_seq:
        seq = thread.head_seq - size
        if next(nx.ledger.iter_entries(label, seq - 1, seq)).turn <= thread.turn - last:
            after = seq
            break
        size *= 4
    result: deque[RecordedTurn] = deque(maxlen=last)
    entries: list[Entry] = []
    newest = 0
    for entry in nx.ledger.iter_entries(label, after):
        # A block ends between two turns, because a turn is read from all of its entries.
        if entry.turn > newest and len(entries) >= history_operations.READ_ENTRIES:
            result += replay.turns(entries)
            entries = []
        newest = max(newest, entry.turn)
        entries.append(entry)
    result += replay.turns(entries)
    return result


@command.subcommand("calls")
@TENANT_OPTION
@session_argument("name")
def calls(name: str, options: CommandOptions) -> None:
    """List the tool calls of session NAME.

    Each call has its status, time and duration.

    Example: nexus session calls main
    """
    with options.session(name) as (nx, label):
        recorded = replay.calls(nx.ledger.iter_entries(label))
    CALLS.print(recorded, options)


@command.subcommand("reflog")
@session_argument("name")
def reflog(name: str, options: CommandOptions) -> None:
    """List the moves of session NAME.

    After each move it points to a thread, to which `nexus session rewind NAME --move` goes back.

    Example: nexus session reflog main
    """
    with options.session(name) as (nx, label):
        moves = nx.ledger.sessions.ref_updates(label)
    MOVES.print(moves, options)


@command.subcommand("ancestry")
@session_argument("name")
@click.option("--turn", type=click.IntRange(min=0), help="Turn whose ancestry is shown [the newest].")
def ancestry(name: str, turn: int | None, options: CommandOptions) -> None:
    """Show the threads from which a turn descends.

    The oldest thread of session NAME comes first.

    Example: nexus session ancestry plan-b --turn 12
    """
    with options.session(name) as (nx, label):
        ancestors = nx.ledger.sessions.ancestry(label, turn)
    ANCESTRY.print(ancestors, options)


@command.subcommand("aliases")
@click.option("--all", "every", is_flag=True, help="Every change, including removed aliases.")
def aliases(options: CommandOptions, every: bool) -> None:
    """List the aliases and their sessions.

    Example: nexus session aliases --all
    """
    with options.open(needs_config=False) as nx:
        changes = nx.ledger.sessions.aliases(every=every)
    ALIASES.print(changes, options)


@command.subcommand("set", epilog=f"Fields: {', '.join(SETTABLE)}.")
@session_argument("name")
@click.argument("fields", nargs=-1, required=True, metavar="FIELDS…")
def set_(name: str, fields: tuple[str, ...], options: CommandOptions) -> None:
    """Set metadata of session NAME. FIELDS are NAME=VALUE pairs; an empty value removes a field.

    Example: nexus session set scout persona=Scout task="find the slow query" parent_session=main
    """
    values = _parse_fields(fields)
    with options.session(name) as (nx, label):
        move = nx.ledger.sessions.update(label, f"set {', '.join(values)}", **values)
    options.report(move, f"Session {quoted(label)}: set {', '.join(values)}.")


def _parse_fields(fields: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of `name=value` pairs. Raises UsageError."""
    values: dict[str, Any] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise click.UsageError(f"{field!r} is not NAME=VALUE, such as persona=Scout")
        if name == "status":
            raise click.UsageError("the status is set by `nexus session archive`, `restore` and `delete`")
        if name not in SETTABLE:
            raise click.UsageError(f"unknown field {name!r} (fields: {', '.join(SETTABLE)})")
        if name == "parent_turn" and not (value or "0").isdecimal():
            raise click.UsageError(f"parent_turn is not a turn number: {value!r}")
        # A number of 15 digits fits into SQLite's 64-bit integers; a longer one names no turn either.
        values[name] = int((value or "0")[:15]) if name == "parent_turn" else value
    return values


@command.subcommand("rename")
@session_argument("old")
@click.argument("new", callback=check_new_name)
def rename(old: str, new: str, options: CommandOptions) -> None:
    """Rename session OLD to NEW. The old name stays as an alias.

    Example: nexus session rename guest-17 maria
    """
    with options.session(old) as (nx, label):
        move = nx.ledger.sessions.rename(label, new)
    options.report(move, f"Renamed session {quoted(label)} to {quoted(new)}; the old name is an alias now.")


@command.subcommand("merge")
@session_argument("name")
@click.argument("into", type=SESSION)
def merge(name: str, into: str, options: CommandOptions) -> None:
    """Redirect session NAME to session INTO. The two histories are not mixed.

    The messages of NAME stay as the archived session NAME~merged.

    Example: nexus session merge guest-17 maria
    """
    with options.session(name) as (nx, label):
        target = resolve_session(nx, into)
        move = nx.ledger.sessions.merge(label, target)
    history = f"its own history is the archived session {quoted(move.label)}"
    options.report(move, f"{quoted(label)} redirects to {quoted(target)} now; {history}.")


@command.subcommand("alias")
@click.argument("name", callback=check_new_name)
@session_argument()
def alias(name: str, session: str, options: CommandOptions) -> None:
    """Make NAME an alias of SESSION. An existing alias is redirected.

    Example: nexus session alias latest main
    """
    with options.session(session) as (nx, label):
        nx.ledger.sessions.alias(name, label)
    options.report({"name": name, "target": label}, f"{quoted(name)} is an alias of session {quoted(label)} now.")


@command.subcommand("unalias")
@session_argument("name")
def unalias(name: str, options: CommandOptions) -> None:
    """Remove the alias NAME. Its session does not change.

    Example: nexus session unalias latest
    """
    with options.open(needs_config=False) as nx:
        nx.ledger.sessions.unalias(name)
    options.report({"name": name, "target": None}, f"Removed the alias {quoted(name)}.")


@command.subcommand("archive")
@session_argument("name")
def archive(name: str, options: CommandOptions) -> None:
    """Archive session NAME.

    It is not listed any more, and can still be continued.

    Example: nexus session archive plan-b
    """
    _set_status(name, "archived", options)


@command.subcommand("restore")
@session_argument("name")
def restore(name: str, options: CommandOptions) -> None:
    """Restore session NAME after archive or delete.

    Example: nexus session restore plan-b
    """
    _set_status(name, "active", options)


@command.subcommand("delete")
@session_argument("name")
@click.option("--for-good", is_flag=True, help="Permanently erase its text from the storage.")
@click.option("--with-forks", is_flag=True, help="With --for-good: also erase the sessions that continue it.")
@click.option("--yes", is_flag=True, help="With --for-good: do not ask for confirmation.")
def delete(name: str, options: CommandOptions, for_good: bool, with_forks: bool, yes: bool) -> None:
    """Mark session NAME as deleted, or erase it. A marked session is not listed; `restore` brings it back.

    With --for-good its text is erased from the storage, and the storage is searched for the text afterwards.

    Example: nexus session delete plan-b --for-good
    """
    if not for_good:
        if with_forks or yes:
            raise click.UsageError("--with-forks and --yes require --for-good")
        _set_status(name, "deleted", options)
        return
    with options.session(name) as (nx, label):
        if label != name:  # erasing cannot be undone, so it takes no alias and no beginning of a name
            kind = "the beginning of the name"
            if nx.ledger.resolve(name):
                kind = "an alias"
            raise BadReference(f"{quoted(name)} is {kind} of {quoted(label)} (name the session itself to erase it)")
        if not yes:
            _confirm_erasure(nx, [label, *(nx.ledger.upkeep.dependents(label) if with_forks else ())])
        labels = [label, *nx.ledger.upkeep.dependents(label, with_forks=with_forks)]
        try:
            result = nx.ledger.upkeep.erase(label, with_forks=with_forks)
        except LedgerError as error:
            if error.code != "forks_depend":
                raise
            raise LedgerError(f"{error}; --with-forks erases them too", code="forks_depend") from error
    threads = ", ".join(map(str, result.threads)) or "none"
    images = ""
    if result.blobs:
        images = f", {count_noun(result.blobs, 'image')}"
    searched = f"The storage was searched for {result.needles:,} pieces of their text: {result.remaining:,} were found."
    options.report(
        {"sessions": labels, **msgspec.to_builtins(result)},
        f"Erased for good: {', '.join(map(quoted, labels))}.",
        f"Deleted: {count_noun(result.entries, 'entry')}, {count_noun(result.messages, 'message')}{images} (threads {threads}).",
        searched if result.needles else "There was no text that only they had.",
    )


def _confirm_erasure(nx: Engine, labels: list[str]) -> None:
    """Ask for confirmation on a terminal. Raises UsageError without one, Abort for no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("permanent deletion not confirmed: no terminal (add --yes)")
    for label in labels:
        info = nx.ledger.sessions.info(label)
        counts = f"{count_noun(info.turns, 'turn')}, {count_noun(info.messages, 'message')}"
        click.echo(f"{quoted(label)}: {counts}", err=True)
    click.confirm("Erase all of this for good? It cannot be undone", abort=True, err=True)


def _set_status(name: str, status: SessionStatus, options: CommandOptions) -> None:
    with options.session(name) as (nx, label):
        unchanged = nx.ledger.sessions.metadata(label).status == status
        if not unchanged:
            {
                "archived": nx.ledger.sessions.archive,
                "deleted": nx.ledger.sessions.delete,
                "active": nx.ledger.sessions.restore,
            }[status](label)
        move = nx.ledger.sessions.ref_updates(label)[-1]
    text = f"Session {quoted(label)} {'was' if unchanged else 'is'} {status}{' already' if unchanged else ' now'}."
    if status != "active":
        text += " Its messages stay (list it again: nexus session restore)."
    options.report(move, text)
