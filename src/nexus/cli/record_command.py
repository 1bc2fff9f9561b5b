"""`nexus record`: the reply to an assembled context, with the cut and the manifest of the call."""

from __future__ import annotations

from typing import Any, cast

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options, read_json
from nexus.cli._output import emit, quoted
from nexus.errors import BadContext
from nexus.render.context_json import from_json


@click.command("record")
@click.argument("context", type=click.Path(dir_okay=False))
@click.argument("reply", type=click.Path(dir_okay=False))
@command_options
def command(context: str, reply: str, options: CommandOptions) -> None:
    """Store a turn: CONTEXT (from `assemble --save`) and REPLY (a provider's complete response, as JSON)."""
    saved = read_json(context)
    if not isinstance(saved, dict):
        raise BadContext(f"'{context}' not readable as a context (save one with `nexus assemble --save`)")
    ctx = from_json(cast("dict[str, Any]", saved))
    with options.open(writes=True) as nx:
        committed = nx.record(ctx, read_json(reply))
    session = quoted(ctx.session_label)
    if options.as_json:
        emit({"session": ctx.session_label, **msgspec.to_builtins(committed)})
    elif committed.added:
        cut = " and the cut" if ctx.cut else ""
        click.echo(f"Recorded turn {committed.turn}{cut} in session {session}; its head is entry {committed.head}.")
    else:
        click.echo("Nothing new: this context and reply were recorded before.")
