"""`nexus history`: everything that was said, whatever was cut or compacted; or what a compaction left to be shown."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import click
import msgspec
from msgspec.structs import replace

from nexus.cli.listing import entries_of, label_of, quoted
from nexus.cli.pictures import written_images
from nexus.cli.shared import common, emit, emit_each, open_here, plain_output, print_lines, shown_json
from nexus.engine import Engine
from nexus.errors import BadReference
from nexus.ledger.replay import visible_start
from nexus.render.console import markdown_lines
from nexus.render.export import as_anthropic, as_openai, as_values
from nexus.render.turnlog.console import ASCII, EMOJI, PLAIN, Signs, console_lines
from nexus.render.turnlog.entries import LogEntry
from nexus.render.turnlog.write import log_entries, log_texts, strict_entries
from nexus.types.history import SUMMARY_MARKER
from nexus.types.ledger_entries import STEPS, Entry, MessageRef, StoredMessage
from nexus.types.message import Message, TokenSize, user


@click.command("history")
@click.argument("session")
@click.option(
    "--as",
    "form",
    type=click.Choice(["console", "turnlog", "openai", "anthropic", "markdown"]),
    default="console",
    show_default=True,
    help="Form of the output.",
)
@click.option("--compacted", is_flag=True, help="Begin with the summary that holds, then only what it kept.")
@click.option("--call", "call_id", default="", help="Only the tool call of this id and its result, whole.")
@click.option(
    "--images",
    "folder",
    type=click.Path(file_okay=False),
    help="Also write the images of these messages into this folder.",
)
@click.option("--full", is_flag=True, help="Show system texts, values and results whole (console form).")
@click.option("--strict", is_flag=True, help="Leave out what document 001 has no place for (turnlog form).")
@click.option("--entry-numbers", is_flag=True, help="Show the places that fork, rewind and pin take (console form).")
@common
def command(
    session: str,
    form: str,
    workspace: str | None,
    ledger: str | None,
    call_id: str,
    folder: str | None,
    *,
    compacted: bool,
    full: bool,
    strict: bool,
    entry_numbers: bool,
    as_json: bool,
) -> None:
    """Show all messages of SESSION.

    Example: nexus history main --call toolu_01
    """
    if strict and form != "turnlog":
        raise click.UsageError("--strict is of the form turnlog: add --as turnlog.")
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, session)
        entries = _compacted(nx, label) if compacted else entries_of(nx, label, checked=True)
        if call_id:
            entries = _of_call(entries, call_id, label)
        if folder is not None:
            entries = written_images(entries, folder)
        if form in ("openai", "anthropic"):
            said = _with_summary(entries) if compacted else entries
            emit(as_openai(said) if form == "openai" else as_anthropic(said))
        elif form == "turnlog":
            _print_log(log_entries(entries, nx.ledger.live(label).undone), strict=strict)
        elif as_json:
            emit_each(value for entry in entries for value in as_values((entry,)))
        elif form == "markdown":
            print_lines(markdown_lines(entries))
        else:
            lines = console_lines(entries, signs=_signs(), numbered=entry_numbers, full=full or bool(call_id))
            first = next(lines, f"Session {quoted(label)} has no messages yet.")
            print_lines(chain([first], lines))


def _signs() -> Signs:
    """The signs that the output can show, and is to show."""
    signs = PLAIN if plain_output() else EMOJI
    try:
        "".join(msgspec.structs.astuple(signs)).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return ASCII
    return signs


def _print_log(log: Iterator[LogEntry], *, strict: bool) -> None:
    """Prints a turn log; with `strict` its printed form alone, and on standard error what that leaves out."""
    told: Counter[str] = Counter()
    for text in log_texts(strict_entries(log, told) if strict else log):
        click.echo(shown_json(text), nl=False)
    for what, count in sorted(told.items()):
        click.echo(f"left out: {what} ({count:,})", err=True)


def _of_call(entries: Iterator[Entry], call_id: str, label: str) -> Iterator[Entry]:
    """The messages that ask for a call or have its result. Raises BadReference if there are none."""
    found: list[Entry] = []
    for entry in entries:
        rows = tuple(row for row in entry.rows if _has_call(row.message, call_id))
        if rows:
            found.append(replace(entry, rows=rows))
    if not found:
        raise BadReference(f"session {label!r} has no tool call of id {call_id!r}: `nexus history` shows them all")
    return iter(found)


def _has_call(message: Message, call_id: str) -> bool:
    return any(call.id == call_id for call in message.calls()) or any(
        result.call_id == call_id for result in message.results()
    )


def _compacted(nx: Engine, label: str) -> Iterator[Entry]:
    """The compaction that holds, if any, then the steps from what it kept on; after a clear, those that follow it."""
    mark = nx.ledger.live(label).mark
    compaction = [mark] if mark is not None and mark.kind == "compaction" else []
    first = visible_start(mark)
    kept = entries_of(nx, label, after=first.seq - 1, checked=True)
    steps = (entry for entry in kept if entry.kind in STEPS)
    shown = (replace(entry, rows=tuple(row for row in entry.rows if row.place >= first)) for entry in steps)
    return chain(compaction, shown)


def _with_summary(entries: Iterator[Entry]) -> Iterator[Entry]:
    """The entries with the summary as the user's message that a call is shown."""
    for entry in entries:
        if entry.kind == "compaction":
            summary = user(f"{SUMMARY_MARKER}\n{entry.body.get('summary', '')}")
            yield replace(entry, rows=(StoredMessage(MessageRef(entry.seq, 0), summary, TokenSize(0, 0, 0)),))
        else:
            yield entry
