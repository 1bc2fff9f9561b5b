"""Tables and outlines: aligned columns, the lines of an explanation, a context in outline.

Tables are never truncated. On a narrow terminal long texts take several lines, or each row becomes lines of name and
value; without a terminal a row is one line. Rows are printed as they are read, so memory does not follow their number,
which is why `rich.table.Table`, which measures all rows first, is not used here.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, zip_longest
from typing import Any

import click
import msgspec

from nexus.cli._output import beginning, count_noun, emit_with_list, format_ref, plain_output, quoted
from nexus.context import AssembledContext
from nexus.engine.analysis.explain import ExplainedLine, Explanation
from nexus.render.console import printable, printable_lines
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown

ROWS_PER_BLOCK = 500
"""Rows laid out together: columns are as wide as the widest cell so far."""

MIN_WRAPPED_COLUMNS = 16
"""Width below which a wrapped text is not readable."""

GAP = "  "

FOLDED_MESSAGES = 6
"""Messages in a row with one state and reason that are still listed singly."""

TEXT_CHARS = 60
"""Characters of a text in the table of an explanation."""

OUTLINE_MESSAGES = 2
"""Messages of the conversation shown at its beginning and at its end."""

OUTLINE_LINES = 4
"""Lines shown of a message outside the conversation."""

OUTLINE_COLUMNS = 120
"""Width of an outline where the output is not a terminal."""

ROLE_COLUMNS = 9
OUTLINE_HEAD_COLUMNS = 7 + 2 + ROLE_COLUMNS + 2
"""Columns of an outline before its texts: tokens and role, each with a gap."""


def print_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[str] = (), wraps: Collection[str] = ()
) -> None:
    """Print a table; columns in `numbers` are right-aligned, those in `wraps` may take several lines on a terminal."""
    columns = 0
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    right = [name in numbers for name in names]
    remaining = (tuple(map(printable, row)) for row in rows)
    block = [tuple(names), *islice(remaining, ROWS_PER_BLOCK)]
    widths = [0] * len(names)
    heading = True
    while block:
        # Printed rows cannot be laid out again, so columns only become wider from block to block.
        widths = [max(width, *(cell_width(row[at]) for row in block)) for at, width in enumerate(widths)]
        fitted = _fit_widths(widths, [name in wraps for name in names], columns)
        if fitted is None:  # each row as lines of name and value, without empty cells
            labels = [_pad(name, max(map(cell_width, names))) + GAP for name in names]
            lines = [
                line
                for row in block[heading:]
                for line in (*(label + cell for label, cell in zip(labels, row, strict=True) if cell), "")
            ]
        else:
            lines = [line for row in block for line in _row_lines(row, fitted, right)]
        if fitted is not None and heading and not plain_output():
            lines[0] = click.style(lines[0], bold=True)
        click.echo("\n".join(lines))
        block = list(islice(remaining, ROWS_PER_BLOCK))
        heading = False


def cell_width(text: str) -> int:
    """Return the terminal columns of a text; Chinese, Japanese, Korean and emoji characters take two."""
    if text.isascii():  # most cells; rich is imported only for the others
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_text(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns, broken between words where possible."""
    lines: list[str] = []
    for part in text.split(" "):
        if lines and cell_width(f"{lines[-1]} {part}") <= width:
            lines[-1] += f" {part}"
            continue
        lines.append("")
        for character in part:
            if lines[-1] and cell_width(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return lines


def _fit_widths(widths: list[int], wraps: list[bool], columns: int) -> list[int] | None:
    """Return the widths for a terminal of so many columns (0: no limit); None if it is too narrow for a table."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - columns
    if not columns or excess <= 0:
        return widths
    # Narrow columns are served first: what they do not need is left for the wider ones.
    wrapped = sorted((at for at, wrap in enumerate(wraps) if wrap), key=lambda at: widths[at])
    available = sum(widths[at] for at in wrapped) - excess
    if available < sum(min(widths[at], MIN_WRAPPED_COLUMNS) for at in wrapped) or not wrapped:
        return None
    fitted = list(widths)
    for after, at in enumerate(wrapped, 1):
        needed = sum(min(widths[other], MIN_WRAPPED_COLUMNS) for other in wrapped[after:])
        share = max(available // (len(wrapped) - after + 1), min(widths[at], MIN_WRAPPED_COLUMNS))
        fitted[at] = min(widths[at], share, available - needed)
        available -= fitted[at]
    return fitted


def _row_lines(row: Sequence[str], widths: list[int], right: list[bool]) -> Iterator[str]:
    cells = [
        wrap_text(cell, width) if cell_width(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=""):
        yield GAP.join(map(_pad, parts, widths, right)).rstrip(" ")


def _pad(text: str, width: int, to_right: object = None) -> str:
    spaces = " " * (width - cell_width(text))
    if to_right:
        return spaces + text
    return text + spaces


# explanations --------------------------------------------------------------------------------------------------------


def print_explanation(
    explanation: Explanation, *, every: bool, as_json: bool, texts: Mapping[MessageRef, str] | None = None
) -> None:
    """Print an explanation; `every` lists each message of long ranges, and JSON always has all.

    `texts` are whole texts of messages: they follow the table, in JSON each is its line's `full_text`.
    """
    texts = texts or {}
    if as_json:
        head = {name: value for name, value in msgspec.to_builtins(explanation).items() if name != "lines"}
        emit_with_list(head, "lines", (_line_values(line, texts) for line in explanation.lines))
        return
    call = explanation.call[:1].upper() + explanation.call[1:]
    if "session" in explanation.call:
        session = ""
    else:
        session = f" of session {quoted(explanation.session)}"
    click.echo(f"{printable(call)}{session}: {printable(explanation.model)} ({printable(explanation.provider)})")
    counts = Counter(line.state for line in explanation.lines)
    other = ", ".join(
        f"{counts[state]:,} {state} ({explanation.tokens(state):,} tokens in full)"
        for state in ("truncated", "summarized", "omitted", "not applicable")
        if counts[state]
    )
    used = f"{explanation.used:,} of {explanation.available:,} tokens used"
    click.echo(f"{used}; {other}" if other else used)
    names = ("tokens", "full", "state", "content", "reference", "reason", "text")
    rows = _explained_rows(explanation.lines, every=every)
    print_table(names, rows, numbers=("tokens", "full"), wraps=("reason", "text"))
    for warning in explanation.warnings:
        click.echo(f"Warning: {printable(warning)}")
    for line in explanation.lines:
        if line.kind == "message" and line.place is not None and line.place in texts:
            click.echo(f"\n{format_ref(line.place)} {line.name}, {line.state}:")
            click.echo("\n".join(f"  {text}" for text in printable_lines(texts[line.place]).splitlines()))


def _line_values(line: ExplainedLine, texts: Mapping[MessageRef, str]) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(line)
    if line.kind == "message" and line.place is not None and line.place in texts:
        values["full_text"] = texts[line.place]
    return values


def _explained_rows(lines: Iterable[ExplainedLine], *, every: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row per line; long ranges of messages with one state and reason are one row."""

    def outcome(line: ExplainedLine) -> tuple[str, str, str] | int:
        if line.kind == "message":
            return (line.kind, line.state, line.reason)
        return id(line)

    def row(line: ExplainedLine, tokens: int, full: int, content: str, ref: str, text: str) -> tuple[str, ...]:
        return f"{tokens:,}", f"{full:,}" * (full != tokens), line.state, content, ref, line.reason, text

    for _, group in groupby(lines, key=outcome):
        run = list(group)
        if len(run) > FOLDED_MESSAGES and not every:
            first = run[0].place
            last = run[-1].place
            assert first is not None and last is not None  # noqa: PT018 - messages of the ledger have a reference
            tokens = sum(line.tokens for line in run)
            full = sum(line.full_tokens for line in run)
            refs = f"{format_ref(first)} to {format_ref(last)}"
            yield row(run[0], tokens, full, count_noun(len(run), "message"), refs, "")
            continue
        for line in run:
            if line.place is not None:
                ref = format_ref(line.place)
            else:
                ref = line.source
            is_name = line.kind in ("block", "message", "framing", "summary", "marker")
            if len(line.text) <= TEXT_CHARS:
                text = line.text
            else:
                text = f"{line.text[: TEXT_CHARS - 1]}…"
            content = line.name if is_name else f"{line.kind} {line.name}"
            yield row(line, line.tokens, line.full_tokens, content, ref, text)


# outlines ------------------------------------------------------------------------------------------------------------


def print_outline(ctx: AssembledContext, counter: TokenCounter) -> None:
    """Print the token total, then a line for each block and message: tokens, role and beginning."""
    budget = ctx.token_budget
    tools = ""
    if ctx.tools:
        tools = f"; {len(ctx.tools)} tools besides the messages: {budget.used.tools:,}"
    click.echo(f"{ctx.provenance.manifest.profile}: {budget.used.total:,} of {budget.available:,} tokens{tools}")
    columns = OUTLINE_COLUMNS
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
    for tokens, role, text in _outline_rows(ctx, counter):
        if plain_output() or not role:
            styled = role
        else:
            styled = click.style(role, bold=True)
        count = "" if tokens is None else f"{tokens:,}"
        indent = " " * min(len(text) - len(text.lstrip(" ")), 8)
        width = columns - OUTLINE_HEAD_COLUMNS - len(indent)
        size = max(width - 1, 1)
        # A character may take two columns, so the beginning becomes shorter until its columns fit.
        while cell_width(line := beginning(text, size)) > width and size > 1:
            size -= max(1, (cell_width(line) - width) // 2)
        click.echo(f"{count:>7}  {styled}{' ' * (ROLE_COLUMNS - len(role))}  {indent}{line}".rstrip())


def _outline_rows(ctx: AssembledContext, counter: TokenCounter) -> Iterator[tuple[int | None, str, str]]:
    """Yield tokens, role and text of each block and message; the middle of the conversation is one row."""
    blocks = {(block.name, block.source): block for block in ctx.provenance.blocks}
    role = "system"
    for line in ctx.accounting.token_breakdown:
        block = None
        if line.slot == "system":
            block = blocks.get((line.name, line.source))
        if block is not None:
            first_lines = [row.strip() for row in block.text.splitlines() if row.strip()][:2]
            yield line.tokens, role, " · ".join(first_lines)
            role = ""
    opening = list(ctx.history.opening)
    conversation = list(ctx.history)[len(opening) :]
    middle = conversation[OUTLINE_MESSAGES:-OUTLINE_MESSAGES]
    for message in opening:
        yield from _message_rows(ctx, message, counter, OUTLINE_LINES)
    for at, message in enumerate(conversation):
        if not OUTLINE_MESSAGES <= at < len(conversation) - OUTLINE_MESSAGES:
            yield from _message_rows(ctx, message, counter, 1)
        elif at == OUTLINE_MESSAGES:
            tokens = sum(_provider_tokens(ctx, omitted, counter) for omitted in middle)
            yield tokens, "", f"({len(middle)} more messages)"
    for message in ctx.current:
        yield from _message_rows(ctx, message, counter, OUTLINE_LINES)


def _message_rows(
    ctx: AssembledContext, message: Message, counter: TokenCounter, max_lines: int
) -> Iterator[tuple[int | None, str, str]]:
    """Yield the rows of a message: one of a conversation's, or two if a note precedes its text."""
    lines = [line for part in message.parts for line in _part_lines(part, max_lines)]
    if max_lines == 1:
        has_note = bool(message.parts) and isinstance(message.parts[0], Note)
        rest = (line for part in message.parts if not isinstance(part, Note) for line in _part_lines(part, 1))
        text = next(rest, "")
        lines = [lines[0], text] if has_note and text else lines[:1]
    yield _provider_tokens(ctx, message, counter), message.role, lines[0] if lines else ""
    yield from ((None, "", line) for line in lines[1:])


def _part_lines(part: Part, max_lines: int) -> list[str]:
    match part:
        case Text(text) | Note(text=text) | Thinking(text):
            lines = [line for line in text.splitlines() if line.strip()]
            more = len(lines) - max_lines
            if max_lines == 1 or more <= 0:
                return lines[:max_lines]
            if more == 1:
                return lines
            return [*lines[:max_lines], f"({more} more lines)"]
        case ToolCall(name=name, arguments=arguments):
            return [f"{name} {arguments}"]
        case ToolResult(call_id, content):
            text = " ".join(item.text for item in content if isinstance(item, Text))
            return [f"{call_id}: {text}"]
        case Image(media_type=media_type):
            return [f"[image: {media_type}]"]
        case Unknown(kind):
            return [f"[a part of kind {kind}]"]


def _provider_tokens(ctx: AssembledContext, message: Message, counter: TokenCounter) -> int:
    size = message_tokens(message, counter)
    return math.ceil(size.on(ctx.accounting.model_info.provider_format) * ctx.provenance.manifest.factor)
