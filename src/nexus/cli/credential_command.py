"""`nexus credential`: names of secret values, where they are, whether they are there. No value is shown, by any command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from nexus.cli.listing import moment
from nexus.cli.shared import common, emit, handed_down, open_here
from nexus.cli.table import print_table
from nexus.engine import Engine
from nexus.render.console import printable
from nexus.workspace.credentials.index import CredentialEntry
from nexus.workspace.credentials.names import known_name, variable_of
from nexus.workspace.credentials.secret import MOST_BYTES, Secret
from nexus.workspace.credentials.store import Declared
from nexus.workspace.environment.survey import declared_credentials
from nexus.workspace.sources.skills import discover_skills

FAILED = 1
"""Exit code of a check that found a value missing or a credential broken."""


@click.group("credential")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Set, list, check and remove credentials. Values stand in variables or in the system's keyring, and are never shown.

    Example: nexus credential list
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("set", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("name")
@click.option("--variable", help="The variable of the environment that has the value; nothing is stored.")
@common
@click.pass_context
def set_(
    ctx: click.Context, name: str, variable: str | None, workspace: str | None, ledger: str | None, *, as_json: bool
) -> None:
    """Store the value of credential NAME in the system's keyring. It is asked for, or read from standard input.

    Example: nexus credential set twitter --variable TWITTER_API_KEY
    """
    if ctx.args:
        raise click.UsageError(
            "a value is never given as an argument: other programs and the shell's history would see it. It was not "
            "stored, and is not shown. Run `nexus credential set NAME` alone, or give the value on standard input"
        )
    known_name(name)
    with open_here(workspace, ledger) as nx:
        store = nx.credentials
        entry = store.refer(name, variable) if variable else store.set(name, _asked(name))
        shadowed = entry.variable != variable_of(name) and store.has_variable(variable_of(name))
    if as_json:
        emit(_row(entry))
        return
    click.echo(f"Credential {name} is in {_where(entry)}.")
    if shadowed:
        click.echo(f"The variable {variable_of(name)} is set too; it comes first.", err=True)


@command.command("list")
@common
def list_(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """List the credentials: where each is, its state when it was last checked, and the skills that require it.

    No keyring is asked.

    Example: nexus credential list
    """
    with open_here(workspace, ledger) as nx:
        wanted, users = _required(nx)
        entries = list(nx.credentials.entries(wanted).values())
    if as_json:
        emit([{**_row(entry), "skills": users.get(entry.name, [])} for entry in entries])
    elif not entries:
        click.echo("There are no credentials. `nexus credential set NAME` stores one.")
    else:
        _print(entries, users)


@command.command("check")
@click.argument("name", required=False)
@click.option("--ok", "state", flag_value="ok", help="Note that the value was accepted.")
@click.option("--broken", "state", flag_value="broken", help="Note that the value was refused.")
@common
def check(name: str | None, state: Any, workspace: str | None, ledger: str | None, *, as_json: bool) -> int:
    """Look whether the value of NAME [all] is there, and note it. The value is not shown, and no program is run with it.

    Whether a service accepts the value is for you or your program to find out; --ok and --broken note it.

    Example: nexus credential check twitter --broken
    """
    if state and not name:
        raise click.UsageError("--ok and --broken need the NAME of the credential that they are about")
    with open_here(workspace, ledger) as nx:
        wanted, users = _required(nx)
        if state and name:
            entries = [nx.credentials.mark(name, state, nx.clock_ms(), wanted)]
        else:
            names = [name] if name else list(nx.credentials.entries(wanted))
            entries = nx.credentials.check(names, nx.clock_ms(), wanted)
    if as_json:
        emit([_row(entry) for entry in entries])
    elif entries:
        _print(entries, users)
    else:
        click.echo("There are no credentials to check.")
    return FAILED if not state and any(entry.state in ("missing", "broken") for entry in entries) else 0


@command.command("remove")
@click.argument("name")
@click.option("--keep-value", is_flag=True, help="Only take the name off the list; leave the keyring as it is.")
@common
def remove(name: str, workspace: str | None, ledger: str | None, *, keep_value: bool, as_json: bool) -> None:
    """Take credential NAME off the list, and its value out of the keyring.

    Example: nexus credential remove twitter
    """
    with open_here(workspace, ledger) as nx:
        had = nx.credentials.remove(name, keep_value=keep_value)
    if as_json:
        emit({"name": name, "valueDeleted": had})
    else:
        click.echo(f"Credential {name} is off the list{'; its value is deleted' if had else ''}.")


def _asked(name: str) -> Secret:
    """The value, from a hidden question on a terminal, else all of standard input without its last line's end."""
    if sys.stdin is not None and sys.stdin.isatty():
        return Secret(click.prompt(f"Value of {name}", hide_input=True, err=True))
    if sys.stdin is None:
        return Secret("")
    read = sys.stdin.buffer.read
    return Secret(read(MOST_BYTES + 3).decode("utf-8-sig", "surrogateescape").removesuffix("\n").removesuffix("\r"))


def _required(nx: Engine) -> tuple[Declared, dict[str, list[str]]]:
    """The credentials that skills require, with the variables that they declare, and these skills' names."""
    skills = discover_skills(nx.workspace_context).skills
    wanted = declared_credentials(skills)
    return wanted, {name: [one.name for one in skills if name in one.requires.credentials] for name in wanted}


def _print(entries: Sequence[CredentialEntry], users: dict[str, list[str]]) -> None:
    rows = [
        (
            entry.name,
            _where(entry),
            entry.state,
            moment(entry.checked_ms) if entry.checked_ms else "",
            ", ".join(users.get(entry.name, ())),
        )
        for entry in entries
    ]
    print_table(("credential", "where", "state", "checked", "for skills"), rows, wraps=("where", "for skills"))


def _where(entry: CredentialEntry) -> str:
    if entry.where == "keyring":
        return "the system's keyring"
    return f"variable {printable(entry.variable)}" if entry.variable else ""


def _row(entry: CredentialEntry) -> dict[str, Any]:
    return {key: getattr(entry, key) for key in ("name", "where", "variable", "service", "state", "checked_ms")}
