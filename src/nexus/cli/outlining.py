"""A context in outline: who says what in which order, how each message begins, and what it takes."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Sequence

import click
from msgspec import Struct

from nexus.cli.excerpt import beginning
from nexus.cli.shared import plain_output
from nexus.cli.table import cells
from nexus.context import AssembledContext, TokenLine
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
from nexus.types.block import Block
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

EDGE = 2
"""Messages of the conversation that are shown at its beginning, and at its end."""

FIRST_LINES = 4
"""Lines that are shown of a text before the conversation, and of one in the current message."""

ROLE = 9
"""Columns of the longest role."""

WIDTH = 120
"""Columns where the output is no terminal."""


class Row(Struct, frozen=True):
    """A line of the outline: tokens and role stand on the first line of a message only."""

    text: str
    tokens: int | None = None
    role: str = ""


def show_outline(ctx: AssembledContext, counter: TokenCounter) -> None:
    """Prints how much is used, then a line for each block and message, with as much of it as tells its form."""
    budget = ctx.token_budget
    tools = f"; {len(ctx.tools)} tools beside the messages: {budget.used.tools:,}" if ctx.tools else ""
    click.echo(f"{ctx.provenance.manifest.profile}: {budget.used.total:,} of {budget.available:,} tokens{tools}")
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    for row in outline(ctx, counter):
        tokens = "" if row.tokens is None else f"{row.tokens:,}"
        role = row.role if plain_output() or not row.role else click.style(row.role, bold=True)
        start = f"{tokens:>7}  {role}{' ' * (ROLE - len(row.role))}  "
        click.echo(f"{start}{_fitted(row.text, columns - 20)}".rstrip())


def outline(ctx: AssembledContext, counter: TokenCounter) -> Iterator[Row]:
    """The rows: each block of the system slot, the messages before the conversation, its first and last, the current."""
    blocks = {(block.name, block.source): block for block in ctx.provenance.blocks}
    for at, item in enumerate(item for item in ctx.accounting.token_breakdown if _block(item, blocks) is not None):
        block = _block(item, blocks)
        yield Row(_first(block.text if block else ""), item.tokens, "" if at else "system")
    opening = list(ctx.history.opening)
    for message in opening:
        yield from _message(ctx, message, counter, FIRST_LINES)
    rest = list(ctx.history)[len(opening) :]
    left = rest[EDGE:-EDGE]
    for message in rest[:EDGE] if left else rest:
        yield from _message(ctx, message, counter, 1)
    if left:
        tokens = sum(_tokens(ctx, message, counter) for message in left)
        yield Row(f"({len(left)} more messages)", tokens)
        for message in rest[-EDGE:]:
            yield from _message(ctx, message, counter, 1)
    for message in ctx.current:
        yield from _message(ctx, message, counter, FIRST_LINES)


def _block(item: TokenLine, blocks: dict[tuple[str, str], Block]) -> Block | None:
    return blocks.get((item.name, item.source)) if item.slot == "system" else None


def _message(ctx: AssembledContext, message: Message, counter: TokenCounter, most: int) -> Iterator[Row]:
    lines = [line for part in message.parts for line in _lines(part, most)]
    shown = lines if most > 1 else _lead(message, lines)
    for at, line in enumerate(shown or [""]):
        yield Row(line) if at else Row(line, _tokens(ctx, message, counter), message.role)


def _lead(message: Message, lines: Sequence[str]) -> Sequence[str]:
    """One line for a message of the conversation; two for one that something was put before."""
    noted = message.parts and isinstance(message.parts[0], Note)
    said = next((line for part in message.parts if not isinstance(part, Note) for line in _lines(part, 1)), "")
    return [lines[0], said] if noted and said else lines[:1]


def _lines(part: Part, most: int) -> list[str]:
    match part:
        case Text(text) | Note(text=text) | Thinking(text):
            lines = [line for line in text.splitlines() if line.strip()]
            more = len(lines) - most
            if most == 1 or more <= 0:
                return lines[:most]
            return lines if more == 1 else [*lines[:most], f"({more} more lines)"]
        case ToolCall(name=name, arguments=arguments):
            return [f"{name} {arguments}"]
        case ToolResult(call_id, content):
            text = " ".join(item.text for item in content if isinstance(item, Text))
            return [f"{call_id}: {text}"]
        case Image(media_type=media_type):
            return [f"[image: {media_type}]"]
        case Unknown(kind):
            return [f"[a part of kind {kind}]"]


def _first(text: str) -> str:
    """A block's heading, and the first line that says more."""
    return " · ".join([line.strip() for line in text.splitlines() if line.strip()][:2])


def _tokens(ctx: AssembledContext, message: Message, counter: TokenCounter) -> int:
    return math.ceil(
        message_tokens(message, counter).on(ctx.accounting.model_info.wire) * ctx.provenance.manifest.factor
    )


def _fitted(text: str, columns: int) -> str:
    """The beginning of a line, its indent kept, that so many columns of a terminal have room for."""
    indent = " " * min(len(text) - len(text.lstrip(" ")), 8)
    size = max(columns - 1 - len(indent), 1)
    shown = beginning(text, size)
    while cells(shown) > columns - len(indent) and size > 1:
        size -= max(1, (cells(shown) - columns + len(indent)) // 2)
        shown = beginning(text, size)
    return f"{indent}{shown}"
