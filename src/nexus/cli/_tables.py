"""Tables and outlines: aligned columns, the lines of an explanation, a context in outline, the facts of a session.

Tables are never truncated. On a narrow terminal long texts take several lines, or each row becomes lines of name and
value; without a terminal a row is one line. Rows are printed as they are read, so memory does not follow their number,
which is why `rich.table.Table`, which measures all rows first, is not used here.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice, zip_longest
from typing import Any

import click
import msgspec

from nexus.analysis.explain import ExplainedLine, Explanation
from nexus.cli._options import resolve_session
from nexus.cli._output import beginning, emit_with_list, format_ref, format_time, plain_output, quoted
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.ledger.sessions import SessionInfo, Thread
from nexus.render.console import printable
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens
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


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    wraps: Collection[str] = (),
) -> None:
    """Print a table; columns in `numbers` are right-aligned, those in `wraps` may take several lines on a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    right = [name in numbers for name in names]
    remaining = (tuple(map(printable, row)) for row in rows)
    block = [tuple(names), *islice(remaining, ROWS_PER_BLOCK)]
    widths, heading = [0] * len(names), True
    while block:
        widths = [max(width, *(cell_width(row[at]) for row in block)) for at, width in enumerate(widths)]
        fitted = _fit_widths(widths, [name in wraps for name in names], columns)
        if fitted is None:
            lines = [line for row in block[heading:] for line in _record_lines(names, row)]
        else:
            lines = [line for row in block for line in _row_lines(row, fitted, right)]
        if fitted is not None and heading and not plain_output():
            lines[0] = click.style(lines[0], bold=True)
        click.echo("\n".join(lines))
        block, heading = list(islice(remaining, ROWS_PER_BLOCK)), False


def cell_width(text: str) -> int:
    """Return the terminal columns of a text; Chinese, Japanese, Korean and emoji characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_text(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns, broken between words where possible."""
    lines: list[str] = []
    for part in text.split(" "):
        joined = f"{lines[-1]} {part}" if lines else part
        if lines and cell_width(joined) <= width:
            lines[-1] = joined
        else:
            lines += _split_word(part, width)
    return lines


def _split_word(text: str, width: int) -> Iterator[str]:
    """Yield a word in pieces of at most `width` columns; a character that is wider is a piece."""
    piece = ""
    for character in text:
        if piece and cell_width(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def _fit_widths(widths: list[int], wraps: list[bool], columns: int) -> list[int] | None:
    """Return the widths for a terminal of so many columns (0: no limit); None if it is too narrow for a table."""
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - columns
    if not columns or excess <= 0:
        return widths
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
    columns = [
        [cell] if cell_width(cell) <= width else wrap_text(cell, width) for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*columns, fillvalue=""):
        padded = (
            f"{' ' * (width - cell_width(part))}{part}" if to_right else f"{part}{' ' * (width - cell_width(part))}"
            for part, width, to_right in zip(parts, widths, right, strict=True)
        )
        yield GAP.join(padded).rstrip(" ")


def _record_lines(names: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """Yield a row as lines of name and value, without empty cells, and a blank line at the end."""
    width = max(map(cell_width, names))
    yield from (
        f"{name}{' ' * (width - cell_width(name))}{GAP}{cell}" for name, cell in zip(names, row, strict=True) if cell
    )
    yield ""


# explanations --------------------------------------------------------------------------------------------------------


def print_explanation(explanation: Explanation, *, every: bool, as_json: bool) -> None:
    """Print an explanation; `every` lists each message of long ranges. JSON always has all."""
    if as_json:
        head = {name: value for name, value in msgspec.to_builtins(explanation).items() if name != "lines"}
        emit_with_list(head, "lines", map(msgspec.to_builtins, explanation.lines))
        return
    call = explanation.call[:1].upper() + explanation.call[1:]
    session = "" if "session" in explanation.call else f" of session {quoted(explanation.session)}"
    click.echo(f"{printable(call)}{session}: {printable(explanation.model)} ({printable(explanation.provider)})")
    parts = [f"{explanation.used:,} of {explanation.available:,} tokens used"]
    other: list[str] = []
    for state in ("truncated", "summarized", "omitted", "not applicable"):
        count = sum(line.state == state for line in explanation.lines)
        if count:
            other.append(f"{count:,} {state} ({explanation.tokens(state):,} tokens in full)")
    click.echo("; ".join([*parts, *([", ".join(other)] if other else [])]))
    names = ("tokens", "full", "state", "content", "reference", "reason", "text")
    rows = _explained_rows(explanation.lines, every=every)
    print_table(names, rows, numbers=("tokens", "full"), wraps=("reason", "text"))
    for warning in explanation.warnings:
        click.echo(f"Warning: {printable(warning)}")


def _explained_rows(lines: Iterable[ExplainedLine], *, every: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row per line; long ranges of messages with one state and reason are one row."""

    def outcome(line: ExplainedLine) -> tuple[str, str, str] | int:
        return (line.kind, line.state, line.reason) if line.kind == "message" else id(line)

    for _, group in groupby(lines, key=outcome):
        run = list(group)
        if len(run) > FOLDED_MESSAGES and not every:
            first, last = run[0].place, run[-1].place
            assert first is not None and last is not None  # noqa: PT018 - messages of the ledger have a reference
            tokens, full = sum(line.tokens for line in run), sum(line.full_tokens for line in run)
            yield _explained_row(
                run[0], tokens, full, f"{len(run):,} messages", f"{format_ref(first)} to {format_ref(last)}", ""
            )
            continue
        for line in run:
            ref = format_ref(line.place) if line.place is not None else line.source
            is_name = line.kind in ("block", "message", "framing", "summary", "marker")
            text = line.text if len(line.text) <= TEXT_CHARS else f"{line.text[: TEXT_CHARS - 1]}…"
            content = line.name if is_name else f"{line.kind} {line.name}"
            yield _explained_row(line, line.tokens, line.full_tokens, content, ref, text)


def _explained_row(
    line: ExplainedLine, tokens: int, full_tokens: int, content: str, ref: str, text: str
) -> tuple[str, ...]:
    full = f"{full_tokens:,}" if full_tokens != tokens else ""
    return f"{tokens:,}", full, line.state, content, ref, line.reason, text


# outlines ------------------------------------------------------------------------------------------------------------


def print_outline(ctx: AssembledContext, counter: TokenCounter) -> None:
    """Print the token total, then a line for each block and message: tokens, role and beginning."""
    budget = ctx.token_budget
    tools = f"; {len(ctx.tools)} tools besides the messages: {budget.used.tools:,}" if ctx.tools else ""
    click.echo(f"{ctx.provenance.manifest.profile}: {budget.used.total:,} of {budget.available:,} tokens{tools}")
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else OUTLINE_COLUMNS
    for tokens, role, text in _outline_rows(ctx, counter):
        styled = role if plain_output() or not role else click.style(role, bold=True)
        count = "" if tokens is None else f"{tokens:,}"
        start = f"{count:>7}  {styled}{' ' * (ROLE_COLUMNS - len(role))}  "
        click.echo(f"{start}{_fit_line(text, columns - 20)}".rstrip())


def _outline_rows(ctx: AssembledContext, counter: TokenCounter) -> Iterator[tuple[int | None, str, str]]:
    """Yield tokens, role and text of each block and message; the middle of the conversation is one row."""
    blocks = {(block.name, block.source): block for block in ctx.provenance.blocks}
    role = "system"
    for line in ctx.accounting.token_breakdown:
        block = blocks.get((line.name, line.source)) if line.slot == "system" else None
        if block is not None:
            first_lines = [row.strip() for row in block.text.splitlines() if row.strip()][:2]
            yield line.tokens, role, " · ".join(first_lines)
            role = ""
    opening = list(ctx.history.opening)
    conversation = list(ctx.history)[len(opening) :]
    middle = conversation[OUTLINE_MESSAGES:-OUTLINE_MESSAGES]
    for message in opening:
        yield from _message_rows(ctx, message, counter, OUTLINE_LINES)
    for message in conversation[:OUTLINE_MESSAGES] if middle else conversation:
        yield from _message_rows(ctx, message, counter, 1)
    if middle:
        tokens = sum(_provider_tokens(ctx, message, counter) for message in middle)
        yield tokens, "", f"({len(middle)} more messages)"
        for message in conversation[-OUTLINE_MESSAGES:]:
            yield from _message_rows(ctx, message, counter, 1)
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
            return lines if more == 1 else [*lines[:max_lines], f"({more} more lines)"]
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


def _fit_line(text: str, columns: int) -> str:
    """Return the beginning of a line that fits the columns, with its indent."""
    indent = " " * min(len(text) - len(text.lstrip(" ")), 8)
    size = max(columns - 1 - len(indent), 1)
    line = beginning(text, size)
    while cell_width(line) > columns - len(indent) and size > 1:
        size -= max(1, (cell_width(line) - columns + len(indent)) // 2)
        line = beginning(text, size)
    return f"{indent}{line}"


# sessions ------------------------------------------------------------------------------------------------------------


def session_facts(nx: Engine, name: str) -> dict[str, Any]:
    """Return the facts, counts and relations of a session, read in one snapshot. Raises NoSuchSession."""
    with nx.ledger.snapshot():
        label = resolve_session(nx, name)
        sessions = nx.sessions(include_inactive=True)
        info = next(session for session in sessions if session.label == label)
        thread = nx.ledger.thread_info(label)
        facts = nx.ledger.metadata(label)
        live = nx.ledger.live(label)
        checkpoint = live.checkpoint
        return {
            "session": label,
            "thread": thread.id,
            **msgspec.to_builtins(facts),
            "status": facts.status,
            "turns": info.turns,
            "messages": info.messages,
            "tokens": info.tokens,
            "entries": thread.head_seq,
            "first_ms": info.first_ms,
            "last_ms": info.last_ms,
            "open_turn": thread.turn if thread.open_turn else None,
            "shown_from": checkpoint and {"kind": checkpoint.kind, "entry": checkpoint.seq, **checkpoint.body},
            "undone": sorted(live.undone),
            "pins": msgspec.to_builtins(live.pins),
            "aliases": [alias.name for alias in nx.ledger.aliases() if nx.ledger.resolve(alias.name) == label],
            "forked_from": _fork_source(nx, thread, sessions),
            "spawned": [session.label for session in nx.ledger.spawned(label)],
        }


def _fork_source(nx: Engine, thread: Thread, sessions: list[SessionInfo]) -> dict[str, Any] | None:
    """Return the thread that this one continues, with the sessions that point to it, or did if none does now."""
    if thread.parent is None:
        return None
    current = [session.label for session in sessions if session.thread == thread.parent]
    former = [
        session.label
        for session in sessions
        if not current and any(update.thread == thread.parent for update in nx.ledger.ref_updates(session.label))
    ]
    return {"thread": thread.parent, "entry": thread.fork_seq, "sessions": current, "once_of": former}


def session_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of `nexus session show`, without empty values."""
    return (f"{name:<14} {printable(text)}" for name, text in _session_rows(facts) if text)


def _session_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("session", "title", "status", "persona", "task", "task_status", "origin", "origin_id", "routing_key"):
        yield name.replace("_", " "), facts.get(name, "")
    if parent := facts.get("parent_session"):
        turn = f", turn {facts['parent_turn']}" if "parent_turn" in facts else ""
        call = f", call {facts['parent_call_id']}" if "parent_call_id" in facts else ""
        yield "spawned by", f"{parent}{turn}{call}"
    yield "spawned", ", ".join(facts["spawned"])
    yield "aliases", ", ".join(facts["aliases"])
    yield "thread", str(facts["thread"])
    if source := facts["forked_from"]:
        former = f"formerly of {', '.join(source['once_of'])}" if source["once_of"] else "of no current session"
        owner = ", ".join(source["sessions"]) or former
        yield "forked from", f"thread {source['thread']} ({owner}), at entry {source['entry']}"
    for name in ("turns", "messages", "tokens", "entries"):
        yield name, f"{facts[name]:,}"
    yield "first", format_time(facts["first_ms"])
    yield "last", format_time(facts["last_ms"])
    yield "open turn", str(facts["open_turn"] or "")
    yield "shown", describe_visible(facts["shown_from"])
    yield "undone", ", ".join(f"compaction at entry {seq}" for seq in facts["undone"])
    yield "pins", ", ".join(f"{pin['seq']}.{pin['ord']}" for pin in facts["pins"])


def describe_visible(checkpoint: dict[str, Any] | None) -> str:
    """Return which part of a session later calls see, given its newest clear or current compaction."""
    if checkpoint is None:
        return "all messages"
    if checkpoint["kind"] == "clear":
        return f"messages after the clear at entry {checkpoint['entry']}"
    return (
        f"a summary of entries {checkpoint['covers_from']} to {checkpoint['covers_to']} "
        f"(compaction at entry {checkpoint['entry']}), then messages from entry {checkpoint['first_kept']} on"
    )
