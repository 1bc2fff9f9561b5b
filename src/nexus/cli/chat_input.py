"""The input line of `nexus chat`: several lines, history of earlier chats, completion, and questions to the user."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus, is_done
from prompt_toolkit.formatted_text import (
    ANSI,
    AnyFormattedText,
    FormattedText,
    merge_formatted_text,
    to_formatted_text,
)
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.patch_stdout import patch_stdout

from nexus.cli._output import beginning, count_noun, plain_output
from nexus.cli.chat_files import path_to_complete
from nexus.cli.chat_paste import PasteFileHistory, PasteNames, Pastes
from nexus.cli.chat_terminal import FOLLOW_S, has_input, has_suspend, suspend
from nexus.render.console import printable

PROMPT = [("bold fg:ansicyan", "> ")]
GRAY = "fg:ansibrightblack"
REFRESHES_PER_SECOND = 8

SHOWN_QUEUE = 3
"""Queued messages that are shown during a turn."""

MENU_LINES = 6
"""Lines for the list of completions."""

HISTORY_FILE = "chat_history"

Choices = Callable[[], Iterable[str]]
"""Returns the values that complete a command's argument."""


class ChatInput:
    """Reads messages and answers on a terminal. During a turn the next message can be written (`open_during_turn`).

    Args:
        home: The user's folder, where the history is stored for its owner alone.
        root: The folder whose files complete `@`.
        commands: Slash commands, with a line about each.
        choices: Values of their arguments, by command.
        status: Returns the line below the input.
        after_render: Called when the input line has been drawn.

    Attributes:
        queue: Messages and commands that follow the running turn.
        steering: Messages that join the running turn before its next call of the model.
        line: The newest line of `read` as it was shown: without the texts of long pastes.
    """

    def __init__(
        self,
        home: Path,
        root: Path,
        commands: Mapping[str, str],
        choices: Mapping[str, Choices],
        status: Callable[[], str],
        after_render: Callable[[], None],
    ) -> None:
        depth = ColorDepth.DEPTH_1_BIT if plain_output() else None
        self.queue: deque[str] = deque()
        self.steering: deque[str] = deque()
        self.line = ""
        self._pastes = Pastes()
        self._status = status
        self._line = ""
        self._drafts: deque[Document] = deque()
        self._turn: _RunningTurn | None = None
        self._question: _Question | None = None
        self._session: PromptSession[str] = PromptSession(
            history=_history(home / HISTORY_FILE, self._pastes),
            completer=_ChatCompleter(root, commands, choices),
            complete_while_typing=True,
            key_bindings=merge_key_bindings([self._message_keys(), self._program_keys(), self._turn_keys()]),
            multiline=True,
            prompt_continuation="  ",
            color_depth=depth,
            input_processors=[PasteNames(self._pastes)],
        )
        self._buffer = self._session.default_buffer
        self._app = self._session.app
        layout = self._session.layout
        self._above: AnyFormattedText = ""
        lines = [_window(lambda: self._above), layout.container, _window(self._status_line)]
        self._app.layout = Layout(HSplit(lines), layout.current_window)
        self._app.before_render.add_handler(lambda _: self._prepare_render())
        self._app.after_render.add_handler(lambda _: after_render())
        self._yes_or_no: PromptSession[str] = PromptSession(color_depth=depth)

    def read(self) -> str:
        """Return a message: the next of the queue, or a new one. Raises EOFError, and KeyboardInterrupt for Ctrl-C."""
        if self.queue:
            self._line = self.queue.popleft()
            line = printable(_first_lines(self._pastes.show(self._line)))
            print_formatted_text(FormattedText([*PROMPT, ("", line)]))
        else:
            self._app.erase_when_done = False
            self._session.refresh_interval = 0
            self._line = self._session.prompt(FormattedText(PROMPT), default=self._next_draft())
        self.line = self._pastes.show(self._line)
        return self.full_text(self._line)

    def full_text(self, line: str) -> str:
        """Return the text of an input line, with its pastes."""
        # Bytes that are not UTF-8 arrive as lone surrogates.
        return self._pastes.expand(line).encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def ask(self, question: str, *, default: bool) -> bool | None:
        """Return the answer to a question; None for Ctrl-C and Ctrl-D."""
        return _ask(self._yes_or_no, question, default=default)

    def put_back(self) -> None:
        """Let the newest line be the first of the queue again: it was not sent."""
        self.queue.appendleft(self._line)

    def _next_draft(self) -> Document:
        if self._drafts:
            return self._drafts.popleft()
        return Document()

    @asynccontextmanager
    async def open_during_turn(
        self, area: Callable[[], str], interrupt: Callable[[], None], *, can_steer: bool
    ) -> AsyncGenerator[None]:
        """Show a turn with an input line for the next message, which is a draft for `read`.

        Args:
            area: Returns the text above the line, with colors as escape sequences.
            interrupt: Called for Ctrl-C.
            can_steer: Whether messages may join the turn.
        """
        self._turn, start = _RunningTurn(area, interrupt, can_steer), asyncio.Event()
        self._app.erase_when_done = True
        self._session.refresh_interval = 1 / REFRESHES_PER_SECOND
        prompt = self._session.prompt_async(
            FormattedText(PROMPT), default=self._next_draft(), pre_run=start.set, handle_sigint=False
        )
        with patch_stdout(raw=True):
            task = asyncio.ensure_future(prompt)
            start_task = asyncio.ensure_future(start.wait())
            await asyncio.wait((task, start_task), return_when=asyncio.FIRST_COMPLETED)
            start_task.cancel()
            try:
                yield
            finally:
                if self._buffer.text:
                    self._drafts.appendleft(self._buffer.document)
                if self._app.future is not None and not self._app.future.done():
                    self._app.exit(result="")
                with suppress(EOFError):  # the terminal was closed
                    await task
                self._turn = None
                self.queue.extendleft(reversed(self.steering))
                self.steering.clear()

    def print_above(self, text: str) -> None:
        """Print a text above the input line; without one, where the cursor is."""
        if self._turn is not None and self._app.is_running:
            # `run_in_terminal` would do this later, and below text that is printed in between.
            self._app.renderer.erase()
            self._app.output.write_raw(text)
            self._app.output.flush()
            self._app.invalidate()
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    async def ask_during_turn(self, question: str) -> str:
        """Return the answer to a question in lower case, in place of the draft, which comes back then."""
        self._question = _Question(question, asyncio.get_running_loop().create_future(), self._buffer.document)
        self._buffer.reset()
        self._session.message = question
        self._app.invalidate()
        try:
            return (await self._question.answer).strip().lower()
        finally:
            self._buffer.reset(self._question.draft)
            self._session.message = FormattedText(PROMPT)
            self._question = None
            self._app.invalidate()

    def take_back_queue(self) -> int:
        """Make the queued messages drafts and return their number: a turn that ended badly starts no other."""
        count = len(self.queue)
        self._drafts.extendleft(Document(text) for text in reversed(self.queue))
        self.queue.clear()
        return count

    def _area(self) -> AnyFormattedText:
        """Return the running turn and the messages behind it."""
        if self._turn is None:
            return ""
        messages = [*(f"joins the turn: {text}" for text in self.steering), *(f"queued: {text}" for text in self.queue)]
        if len(messages) > SHOWN_QUEUE:
            messages[SHOWN_QUEUE:] = [f"and {len(messages) - SHOWN_QUEUE} more"]
        width = max(self._columns - 1, 1)
        lines = [(GRAY, f"\n{beginning(self._pastes.show(text), width)[:width]}") for text in messages]
        return merge_formatted_text([ANSI(self._turn.area().rstrip("\n")), FormattedText(lines)])

    def _status_line(self) -> AnyFormattedText:
        """Return the line below the input: the status, or during a turn its keys."""
        if self._turn is None:
            others = ""
            if self._drafts:
                others = f"{count_noun(len(self._drafts), 'more message')} · "
            return FormattedText([(GRAY, f"{others}{self._status()}")])
        if self._question is not None:
            return FormattedText([(GRAY, "Ctrl-C stops · Enter answers")])
        if self._turn.can_steer:
            steering = (" · Ctrl-S lets it join the running turn", " · Ctrl-S joins")
        else:
            steering = ("", "")
        keys = f"Ctrl-C stops · Enter queues a message{steering[0]}"
        return FormattedText(
            [(GRAY, keys if len(keys) < self._columns else f"Ctrl-C stops · Enter queues{steering[1]}")]
        )

    @property
    def _columns(self) -> int:
        return self._app.output.get_size().columns

    def _prepare_render(self) -> None:
        """Draw the turn once, and make room for the list of completions while it is shown."""
        self._above = self._area()
        if self._buffer.complete_state is not None:
            self._session.reserve_space_for_menu = MENU_LINES
        else:
            self._session.reserve_space_for_menu = 0

    def _accept(self) -> None:
        """Send the line: as a message, as the answer to a question, or to the queue of a running turn."""
        if self._question is not None:
            if not self._question.answer.done():
                self._question.answer.set_result(self._buffer.text)
        elif self._turn is not None:
            self._take_during_turn(self.queue)
        else:
            self._buffer.validate_and_handle()

    def _take_during_turn(self, to: deque[str]) -> None:
        """Add the draft to a queue. It is in the input history then, also if the program is killed."""
        if self._buffer.text.strip():
            self._buffer.append_to_history()
            to.append(self._buffer.text)
        self._buffer.reset()

    def _message_keys(self) -> KeyBindings:
        """Return the keys: Enter sends, Alt-Enter and a backslash before Enter begin a new line."""
        bindings = KeyBindings()

        @bindings.add("enter", filter=has_focus(DEFAULT_BUFFER))
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.complete_state = None
            elif buffer.document.current_line_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif event.key_processor.input_queue or has_input(FOLLOW_S):  # a pasted line of a terminal without brackets
                buffer.insert_text("\n")
            else:
                self._accept()

        @bindings.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._pastes.shorten(event.data))

        @bindings.add(Keys.Vt100MouseEvent)
        def _(_event: KeyPressEvent) -> None:
            """Ignore the mouse, and typed escape sequences that look like it, which prompt_toolkit fails on."""

        @bindings.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return bindings

    def _program_keys(self) -> KeyBindings:
        """Return the keys that leave the chat for another program: an editor, or the shell."""
        bindings = KeyBindings()

        @bindings.add("c-x", "c-e", filter=has_focus(DEFAULT_BUFFER))
        async def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            editor_buffer = Buffer(document=Document(self._pastes.expand(buffer.text)))
            await editor_buffer.open_in_editor()
            buffer.document = Document(self._pastes.shorten_known(editor_buffer.text))

        @bindings.add("c-z")
        def _(_event: KeyPressEvent) -> None:
            if has_suspend():
                run_in_terminal(suspend)

        return bindings

    def _turn_keys(self) -> KeyBindings:
        """Return the keys of a running turn."""
        bindings = KeyBindings()
        in_turn = Condition(lambda: self._turn is not None) & has_focus(DEFAULT_BUFFER)
        is_empty = Condition(lambda: not self._buffer.text)

        @bindings.add("c-c", filter=Condition(lambda: self._turn is not None))
        @bindings.add("<sigint>", filter=Condition(lambda: self._turn is not None))
        def _(_event: KeyPressEvent) -> None:
            if self._turn is not None:
                self._turn.interrupt()

        @bindings.add("c-d", filter=in_turn & is_empty)
        def _(_event: KeyPressEvent) -> None:
            if self._question is None and "/quit" not in self.queue:
                self.queue.append("/quit")

        @bindings.add("c-s", filter=in_turn)
        def _(_event: KeyPressEvent) -> None:
            if self._turn is not None and self._question is None:
                can_join = self._turn.can_steer and not self._buffer.text.startswith("/")
                self._take_during_turn(self.steering if can_join else self.queue)

        @bindings.add("up", filter=in_turn & is_empty & Condition(lambda: bool(self.queue) and self._question is None))
        def _(_event: KeyPressEvent) -> None:
            text = self.queue.pop()
            self._buffer.reset(Document(text))

        return bindings


class _RunningTurn(NamedTuple):
    """The turn that runs above the input line."""

    area: Callable[[], str]
    interrupt: Callable[[], None]
    can_steer: bool


class _Question(NamedTuple):
    """A question during a turn, and the draft that comes back after it."""

    text: str
    answer: asyncio.Future[str]
    draft: Document


def _window(text: Callable[[], AnyFormattedText]) -> ConditionalContainer:
    """Return lines around the input, as high as their text; none if it is empty or the input is done."""
    has_text = Condition(lambda: bool(to_formatted_text(text())))
    window = Window(FormattedTextControl(text), dont_extend_height=True)
    return ConditionalContainer(window, ~is_done & has_text)


def _first_lines(text: str) -> str:
    """Return the first line of a message, and how many follow."""
    first, *rest = text.split("\n")
    if rest:
        return f"{first} [and {count_noun(len(rest), 'line')}]"
    return first


def _prompt(question: str, *, default: bool) -> str:
    return f"{question} [{'Y/n' if default else 'y/N'}] "


def _yes_or_no(answer: str, *, default: bool) -> bool | None:
    """Return the answer; None if it is neither yes nor no."""
    return {"": default, "y": True, "yes": True, "n": False, "no": False}.get(answer.strip().lower())


def _ask(session: PromptSession[str], question: str, *, default: bool) -> bool | None:
    try:
        while True:
            answer = _yes_or_no(session.prompt(_prompt(question, default=default)), default=default)
            if answer is not None:
                return answer
    except (EOFError, KeyboardInterrupt):
        return None


def ask_on_terminal(question: str, *, default: bool) -> bool:
    """Return the answer to a question that comes before the chat begins; Ctrl-C and Ctrl-D are no."""
    return bool(_ask(PromptSession(), question, default=default))


def _history(file: Path, pastes: Pastes) -> History:
    """Return the history in a file that only its owner may read; one in memory if the file cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if os.name == "posix":
                os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError:
        return InMemoryHistory()
    return PasteFileHistory(str(file), pastes)


class _ChatCompleter(Completer):
    """Completes slash commands, their arguments, and files behind `@`."""

    def __init__(self, root: Path, commands: Mapping[str, str], choices: Mapping[str, Choices]) -> None:
        self._commands = commands
        self._choices = choices
        self._paths = PathCompleter(expanduser=True)
        self._files = PathCompleter(expanduser=True, get_paths=lambda: [str(root)])

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the commands or arguments that the text before the cursor begins."""
        text = document.text_before_cursor
        if (path := path_to_complete(text)) is not None:
            yield from self._files.get_completions(Document(path), complete_event)
        if not text.startswith("/") or "\n" in text:
            return
        name, space, argument = text[1:].partition(" ")
        if not space:
            for command, line in self._commands.items():
                if command.startswith(name):
                    yield Completion(command, -len(name), display=f"/{command}", display_meta=line)
        elif name in ("image", "export"):
            yield from self._paths.get_completions(Document(argument), complete_event)
        elif name in self._choices and " " not in argument:
            for value in self._choices[name]():
                if value.startswith(argument) and value.isprintable():
                    yield Completion(value, -len(argument))
