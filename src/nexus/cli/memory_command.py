"""`nexus memory`: what the agent remembers; shown, searched, added to, forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from nexus.cli.excerpt import around, beginning
from nexus.cli.listing import moment
from nexus.cli.shared import common, emit, handed_down, nearest_workspace, open_here, print_lines, read_input
from nexus.cli.table import print_table
from nexus.engine import open_engine
from nexus.ledger.search_text import parse_query
from nexus.ledger.sessions import Query, SearchHit
from nexus.render.console import printable
from nexus.workspace.memory.facts import SECTION, Fact
from nexus.workspace.memory.notebook import AddedFact, Notebook

TEXT_CHARS = 2_000
"""So much of a fact or an entry is printed; --json has all of it."""

TIMEZONE = click.option(
    "--timezone", default="", help="The user's time zone, an IANA name [the configured one, or UTC]."
)


@click.group("memory")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Look at what the agent remembers; find, add and forget facts. They stand in MEMORY.md, which goes into contexts.

    What is forgotten goes to the log beside it, HISTORY.md, which only grows and is not sent to the model.

    Example: nexus memory add "The release branch is cut on Fridays."
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


def _notebook(workspace: str | None, timezone: str = "") -> Notebook:
    """The memory of the workspace that is meant, with the clock, zone and cap that its engine has."""
    root = Path(workspace).expanduser() if workspace else nearest_workspace(Path.cwd())
    with open_engine(root, ledger=":memory:") as nx:
        zone = timezone or str(nx.timezone)
        cap = nx.workspace_context.config.instructions.file_chars
        return Notebook(root, timezone=zone, clock_ms=nx.clock_ms, file_chars=cap)


@command.command("show")
@click.option("--history", is_flag=True, help="The log, newest last, not the facts.")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Entries of the log.")
@common
def show(
    workspace: str | None,
    ledger: str | None,  # noqa: ARG001 - every command takes it
    last: int,
    *,
    history: bool,
    as_json: bool,
) -> None:
    """List the facts, or the log's newest entries. The numbers are those that `forget` takes.

    Example: nexus memory show --history --last 5
    """
    book = _notebook(workspace)
    if history:
        entries = list(deque(book.entries(), maxlen=last))
        if as_json:
            emit({"file": book.log, "entries": msgspec.to_builtins(entries)})
        elif not entries:
            click.echo(f"There is nothing in {book.log} yet.")
        else:
            rows = ((f"{one.number:,}", one.at, _cut(one.text)) for one in entries)
            print_table(("entry", "time", "text"), rows, numbers=("entry",), wraps=("text",))
        return
    found, warned = book.display_text()
    facts = book.facts()
    if as_json:
        shown = {"chars": len(found.text), "left_out_chars": found.left_out_chars} if found else None
        told = [{"origin": one.source, "text": one.message} for one in warned]
        emit({"file": book.file, "facts": _values(facts), "shown": shown, "warnings": told})
        return
    if facts:
        rows = ((f"{one.number:,}", one.section, one.date, _cut(one.text)) for one in facts)
        print_table(("fact", "section", "date", "text"), rows, numbers=("fact",), wraps=("section", "text"))
    else:
        click.echo(f"There is no fact in {book.file} yet. `nexus memory add TEXT` adds one.")
    print_lines(f"{printable(one.source)}: {printable(one.message)}" for one in warned)


@command.command("search")
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Matches at most, of each kind."
)
@click.option("--sessions", is_flag=True, help="Messages of all sessions too, as `nexus search` finds them.")
@common
def search(
    query: tuple[str, ...], limit: int, workspace: str | None, ledger: str | None, *, sessions: bool, as_json: bool
) -> None:
    """Find facts and entries of the log by their words. Those with all words of QUERY come first, then the newest.

    Case and accents do not matter, words in double quotes stand side by side, and Chinese, Japanese and Korean need no
    spaces. With --sessions also messages; these have all the words.

    Example: nexus memory search index rebuild --sessions
    """
    text = " ".join(query)
    wanted = parse_query(text)
    if not wanted:
        raise click.UsageError("there is no word to search for: signs alone are not found")
    found = _notebook(workspace).search(text, limit)
    hits = _messages(text, limit, workspace, ledger) if sessions else []
    if as_json:
        emit({"found": msgspec.to_builtins(found), "sessions": msgspec.to_builtins(hits)})
        return
    if not found and not hits:
        click.echo(f"Nothing has a word of: {printable(text)}")
    for one in found:
        _print(f"{one.origin} {one.number}  {one.at}  {one.section}", one.text, wanted)
    for hit in hits:
        names = ", ".join(hit.sessions)
        _print(f"{names} entry {hit.place.seq}.{hit.place.ord}  {moment(hit.at_ms)}  {hit.role}", hit.text, wanted)


def _messages(text: str, limit: int, workspace: str | None, ledger: str | None) -> list[SearchHit]:
    with open_here(workspace, ledger) as nx, nx.store.snapshot():
        return list(nx.store.search(Query(text, "", (), limit)))


@command.command("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--under", default=SECTION, show_default=True, help="Heading that the fact goes under; made if need be.")
@click.option("--history", is_flag=True, help="Into the log, which is searched but not sent to the model.")
@click.option("--force", is_flag=True, help="Even if it looks as if it held a secret.")
@TIMEZONE
@common
def add(
    text: tuple[str, ...],
    under: str,
    timezone: str,
    workspace: str | None,
    ledger: str | None,  # noqa: ARG001 - every command takes it
    *,
    history: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Add the fact TEXT with today's date. `-` reads it from standard input. What is known already is refused.

    A text that begins with a dash goes behind `--`.

    Example: nexus memory add "Ana prefers the answer first." --under People
    """
    given = read_input() if text == ("-",) else " ".join(text)
    book = _notebook(workspace, timezone)
    done = book.append(given, force=force) if history else book.add(given, section=under, force=force)
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    click.echo(_told(done))
    for warning in done.warnings:
        click.echo(f"nexus: warning: {printable(warning)}", err=True)


def _told(done: AddedFact) -> str:
    what = f"Fact {done.number:,}" if done.number else "An entry"
    return f"{what} in {done.file}: {printable(done.at)} {_cut(done.text)}"


@command.command("forget")
@click.argument("what", nargs=-1, required=True)
@TIMEZONE
@common
def forget(
    what: tuple[str, ...],
    timezone: str,
    workspace: str | None,
    ledger: str | None,  # noqa: ARG001 - every command takes it
    *,
    as_json: bool,
) -> None:
    """Take a fact out and put it into the log. WHAT is its number as shown, or its exact text.

    Where more than one is meant nothing is changed, and the numbers are listed.

    Example: nexus memory forget 3
    """
    book = _notebook(workspace, timezone)
    fact = book.forget(" ".join(what))
    if as_json:
        emit({"forgotten": _values([fact])[0], "file": book.file, "log": book.log})
        return
    click.echo(f"Forgotten, and kept in {book.log}: {printable(fact.date)} {_cut(fact.text)}".replace(":  ", ": "))


def _values(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    return [{"number": one.number, "section": one.section, "date": one.date, "text": one.text} for one in facts]


def _cut(text: str) -> str:
    return beginning(text, TEXT_CHARS)


def _print(head: str, text: str, wanted: list[list[str]]) -> None:
    pieces = around(text, wanted) or [(beginning(text), False)]
    click.echo(printable(" ".join(head.split())))
    click.echo(f"    {''.join(piece for piece, _ in pieces)}")
