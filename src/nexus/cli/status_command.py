"""`nexus init`, `status`, `config show` and `config plugins`: a workspace, its environment, its settings and its plugins."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, cast

import click
from msgspec.structs import replace

from nexus.cli._listing import Column, Listing, wrapped
from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._output import emit, plain_output, print_lines, print_warning
from nexus.engine import open_engine
from nexus.errors import NotFound
from nexus.interop.readers import PluginReaders, add_readers
from nexus.ledger.location import LEDGER_FILE
from nexus.render.console import printable
from nexus.workspace.config import read_configuration, values_of
from nexus.workspace.plugins.hooks import Plugin
from nexus.workspace.prompts import templates
from nexus.workspace.sources.session_blocks import capability_lines, credentials_line
from nexus.workspace.sources.skills import discover_skills

UNUSABLE = Listing(Column("skill"), wrapped("reason"))
SETTINGS = Listing(Column("setting"), wrapped("value"), wrapped("from"))
SERVERS = Listing(
    Column("MCP server", "name"),
    wrapped("command or address", lambda server: server.url or " ".join((server.command, *server.args))),
    Column("variables and headers", lambda server: ", ".join(sorted((*server.env, *server.headers)))),
    Column("from", "origin"),
)


@nexus_command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False))
def init(folder: str | None, options: CommandOptions) -> None:
    """Create a workspace in FOLDER [the current folder]: starter files and a ledger. Existing files stay as they are."""
    root = Path(folder or options.workspace or ".").expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        written = _write_templates(root)
    except OSError as error:
        raise NotFound(
            f"workspace '{root}' not created: {error.filename}: {error.strerror or error}", code="workspace_missing"
        ) from error
    open_engine(root, ledger=options.ledger).close()
    if options.ledger_url:
        ledger = options.ledger_place
    else:
        ledger = str(options.ledger or root / LEDGER_FILE)
    chat = "nexus chat"
    if folder:
        chat = f"nexus chat -w {shlex.quote(printable(folder))}"
    options.report(
        {"workspace": str(root), "written": written, "ledger": ledger},
        f"Workspace {printable(str(root))}",
        *(f"  wrote {name}" for name in written),
        f"  ledger {printable(ledger)}",
        f"Edit the files (unchanged ones are ignored), then: {chat}",
    )


def _write_templates(root: Path) -> list[str]:
    """Write the missing starter files and return their names. Links out of the folder are not followed."""
    has_skills = (root / "skills").is_dir()
    written: list[str] = []
    for name, text in templates().items():
        if has_skills and name.startswith("skills/"):
            continue
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.parent.resolve().is_relative_to(root):
            continue
        try:
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
        except FileExistsError:
            continue
        written.append(name)
    return written


@nexus_command("status")
@click.option("--brief", is_flag=True, help="Show only the summary that an agent receives.")
def command(options: CommandOptions, brief: bool) -> None:
    """Show the environment: tools, credentials, missing requirements, and skills that cannot be used and why.

    The check runs now; it starts no program and does not read the keyring.

    Example: nexus status --brief
    """
    with options.open() as nx:
        environment = nx.preparation.refresh_environment()
        warnings = [*discover_skills(nx.workspace_context).warnings, *environment.warnings]
        workspace = nx.workspace or Path()
        model = nx.model
    capabilities = [f"  {line}" for line in capability_lines(environment, plain=plain_output())]
    summary = ["Capabilities", *capabilities, "", "Credentials", f"  {credentials_line(environment)}"]
    condensed: dict[str, Any] = {
        "capabilityCount": len(environment.capabilities),
        "snapshotAt": environment.at_ms,
        "capabilities": environment.groups(),
        "credentials": {"configured": environment.credentials, "broken": environment.broken},
    }
    if brief:
        options.report(condensed, *summary)
        return
    if options.ledger and not options.ledger_url:
        ledger = options.ledger_file
    else:
        ledger = workspace / LEDGER_FILE
    is_created = bool(options.ledger_url) or ledger.exists()
    if options.ledger_url:
        place = options.ledger_place
    else:
        place = str(ledger)
    places = {"workspace": str(workspace), "ledger": place, "model": model}
    unusable = sorted((item.skill, item.why) for item in environment.capabilities if item.why)
    if options.as_json:
        details = {
            "capabilities": environment.capabilities,
            "unusable": [{"skill": skill, "why": reasons} for skill, reasons in unusable],
            "warnings": warnings,
        }
        emit({**places, **condensed, **details})
        return
    for name, value in places.items():
        note = ""
        if name == "ledger" and not is_created:
            note = " (not created yet)"
        click.echo(f"{name:<12}{printable(value)}{note}")
    print_lines(["", *summary])
    if unusable:
        click.echo("\nSkills that cannot be used")
        UNUSABLE.print_rows([{"skill": skill, "reason": reason} for skill, reasons in unusable for reason in reasons])
    if warnings:
        click.echo("\nWarnings")
        print_lines(f"  {printable(warning.source)}: {printable(warning.message)}" for warning in warnings)


@nexus_command("show")
def show(options: CommandOptions) -> None:
    """Show each setting with its source.

    That is a file, a variable or the default. Below are the files, the MCP servers and all warnings.

    Example: nexus config show --json
    """
    root = options.root.resolve()
    if not root.is_dir():
        raise NotFound(f"workspace '{root}' not found (create it: nexus init {root})", code="workspace_missing")
    configuration = read_configuration(root)
    values = values_of(configuration.config)
    sources = configuration.origins
    servers = configuration.servers
    if options.as_json:
        emit(
            {
                "workspace": str(root),
                "values": {key: {"value": value, "from": sources[key]} for key, value in values.items()},
                "files": configuration.files,
                "mcp_servers": {
                    server.name: {
                        "command": server.command,
                        "args": server.args,
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
                "warnings": configuration.warnings,
            }
        )
        return
    SETTINGS.print_rows(
        [{"setting": key, "value": _display(value), "from": sources[key]} for key, value in values.items()]
    )
    click.echo(f"\nFiles read: {printable(', '.join(configuration.files)) or 'none'}")
    if servers:
        click.echo()
        SERVERS.print_rows(servers)
    for warning in configuration.warnings:
        print_warning(warning, err=False)


def _display(value: object) -> str:
    """Return a value as text; empty ones in words."""
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[Any, ...]", value))) or "(none)"
    if type(value) is int:
        return f"{value:,}"
    if value in (None, ""):
        return "(not set)"
    return str(value)


@nexus_command("plugins")
def plugins(options: CommandOptions) -> None:
    """List the installed plugins with their hooks.

    They add sources, event metadata, tools, profiles, formats and readers. The state names omitted hooks and the reason. Disabled plugins are not loaded.

    Example: nexus config plugins
    """
    with options.open() as nx:
        readers = add_readers(nx.preparation.hooks)
        installed = [_with_readers(plugin, readers.get(plugin.name)) for plugin in nx.preparation.hooks.plugins]
    PLUGINS.print(installed, options)


def _with_readers(plugin: Plugin, added: PluginReaders | None) -> Plugin:
    if added is None or "nexus_readers" not in plugin.hooks:
        return plugin
    return replace(plugin, readers=tuple(added.names), problems=(*plugin.problems, *added.problems))


def _provides(plugin: Plugin) -> str:
    names = {
        "sources": plugin.sources,
        "profiles": plugin.profiles,
        "formats": plugin.formats,
        "readers": plugin.readers,
    }
    hooks = (hook.removeprefix("nexus_") for hook in plugin.hooks)
    return "; ".join(f"{hook} {', '.join(names[hook])}" if names.get(hook) else hook for hook in hooks)


PLUGINS = Listing(
    Column("plugin", "name"),
    Column("from", "distribution"),
    wrapped("provides", _provides),
    wrapped("state", lambda plugin: "disabled" if plugin.disabled else "; ".join(plugin.problems) or "ok"),
    empty="No plugins: packages provide them under the entry point group `nexus` (docs/hooks.md).",
)
