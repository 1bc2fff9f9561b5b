"""`nexus record`: the reply to an assembled context, with its cut and manifest."""

from __future__ import annotations

from typing import Any, cast

import click
import msgspec

from nexus.cli.listing import quoted
from nexus.cli.shared import common, emit, open_here, read_json
from nexus.errors import BadContext
from nexus.render.context_json import from_json
from nexus.render.renderers import RENDERERS


@click.command("record")
@click.argument("context", type=click.Path(dir_okay=False))
@click.argument("reply", type=click.Path(dir_okay=False))
@common
def command(context: str, reply: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Store the turn of CONTEXT (from `assemble --save`) and REPLY (a provider's whole response, as JSON)."""
    saved = read_json(context)
    if not isinstance(saved, dict):
        raise BadContext(f"{context} holds no context that `nexus assemble --save` wrote")
    ctx = from_json(cast("dict[str, Any]", saved), RENDERERS)
    with open_here(workspace, ledger, writes=True) as nx:
        done = nx.record(ctx, read_json(reply))
    if as_json:
        emit({"session": ctx.session_label, **msgspec.to_builtins(done)})
    elif done.added:
        cut = " and the cut" if ctx.cut else ""
        click.echo(
            f"Recorded turn {done.turn}{cut} in session {quoted(ctx.session_label)}; its head is entry {done.head}."
        )
    else:
        click.echo("Nothing new: this context and reply were recorded before.")
