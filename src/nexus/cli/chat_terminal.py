"""The terminal of `nexus chat`: keys that arrive whole at any time, and lines that wrap at words.

prompt_toolkit reads and draws the input line, between turns and during them. Three things differ from its
defaults: pastes stay bracketed between two input lines, the terminal stays raw while text is printed above the input line,
and the cursor's position is never requested, so that all input was typed.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from prompt_toolkit.application import create_app_session, get_app_session
from rich.console import Console
from rich.text import Text

FOLLOW_S = 0.02
"""Seconds within which pasted text follows the end of a pasted line. People type more slowly."""

CTRL_C = "\x03"
START_OF_PASTE = "\x1b[200~"
END_OF_PASTE = "\x1b[201~"

WHOLE_S = 0.1
"""Seconds for which the rest of a paste without brackets is read; later lines are another paste."""

_LINE_AND_MORE = re.compile(r"[^\x1b]*[\r\n][^\x1b]+")


if sys.platform != "win32":
    from contextlib import AbstractContextManager

    from prompt_toolkit.input.vt100 import Vt100Input
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.output.vt100 import Vt100_Output

    class KeyInput(Vt100Input):
        """Keys of a terminal that stays raw: the line mode would show keys, cut pastes and change line ends."""

        def cooked_mode(self) -> AbstractContextManager[None]:
            """Return a context manager that changes nothing."""
            return nullcontext()

        def line_mode(self) -> AbstractContextManager[None]:
            """Return a context manager in which the terminal is in the line mode: for other programs."""
            return super().cooked_mode()

        def read_keys(self) -> list[KeyPress]:
            """Return the keys that have arrived.

            Several lines at once are a paste, also of a terminal that does not bracket it. Ctrl-C is a key in a paste
            too, whose end may never come.
            """
            for number, text in enumerate(self._read().split(CTRL_C)):
                if number:
                    if self._is_in_paste:
                        self.vt100_parser.feed(END_OF_PASTE)
                    self.vt100_parser.feed(CTRL_C)
                is_paste = not self._is_in_paste and _has_lines(text)
                self.vt100_parser.feed(f"{START_OF_PASTE}{text}{END_OF_PASTE}" if is_paste else text)
            keys = self._buffer
            self._buffer = []
            return keys

        def _read(self) -> str:
            """Return the waiting keys, with the rest of a paste without brackets."""
            text = self.stdin_reader.read()
            deadline = time.monotonic() + WHOLE_S
            while not self._is_in_paste and _has_lines(text) and time.monotonic() < deadline and has_input(FOLLOW_S):
                piece = self.stdin_reader.read()
                if not piece:
                    break
                text += piece
            return text

        @property
        def _is_in_paste(self) -> bool:
            return bool(vars(self.vt100_parser).get("_in_bracketed_paste"))

    class ScreenOutput(Vt100_Output):
        """A terminal whose pastes stay bracketed until `end_pastes`."""

        @property
        def responds_to_cpr(self) -> bool:
            """False: answers of the terminal would arrive between keys."""
            return False

        def disable_bracketed_paste(self) -> None:
            """Leave pastes bracketed: the next input line follows."""

        def end_pastes(self) -> None:
            """Let pastes arrive as plain keys again."""
            super().disable_bracketed_paste()
            self.flush()


@contextmanager
def open_terminal() -> Generator[None]:
    """Let the prompts of a chat read and draw as this module says."""
    with _wrap_lines():
        if sys.platform == "win32":
            yield
            return
        output = ScreenOutput.from_pty(sys.__stdout__ or sys.stdout)
        assert isinstance(output, ScreenOutput)
        output.enable_bracketed_paste()
        output.flush()
        try:
            with create_app_session(input=KeyInput(sys.stdin), output=output):
                yield
        finally:
            with suppress(OSError):  # the terminal is gone
                output.end_pastes()


def _has_lines(text: str) -> bool:
    """Return True for more than one line of text, which is too much to be typed at once."""
    return _LINE_AND_MORE.fullmatch(text) is not None


def has_input(wait_s: float = 0.0) -> bool:
    """Return whether keys are waiting to be read, or arrive within some seconds. Always False on Windows."""
    if sys.platform == "win32":
        return False
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def has_suspend() -> bool:
    """Return whether the system suspends programs."""
    return sys.platform != "win32"


def suspend() -> None:
    """Suspend the chat until the shell continues it."""
    if sys.platform == "win32":
        return
    session = get_app_session()
    keys = session.input
    output = session.output
    assert isinstance(keys, KeyInput)
    assert isinstance(output, ScreenOutput)
    output.end_pastes()
    with keys.line_mode():
        os.kill(0, signal.SIGTSTP)
    output.enable_bracketed_paste()
    output.flush()


@contextmanager
def quiet_keys() -> Generator[None]:
    """Keep keys that are pressed while a command runs for the next input line, unchanged and without showing them."""
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
    # Bytes stay as they are typed: no line break for Enter, no pause for Ctrl-S, no end for Ctrl-D. Ctrl-C is a signal.
    flags = before[3] & ~(termios.ECHO | termios.ICANON)
    quiet = [before[0] & ~(termios.ICRNL | termios.IXON), *before[1:3], flags, *before[4:]]
    termios.tcsetattr(handle, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(handle, termios.TCSANOW, before)


class WrappedStream:
    """A stream whose long lines are wrapped at words. Lines with colors or movements of the cursor pass unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream)

    def write(self, text: str) -> int:
        """Write a text; each line of it is wrapped on its own."""
        width = self._console.width
        if len(text) > width // 2 and "\x1b" not in text and "\r" not in text:
            self._stream.write("\n".join(self._wrap(line, width) for line in text.split("\n")))
        else:
            self._stream.write(text)
        return len(text)

    def _wrap(self, line: str, width: int) -> str:
        """Return a line in lines of the terminal's width, all with its indent."""
        text = Text(line)
        if text.cell_len <= width:
            return line
        indent = line[: len(line) - len(line.lstrip(" "))][: width // 2]
        lines = Text(line[len(indent) :]).wrap(self._console, width - len(indent))
        return "\n".join(f"{indent}{part.plain.rstrip(' ')}" for part in lines)

    def flush(self) -> None:
        """Write the buffer."""
        self._stream.flush()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return everything else of the stream."""
            return getattr(self._stream, name)


@contextmanager
def _wrap_lines() -> Generator[None]:
    """Wrap the lines that commands print."""
    with (
        redirect_stdout(cast("TextIO", WrappedStream(sys.stdout))),
        redirect_stderr(cast("TextIO", WrappedStream(sys.stderr))),
    ):
        yield
