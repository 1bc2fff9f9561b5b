"""`nexus config`: every setting with the source of its value, the MCP servers, and warnings about the files."""

from __future__ import annotations

from typing import Any, cast

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit, print_warning
from nexus.cli._tables import print_table
from nexus.errors import WorkspaceMissing
from nexus.render.console import printable
from nexus.workspace.config import read_configuration, values_of


@click.group("config", invoke_without_command=True)
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """Show the configuration: each value with the file, variable or default that it comes from.

    Example: nexus config show
    """
    options.pass_on(ctx, ["show"])
    if ctx.invoked_subcommand is None:
        _show(options)


@command.command("show")
@command_options
def show(options: CommandOptions) -> None:
    """Show the configuration.

    The output has every value with its source, the files, the MCP servers and all warnings.

    Example: nexus config show --json
    """
    _show(options)


def _show(options: CommandOptions) -> None:
    root = options.root.resolve()
    if not root.is_dir():
        raise WorkspaceMissing(f"workspace '{root}' not found (create it: nexus init {root})")
    configuration = read_configuration(root)
    values, sources, servers = values_of(configuration.config), configuration.origins, configuration.servers
    if options.as_json:
        emit(
            {
                "workspace": str(root),
                "values": {key: {"value": value, "from": sources[key]} for key, value in values.items()},
                "files": list(configuration.files),
                "mcp_servers": {
                    server.name: {
                        "command": server.command,
                        "args": list(server.args),
                        "url": server.url,
                        "type": server.type,
                        "cwd": server.cwd,
                        # Values of variables and headers may be secrets and are never shown.
                        "env": sorted(server.env),
                        "headers": sorted(server.headers),
                        "from": server.origin,
                    }
                    for server in servers
                },
                "warnings": msgspec.to_builtins(configuration.warnings),
            }
        )
        return
    rows = [(key, _display(value), sources[key]) for key, value in values.items()]
    print_table(("setting", "value", "from"), rows, wraps=("value", "from"))
    click.echo(f"\nFiles read: {printable(', '.join(configuration.files)) or 'none'}")
    if servers:
        click.echo()
        server_rows = [
            (
                server.name,
                server.url or " ".join((server.command, *server.args)),
                ", ".join(sorted((*server.env, *server.headers))),
                server.origin,
            )
            for server in servers
        ]
        names = ("MCP server", "command or address", "variables and headers", "from")
        print_table(names, server_rows, wraps=("command or address",))
    for warning in configuration.warnings:
        print_warning(warning, err=False)


def _display(value: object) -> str:
    """Return a value as text; empty ones in words."""
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[Any, ...]", value))) or "(none)"
    return f"{value:,}" if type(value) is int else str(value) or "(not set)"
