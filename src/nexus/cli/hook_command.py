"""`nexus hook`: the plugins that add to contexts."""

from __future__ import annotations

import click
import msgspec

from nexus.cli.shared import common, emit, handed_down, open_here
from nexus.cli.table import print_table
from nexus.plugins.hooks import Plugin


@click.group("hook")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Look at plugins: other packages that add sources, data of the moment, tools and profiles to contexts.

    Example: nexus hook list
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("list")
@common
def listed(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the plugins that are installed, what each offers, and what of it is left out. A disabled one is not loaded.

    Example: nexus hook list
    """
    with open_here(workspace, ledger) as nx:
        plugins = nx.hooks.plugins
    if as_json:
        emit(msgspec.to_builtins(plugins))
        return
    if not plugins:
        click.echo("No plugins: a package offers one under the entry point group `nexus` (docs/hooks.md).")
        return
    print_table(("plugin", "from", "offers", "state"), map(_row, plugins), wraps=("offers", "state"))


def _row(plugin: Plugin) -> tuple[str, ...]:
    offers = [hook.removeprefix("nexus_") for hook in plugin.hooks]
    named = {"sources": plugin.sources, "profiles": plugin.profiles}
    shown = [f"{what} {', '.join(named[what])}" if named.get(what) else what for what in offers]
    state = "disabled" if plugin.disabled else "; ".join(plugin.troubles) or "ok"
    return plugin.name, plugin.place, "; ".join(shown), state
