"""`nexus mcp`: an MCP server over the sessions and the memory, and its entry in the configuration of clients.

A client waits for the server before its user can type, so the engine is loaded after the first answer: nothing heavier
than the SDK is imported here before.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from nexus import __version__
from nexus.cli._groups import DEFAULT_TENANT, TENANT_OPTION, RunGroup
from nexus.cli._parameters import Choice

if TYPE_CHECKING:  # they load the engine
    from nexus.adapters.mcp_server.callers import McpEngines
    from nexus.adapters.mcp_server.client_files import McpInstallation
    from nexus.cli._options import CommandOptions
    from nexus.engine.async_engine import AsyncEngine

ADDRESS = "127.0.0.1:8766"
CLIENTS = ("claude", "codex", "cursor")


@click.group("mcp", cls=RunGroup)
def command() -> None:
    """Serve past sessions and memory to any client of MCP, such as Claude Code, Codex or Cursor.

    Five tools: search and read messages, show what fills a context window, recall facts, and with --write remember them.
    Without a subcommand it is `nexus mcp run`, which a client starts by itself after `nexus mcp install`.

    Example: nexus mcp install claude
    """


@command.early_subcommand("run")
@click.option(
    "--http",
    is_flag=False,
    flag_value=ADDRESS,
    default="",
    metavar="[HOST:PORT]",
    help=f"Serve over HTTP instead of standard input and output; port 0 is a free one [{ADDRESS}].",
)
@click.option("--write", is_flag=True, help="Also offer the tool `remember`, which adds facts to memory.")
@click.option("--principal", default="", help="Show only the sessions of this principal [all].")
@TENANT_OPTION
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="File with lines `TOKEN TENANT PRINCIPAL` [~/.nexus/server.token].",
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address that other machines reach. Use TLS in front of it."
)
@click.option("--allow-host", multiple=True, help="Name of this server in the Host header; repeatable.")
@click.option("--allow-origin", multiple=True, help="Site whose pages may call this server; repeatable.")
def run(
    *,
    http: str,
    write: bool,
    principal: str,
    tenant: str,
    token_file: str | None,
    allow_remote: bool,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    **places: Any,
) -> None:
    """Serve until the client closes standard input; with --http until SIGTERM or Ctrl-C.

    Over HTTP a token decides whose sessions are shown; the first start writes one to ~/.nexus/server.token.

    Example: nexus mcp run --http 127.0.0.1:8766 --write
    """
    options = partial(_options, places)
    if http:
        _serve_http(
            HttpOptions(http, token_file, allow_remote, allow_host, allow_origin), options, principal, writes=write
        )
        return
    if token_file or allow_remote or allow_host or allow_origin:
        raise click.UsageError("--token-file and the options that begin with --allow need --http")
    asyncio.run(_serve_stdio(options, tenant, principal, writes=write))


def _options(places: dict[str, Any]) -> CommandOptions:
    """Return the shared options of a command. This loads the engine."""
    from nexus.cli._options import CommandOptions

    return CommandOptions(**{name: value for name, value in places.items() if value is not None})


class HttpOptions(NamedTuple):
    """Values of the options for HTTP."""

    address: str
    token_file: str | None
    allow_remote: bool
    allow_host: tuple[str, ...]
    allow_origin: tuple[str, ...]


def _engines(options: Callable[[], CommandOptions], *, is_local: bool, has_memory: bool) -> McpEngines:
    """Return the engines of the tenants, which are opened when they are needed. They never write to a ledger.

    `is_local`: the caller is the local user, with the profile of the home folder.
    """
    from nexus.adapters.mcp_server.callers import McpEngines

    def open_tenant(tenant: str) -> AsyncEngine:
        from nexus.engine.async_engine import AsyncEngine

        chosen = replace(options(), tenant=tenant)
        return AsyncEngine(chosen.open(local_user=is_local))

    def is_current(nx: AsyncEngine) -> bool:
        from nexus.cli._sessions import NO_LEDGER

        chosen = options()
        return nx.engine.ledger.location != NO_LEDGER or bool(chosen.ledger_url) or not chosen.ledger_file.exists()

    return McpEngines(open_tenant, is_current, has_memory=has_memory)


async def _serve_stdio(options: Callable[[], CommandOptions], tenant: str, principal: str, *, writes: bool) -> None:
    from nexus.adapters.mcp_server.server import McpCaller, mcp_server, serve_stdio

    engines = _engines(options, is_local=not principal, has_memory=True)
    caller = McpCaller(partial(engines.denial, tenant, principal), partial(engines.call, tenant, principal))

    async def find_caller(_: object) -> McpCaller:
        return caller

    try:
        await serve_stdio(mcp_server(find_caller, __version__, writes=writes))
    finally:
        await engines.close()


def _serve_http(http: HttpOptions, options: Callable[[], CommandOptions], principal: str, *, writes: bool) -> None:
    from nexus.adapters.mcp_server.http import PATH, owner_of, serve_mcp_http
    from nexus.adapters.mcp_server.server import McpCaller, mcp_server
    from nexus.cli._output import emit
    from nexus.render.console import printable
    from nexus.server.http import open_socket, url_of
    from nexus.server.security import TOKEN_FILE, make_token_file, read_tokens
    from nexus.workspace.files.reader import home_folder

    host, port = _host_and_port(http.address)
    file = Path(http.token_file).expanduser() if http.token_file else home_folder() / TOKEN_FILE
    if http.token_file is None:
        make_token_file(file)
    tokens = read_tokens(file, with_principals=True)
    chosen = options()
    if not chosen.root.is_dir():
        raise click.UsageError(f"folder {chosen.root} not found (name a workspace with -w)")
    listener = open_socket(host, port, allow_remote=http.allow_remote)
    url = f"{url_of(listener)}{PATH}"

    def started() -> None:
        if chosen.as_json:
            emit({"url": url, "token_file": str(file), "pid": os.getpid()})
        else:
            click.echo(f"Nexus serves MCP at {url}. Token: in {printable(str(file))}. Stop with Ctrl-C.")
        sys.stdout.flush()

    async def serve() -> None:
        engines = _engines(options, is_local=False, has_memory=len(tokens.owners) == 1)

        async def find_caller(ctx: Any) -> McpCaller:
            owner = owner_of(ctx.request)
            who = owner.principal or principal
            return McpCaller(partial(engines.denial, owner.tenant, who), partial(engines.call, owner.tenant, who))

        await serve_mcp_http(
            mcp_server(find_caller, __version__, writes=writes),
            tokens,
            listener,
            hosts=(host, *http.allow_host),
            origins=http.allow_origin,
            started=started,
            stop_work=engines.close,
        )

    asyncio.run(serve())


def _host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address; a port alone is one of this machine. Raises UsageError."""
    host, colon, port = address.rpartition(":")
    if not colon and not port.isdecimal():
        host, port = address, ADDRESS.rpartition(":")[2]
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise click.UsageError(f"--http {address!r} is not HOST:PORT, such as {ADDRESS}")
    return host.strip("[]") or "127.0.0.1", int(port)


# configuration of clients ---------------------------------------------------------------------------------------------


@command.early_subcommand("install")
@click.argument("client", type=Choice(CLIENTS))
@click.option("--write", is_flag=True, help="Let the client remember facts too.")
@click.option("--principal", default="", help="Show only the sessions of this principal [all].")
@TENANT_OPTION
@click.option("--print", "prints_only", is_flag=True, help="Only print what would be written.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def install(
    *, client: str, write: bool, principal: str, tenant: str, prints_only: bool, yes: bool, **places: Any
) -> None:
    """Add the server to the configuration of CLIENT: claude, codex or cursor.

    What is written is shown first. Without a terminal and without --yes nothing is written. With -w or --ledger it always
    shows these sessions, otherwise those of the folder in which the client runs.

    Example: nexus mcp install claude --ledger ~/.nexus/proxy.db
    """
    from nexus.adapters.mcp_server.client_files import add_entry, plan_entry
    from nexus.cli._output import emit
    from nexus.render.console import printable
    from nexus.workspace.files.reader import home_folder

    options = _options(places)
    line = _server_line(options, tenant, principal, writes=write)
    change = plan_entry(client, line, home_folder(), os.environ, Path.home())
    new = change.installation
    is_there = change.before == change.after
    if not options.as_json and not is_there:
        click.echo(f"{printable(new.file)} gets:")
        for row in _entry_rows(new):
            click.echo(f"  {printable(row)}")
    writes_now = not is_there and not prints_only and (yes or _is_confirmed(options))
    if writes_now:
        add_entry(change, home_folder())
    leave = f"nexus mcp uninstall {client}"
    if options.as_json:
        emit(
            {
                "client": client,
                "file": new.file,
                "command": line,
                "written": writes_now,
                "installed": writes_now or is_there,
            }
        )
    elif is_there:
        click.echo(f"{client} has this server already: nothing to write. To leave: {leave}")
    elif writes_now:
        click.echo(f"Written. {client} starts the server by itself, from its next start on. To leave: {leave}")
    else:
        click.echo("Nothing was written." if prints_only else "Nothing was written (to write it: add --yes).")


@command.early_subcommand("uninstall")
@click.argument("client", type=Choice(CLIENTS))
def uninstall(*, client: str, **places: Any) -> None:
    """Take back what `install` wrote for CLIENT (claude, codex or cursor), unless it was changed since.

    Example: nexus mcp uninstall claude
    """
    from nexus.adapters.mcp_server.client_files import plan_entry_removal, remove_entry
    from nexus.cli._output import emit
    from nexus.render.console import printable
    from nexus.workspace.files.reader import home_folder

    change = plan_entry_removal(client, home_folder())
    remove_entry(change, home_folder())
    file = change.installation.file
    if _options(places).as_json:
        emit({"client": client, "file": file, "left": change.is_left})
    elif change.is_left:
        click.echo(f"Left as it is, because it was changed since: the server nexus in {printable(file)}.")
    else:
        click.echo(f"Taken back from {printable(file)}. {client} no longer starts the server.")


def _server_line(options: CommandOptions, tenant: str, principal: str, *, writes: bool) -> list[str]:
    """Return the command line with which a client starts the server."""
    script = Path(sys.executable).with_name("nexus")
    line = [str(script)] if script.exists() else [sys.executable, "-m", "nexus"]
    line.append("mcp")
    if options.workspace:
        line += ["--workspace", str(options.root.resolve())]
    if options.typed_ledger is not None and options.ledger_url:
        line += ["--ledger", options.ledger_url]
    elif options.ledger and not options.ledger_url:
        line += ["--ledger", str(options.ledger_file.resolve())]
    if tenant != DEFAULT_TENANT:
        line += ["--tenant", tenant]
    if principal:
        line += ["--principal", principal]
    if writes:
        line.append("--write")
    return line


def _entry_rows(installation: McpInstallation) -> list[str]:
    """Return the lines that show an entry."""
    if installation.client == "codex":
        return installation.entry.strip().splitlines()
    return [f'"mcpServers": {{"nexus": {installation.entry}}}']


def _is_confirmed(options: CommandOptions) -> bool:
    """Ask on a terminal; False without one."""
    if options.as_json or sys.stdin is None or not sys.stdin.isatty():
        return False
    return click.confirm("Write it? All else in the file stays as it is", err=True)
