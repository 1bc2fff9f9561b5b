"""`nexus status`: what works here, what does not and why, and where workspace, ledger and model are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from nexus.cli.shared import common, emit, open_here, plain_output
from nexus.cli.table import print_table
from nexus.engine import LEDGER_FILE
from nexus.render.console import printable
from nexus.types.environment import Environment
from nexus.workspace.sources.session_blocks import capability_lines, credentials_line
from nexus.workspace.sources.skills import discover_skills


@click.command("status")
@click.option("--brief", is_flag=True, help="Only the condensed snapshot that an agent is given.")
@common
def command(workspace: str | None, ledger: str | None, *, brief: bool, as_json: bool) -> None:
    """Show what works here: capabilities with their states, credentials, skills that cannot be used and why.

    It looks now; it runs no program and asks no keyring.

    Example: nexus status --brief
    """
    with open_here(workspace, ledger) as nx:
        found = nx.refresh_environment()
        if brief:
            emit(_condensed(found)) if as_json else click.echo("\n".join(_brief(found)))
            return
        warned = [*discover_skills(nx.workspace_context).warnings, *found.warnings]
        file = Path(ledger) if ledger else (nx.workspace or Path()) / LEDGER_FILE
        place = {"workspace": str(nx.workspace), "ledger": str(file), "model": nx.model}
    if as_json:
        emit({**place, **_whole(found), "warnings": msgspec.to_builtins(warned)})
        return
    for name, value in place.items():
        note = " (not made yet)" if name == "ledger" and not file.exists() else ""
        click.echo(f"{name:<12}{printable(value)}{note}")
    click.echo("\n" + "\n".join(_brief(found)))
    if unusable := _unusable(found):
        click.echo("\nSkills that cannot be used")
        rows = [(skill, reason) for skill, why in unusable.items() for reason in why]
        print_table(("skill", "why"), rows, wraps=("why",))
    if warned:
        click.echo("\nWarnings")
        for one in warned:
            click.echo(f"  {printable(one.source)}: {printable(one.message)}")


def _brief(found: Environment) -> list[str]:
    """The snapshot as lines, with words instead of marks where the output wants no emoji."""
    lines = capability_lines(found, plain=plain_output())
    return ["Capabilities", *(f"  {line}" for line in lines), "", "Credentials", f"  {credentials_line(found)}"]


def _unusable(found: Environment) -> dict[str, tuple[str, ...]]:
    """Why skills cannot be used, by their names, sorted."""
    return {one.skill: one.why for one in sorted(found.capabilities, key=lambda one: one.skill) if one.why}


def _condensed(found: Environment) -> dict[str, Any]:
    """The snapshot of document 002: what the context's block is made from."""
    return {
        "capabilityCount": len(found.capabilities),
        "snapshotAt": found.at_ms,
        "capabilities": msgspec.to_builtins(found.groups()),
        "credentials": {"configured": found.credentials, "broken": list(found.broken)},
    }


def _whole(found: Environment) -> dict[str, Any]:
    return {
        **_condensed(found),
        "capabilities": msgspec.to_builtins(found.capabilities),
        "unusable": [{"skill": skill, "why": list(why)} for skill, why in _unusable(found).items()],
    }
