"""`nexus search`: messages by their words, in all sessions or one."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from nexus.cli._options import NO_LEDGER, CommandOptions, command_options, resolve_session
from nexus.cli._output import Pieces, emit, excerpt, format_ref, format_time, plain_output, quoted
from nexus.ledger.search_text import parse_query
from nexus.ledger.sessions import SearchHit
from nexus.render.console import printable


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-s", "--session", default="", help="Only in this session.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["user", "assistant", "tool", "system"]),
    help="Only messages of this role; repeatable.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Number of messages.")
@click.option("--newest", is_flag=True, help="Newest first instead of best first.")
@click.option("--all", "every", is_flag=True, help="Also search deleted sessions.")
@command_options
def command(
    words: tuple[str, ...],
    session: str,
    roles: tuple[Any, ...],
    limit: int,
    options: CommandOptions,
    *,
    newest: bool,
    every: bool,
) -> None:
    """Find the messages that have all WORDS.

    Compacted messages are searched too. Case and accents are ignored. Words in double quotes form a phrase; in a shell: nexus search '"index rebuild" nightly'. Chinese, Japanese and
    Korean need no spaces.

    Example: nexus search index rebuild --session main --role user
    """
    text = " ".join(words)
    phrases = parse_query(text)
    if not phrases:
        raise click.UsageError("no words in the query: punctuation alone is not searched")
    with options.open() as nx, nx.ledger.snapshot():
        label = resolve_session(nx, session) if session else ""
        order = "newest" if newest else "relevance"
        hits = nx.ledger.search(text, session=label, roles=roles, limit=limit + 1, order=order, every=every)
        names = {name for hit in hits for name in _sessions(hit, label)}
        statuses = {name: nx.ledger.metadata(name).status for name in names}
        has_ledger = nx.ledger.place != NO_LEDGER
    if options.as_json:
        emit([_json_value(hit, label, phrases) for hit in hits[:limit]])
        return
    if not hits:
        where = f" in session {quoted(label)}" if label else ""
        click.echo(f"No matches{where} for: {printable(text)}" if has_ledger else "No ledger yet.")
    for hit in hits[:limit]:
        _print(hit, _sessions(hit, label), statuses, excerpt(hit.text, phrases))
    if len(hits) > limit:
        click.echo(f"More than {limit:,} messages match (--limit shows more).")


def _sessions(hit: SearchHit, label: str) -> tuple[str, ...]:
    """Return the sessions that have a message, first the one that was searched, which has every hit on its path."""
    return (label, *(name for name in hit.sessions if name != label)) if label else hit.sessions


def _json_value(hit: SearchHit, label: str, phrases: list[list[str]]) -> dict[str, Any]:
    text = "".join(piece for piece, _ in excerpt(hit.text, phrases))
    return {**msgspec.to_builtins(hit), "sessions": _sessions(hit, label), "excerpt": text}


def _print(hit: SearchHit, sessions: tuple[str, ...], statuses: dict[str, str], pieces: Pieces) -> None:
    plain = plain_output()
    names = [
        f"{printable(name)} ({statuses[name]})" if statuses.get(name, "active") != "active" else printable(name)
        for name in sessions
    ]
    also = f" (also in {', '.join(names[1:])})" if len(names) > 1 else ""
    head = f"{also}  entry {format_ref(hit.place)}  turn {hit.turn}  {hit.role}  {format_time(hit.at_ms)}"
    first = names[0] if names else f"(thread {hit.thread} without a session)"
    text = (piece if plain or not match else click.style(piece, fg="yellow", bold=True) for piece, match in pieces)
    click.echo(f"{first if plain else click.style(first, fg='cyan', bold=True)}{head.rstrip()}")
    click.echo(f"    {''.join(text)}")
