"""Output of the commands: JSON, lines, names, times, excerpts of messages, warnings and progress.

Stored text never controls the terminal: control characters and direction changes are printed as escapes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from nexus.ledger.search_text import Pieces, excerpt_pieces
from nexus.render.console import printable
from nexus.types import counts
from nexus.types.block import ContextWarning
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import ProviderFormat

if TYPE_CHECKING:  # rich takes a while to import, and most commands do not use it
    from rich.console import Console

    from nexus.context import AssembledContext

count_noun = counts.count_noun

PROVIDER_FORMATS = ("openai", "responses", "anthropic", "gemini")

LABEL_CHARS = 60
"""Characters of a session's label in tables."""

EXCERPT_CHARS = 140
"""Characters of an excerpt, from the first match on."""

CONTEXT_CHARS = 60
"""Characters of an excerpt before the first match."""

_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
# JSON allows these in strings although terminals obey them: C1 control characters and changes of writing direction.
_TERMINAL_CONTROLS = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SPACES = re.compile(r"\s+")


def emit(value: object) -> None:
    """Print a value as JSON, indented on a terminal."""
    click.echo(_json(value, 2 if sys.stdout.isatty() else None))


def emit_each(values: Iterable[object]) -> None:
    """Print the list of these values as `emit` does, one at a time."""
    indent = 2 if sys.stdout.isatty() else None
    separator = "[" if indent is None else "[\n"
    for value in values:
        text = _json(value, indent)
        click.echo(f"{separator}{text if indent is None else textwrap.indent(text, ' ' * indent)}", nl=False)
        separator = ", " if indent is None else ",\n"
    if separator.startswith("["):
        click.echo("[]")
    else:
        click.echo("]" if indent is None else "\n]")


def emit_with_list(head: dict[str, Any], name: str, values: Iterable[object]) -> None:
    """Print an object with the fields of `head`, and under `name` the list of these values, one at a time."""
    # The head without its closing brace: the list is streamed, so the object is never in memory as a whole.
    click.echo(f"{_json(head, None)[:-1]}, {_json(name, None)}: ", nl=False)
    emit_each(values)
    click.echo("}")


def escape_json(text: str) -> str:
    """Return JSON text with escapes for terminal controls and for characters outside the output's encoding."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = _BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text)
    if text.isprintable():
        return text
    return _TERMINAL_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _json(value: object, indent: int | None) -> str:
    return escape_json(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent))


def request_body(ctx: AssembledContext, provider_format: str) -> dict[str, Any]:
    """Return the request body of a context in one of `PROVIDER_FORMATS`."""
    if provider_format == "responses":
        return ctx.to_responses()
    return ctx.to_provider(cast("ProviderFormat", provider_format))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are read, a thousand at a time."""
    remaining = iter(lines)
    while block := list(islice(remaining, 1_000)):
        click.echo("\n".join(block))


def print_warning(warning: ContextWarning, *, err: bool = True) -> None:
    """Print a warning with its source, on standard error by default."""
    click.echo(f"Warning: {printable(warning.source)}: {printable(warning.message)}", err=err)


def plain_output() -> bool:
    """Return True if colors and emoji are unwanted: NO_COLOR, TERM=dumb, or output that is not a terminal."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()


def console(*, width: int) -> Console:
    """Return a rich console; `width` applies where the output is not a terminal."""
    from rich.console import Console

    plain = plain_output()
    return Console(
        color_system=None if plain else "auto",
        no_color=plain,
        highlight=False,
        emoji=False,
        markup=False,
        width=None if sys.stdout.isatty() else width,
    )


@contextmanager
def progress_bar(label: str) -> Generator[Callable[[int, int], None] | None]:
    """Show a bar on standard error, on a terminal only; call the value with (done, total), total 0 if unknown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda completed, total: bar.update(task, completed=completed, total=total or None)


def quoted(name: str) -> str:
    """Return a name in quotes, with escapes for characters that control a terminal."""
    return f"'{printable(name)}'"


def shortened(label: str) -> str:
    """Return a label of at most `LABEL_CHARS` characters."""
    if len(label) <= LABEL_CHARS:
        return label
    return f"{label[: LABEL_CHARS - 1]}…"


def format_time(at_ms: int, *, seconds: bool = False) -> str:
    """Return a time in UTC, to the minute or second; empty for 0."""
    try:
        time = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # imported files may contain any number
        return f"[no time: {at_ms}]"
    if at_ms:
        return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")
    return ""


def format_ref(ref: MessageRef) -> str:
    """Return a message reference as commands take it: `12.0` is the first message of entry 12."""
    return f"{ref.seq}.{ref.ord}"


def beginning(text: str, size: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text on one line."""
    # Four times the size leaves room for runs of spaces without reading a long text as a whole.
    line = _SPACES.sub(" ", text[: 4 * size]).strip()
    return printable(line if len(line) <= size and len(text) <= 4 * size else f"{line[:size]}…")


def excerpt(text: str, phrases: list[list[str]]) -> Pieces:
    """Return the text around its first match of a phrase (from `parse_query`); its beginning if nothing matches."""
    pieces = excerpt_pieces(text, phrases, before=CONTEXT_CHARS, chars=EXCERPT_CHARS)
    if not pieces:
        return [(beginning(text), False)]
    return [(printable(_SPACES.sub(" ", piece)), matches) for piece, matches in pieces]
