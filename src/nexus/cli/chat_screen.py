"""Events of a turn on a terminal, as plain text, or as lines of JSON.

On a terminal the reply's finished blocks of Markdown are printed once, into the scrollback; the unfinished rest is shown
below them, in an area no larger than the screen. The text of a model or tool has no control over the terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import click
import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from nexus.cli._models import EXTRACTIVE
from nexus.cli._output import beginning, escape_json
from nexus.render.console import call_values, parameter_list, printable, visible_lines
from nexus.types.request import TokenUsage
from nexus.types.stream_events import (
    CompactionEnd,
    CompactionStart,
    Reasoning,
    Retry,
    StreamEnd,
    StreamError,
    StreamEvent,
    StreamStart,
    Token,
    ToolStatus,
)

LIVE_CHARS = 4_000
"""Characters of unfinished Markdown that are shown as Markdown; more is shown as text, which is faster."""

RESULT_CHARS = 100

INPUT_LINES = 8
"""Lines of the screen that are left for the input line, queued messages and keys."""


class Screen(Protocol):
    """Shows the events of turns."""

    end: StreamEnd | StreamError | None
    """The end of the newest turn; None while it runs."""

    def take(self, event: StreamEvent) -> None:
        """Show an event."""
        ...

    def turn(self) -> AbstractContextManager[None]:
        """Return the context manager in which a turn runs."""
        ...


def visible(text: str) -> str:
    """Return a text of a model or tool without control of the terminal."""
    return "\n".join(visible_lines(text.replace("\r", "").split("\n")))


def split_blocks(text: str) -> int:
    """Return the length of the Markdown at a text's beginning that later text cannot change: all but its last block."""
    complete = text.rfind("\n") + 1
    starts = [token.map[0] for token in _markdown(text[:complete]).parsed if token.level == 0 and token.map is not None]
    if not starts or not starts[-1]:
        return 0
    lines = text[:complete].splitlines(keepends=True)
    return sum(map(len, lines[: starts[-1]]))


def tool_line(status: ToolStatus) -> str:
    """Return a call as one line: the tool's name and its arguments, truncated."""
    values = call_values(status.text)
    if values is None:
        arguments = f" ({beginning(status.text, RESULT_CHARS)})"
    else:
        arguments = parameter_list(values)
    return printable(f"{status.name}{arguments if status.text not in ('', '{}') else ''}")


def usage_line(end: StreamEnd) -> str:
    """Return the usage and cost of a turn; empty without reported usage."""
    usage: TokenUsage = end.usage
    if not usage.input_tokens:
        return ""
    cached = ""
    if usage.cache_read_tokens:
        cached = f", {usage.cache_read_tokens / usage.input_tokens:.0%} from the cache"
    if end.cost_usd is None:
        cost = ""
    else:
        cost = f", {end.cost_usd:.4f} USD"
    calls = f", {end.calls} calls" if end.calls > 1 else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{calls}{cost}"


def compaction_line(end: CompactionEnd) -> str:
    """Return the result of a compaction, and why a model's summary was rejected."""
    problem = ""
    if end.problem:
        problem = f" (a model's summary was rejected: {beginning(end.problem.rstrip('.'), RESULT_CHARS)})"
    if not end.method:
        return f"older messages were not summarized{problem}"
    sizes = f"{end.tokens_before:,} tokens before, {end.tokens_after:,} now"
    if end.method == EXTRACTIVE:
        summary = "an extractive summary"
    else:
        summary = f"a summary by {end.method}"
    return f"older messages are now {summary}: {sizes}{problem}"


def retry_line(event: Retry, last: Retry | None) -> str:
    """Return why a call is made again, unless the last retry had the same reason, and when."""
    delay = ""
    if event.delay_s >= 1:
        delay = f" in {event.delay_s:.0f} s"
    return f"trying again{delay}{'' if last is not None and last.text == event.text else f': {event.text}'}"


class JsonScreen:
    """Prints each event as a line of JSON."""

    def __init__(self) -> None:
        self.end: StreamEnd | StreamError | None = None

    def take(self, event: StreamEvent) -> None:
        """Print an event."""
        if isinstance(event, (StreamEnd, StreamError)):
            self.end = event
        click.echo(escape_json(msgspec.json.encode(event).decode()))

    @contextmanager
    def turn(self) -> Generator[None]:
        """Run a turn."""
        self.end = None
        yield


class ErrorScreen:
    """Prints errors alone."""

    def __init__(self) -> None:
        self.end: StreamEnd | StreamError | None = None

    def take(self, event: StreamEvent) -> None:
        """Print an error."""
        if isinstance(event, (StreamEnd, StreamError)):
            self.end = event
        if isinstance(event, StreamError):
            click.echo(f"nexus: {_error_line(event)}", err=True)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Run a turn."""
        self.end = None
        yield


class PlainScreen:
    """Prints the reply on standard output as it comes, and everything else on standard error."""

    def __init__(self) -> None:
        self.end: StreamEnd | StreamError | None = None
        self._last = "\n"
        self._retry: Retry | None = None

    def take(self, event: StreamEvent) -> None:
        """Print an event."""
        match event:
            case Token(text):
                self._write(visible(text))
            case Retry():
                withdrawn = "the text above is withdrawn; " if self._last != "\n" else ""
                self._note(f"{withdrawn}{retry_line(event, self._retry)}")
                self._retry = event
            case ToolStatus(status="started"):
                self._note(tool_line(event))
            case ToolStatus(status="failed"):
                self._note(f"{event.name} failed: {beginning(event.text, RESULT_CHARS)}")
            case CompactionStart():
                self._note("compacting older messages")
            case CompactionEnd():
                self._note(compaction_line(event))
            case StreamEnd():
                self.end = event
                self._end_line()
            case StreamError():
                self.end = event
                self._end_line()
                click.echo(f"nexus: {_error_line(event)}", err=True)
            case _:
                pass

    @contextmanager
    def turn(self) -> Generator[None]:
        """Run a turn."""
        self.end = self._retry = None
        try:
            yield
        finally:
            self._end_line()

    def _note(self, text: str) -> None:
        self._end_line()
        click.echo(f"[{printable(text)}]", err=True)

    def _write(self, text: str) -> None:
        if text:
            click.echo(text, nl=False)
            sys.stdout.flush()
            self._last = text[-1]

    def _end_line(self) -> None:
        if self._last != "\n":
            self._write("\n")


def _error_line(event: StreamError) -> str:
    if event.kind == "aborted":
        return "interrupted"
    return printable(event.text)


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Return a line without the spaces at its end, which would be copied with it, unless they have a background."""
    line = [segment for segment in line if not segment.control]
    while line and (line[-1].style is None or line[-1].style.bgcolor is None):
        last = line.pop()
        if text := last.text.rstrip(" "):
            return [*line, Segment(text, last.style)]
    return line


class _Safe:
    """A renderable whose text cannot control the terminal; with `last`, only its last lines."""

    def __init__(self, renderable: Markdown | Text, last: int = 0) -> None:
        self._renderable = renderable
        self._last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        lines = [_trimmed(line) for line in console.render_lines(self._renderable, options, pad=False)]
        while lines and not lines[0]:  # lists and tables have blank lines around them; `_print_block` prints one
            del lines[0]
        while lines and not lines[-1]:
            del lines[-1]
        for line in lines[-self._last :]:
            # Markdown has character references, whose characters are escaped here.
            yield from (Segment(printable(segment.text), segment.style) for segment in line)
            yield Segment.line()


class TerminalScreen:
    """Shows turns on a terminal: finished text is written, the rest is `area`, which the input line shows.

    Attributes:
        write: Writes text above the area.
        is_busy: True if the next turn waits for another one of its session.
    """

    def __init__(self, console: Console) -> None:
        self.end: StreamEnd | StreamError | None = None
        self.console = console
        self.write: Callable[[str], object] = self._write_directly
        self.is_busy = False
        self._retry: Retry | None = None
        self._pending = ""
        self._shown_blocks = 0
        self._next_split = 0
        self._state = ""
        self._since = 0.0
        self._running: dict[str, ToolStatus] = {}
        name = "line"
        if (console.encoding or "").startswith("utf"):
            name = "dots"
        self._spinner = Spinner(name, style="dim")

    @contextmanager
    def turn(self) -> Generator[None]:
        """Run a turn below the text so far."""
        self.end = None
        self._pending = ""
        self._shown_blocks = 0
        self._next_split = 0
        self._running = {}
        self._retry = None
        self._set_state("waiting for another turn of this session" if self.is_busy else "waiting for the model")
        try:
            yield
        finally:
            self._print_text()

    def take(self, event: StreamEvent) -> None:
        """Show an event."""
        match event:
            case Token(text):
                self._set_state("writing")
                self._pending += visible(text)
                if "\n" in text and len(self._pending) >= self._next_split:
                    self._print_finished_blocks()
            case Reasoning():
                self._set_state("thinking")
            case StreamStart():
                self._set_state("waiting for the model")
            case Retry():
                withdrawn = "the reply so far is withdrawn; " if self._pending or self._shown_blocks else ""
                self._pending = ""
                self._shown_blocks = 0
                self._next_split = 0
                self._note(f"{withdrawn}{retry_line(event, self._retry)}", "yellow")
                self._retry = event
                self._set_state("waiting for the model")
            case ToolStatus():
                self._take_tool(event)
            case CompactionStart():
                self._print_text()
                self._set_state("compacting older messages")
            case CompactionEnd():
                self._note(compaction_line(event))
                self._set_state("waiting for the model")
            case StreamEnd():
                self.end = event
                self._print_text()
                if line := usage_line(event):
                    self._note(line)
            case StreamError():
                self.end = event
                self._print_text()
                self._note(_error_line(event), "yellow" if event.kind == "aborted" else "red")

    def _take_tool(self, event: ToolStatus) -> None:
        if event.status == "started":
            self._print_text()
            self._running[event.call_id] = event
            return
        call = self._running.pop(event.call_id, event)
        is_ok = event.status == "completed"
        line = Text("✓ " if is_ok else "✗ ", "green" if is_ok else "red")
        self._print(line.append(tool_line(call), "bold"))
        result = beginning(event.text, min(RESULT_CHARS, max(self.console.width - 3, 1)))
        if result:
            self._print(Text(f"  {result}", "dim" if is_ok else "red"))
        self._set_state("waiting for the model")

    def _note(self, text: str, style: str = "dim") -> None:
        self._print(Text(printable(text), style))

    def _set_state(self, state: str) -> None:
        if state != self._state:
            self._state, self._since = state, time.monotonic()

    def _print_text(self) -> None:
        """Print the rest of the reply's text, which is finished."""
        block = self._pending
        self._pending = ""
        self._next_split = 0
        if block.strip():
            self._print_block(block)
        self._shown_blocks = 0

    def _print_finished_blocks(self) -> None:
        """Print the blocks that are finished. Without one, the text must grow by a quarter before the next look."""
        length = split_blocks(self._pending)
        self._next_split = 0 if length else len(self._pending) * 5 // 4
        if length:
            block = self._pending[:length]
            self._pending = self._pending[length:]
            self._print_block(block)

    def _print_block(self, block: str) -> None:
        if self._shown_blocks:
            self._print("")
        self._shown_blocks += 1
        self._print(_Safe(_markdown(block)), end="")

    def _print(self, text: _Safe | Text | str, end: str = "\n") -> None:
        with self.console.capture() as capture:
            self.console.print(text, end=end)
        self.write(capture.get())

    def _write_directly(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()

    def area_text(self) -> str:
        """Return the area as text with colors as escape sequences; empty after the turn's end."""
        if self.end is not None:
            return ""
        with self.console.capture() as capture:
            self.console.print(self.area(), end="")
        return capture.get()

    def area(self) -> Group:
        """Return the unfinished text, the running tools and the state, within the screen's height."""
        pending = self._pending
        running = list(self._running.values())
        room = max(self.console.height - len(running) - INPUT_LINES, 1)
        parts: list[_Safe | Text | Spinner] = []
        if pending.strip():
            if len(pending) <= LIVE_CHARS:
                unfinished = _markdown(pending)
            else:
                unfinished = Text(pending[-LIVE_CHARS:])
            parts.append(_Safe(unfinished, room))
        width = max(self.console.width - 2, 1)
        parts += [Text(f"• {tool_line(status)}"[:width], "bold", no_wrap=True) for status in running[:room]]
        if len(running) > 1:
            state = f"running {len(running)} tools"
        elif running:
            state = "running"
        else:
            state = self._state
        self._spinner.update(text=Text(f"{state}, {time.monotonic() - self._since:.0f} s"[:width], "dim"))
        return Group(*parts, self._spinner)


def _markdown(text: str) -> Markdown:
    return Markdown(text, hyperlinks=False)  # addresses are shown, not hidden behind words
