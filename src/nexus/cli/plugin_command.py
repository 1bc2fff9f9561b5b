"""`nexus plugin`: installed plugins with their hooks and errors."""

from __future__ import annotations

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit
from nexus.cli._tables import print_table
from nexus.plugins.hooks import Plugin


@click.group("plugin")
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """List plugins.

    Plugins are packages that add sources, event metadata, tools and profiles.

    Example: nexus plugin list
    """
    options.pass_on(ctx, command.commands)


@command.command("list")
@command_options
def list_(options: CommandOptions) -> None:
    """List the installed plugins and their hooks.

    The state names omitted hooks and the reason. Disabled plugins are not loaded.

    Example: nexus plugin list
    """
    with options.open() as nx:
        plugins = nx.hooks.plugins
    if options.as_json:
        emit(msgspec.to_builtins(plugins))
    elif not plugins:
        click.echo("No plugins: packages provide them under the entry point group `nexus` (docs/hooks.md).")
    else:
        print_table(("plugin", "from", "provides", "state"), map(_row, plugins), wraps=("provides", "state"))


def _row(plugin: Plugin) -> tuple[str, ...]:
    names = {"sources": plugin.sources, "profiles": plugin.profiles}
    hooks = (hook.removeprefix("nexus_") for hook in plugin.hooks)
    provides = [f"{hook} {', '.join(names[hook])}" if names.get(hook) else hook for hook in hooks]
    state = "disabled" if plugin.disabled else "; ".join(plugin.problems) or "ok"
    return plugin.name, plugin.distribution, "; ".join(provides), state
