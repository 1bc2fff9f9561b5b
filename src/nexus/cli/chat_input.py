"""The input line of `nexus chat`: several lines, history of earlier chats, completion, and questions to the user."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth

from nexus.cli._output import plain_output

HISTORY_FILE = "chat_history"
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})

Choices = Callable[[], Iterable[str]]
"""Returns the values that complete a command's argument."""

_WORDS = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|(?:\\.|[^\s\\])+")


class ChatInput:
    """Reads messages and answers on a terminal.

    Args:
        home: The user's folder, where the history is stored for its owner alone.
        commands: Slash commands, with a line about each.
        choices: Values of their arguments, by command.
        status: Returns the line below the input.
        after_render: Called when the input line has been drawn.
    """

    def __init__(
        self,
        home: Path,
        commands: Mapping[str, str],
        choices: Mapping[str, Choices],
        status: Callable[[], str],
        after_render: Callable[[], None],
    ) -> None:
        depth = ColorDepth.DEPTH_1_BIT if plain_output() else None
        self._session: PromptSession[str] = PromptSession(
            history=_history(home / HISTORY_FILE),
            completer=_CommandCompleter(commands, choices),
            complete_while_typing=True,
            key_bindings=_bindings(),
            multiline=True,
            prompt_continuation="  ",
            bottom_toolbar=lambda: FormattedText([("noreverse fg:ansibrightblack", status())]),
            color_depth=depth,
            reserve_space_for_menu=6,
        )
        self._session.app.after_render.add_handler(lambda _: after_render())
        self._question: PromptSession[str] = PromptSession(color_depth=depth)

    def read(self) -> str:
        """Return a message. Raises EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C."""
        text = self._session.prompt(FormattedText([("bold fg:ansicyan", "> ")]))
        # Bytes that are not UTF-8 arrive as lone surrogates.
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def ask(self, question: str, *, default: bool) -> bool:
        """Return the answer to a question; Ctrl-C and Ctrl-D are no."""
        try:
            while True:
                answer = _yes_or_no(self._question.prompt(_prompt(question, default=default)), default=default)
                if answer is not None:
                    return answer
        except (EOFError, KeyboardInterrupt):
            return False

    async def ask_during_turn(self, question: str) -> str:
        """Return the answer to a question while the event loop runs, in lower case. Raises as `read`."""
        return (await self._question.prompt_async(question, handle_sigint=False)).strip().lower()


def _prompt(question: str, *, default: bool) -> str:
    return f"{question} [{'Y/n' if default else 'y/N'}] "


def _yes_or_no(answer: str, *, default: bool) -> bool | None:
    """Return the answer; None if it is neither yes nor no."""
    return {"": default, "y": True, "yes": True, "n": False, "no": False}.get(answer.strip().lower())


def ask_on_terminal(question: str, *, default: bool) -> bool:
    """Return the answer to a question that comes before the chat begins; Ctrl-C and Ctrl-D are no."""
    try:
        while True:
            answer = _yes_or_no(PromptSession[str]().prompt(_prompt(question, default=default)), default=default)
            if answer is not None:
                return answer
    except (EOFError, KeyboardInterrupt):
        return False


@contextmanager
def quiet_keys() -> Generator[None]:
    """Keep keys that are pressed while a turn runs for the next input line, unchanged and without showing them."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    # Bytes stay as they are typed: no line break for Enter, no end for Ctrl-D. Ctrl-C is still a signal.
    flags = before[3] & ~(termios.ECHO | termios.ICANON)
    quiet = [before[0] & ~termios.ICRNL, *before[1:3], flags, *before[4:]]
    termios.tcsetattr(handle, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(handle, termios.TCSANOW, before)


def image_paths(text: str) -> list[tuple[str, Path]]:
    """Return the absolute paths of existing image files in a message, as written and as paths.

    Terminals write a file that is dragged into them in quotes, with backslashes, or as an address.
    """
    paths: list[tuple[str, Path]] = []
    for match in _WORDS.finditer(text):
        word = match[0]
        if word.startswith("file://"):
            plain = unquote(urlsplit(word).path)
        else:
            try:
                plain = "".join(shlex.split(word))
            except ValueError:
                plain = word
        path = Path(plain)
        with suppress(OSError, RuntimeError, ValueError):
            path = path.expanduser()
            if path.is_absolute() and path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
                paths.append((word, path))
    return paths


def _history(file: Path) -> History:
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
    return FileHistory(str(file))


def _bindings() -> KeyBindings:
    """Return the keys: Enter sends, Alt-Enter and a backslash before Enter begin a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add(Keys.Vt100MouseEvent)
    def _(_event: KeyPressEvent) -> None:
        """Ignore the mouse, and typed escape sequences that look like it, which prompt_toolkit fails on."""

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class _CommandCompleter(Completer):
    """Completes slash commands and their arguments."""

    def __init__(self, commands: Mapping[str, str], choices: Mapping[str, Choices]) -> None:
        self._commands, self._choices = commands, choices
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the commands or arguments that the text before the cursor begins."""
        text = document.text_before_cursor
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
