"""`nexus memory`: facts that the agent remembers: show, search, add, forget."""

from __future__ import annotations

from collections import deque
from typing import Any

import click

from nexus.cli._options import CommandOptions, NexusGroup, read_input
from nexus.cli._output import beginning, emit, excerpt, format_ref, format_time, print_lines
from nexus.cli._tables import print_table
from nexus.engine import open_engine
from nexus.ledger.search_text import parse_query
from nexus.render.console import printable
from nexus.workspace.memory.facts import SECTION, Fact
from nexus.workspace.memory.notebook import Notebook

TEXT_CHARS = 2_000
"""Characters printed of a fact or log entry; --json prints all."""

TIMEZONE_OPTION = click.option(
    "--timezone", default="", help="The user's time zone, an IANA name [the configured one, or UTC]."
)


@click.group("memory", cls=NexusGroup)
def command() -> None:
    """Show, search, add and forget facts. Facts are lines of MEMORY.md, which is part of the context.

    Forgotten facts move to the log HISTORY.md, which is append-only and not sent to the model.

    Example: nexus memory add "The release branch is cut on Fridays."
    """


def _notebook(options: CommandOptions, timezone: str = "") -> Notebook:
    """Return the workspace's memory, with the clock, zone and cap of an engine."""
    with open_engine(options.root, ledger=":memory:") as nx:
        zone = timezone or str(nx.timezone)
        cap = nx.workspace_context.config.instructions.file_chars
        return Notebook(options.root, timezone=zone, clock_ms=nx.clock_ms, file_chars=cap)


@command.subcommand("show")
@click.option("--history", is_flag=True, help="Show the log, newest entry last, instead of the facts.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Number of log entries.")
def show(history: bool, last: int, options: CommandOptions) -> None:
    """List the facts, or the newest log entries.

    Example: nexus memory show --history --last 5
    """
    book = _notebook(options)
    if history:
        entries = list(deque(book.entries(), maxlen=last))
        if options.as_json:
            emit({"file": book.log, "entries": entries})
        elif not entries:
            click.echo(f"No entries in {book.log} yet.")
        else:
            rows = ((f"{entry.number:,}", entry.at, _truncated(entry.text)) for entry in entries)
            print_table(("entry", "time", "text"), rows, numbers=("entry",), wraps=("text",))
        return
    text, warnings = book.display_text()
    facts = book.facts()
    if options.as_json:
        size = {"chars": len(text.text), "left_out_chars": text.omitted_chars} if text else None
        emit({"file": book.file, "facts": list(map(_json_value, facts)), "shown": size, "warnings": warnings})
        return
    if facts:
        rows = ((f"{fact.number:,}", fact.section, fact.date, _truncated(fact.text)) for fact in facts)
        print_table(("fact", "section", "date", "text"), rows, numbers=("fact",), wraps=("section", "text"))
    else:
        click.echo(f"No facts in {book.file} yet (add one: nexus memory add TEXT).")
    print_lines(f"{printable(warning.source)}: {printable(warning.message)}" for warning in warnings)


@command.subcommand("search")
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Matches of each kind.")
@click.option("--sessions", is_flag=True, help="Also search the messages of all sessions, as `nexus search` does.")
def search(query: tuple[str, ...], limit: int, sessions: bool, options: CommandOptions) -> None:
    """Find facts and log entries by their words. Matches of all words of QUERY come first, then the newest.

    Case and accents are ignored; words in double quotes form a phrase; Chinese, Japanese and Korean need no spaces.
    Messages (--sessions) match only if they have all words.

    Example: nexus memory search index rebuild --sessions
    """
    text = " ".join(query)
    phrases = parse_query(text)
    if not phrases:
        raise click.UsageError("no words in the query: punctuation alone is not searched")
    matches = _notebook(options).search(text, limit)
    hits = []
    if sessions:
        with options.open() as nx:
            hits = nx.ledger.search(text, limit=limit)
    if options.as_json:
        emit({"found": matches, "sessions": hits})
        return
    if not matches and not hits:
        click.echo(f"No matches for: {printable(text)}")
    shown = [(f"{match.origin} {match.number}  {match.at}  {match.section}", match.text) for match in matches]
    for hit in hits:
        head = f"{', '.join(hit.sessions)} entry {format_ref(hit.ref)}  {format_time(hit.at_ms)}  {hit.role}"
        shown.append((head, hit.text))
    for head, text in shown:
        click.echo(printable(" ".join(head.split())))
        click.echo(f"    {''.join(piece for piece, _ in excerpt(text, phrases))}")


@command.subcommand("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--under", default=SECTION, show_default=True, help="Heading for the fact; created if missing.")
@click.option("--history", is_flag=True, help="Add to the log, which is searchable but not sent to the model.")
@click.option("--force", is_flag=True, help="Add the text even if it looks like a secret.")
@TIMEZONE_OPTION
def add(text: tuple[str, ...], under: str, history: bool, force: bool, timezone: str, options: CommandOptions) -> None:
    """Add the fact TEXT with today's date. `-` reads it from standard input. Duplicates are rejected.

    Put `--` before a text that begins with a dash.

    Example: nexus memory add "Ana prefers the answer first." --under People
    """
    content = read_input() if text == ("-",) else " ".join(text)
    book = _notebook(options, timezone)
    added = book.append(content, force=force) if history else book.add(content, section=under, force=force)
    name = f"Fact {added.number:,}" if added.number else "Log entry"
    options.report(added, f"{name} in {added.file}: {printable(added.at)} {_truncated(added.text)}")
    for warning in added.warnings if not options.as_json else ():
        click.echo(f"nexus: warning: {printable(warning)}", err=True)


@command.subcommand("forget")
@click.argument("fact", nargs=-1, required=True)
@TIMEZONE_OPTION
def forget(fact: tuple[str, ...], timezone: str, options: CommandOptions) -> None:
    """Move a fact to the log. FACT is its number in `nexus memory show`, or its exact text.

    If several facts match, nothing is changed and their numbers are listed.

    Example: nexus memory forget 3
    """
    book = _notebook(options, timezone)
    forgotten = book.forget(" ".join(fact))
    shown = " ".join(filter(None, (printable(forgotten.date), _truncated(forgotten.text))))
    value = {"forgotten": _json_value(forgotten), "file": book.file, "log": book.log}
    options.report(value, f"Moved to {book.log}: {shown}")


def _json_value(fact: Fact) -> dict[str, Any]:
    return {"number": fact.number, "section": fact.section, "date": fact.date, "text": fact.text}


def _truncated(text: str) -> str:
    return beginning(text, TEXT_CHARS)
