"""`nexus config credential`: names and places of secret values. No command shows a value or takes one as an argument."""

from __future__ import annotations

import sys
from typing import Any

import click

from nexus.cli._listing import Column, Listing, time, wrapped
from nexus.cli._options import CommandOptions, NexusGroup
from nexus.engine import Engine
from nexus.render.console import printable
from nexus.workspace.credentials.index import CredentialEntry, check_name, variable_of
from nexus.workspace.credentials.secret import MAX_BYTES, Secret
from nexus.workspace.credentials.store import Declared
from nexus.workspace.environment.survey import declared_credentials
from nexus.workspace.sources.skills import discover_skills

FAILED = 1
"""Exit code of a check that finds a missing value or a broken credential."""


@click.group("credential", cls=NexusGroup)
def command() -> None:
    """Set, list, check and remove credentials. Values are in variables or the system's keyring, and are never shown.

    Example: nexus config credential list
    """


@command.subcommand("set", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("name")
@click.option("--variable", help="Environment variable that has the value; nothing is stored.")
@click.pass_context
def set_(ctx: click.Context, name: str, variable: str | None, options: CommandOptions) -> None:
    """Store the value of credential NAME in the system's keyring. It is prompted for, or read from standard input.

    Example: nexus config credential set twitter --variable TWITTER_API_KEY
    """
    if ctx.args:
        raise click.UsageError(
            "value not stored: an argument would be visible to other programs and in the shell's history (run "
            "`nexus config credential set NAME` alone, or pass the value on standard input)"
        )
    check_name(name)
    with options.open() as nx:
        store = nx.credentials
        if variable:
            entry = store.refer(name, variable)
        elif sys.stdin is None:
            entry = store.set(name, Secret(""))
        elif sys.stdin.isatty():
            entry = store.set(name, Secret(click.prompt(f"Value of {name}", hide_input=True, err=True)))
        else:
            # Three bytes more than allowed: room for a line break, and one to detect a value that is too long.
            text = sys.stdin.buffer.read(MAX_BYTES + 3).decode("utf-8-sig", "surrogateescape")
            entry = store.set(name, Secret(text.removesuffix("\n").removesuffix("\r")))
        shadowed = entry.variable != variable_of(name) and store.has_variable(variable_of(name))
    options.report(_json_value(entry), f"Credential {name}: stored in {_place(entry)}.")
    if shadowed and not options.as_json:
        click.echo(f"The variable {variable_of(name)} is set too and takes precedence.", err=True)


@command.subcommand("list")
def list_(options: CommandOptions) -> None:
    """List the credentials.

    Each has its place, its state at the last check, and the skills that require it. The keyring is not read.

    Example: nexus config credential list
    """
    with options.open() as nx:
        declared, users = _declared(nx)
        entries = list(nx.credentials.entries(declared).values())
    values = [{**_json_value(entry), "skills": users.get(entry.name, [])} for entry in entries]
    _listing(users).print(values, options, empty="No credentials yet (store one: nexus config credential set NAME).")


@command.subcommand("check")
@click.argument("name", required=False)
@click.option("--ok", "state", flag_value="ok", help="Record that the value was accepted.")
@click.option("--broken", "state", flag_value="broken", help="Record that the value was rejected.")
def check(name: str | None, state: Any, options: CommandOptions) -> int:
    """Check whether the value of NAME [all] exists, and record it. The value is not shown and not used.

    Only you or your program can find out if a service accepts the value; --ok and --broken record it.

    Example: nexus config credential check twitter --broken
    """
    if state and not name:
        raise click.UsageError("--ok and --broken require the NAME of a credential")
    with options.open() as nx:
        declared, users = _declared(nx)
        if state and name:
            entries = [nx.credentials.mark(name, state, nx.clock_ms(), declared)]
        else:
            if name:
                names = [name]
            else:
                names = list(nx.credentials.entries(declared))
            entries = nx.credentials.check(names, nx.clock_ms(), declared)
    _listing(users).print(list(map(_json_value, entries)), options, empty="No credentials to check.")
    if not state and any(entry.state in ("missing", "broken") for entry in entries):
        return FAILED
    return 0


@command.subcommand("remove")
@click.argument("name")
@click.option("--keep-value", is_flag=True, help="Only remove the name from the list; leave the keyring as it is.")
def remove(name: str, keep_value: bool, options: CommandOptions) -> None:
    """Remove credential NAME and its value in the keyring.

    Example: nexus config credential remove twitter
    """
    with options.open() as nx:
        deleted = nx.credentials.remove(name, keep_value=keep_value)
    text = f"Credential {name}: removed{'; its value is deleted' if deleted else ''}."
    options.report({"name": name, "valueDeleted": deleted}, text)


def _declared(nx: Engine) -> tuple[Declared, dict[str, list[str]]]:
    """Return the credentials that skills require, with their variables, and the skills by credential."""
    skills = discover_skills(nx.workspace_context).skills
    declared = declared_credentials(skills)
    users = {name: [skill.name for skill in skills if name in skill.requires.credentials] for name in declared}
    return declared, users


def _listing(users: dict[str, list[str]]) -> Listing:
    return Listing(
        Column("credential", "name"),
        wrapped("where", lambda value: _describe_place(value["where"], value["variable"])),
        Column("state"),
        time("checked", "checked_ms"),
        wrapped("for skills", lambda value: ", ".join(users.get(value["name"], ()))),
    )


def _place(entry: CredentialEntry) -> str:
    return _describe_place(entry.where, entry.variable)


def _describe_place(where: str, variable: str) -> str:
    if where == "keyring":
        return "the system's keyring"
    if variable:
        return f"variable {printable(variable)}"
    return ""


def _json_value(entry: CredentialEntry) -> dict[str, object]:
    return {key: getattr(entry, key) for key in ("name", "where", "variable", "service", "state", "checked_ms")}
