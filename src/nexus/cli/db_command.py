"""`nexus services db`: the stored configuration of the services, and the users' profiles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from nexus.cli._listing import Column, Listing, wrapped
from nexus.cli._options import CommandOptions, NexusGroup, read_text
from nexus.cli._output import beginning, quoted
from nexus.engine import Engine
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadReference
from nexus.render.console import printable
from nexus.services.configuration import ConfigService, Initialization
from nexus.services.template import TEMPLATE_FILE, read_template

T = TypeVar("T")

SETTINGS = Listing(Column("name"), wrapped("value", lambda row: beginning(_text(row.value))), Column("source"))
PROFILES = Listing(
    Column("user", "principal"), wrapped("from", "source"), wrapped("result"), empty="No profiles of earlier versions."
)


@click.group("db", cls=NexusGroup)
def command() -> None:
    """Initialize, show and change the configuration of the services, which is stored in the ledger.

    Example: nexus services db init
    """


@command.subcommand("init")
@click.option(
    "--template", type=click.Path(dir_okay=False), help=f"YAML file in place of the packaged {TEMPLATE_FILE}."
)
def init(template: str | None, options: CommandOptions) -> None:
    """Store the template as the configuration. Running it again adds the new names of a newer template and keeps edits.

    Example: nexus services db init --template config.yml
    """
    values = None
    if template:
        values = read_template(read_text(template), template)
    result = _run(options.open(writes=True, needs_config=False), lambda service: service.initialize(values))
    options.report(result, *_lines(result))


def _lines(result: Initialization) -> list[str]:
    if not result.changed:
        return ["Configuration: nothing changed."]
    changes = {
        "added": result.added,
        "updated": result.updated,
        "removed": result.removed,
        "edited, kept": result.edited,
    }
    names = [f"  {change}: {', '.join(map(printable, names))}" for change, names in changes.items() if names]
    return ["Configuration: stored.", *names]


@command.subcommand("show")
@click.option("--owner", default="", metavar="KEY", help="Also show the overrides of this user.")
def show(owner: str, options: CommandOptions) -> None:
    """Show each setting with its source: the template, the operator's edit, or the user.

    Example: nexus services db show --owner ada
    """
    settings = _run(options.open(reads_stored=True, needs_config=False), lambda service: service.settings(owner))
    SETTINGS.print(settings, options)


@command.subcommand("set")
@click.argument("owner")
@click.argument("name")
@click.argument("value")
def set_(owner: str, name: str, value: str, options: CommandOptions) -> None:
    """Set VALUE as the text of prompt NAME for user OWNER. An empty VALUE removes the user's text.

    Example: nexus services db set ada friends_profile "I prefer concise answers."
    """
    nx = options.open(writes=True, needs_config=False)
    identity = _run(nx, lambda service: service.set_override(owner, name, value))
    state = "removed"
    if name in identity["prompt_overrides"]:
        state = "set"
    options.report(identity, f"{quoted(name)} of {quoted(owner)}: {state}.")


@command.subcommand("set-default")
@click.argument("name")
@click.argument("value")
def set_default(name: str, value: str, options: CommandOptions) -> None:
    """Set VALUE as setting NAME for all users.

    Example: nexus services db set-default mood.enabled true
    """

    async def change(service: ConfigService) -> object:
        await service.set_default(name, value)
        return service.get(name)

    stored = _run(options.open(writes=True, needs_config=False), change)
    options.report({"name": name, "value": stored}, f"{quoted(name)}: {printable(_text(stored))}")


@command.subcommand("forget")
@click.argument("owner")
def forget(owner: str, options: CommandOptions) -> None:
    """Erase the profile of user OWNER from the storage, with its earlier versions.

    Example: nexus services db forget ada
    """
    if not _run(options.open(writes=True, needs_config=False), lambda service: service.forget(owner)):
        raise BadReference(f"no profile of {owner!r} found (nothing was erased)")
    options.report({"owner": owner}, f"Profile of {quoted(owner)}: erased.")


@command.subcommand("import-profiles")
def import_profiles(options: CommandOptions) -> None:
    """Copy the users' profiles of earlier versions, the files in ~/.nexus/users, to the ledger.

    Profiles that the ledger has stay, and so do the files. Your own profile, ~/.nexus/user.json, stays a file.

    Example: nexus services db import-profiles
    """
    nx = options.open(writes=True, needs_config=False)
    rows = _run(nx, lambda service: service.import_profiles(nx.credentials.home))
    PROFILES.print(rows, options)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _run(nx: Engine, operation: Callable[[ConfigService], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AsyncEngine(nx) as engine:
            return await operation(ConfigService(engine))

    return asyncio.run(run())
