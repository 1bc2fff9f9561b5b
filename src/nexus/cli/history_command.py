"""`nexus history`: everything that was said, whatever was cut or compacted."""

from __future__ import annotations

import click

from nexus.cli.shared import common, emit, open_here, plain_output
from nexus.render.console import console_lines, markdown_lines
from nexus.render.export import as_anthropic, as_openai, as_values


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
@common
def command(session: str, form: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show all messages of SESSION."""
    with open_here(workspace, ledger) as nx:
        entries = nx.entries(session)
    if form == "openai":
        emit(as_openai(entries))
    elif form == "anthropic":
        emit(as_anthropic(entries))
    elif as_json:
        emit(as_values(entries))
    elif form == "markdown":
        click.echo("\n".join(markdown_lines(entries)))
    else:
        click.echo("\n".join(console_lines(entries, plain=plain_output())))
