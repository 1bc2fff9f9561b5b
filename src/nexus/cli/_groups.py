"""Groups of commands, and the options that all commands share: what a command needs that starts before the engine is loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

DEFAULT_TENANT = "local"

TENANT_OPTION = click.option(
    "--tenant", default=DEFAULT_TENANT, show_default=True, help="Tenant, where several share a ledger."
)

SHARED_OPTIONS = (
    click.Option(
        ["-w", "--workspace"],
        type=click.Path(file_okay=False),
        help="Workspace folder [the current folder or its nearest parent with a .nexus folder].",
    ),
    click.Option(
        ["--ledger"],
        type=click.Path(dir_okay=False),
        help="Ledger: a file, or a PostgreSQL URL [$NEXUS_LEDGER, else WORKSPACE/.nexus/ledger.db].",
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
)


class CommandGroup(click.Group):
    """A group of commands. --workspace, --ledger and --json before a subcommand's name are the subcommand's defaults."""

    def __init__(self, *args: Any, modules: dict[str, str] | None = None, **attributes: Any) -> None:
        """Make a group; `modules` has modules of subcommands that are imported when called: `credential`, `fork.rewind`."""
        super().__init__(*args, **attributes)
        self.params += SHARED_OPTIONS
        self.modules = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands; subcommands of other modules are last."""
        return list(dict.fromkeys((*super().list_commands(ctx), *self.modules)))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand; None if there is none."""
        if cmd_name in self.modules and cmd_name not in self.commands:
            module, _, attribute = self.modules[cmd_name].partition(".")
            self.add_command(getattr(import_module(f"nexus.cli.{module}_command"), attribute or "command"), cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand with the options that were given before its name."""
        defaults = {name: value for name, value in ctx.params.items() if value not in (None, False)}
        ctx.default_map = dict.fromkeys(self.list_commands(ctx), defaults)
        ctx.params.clear()  # the group's function takes no options
        return super().invoke(ctx)

    def early_subcommand(self, name: str) -> Callable[[Callable[..., Any]], click.Command]:
        """Make a command of this group that starts before the engine is loaded: its function gets each shared option."""

        def decorate(function: Callable[..., Any]) -> click.Command:
            command = click.command(name)(function)
            command.params += SHARED_OPTIONS
            self.add_command(command)
            return command

        return decorate


class RunGroup(CommandGroup):
    """A group that runs its subcommand `run` if none is named; it takes that one's options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add `run` to a line that names no subcommand."""
        names = {*self.list_commands(ctx), "-h", "--help"}
        if not names.intersection(args):
            args = ["run", *args]
        return super().parse_args(ctx, args)
