"""`nexus config`: every setting with where its value comes from, the MCP servers, and what is wrong with the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from nexus.cli.shared import common, emit, handed_down, nearest_workspace
from nexus.cli.table import print_table
from nexus.errors import WorkspaceMissing
from nexus.render.console import printable
from nexus.workspace.config.load import Configuration, read_configuration, values_of
from nexus.workspace.environment.mcp import McpServer


@click.group("config", invoke_without_command=True)
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show the configuration: each value and the file, variable or default that it comes from.

    Example: nexus config show
    """
    handed_down(ctx, ["show"], workspace, ledger, as_json=as_json)
    if ctx.invoked_subcommand is None:
        _show(workspace, as_json=as_json)


@command.command("show")
@common
def show(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - every command takes it
    """Show every value with its origin, the files that were read, the MCP servers and all warnings.

    Example: nexus config show --json
    """
    _show(workspace, as_json=as_json)


def _show(workspace: str | None, *, as_json: bool) -> None:
    root = (Path(workspace).expanduser() if workspace else nearest_workspace(Path.cwd())).resolve()
    if not root.is_dir():
        raise WorkspaceMissing(f"there is no folder {root}; `nexus init {root}` makes a workspace")
    found = read_configuration(root)
    if as_json:
        emit(_plain(root, found))
        return
    values = values_of(found.config)
    rows = [(key, _told(values[key]), found.origins[key]) for key in values]
    print_table(("setting", "value", "from"), rows, wraps=("value", "from"))
    click.echo(f"\nFiles read: {printable(', '.join(found.files)) or 'none'}")
    if found.servers:
        click.echo()
        servers = [
            (one.name, one.url or " ".join((one.command, *one.args)), _secret_names(one), one.origin)
            for one in found.servers
        ]
        print_table(
            ("MCP server", "command or address", "variables and headers", "from"),
            servers,
            wraps=("command or address",),
        )
    for warned in found.warnings:
        click.echo(f"Warning: {printable(warned.source)}: {printable(warned.message)}")


def _told(value: Any) -> str:
    """A value for a person; empty ones as such."""
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[Any, ...]", value))) or "(none)"
    return f"{value:,}" if type(value) is int else str(value) or "(not set)"


def _secret_names(server: McpServer) -> str:
    """The names of what may hold secrets; the values are never shown."""
    return ", ".join(sorted((*server.env, *server.headers)))


def _plain(root: Path, found: Configuration) -> dict[str, Any]:
    values = values_of(found.config)
    return {
        "workspace": str(root),
        "values": {key: {"value": value, "from": found.origins[key]} for key, value in values.items()},
        "files": list(found.files),
        "mcp_servers": {
            one.name: {
                "command": one.command,
                "args": list(one.args),
                "url": one.url,
                "type": one.type,
                "cwd": one.cwd,
                "env": sorted(one.env),
                "headers": sorted(one.headers),
                "from": one.origin,
            }
            for one in found.servers
        },
        "warnings": [{"origin": one.source, "text": one.message} for one in found.warnings],
    }
