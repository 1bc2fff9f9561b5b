"""The command `nexus`. Commands are imported when they are called, so `nexus --help` answers at once.

Exit codes: 0 done; 1 another error; 2 wrong usage or an unknown name; 3 the budget is too small; 4 unreadable input;
5 the ledger; 130 stopped.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import NoReturn

import click

from nexus import __version__

COMMANDS: dict[str, str] = {
    "init": "Make a workspace with starter files and a ledger.",
    "import": "Read real sessions: Claude Code, OpenAI or Anthropic files.",
    "sessions": "List the sessions of a ledger.",
    "session": "Look at one session, rename, archive or delete it.",
    "history": "Show everything that was said in a session.",
    "validate": "Check a turn log against the requirements of its format.",
    "search": "Find messages by their words.",
    "assemble": "Make the context of the next call.",
    "record": "Store the reply to an assembled context.",
    "explain": "Show what became of each block, tool and message of a call.",
    "replay": "Make a recorded call again, proven by its hash.",
    "diff": "Show how a call's prompt differs from an earlier one.",
    "context": "Show what fills the window of the next call.",
    "profile": "List, show and check profiles: what stands where in a context.",
    "skill": "List, show, use, check and begin skills.",
    "fork": "Make a session that goes on from an earlier place.",
    "rewind": "Take a session back to an earlier place.",
    "compact": "Put a summary in the place of older messages.",
    "undo": "Undo the compaction that holds.",
    "redo": "Take an undo back.",
    "pin": "Keep a message, or list what is kept.",
    "unpin": "Take a pin back.",
    "status": "Show what works here: capabilities, credentials, what is missing.",
    "credential": "Set, list, check and remove credentials; values are never shown.",
    "cache-sim": "Show what a session costs with a prompt cache, by how it is trimmed.",
    "memory": "Show, find, add and forget what the agent remembers.",
    "config": "Show the configuration and where each value comes from.",
    "policy": "Show, check and try the policy: who may do what.",
    "hook": "List plugins, what they add to contexts, and what is wrong with them.",
    "models": "List models with their windows and prices.",
    "ledger": "Check, copy, restore, repair, export and import a ledger.",
}

BESIDE = {"rewind": "fork", "redo": "undo", "unpin": "pin"}
"""Commands that stand in another one's module, under their own name."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of a first use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"nexus.cli.{BESIDE.get(cmd_name, cmd_name).replace('-', '_')}_command")
        return getattr(module, cmd_name if cmd_name in BESIDE else "command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The list of commands, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nexus")
def cli() -> None:
    """The context engine for LLM agents: decides what the model sees, for every call, and can prove it.

    Exit codes: 0 done, 1 another error, 2 wrong usage or an unknown name, 3 the budget is too small,
    4 unreadable input, 5 the ledger, 130 stopped.
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits. Errors become one clear line and an exit code, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # What a terminal's encoding lacks, and what is no text at all, shows as an escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _abandon_output()
        if error.errno != errno.EPIPE:
            click.echo(f"nexus: the output cannot be written: {error.strerror or error}", err=True)
        code = 0 if error.errno == errno.EPIPE else 1
    except KeyboardInterrupt:
        _abandon_output()
        click.echo("nexus: stopped", err=True)
        code = 130
    sys.exit(code)


def _run(args: list[str] | None) -> int:
    from nexus.errors import NexusError, UnreadableFile

    as_json = "--json" in (args if args is not None else sys.argv[1:])
    try:
        done = cli.main(args, prog_name="nexus", standalone_mode=False)
    except NexusError as error:
        _say(error, str(error), f"nexus: {error}", as_json=as_json)
        return error.exit_code
    except click.ClickException as error:
        told = StringIO()
        error.show(told)
        _say(error, error.format_message(), told.getvalue().rstrip("\n"), as_json=as_json)
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("nexus: stopped", err=True)
        return 130
    except SystemExit:  # click ends so when the reader of the output left, which is no error
        return 0
    except OSError as error:
        if error.filename is not None:
            text = f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}"
        elif isinstance(error, FileNotFoundError):  # writing never says that; asking for the working directory does
            text = "the folder that this runs in was deleted: change to one that is there"
        else:  # not a file that was named: the output itself
            raise
        _say(error, text, f"nexus: {text}", as_json=as_json)
        return UnreadableFile.exit_code
    return done if isinstance(done, int) else 0


def _abandon_output() -> None:
    """Points standard output to nowhere, so that what is still buffered does not fail a second time at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(error: Exception, message: str, told: str, *, as_json: bool) -> None:
    """Says on standard error what went wrong, and with `--json` as a value on standard output too."""
    from nexus.render.console import printable, printable_lines

    if as_json:
        from nexus.cli.shared import emit

        emit({"error": {"type": type(error).__name__, "message": message}})
    usage = isinstance(error, click.ClickException)
    click.echo(printable_lines(told) if usage else printable(told), err=True)
