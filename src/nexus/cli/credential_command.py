"""`nexus credential`: names and places of secret values. No command shows a value or takes one as an argument."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from nexus.cli._options import CommandOptions, command_options
from nexus.cli._output import emit, format_time
from nexus.cli._tables import print_table
from nexus.engine import Engine
from nexus.render.console import printable
from nexus.workspace.credentials.index import CredentialEntry, check_name, variable_of
from nexus.workspace.credentials.secret import MAX_BYTES, Secret
from nexus.workspace.credentials.store import Declared
from nexus.workspace.environment.survey import declared_credentials
from nexus.workspace.sources.skills import discover_skills

FAILED = 1
"""Exit code of a check that finds a missing value or a broken credential."""


@click.group("credential")
@command_options
@click.pass_context
def command(ctx: click.Context, options: CommandOptions) -> None:
    """Set, list, check and remove credentials. Values are in variables or the system's keyring, and are never shown.

    Example: nexus credential list
    """
    options.pass_on(ctx, command.commands)


@command.command("set", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("name")
@click.option("--variable", help="Environment variable that has the value; nothing is stored.")
@command_options
@click.pass_context
def set_(ctx: click.Context, name: str, variable: str | None, options: CommandOptions) -> None:
    """Store the value of credential NAME in the system's keyring. It is prompted for, or read from standard input.

    Example: nexus credential set twitter --variable TWITTER_API_KEY
    """
    if ctx.args:
        raise click.UsageError(
            "value not stored: an argument would be visible to other programs and in the shell's history (run "
            "`nexus credential set NAME` alone, or pass the value on standard input)"
        )
    check_name(name)
    with options.open() as nx:
        store = nx.credentials
        entry = store.refer(name, variable) if variable else store.set(name, _read_secret(name))
        shadowed = entry.variable != variable_of(name) and store.has_variable(variable_of(name))
    if options.as_json:
        emit(_json_value(entry))
        return
    click.echo(f"Credential {name}: stored in {_place(entry)}.")
    if shadowed:
        click.echo(f"The variable {variable_of(name)} is set too and takes precedence.", err=True)


@command.command("list")
@command_options
def list_(options: CommandOptions) -> None:
    """List the credentials.

    Each has its place, its state at the last check, and the skills that require it. The keyring is not read.

    Example: nexus credential list
    """
    with options.open() as nx:
        declared, users = _declared(nx)
        entries = list(nx.credentials.entries(declared).values())
    if options.as_json:
        emit([{**_json_value(entry), "skills": users.get(entry.name, [])} for entry in entries])
    elif not entries:
        click.echo("No credentials yet (store one: nexus credential set NAME).")
    else:
        _print(entries, users)


@command.command("check")
@click.argument("name", required=False)
@click.option("--ok", "state", flag_value="ok", help="Record that the value was accepted.")
@click.option("--broken", "state", flag_value="broken", help="Record that the value was rejected.")
@command_options
def check(name: str | None, state: Any, options: CommandOptions) -> int:
    """Check whether the value of NAME [all] exists, and record it. The value is not shown and not used.

    Only you or your program can find out if a service accepts the value; --ok and --broken record it.

    Example: nexus credential check twitter --broken
    """
    if state and not name:
        raise click.UsageError("--ok and --broken require the NAME of a credential")
    with options.open() as nx:
        declared, users = _declared(nx)
        if state and name:
            entries = [nx.credentials.mark(name, state, nx.clock_ms(), declared)]
        else:
            names = [name] if name else list(nx.credentials.entries(declared))
            entries = nx.credentials.check(names, nx.clock_ms(), declared)
    if options.as_json:
        emit([_json_value(entry) for entry in entries])
    elif entries:
        _print(entries, users)
    else:
        click.echo("No credentials to check.")
    return FAILED if not state and any(entry.state in ("missing", "broken") for entry in entries) else 0


@command.command("remove")
@click.argument("name")
@click.option("--keep-value", is_flag=True, help="Only remove the name from the list; leave the keyring as it is.")
@command_options
def remove(name: str, options: CommandOptions, *, keep_value: bool) -> None:
    """Remove credential NAME and its value in the keyring.

    Example: nexus credential remove twitter
    """
    with options.open() as nx:
        deleted = nx.credentials.remove(name, keep_value=keep_value)
    if options.as_json:
        emit({"name": name, "valueDeleted": deleted})
    else:
        click.echo(f"Credential {name}: removed{'; its value is deleted' if deleted else ''}.")


def _read_secret(name: str) -> Secret:
    """Return the value from a hidden prompt on a terminal, else standard input without its last line break."""
    if sys.stdin is None:
        return Secret("")
    if sys.stdin.isatty():
        return Secret(click.prompt(f"Value of {name}", hide_input=True, err=True))
    # Three bytes more than allowed: room for a line break, and one to detect a value that is too long.
    data = sys.stdin.buffer.read(MAX_BYTES + 3)
    return Secret(data.decode("utf-8-sig", "surrogateescape").removesuffix("\n").removesuffix("\r"))


def _declared(nx: Engine) -> tuple[Declared, dict[str, list[str]]]:
    """Return the credentials that skills require, with their variables, and the skills by credential."""
    skills = discover_skills(nx.workspace_context).skills
    declared = declared_credentials(skills)
    users = {name: [skill.name for skill in skills if name in skill.requires.credentials] for name in declared}
    return declared, users


def _print(entries: Sequence[CredentialEntry], users: dict[str, list[str]]) -> None:
    rows = [
        (
            entry.name,
            _place(entry),
            entry.state,
            format_time(entry.checked_ms) if entry.checked_ms else "",
            ", ".join(users.get(entry.name, ())),
        )
        for entry in entries
    ]
    print_table(("credential", "where", "state", "checked", "for skills"), rows, wraps=("where", "for skills"))


def _place(entry: CredentialEntry) -> str:
    if entry.where == "keyring":
        return "the system's keyring"
    return f"variable {printable(entry.variable)}" if entry.variable else ""


def _json_value(entry: CredentialEntry) -> dict[str, object]:
    return {key: getattr(entry, key) for key in ("name", "where", "variable", "service", "state", "checked_ms")}
