"""`nexus history`: everything that was said, whatever was cut or compacted; or what a compaction left to be shown."""

from __future__ import annotations

import click
from msgspec.structs import replace

from nexus.cli.listing import label_of
from nexus.cli.shared import common, emit, open_here, plain_output
from nexus.engine import Engine
from nexus.fit.window import SUMMARY_MARKER
from nexus.ledger.entries import STEPS, Entry, Place, Row
from nexus.message import user
from nexus.render.console import console_lines, markdown_lines
from nexus.render.export import as_anthropic, as_openai, as_values
from nexus.size import Size


@click.command("history")
@click.argument("session")
@click.option(
    "--as",
    "form",
    type=click.Choice(["console", "openai", "anthropic", "markdown"]),
    default="console",
    show_default=True,
    help="Form of the output.",
)
@click.option("--compacted", is_flag=True, help="Begin with the summary that holds, then only what it kept.")
@click.option("--entry-numbers", is_flag=True, help="Show the places that fork, rewind and pin take (console form).")
@common
def command(
    session: str,
    form: str,
    workspace: str | None,
    ledger: str | None,
    *,
    compacted: bool,
    entry_numbers: bool,
    as_json: bool,
) -> None:
    """Show all messages of SESSION.

    Example: nexus history main --entry-numbers
    """
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, session)
        entries = _compacted(nx, label) if compacted else nx.entries(label)
    if form in ("openai", "anthropic"):
        said = _with_summary(entries) if compacted else entries
        emit(as_openai(said) if form == "openai" else as_anthropic(said))
    elif as_json:
        emit(as_values(entries))
    elif form == "markdown":
        click.echo("\n".join(markdown_lines(entries)))
    else:
        click.echo("\n".join(console_lines(entries, plain=plain_output(), numbered=entry_numbers)))


def _compacted(nx: Engine, session: str) -> list[Entry]:
    """The compaction that holds, if any, then the steps from what it kept on; after a clear, those that follow it."""
    with nx.store.snapshot():
        mark = nx.ledger.live(session).mark
        first = nx.ledger.visible(session).first_seq
        kept = [entry for entry in nx.ledger.entries(session, first - 1) if entry.kind in STEPS]
    return [mark, *kept] if mark is not None and mark.kind == "compaction" else kept


def _with_summary(entries: list[Entry]) -> list[Entry]:
    """The entries with the summary as the user's message that a call is shown."""
    if not entries or entries[0].kind != "compaction":
        return entries
    summary = user(f"{SUMMARY_MARKER}\n{entries[0].body.get('summary', '')}")
    return [replace(entries[0], rows=(Row(Place(entries[0].seq, 0), summary, Size(0, 0, 0)),)), *entries[1:]]
