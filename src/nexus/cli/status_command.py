"""`nexus status`: the environment: workspace, ledger, model, tools, credentials, missing requirements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit, plain_output
from nexus.cli._tables import print_table
from nexus.engine import LEDGER_FILE
from nexus.render.console import printable
from nexus.workspace.sources.session_blocks import capability_lines, credentials_line
from nexus.workspace.sources.skills import discover_skills


@click.command("status")
@click.option("--brief", is_flag=True, help="Show only the summary that an agent receives.")
@command_options
def command(options: CommandOptions, *, brief: bool) -> None:
    """Show the environment: tools, credentials, missing requirements, and skills that cannot be used and why.

    The check runs now; it starts no program and does not read the keyring.

    Example: nexus status --brief
    """
    with options.open() as nx:
        environment = nx.refresh_environment()
        warnings = [*discover_skills(nx.workspace_context).warnings, *environment.warnings]
        workspace, model = nx.workspace or Path(), nx.model
    lines = capability_lines(environment, plain=plain_output())
    summary = [
        "Capabilities",
        *(f"  {line}" for line in lines),
        "",
        "Credentials",
        f"  {credentials_line(environment)}",
    ]
    condensed: dict[str, Any] = {
        "capabilityCount": len(environment.capabilities),
        "snapshotAt": environment.at_ms,
        "capabilities": msgspec.to_builtins(environment.groups()),
        "credentials": {"configured": environment.credentials, "broken": list(environment.broken)},
    }
    if brief:
        emit(condensed) if options.as_json else click.echo("\n".join(summary))
        return
    ledger = options.ledger_file if options.ledger else workspace / LEDGER_FILE
    places = {"workspace": str(workspace), "ledger": str(ledger), "model": model}
    unusable = sorted((item.skill, item.why) for item in environment.capabilities if item.why)
    if options.as_json:
        details = {
            "capabilities": msgspec.to_builtins(environment.capabilities),
            "unusable": [{"skill": skill, "why": list(reasons)} for skill, reasons in unusable],
            "warnings": msgspec.to_builtins(warnings),
        }
        emit({**places, **condensed, **details})
        return
    for name, value in places.items():
        note = " (not created yet)" if name == "ledger" and not ledger.exists() else ""
        click.echo(f"{name:<12}{printable(value)}{note}")
    click.echo("\n" + "\n".join(summary))
    if unusable:
        click.echo("\nSkills that cannot be used")
        rows = [(skill, reason) for skill, reasons in unusable for reason in reasons]
        print_table(("skill", "reason"), rows, wraps=("reason",))
    if warnings:
        click.echo("\nWarnings")
        for warning in warnings:
            click.echo(f"  {printable(warning.source)}: {printable(warning.message)}")
