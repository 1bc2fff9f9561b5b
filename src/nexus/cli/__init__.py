"""The command `nexus`.

Commands are imported when they are called, so that `nexus --help` answers at once. Exit codes: `_exit_codes.py`.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import NoReturn

import click

from nexus import __version__

COMMANDS: dict[str, str] = {
    "init": "Create a workspace with starter files and a ledger.",
    "import": "Import sessions of Claude Code, OpenAI, Anthropic or nanobot.",
    "sessions": "List the sessions of a ledger.",
    "session": "Show, rename, merge, archive or delete one session.",
    "history": "Show all messages of a session.",
    "validate": "Check a turn log against the requirements of its format.",
    "search": "Find messages by their words.",
    "assemble": "Assemble the context of the next call.",
    "record": "Store the reply to an assembled context.",
    "explain": "Explain why a call includes, truncates and omits content.",
    "replay": "Rebuild a recorded call and verify it by its hash.",
    "diff": "Compare a call's prompt with an earlier one.",
    "context": "Show what fills the context window of the next call.",
    "profile": "List, show and check profiles.",
    "skill": "List, show, use, check and create skills.",
    "fork": "Start a new session from an earlier message.",
    "rewind": "Move a session back to an earlier message.",
    "compact": "Replace older messages with a summary.",
    "undo": "Undo the current compaction.",
    "redo": "Redo the compaction that was undone last.",
    "pin": "Pin a message, or list the pins.",
    "unpin": "Remove a pin.",
    "status": "Show the environment: tools, credentials, missing requirements.",
    "credential": "Set, list, check and remove credentials.",
    "cache-sim": "Simulate prompt-cache cost under different truncation policies.",
    "memory": "Show, search, add and forget facts.",
    "config": "Show the configuration and the source of each value.",
    "policy": "Show, check and test the policy: who may do what.",
    "plugin": "List plugins with their hooks and errors.",
    "models": "List models with context windows and prices.",
    "ledger": "Check, copy, restore, repair, export and import a ledger.",
}

SHARED_MODULES = {
    "init": "status", "config": "status", "plugin": "status", "validate": "import", "sessions": "session",
    "search": "history", "context": "assemble", "record": "assemble", "explain": "replay", "diff": "replay",
    "rewind": "fork", "undo": "compact", "redo": "compact", "pin": "compact", "unpin": "compact",
}  # fmt: skip
"""Commands defined in another command's module, under their own name."""


class LazyGroup(click.Group):
    """A group that lists its commands from a table and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of a first use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return the command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"nexus.cli.{SHARED_MODULES.get(cmd_name, cmd_name).replace('-', '_')}_command")
        return getattr(module, cmd_name if cmd_name in SHARED_MODULES else "command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the list of commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="nexus")
def cli() -> None:
    """Context engine for LLM agents: assemble, record, explain and replay the context of every call.

    Exit codes: 0 done, 1 another error, 2 wrong usage or unknown name, 3 budget too small, 4 unreadable input,
    5 ledger error, 130 stopped.
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit. Errors are one line and an exit code, never a traceback."""
    if sys.stdout is None:  # closed by the caller, as `>&-` does: run without output
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that the terminal's encoding lacks, and lone surrogates, are printed as escapes.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(args)
        sys.stdout.flush()
    except OSError as error:
        _abandon_output()
        if error.errno != errno.EPIPE:
            click.echo(f"nexus: output not written: {error.strerror or error}", err=True)
        code = 0 if error.errno == errno.EPIPE else 1  # a reader such as `head` that left is not an error
    except KeyboardInterrupt:
        _abandon_output()
        click.echo("nexus: stopped", err=True)
        code = 130
    sys.exit(code)


def _run(args: list[str] | None) -> int:
    from nexus.cli._exit_codes import STOPPED, UNREADABLE, exit_code
    from nexus.errors import NexusError

    # Read from the arguments themselves: an error in parsing them must be reported as JSON too.
    as_json = "--json" in (args if args is not None else sys.argv[1:])
    try:
        result = cli.main(args, prog_name="nexus", standalone_mode=False)
    except NexusError as error:
        _print_error(error, str(error), f"nexus: {error}", as_json=as_json)
        return exit_code(type(error))
    except click.ClickException as error:
        text = StringIO()
        error.show(text)
        _print_error(error, error.format_message(), text.getvalue().rstrip("\n"), as_json=as_json)
        return error.exit_code
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        text = "a path has a NUL character (name another file)"
        _print_error(error, text, f"nexus: {text}", as_json=as_json)
        return UNREADABLE
    except click.exceptions.Abort:
        click.echo("nexus: stopped", err=True)
        return STOPPED
    except SystemExit:  # click exits when the reader of the output left, which is not an error
        return 0
    except OSError as error:
        if error.filename is not None:
            message = f"'{os.fsdecode(error.filename)}' not accessible: {error.strerror}"
        elif isinstance(error, FileNotFoundError):  # only reading the working directory raises this without a name
            message = "current folder not found: it was deleted (change to an existing folder)"
        else:  # without a file name it is the output itself
            raise
        _print_error(error, message, f"nexus: {message}", as_json=as_json)
        return UNREADABLE
    return result if isinstance(result, int) else 0


def _abandon_output() -> None:
    """Redirect standard output to the null device, so that buffered text does not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_error(error: Exception, message: str, text: str, *, as_json: bool) -> None:
    """Print an error's text on standard error, and with `--json` its message as a value on standard output."""
    from nexus.render.console import printable, printable_lines

    if as_json:
        from nexus.cli._output import emit

        emit({"error": {"type": type(error).__name__, "message": message}})
    is_usage = isinstance(error, click.ClickException)
    click.echo(printable_lines(text) if is_usage else printable(text), err=True)
