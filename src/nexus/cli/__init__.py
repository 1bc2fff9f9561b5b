"""The command `nexus`.

Commands are imported when they are called, so that `nexus --help` answers at once. Exit codes: `_exit_codes.py`.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

import click
from click.shell_completion import CompletionItem

from nexus import __version__
from nexus.cli._exit_numbers import STOPPED, UNREADABLE

if TYPE_CHECKING:
    from nexus.errors import NexusError

GROUPS: dict[str, dict[str, str]] = {
    "Start": {
        "init": "Create a workspace with starter files and a ledger.",
        "chat": "Talk to an agent: streaming, tools, sessions without end.",
        "run": "Run one task with an agent and print its reply.",
        "import": "Import sessions of Claude Code, OpenAI, Anthropic or nanobot.",
        "assemble": "Assemble the context of the next call.",
        "record": "Store the reply to an assembled context.",
    },
    "Sessions": {
        "sessions": "List the sessions of a ledger.",
        "history": "Show a session as a conversation.",
        "search": "Find messages by their words.",
        "usage": "Show tokens and cost by day and project.",
        "session": "Show, rename, pin, rewind, compare or delete in one session.",
        "fork": "Start a new session from an earlier message.",
        "compact": "Replace older messages with a summary.",
        "undo": "Undo the current compaction, or redo it.",
    },
    "Look": {
        "context": "Show what fills the context window of the next call.",
        "explain": "Explain why a call includes, truncates and omits content.",
        "replay": "Rebuild a recorded call and verify it by its hash.",
        "cache": "Show reported use of the prompt cache, or simulate its cost.",
    },
    "Workspace": {
        "status": "Show the environment: tools, credentials, missing requirements.",
        "config": "Show settings, profiles, policy, credentials, tools, models.",
        "skill": "List, show, use, check and create skills.",
        "memory": "Show, search, add and forget facts.",
    },
    "Operate": {
        "ledger": "Check, copy, restore, repair, export and import a ledger.",
        "serve": "Serve agents to other programs, over HTTP or standard input.",
        "wrap": "Run a client of models behind a proxy: claude, codex and others.",
        "proxy": "Record, heal and fit the calls of any client of models.",
        "mcp": "Serve sessions and memory to clients of MCP.",
        "services": "Run the services of the tagged dialogue, and configure them.",
        "turnlog": "Check turn logs.",
    },
}
"""Commands by heading, in the order of a first use."""

COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}

SHARED_MODULES = {
    "init": "status", "search": "history", "context": "assemble", "record": "assemble",
    "explain": "replay", "undo": "compact",
}  # fmt: skip
"""Commands defined in another command's module, under their own name."""

OTHER_WORDS = {
    "session list": "sessions", "assemble --explain": "explain", "cache-sim": "cache simulate",
    "list": "sessions", "ls": "sessions", "log": "history", "cat": "history",
    "find": "search", "grep": "search", "new": "init", "summarize": "compact", "branch": "fork", "revert": "undo",
    "reset": "session rewind", "settings": "config show", "env": "status", "cost": "usage", "costs": "usage",
    "redo": "undo --redo", "plugin": "config plugins", "db": "services db", "model": "config models",
    "credentials": "config credential", "profiles": "config profile", "completions": "config completion",
    "show": "history", "help": "--help", "version": "--version",
}  # fmt: skip
"""Other words for commands, and former names of commands that are not the name of a subcommand."""

SUBGROUPS = ("session", "config", "turnlog", "services", "ledger", "cache", "proxy")
"""Groups whose subcommands are suggested for an unknown command, first match first."""


_CLICKS_SUGGESTION = re.compile(r" \(?Did you mean [^?]*\?\)?(?= *\Z)")


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
        """Write the commands from the table, by heading."""
        width = max(map(len, COMMANDS))
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands from the table, and the options."""
        items = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        if items and not incomplete.startswith("-"):
            return items
        return super().shell_complete(ctx, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="nexus")
def cli() -> None:
    """Context engine for LLM agents: assemble, record, explain and replay the context of every call.

    Exit codes: 0 done, 1 another error, 2 wrong usage or unknown name, 3 budget too small, 4 unreadable input,
    5 ledger error, 6 model failed, 7 limit reached, 130 stopped.
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit. Errors are one line and an exit code, never a traceback."""
    if sys.stdout is None:  # closed by the caller, as `>&-` does: run without output
        from pathlib import Path

        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Characters that the terminal's encoding lacks, and lone surrogates, are printed as escapes.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run_line(args)
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


def run_line(args: list[str] | None) -> int:
    """Run a command line and return its exit code. Errors are printed.

    The object of click's context is the form of the chat's command that runs the line; None outside of a chat.
    """
    # Read from the arguments themselves: an error in parsing them must be reported as JSON too.
    words = args if args is not None else sys.argv[1:]
    as_json = "--json" in words
    context = click.get_current_context(silent=True)
    slash_form: str | None = context.obj if context is not None else None
    try:
        result = cli.main(args, prog_name="nexus", standalone_mode=False, obj=slash_form)
    except _our_error() as error:  # asked for when there is an error: `nexus --help` imports none
        from nexus.cli._exit_codes import exit_code

        _print_error(error, str(error), f"nexus: {error}", as_json=as_json)
        return exit_code(error)
    except click.ClickException as error:
        suggestion = _suggestion(error, words)
        text = StringIO()
        error.show(text)
        full_text = text.getvalue().rstrip("\n")
        message = error.format_message()
        if slash_form and isinstance(error, click.UsageError):
            suggestion = ""
            full_text = f"nexus: {error.message.rstrip('.')} (usage: {slash_form})"
        if suggestion:  # instead of what click itself suggests
            message, full_text = (
                f"{_CLICKS_SUGGESTION.sub('', plain).removesuffix('.')}.{suggestion}" for plain in (message, full_text)
            )
        _print_error(error, message, full_text, as_json=as_json)
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


def _our_error() -> type[NexusError]:
    from nexus.errors import NexusError

    return NexusError


def _suggestion(error: click.ClickException, words: list[str]) -> str:
    """Return a sentence with the command that was probably meant by a usage error; empty if there is none."""
    command = words[0] if words else ""
    others = set(words[1:])
    for old, new in OTHER_WORDS.items():
        first, _, second = old.partition(" ")
        if first == command and (second in others if second else command not in COMMANDS):
            return f" Did you mean: nexus {new}?"
    if isinstance(error, click.UsageError) and error.message.startswith("No such command"):
        command = _nearest_command(error, words)
        if command:
            return f" Did you mean: nexus {command}?"
        return ""
    return ""


def _nearest_command(error: click.UsageError, words: list[str]) -> str:
    """Return the command or subcommand that is most like the mistyped one; empty if there is none."""
    from nexus.cli._parameters import nearest

    group = error.ctx.command if error.ctx is not None else cli
    if isinstance(group, click.Group) and group is not cli:
        names = group.list_commands(error.ctx or click.Context(group))
        path = group.name
        if error.ctx is not None:
            path = error.ctx.command_path.removeprefix("nexus ")
        typed = next((name for name in words[1:] if name not in (*names, *str(path).split()) and name[:1] != "-"), "")
        guess = nearest(typed, names)
        if guess:
            return f"{path} {guess}"
        return ""
    typed = next((name for name in words if not name.startswith("-")), "")
    subcommands = {name: _subcommands(name) for name in SUBGROUPS}
    for name, names in subcommands.items():  # `nexus verify` for `nexus ledger verify`
        if typed in names:
            return f"{name} {typed}"
    if guess := nearest(typed, COMMANDS):
        return guess
    guesses = ((name, nearest(typed, names)) for name, names in subcommands.items())
    return next((f"{name} {guess}" for name, guess in guesses if guess), "")


def _subcommands(name: str) -> list[str]:
    """Return the names of the subcommands of a group."""
    group = cli.get_command(click.Context(cli), name)
    if isinstance(group, click.Group):
        return group.list_commands(click.Context(group))
    return []


def _abandon_output() -> None:
    """Redirect standard output to the null device, so that buffered text does not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_error(error: Exception, message: str, text: str, *, as_json: bool) -> None:
    """Print an error's text on standard error, and with `--json` its message as a value on standard output."""
    from nexus.errors import NexusError
    from nexus.render.console import printable, printable_lines

    is_usage = isinstance(error, click.ClickException)
    if as_json:
        from nexus.cli._output import emit

        if isinstance(error, NexusError):
            code = error.code
        else:
            code = "usage" if is_usage else "not_accessible"
        emit({"error": {"code": code, "message": message}})
    click.echo(printable_lines(text) if is_usage else printable(text), err=True)
