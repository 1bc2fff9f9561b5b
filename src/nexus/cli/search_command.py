"""`nexus search`: messages by their words, in all sessions or one."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import Struct

from nexus.cli.excerpt import Pieces, around, beginning
from nexus.cli.listing import NO_LEDGER, dotted, label_of, moment, quoted
from nexus.cli.shared import common, emit, open_here, plain_output
from nexus.engine import Engine
from nexus.ledger.search_text import parse_query
from nexus.ledger.sessions import Query, SearchHit
from nexus.render.console import printable


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-s", "--session", default="", help="Only in this session.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["user", "assistant", "tool", "system"]),
    help="Only messages of this role; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Messages at most.")
@click.option("--newest", is_flag=True, help="The newest first, not the best.")
@click.option("--all", "every", is_flag=True, help="Deleted sessions too.")
@common
def command(
    words: tuple[str, ...],
    session: str,
    roles: tuple[Any, ...],
    limit: int,
    workspace: str | None,
    ledger: str | None,
    *,
    newest: bool,
    every: bool,
    as_json: bool,
) -> None:
    """Find the messages that have all WORDS. Case and accents do not matter; what was compacted is found too.

    Words in double quotes stand side by side; in a shell: nexus search '"index rebuild" nightly'. Chinese, Japanese and
    Korean need no spaces.

    Example: nexus search index rebuild --session main --role user
    """
    text = " ".join(words)
    wanted = parse_query(text)
    if not wanted:
        raise click.UsageError("there is no word to search for: signs alone are not found")
    with open_here(workspace, ledger) as nx, nx.store.snapshot():
        label = label_of(nx, session) if session else ""
        order = "newest" if newest else "relevance"
        hits = nx.store.search(Query(text, label, roles, limit + 1, order=order, every=every))
        found = _found(nx, hits[:limit], label, wanted)
        absent = nx.store.place == NO_LEDGER
    if as_json:
        emit([_value(one) for one in found])
        return
    if not found:
        where = f" of session {quoted(label)}" if label else ""
        click.echo("There is no ledger yet." if absent else f"No message{where} has all of: {printable(text)}")
    for one in found:
        _print(one)
    if len(hits) > limit:
        click.echo(f"There are more than these {limit:,}; --limit shows more.")


class Found(Struct, frozen=True):
    """A hit with the sessions that have it, the status of each that is not active, and its excerpt."""

    hit: SearchHit
    sessions: tuple[str, ...]
    statuses: dict[str, str]
    excerpt: Pieces


def _found(nx: Engine, hits: list[SearchHit], label: str, wanted: list[list[str]]) -> list[Found]:
    """The hits as they are shown. `label` is the session that was asked for; it has every hit on its path."""
    found: list[Found] = []
    known: dict[str, str] = {}
    for hit in hits:
        names = hit.sessions
        names = (label, *(name for name in names if name != label)) if label else names
        known.update({name: nx.ledger.metadata(name).status for name in names if name not in known})
        hidden = {name: known[name] for name in names if known[name] != "active"}
        pieces = around(hit.text, wanted) or [(beginning(hit.text), False)]
        found.append(Found(hit, names, hidden, pieces))
    return found


def _value(one: Found) -> dict[str, Any]:
    excerpt = "".join(piece for piece, _ in one.excerpt)
    return {**msgspec.to_builtins(one.hit), "sessions": one.sessions, "excerpt": excerpt}


def _print(one: Found) -> None:
    hit, plain = one.hit, plain_output()
    names = [f"{printable(name)}{f' ({one.statuses[name]})' if name in one.statuses else ''}" for name in one.sessions]
    also = f" (also in {', '.join(names[1:])})" if len(names) > 1 else ""
    head = f"{also}  entry {dotted(hit.place)}  turn {hit.turn}  {hit.role}  {moment(hit.at_ms)}"
    first = names[0] if names else f"(thread {hit.thread} of no session)"
    excerpt = (
        piece if plain or not found else click.style(piece, fg="yellow", bold=True) for piece, found in one.excerpt
    )
    click.echo(f"{first if plain else click.style(first, fg='cyan', bold=True)}{head.rstrip()}")
    click.echo(f"    {''.join(excerpt)}")
