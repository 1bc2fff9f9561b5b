"""`nexus config tools`: the tools that an agent of the workspace has, built-in ones and MCP servers' tools."""

from __future__ import annotations

import asyncio

import click

from nexus.agents.mcp_tools import McpTools, configured_servers, open_mcp_tools
from nexus.agents.tools import ToolContext, builtin_tools
from nexus.cli._listing import Column, Listing, wrapped
from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._output import print_warning
from nexus.engine import Engine, open_engine

TOOLS = Listing(
    Column("tool", "name"),
    Column("category"),
    wrapped("purpose", lambda tool: tool.description.partition("\n")[0]),
)


@nexus_command("tools")
@click.option("--mcp", "with_servers", is_flag=True, help="Also start your MCP servers and list their tools.")
@click.option(
    "--workspace-servers", is_flag=True, help="Also start the workspace's MCP servers, which others may have chosen."
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds per server."
)
def command(options: CommandOptions, with_servers: bool, workspace_servers: bool, timeout_s: float) -> None:
    """List the tools that an agent has.

    Each has its category and purpose. MCP servers are programs that this starts and stops; one that fails is a warning. --json has the definitions.

    Example: nexus config tools --mcp
    """
    with open_engine(options.root, ledger=":memory:") as nx:
        registry = builtin_tools(ToolContext(nx, "main", request_compaction=lambda _focus: None))
        servers = None
        if with_servers or workspace_servers:
            servers = asyncio.run(_server_tools(nx, workspace_servers, timeout_s))
    if servers is not None:
        registry.include(servers.registry)
    warnings = servers.warnings if servers is not None else ()
    TOOLS.print(list(registry.tools()), options, document={"tools": registry.offers(), "warnings": warnings})
    if not options.as_json:
        for warning in warnings:
            print_warning(warning)


async def _server_tools(nx: Engine, workspace_servers: bool, timeout_s: float) -> McpTools:
    """Return the tools of the configured servers. They can be listed, but not called any more."""
    servers = configured_servers(nx)
    connection = open_mcp_tools(
        servers, nx.credentials, workspace_servers=workspace_servers, connect_timeout_s=timeout_s
    )
    async with connection as tools:
        return tools
