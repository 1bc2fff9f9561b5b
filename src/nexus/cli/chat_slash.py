"""The slash commands of `nexus chat`. Most run the command of the command line with the same name on the chat's session."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Protocol

import click
from msgspec import Struct

from nexus.cli import COMMANDS as SUMMARIES
from nexus.cli import cli as nexus_cli
from nexus.cli import run_line
from nexus.cli._exit_numbers import STOPPED
from nexus.cli._options import CommandOptions
from nexus.cli._output import quoted
from nexus.cli._parameters import nearest
from nexus.cli._usage import reported_usage
from nexus.cli.assemble_command import print_window
from nexus.cli.chat_agent import ChatAgent
from nexus.cli.chat_files import image_paths
from nexus.cli.compact_command import DEFAULT_PERCENT, run_compaction
from nexus.errors import UnreadableFile
from nexus.render.console import printable
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.workspace.skills.guide import all_skills, find_skill

EXPORT_FORMATS = {".md": "markdown", ".txt": "conversation", ".json": "openai"}
"""Formats of `nexus history` by the file's suffix."""

OTHER_WORDS = {"usage": "session", "status": "session", "cost": "session", "resume": "sessions", "exit": "quit"}
"""Words of other programs for commands."""

LEAST_TOKENS = 200
"""Base tokens of older messages from which `/compact` summarizes them."""

KEYS = """\
Enter sends; Alt-Enter, or \\ before Enter, begins a new line. Tab completes.
Up and Down are earlier messages, Ctrl-R searches them.
During a turn, Enter queues a message, and Ctrl-S lets it join the turn.
Ctrl-C stops a running turn, Ctrl-D ends the chat. Ctrl-X Ctrl-E opens an editor."""


class Conversation(Protocol):
    """The chat, as its commands use it."""

    @property
    def options(self) -> CommandOptions:
        """The options of the command line: workspace and ledger."""
        ...

    @property
    def agent(self) -> ChatAgent:
        """The agent, with its session and model."""
        ...

    def send(self, text: str) -> int:
        """Run the turn of a message and return its exit code."""
        ...

    def attach(self, path: Path) -> None:
        """Send an image with the next message."""
        ...

    def use_skill(self, name: str) -> None:
        """Use a skill for the next message."""
        ...

    def open_session(self, name: str) -> None:
        """Continue another session, or begin one."""
        ...


class SlashCommand(Struct, frozen=True):
    """A command: its function, the form of its arguments, its help, and whether it needs a session with messages."""

    run: Callable[[Conversation, str], int]
    arguments: str
    help: str
    needs_messages: bool = False


def run_slash(chat: Conversation, line: str) -> int:
    """Run a line that begins with a slash and return its exit code. Errors are printed."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        guess = OTHER_WORDS.get(name) or nearest(name, COMMANDS)
        advice = f"did you mean /{guess}? " if guess else ""
        raise click.UsageError(
            f"unknown command /{printable(name)}: {advice}/help lists them (a message may begin with a space)"
        )
    ledger = chat.agent.nx.ledger
    session = chat.agent.session
    # Without this, the command line would take the name of a new session as the beginning of another one's.
    if command.needs_messages and ledger.resolve(session) is None:
        click.echo("The session begins with the first message.")
        return 0
    form = f"/{name} {command.arguments}".rstrip()
    with click.Context(nexus_cli, info_name="chat", obj=form):
        return command.run(chat, argument.strip())


def _nexus(chat: Conversation, command: str, *arguments: str, **options: str) -> int:
    """Run a command of the command line on the chat's workspace and ledger, and return its exit code."""
    values = {"workspace": str(chat.options.root), **options}
    if chat.options.ledger:
        values["ledger"] = chat.options.ledger
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    return run_line([*command.split(), *words, "--", *arguments])


def _help(_chat: Conversation, _argument: str) -> int:
    forms = {f"/{name} {command.arguments}".rstrip(): command.help for name, command in COMMANDS.items()}
    width = max(map(len, forms))
    click.echo("\n".join(f"{form:<{width}}  {text}" for form, text in forms.items()))
    click.echo(f"\n{KEYS}")
    return 0


def _context(chat: Conversation, _argument: str) -> int:
    nx = chat.agent.nx
    ctx = chat.agent.next_context()
    usage = None
    if nx.ledger.resolve(ctx.session_label):
        usage = reported_usage(nx, ctx.session_label)
    print_window(ctx, nx.counter, usage)
    return 0


def _compact(chat: Conversation, focus: str) -> int:
    agent = chat.agent
    try:
        plan = agent.nx.plan(agent.session, share=DEFAULT_PERCENT / 100, settings=agent.turn_settings)
        if plan is not None and (tokens := plan.tokens_before - plan.kept_tokens) < LEAST_TOKENS:
            click.echo(f"Not compacted: the older messages have {tokens:,} tokens, and a summary would not be shorter.")
            return 0
        run_compaction(agent.nx, agent.session, focus, plan, CommandOptions())
    except KeyboardInterrupt:
        click.echo("Stopped; the session is unchanged.", err=True)
        return STOPPED
    return 0


def _undo(chat: Conversation, _argument: str) -> int:
    return _nexus(chat, "undo", chat.agent.session)


def _session(chat: Conversation, _argument: str) -> int:
    return _nexus(chat, "session show", chat.agent.session)


def _model(chat: Conversation, name: str) -> int:
    if name:
        chat.agent.select_model(name)
    summarizer = chat.agent.summarizer
    if summarizer == "extractive":
        summaries = "extractive summaries"
    else:
        summaries = f"summaries by {printable(summarizer)}"
    click.echo(f"Model: {printable(chat.agent.model)}, {summaries}" + ("" if name else " (another model: /model NAME)"))
    return 0


def _fork(chat: Conversation, argument: str) -> int:
    name, _, turn = argument.partition(" ")
    if not name:
        raise click.UsageError("/fork needs a name for the new session: /fork NAME [TURN]")
    source = chat.agent.session
    code = _nexus(chat, "fork", name, source, **({"turn": turn.strip()} if turn else {}))
    if not code:
        chat.agent.session = name
        click.echo(f"The chat continues in {quoted(name)} (go back: /sessions {printable(source)}).")
    return code


def _rewind(chat: Conversation, argument: str) -> int:
    option, _, move = argument.partition(" ")
    if option == "--move":
        return _nexus(chat, "session rewind", chat.agent.session, move=move.strip())
    turn = argument or str(max(chat.agent.nx.ledger.thread_info(chat.agent.session).turn - 1, 0))
    return _nexus(chat, "session rewind", chat.agent.session, turn=turn)


def _sessions(chat: Conversation, name: str) -> int:
    if not name:
        return _nexus(chat, "sessions")
    chat.open_session(name)
    return 0


def _skill(chat: Conversation, argument: str) -> int:
    name, _, message = argument.partition(" ")
    if not name:
        return _nexus(chat, "skill list")
    find_skill(all_skills(chat.agent.nx.workspace_context), name)
    chat.use_skill(name)
    if message.strip():
        return chat.send(message.strip())
    click.echo(f"The next message uses the skill {printable(name)}.")
    return 0


def _remember(chat: Conversation, text: str) -> int:
    if not text:
        return _nexus(chat, "memory show")
    return _nexus(chat, "memory add", text)


def _export(chat: Conversation, path: str) -> int:
    suffix = Path(path).suffix.lower()
    if suffix not in EXPORT_FORMATS:
        raise click.UsageError(f"/export needs a file whose name ends with {', '.join(EXPORT_FORMATS)}")
    file = Path(path).expanduser()
    try:
        stream = open(file, "x", encoding="utf-8", errors="backslashreplace", opener=_private)  # noqa: SIM115
        with stream, redirect_stdout(stream):
            code = _nexus(chat, "history", chat.agent.session, **{"as": EXPORT_FORMATS[suffix]})
    except OSError as error:
        raise UnreadableFile(f"'{file}' not written: {error.strerror or error}") from error
    if code:
        file.unlink()
    else:
        click.echo(f"Wrote {printable(str(file))}")
    return code


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _image(chat: Conversation, path: str) -> int:
    if not path:
        raise click.UsageError("/image needs a file: /image PATH")
    paths = image_paths(path)
    chat.attach(paths[0][1] if len(paths) == 1 else Path(path.strip("'\"")).expanduser())
    return 0


def _clear(chat: Conversation, _argument: str) -> int:
    ledger = chat.agent.nx.ledger
    session = chat.agent.session
    turn = ledger.thread_info(session).turn
    ledger.commit(session, Commit((NewEntry("clear", at_ms=chat.agent.nx.clock_ms()),)))
    click.echo(
        f"The next message begins an empty context. Earlier messages stay in the session: /rewind {turn} shows them."
    )
    return 0


def _search(chat: Conversation, words: str) -> int:
    return _nexus(chat, "search", *words.split(), session=chat.agent.session)


def _quit(_chat: Conversation, _argument: str) -> int:
    raise EOFError


COMMANDS = {
    "help": SlashCommand(_help, "", "List commands and keys."),
    "context": SlashCommand(_context, "", SUMMARIES["context"]),
    "compact": SlashCommand(_compact, "[FOCUS]", SUMMARIES["compact"], needs_messages=True),
    "undo": SlashCommand(_undo, "", SUMMARIES["undo"], needs_messages=True),
    "session": SlashCommand(
        _session, "", "Show this session: metadata, counts, reported tokens, cost.", needs_messages=True
    ),
    "model": SlashCommand(_model, "[NAME]", "Show or change the model."),
    "sessions": SlashCommand(_sessions, "[NAME]", "List the sessions, or change to one."),
    "fork": SlashCommand(
        _fork, "NAME [TURN]", "Continue in a new session, from here or an earlier turn.", needs_messages=True
    ),
    "rewind": SlashCommand(
        _rewind, "[TURN | --move N]", "Go back to the end of a turn [the one before the last].", needs_messages=True
    ),
    "search": SlashCommand(_search, "WORDS", SUMMARIES["search"], needs_messages=True),
    "skill": SlashCommand(_skill, "[NAME [MESSAGE]]", "List the skills, or use one for the next message."),
    "remember": SlashCommand(_remember, "[TEXT]", "Add a fact to the memory, or show it."),
    "image": SlashCommand(_image, "PATH", "Send an image with the next message."),
    "export": SlashCommand(_export, "FILE", "Write the session to a .md, .txt or .json file.", needs_messages=True),
    "clear": SlashCommand(_clear, "", "Begin an empty context in this session.", needs_messages=True),
    "quit": SlashCommand(_quit, "", "End the chat."),
}
"""The slash commands by name, in the order in which `/help` lists them."""
