"""How an explanation is printed: what it adds up to, then a table in which long ranges of one kind are one row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click
import msgspec

from nexus.analysis.explain import ExplainedLine, Explanation
from nexus.cli.listing import dotted, quoted
from nexus.cli.shared import emit_around
from nexus.cli.table import print_table
from nexus.render.console import printable

FOLDED = 6
"""Messages in a row with one fate that are still listed each; more are one row, unless all are asked for."""

TEXT_CHARS = 60


def show(told: Explanation, *, every: bool, as_json: bool) -> None:
    """Prints an explanation; `every` lists each message of long ranges. JSON always has all."""
    if as_json:
        head = {name: value for name, value in msgspec.to_builtins(told).items() if name != "lines"}
        emit_around(head, "lines", map(msgspec.to_builtins, told.lines))
        return
    what = told.call[:1].upper() + told.call[1:]
    of = "" if "session" in told.call else f" of session {quoted(told.session)}"
    click.echo(f"{printable(what)}{of}: {printable(told.model)} ({printable(told.provider)})")
    click.echo(f"{told.used:,} of {told.available:,} tokens used{_beside(told)}")
    names = ("tokens", "whole", "state", "what", "place", "why", "text")
    print_table(names, _rows(told, every=every), numbers=("tokens", "whole"), wraps=("why", "text"))
    for warning in told.warnings:
        click.echo(f"Warning: {printable(warning)}")


def _beside(told: Explanation) -> str:
    """What is not shown, or not whole, by what became of it."""
    parts: list[str] = []
    for state in ("clipped", "summarised", "out", "not shown"):
        lines = [line for line in told.lines if line.state == state]
        if lines:
            parts.append(f"{len(lines):,} {state} ({told.tokens(state):,} tokens whole)")
    return f"; {', '.join(parts)}" if parts else ""


def _rows(told: Explanation, *, every: bool) -> Iterator[tuple[str, ...]]:
    for _, run in groupby(told.lines, key=_fate):
        lines = list(run)
        if len(lines) > FOLDED and not every:
            yield _folded(lines)
        else:
            yield from map(_row, lines)


def _fate(line: ExplainedLine) -> tuple[str, str, str] | int:
    """What lines in one row have in common; anything but a message stands by itself."""
    return (line.kind, line.state, line.reason) if line.kind == "message" else id(line)


def _row(line: ExplainedLine) -> tuple[str, ...]:
    place = dotted(line.place) if line.place is not None else line.source
    what = (
        line.name if line.kind in ("block", "message", "framing", "summary", "marker") else f"{line.kind} {line.name}"
    )
    whole = f"{line.full_tokens:,}" if line.full_tokens != line.tokens else ""
    text = line.text if len(line.text) <= TEXT_CHARS else f"{line.text[: TEXT_CHARS - 1]}…"
    return f"{line.tokens:,}", whole, line.state, what, place, line.reason, text


def _folded(lines: list[ExplainedLine]) -> tuple[str, ...]:
    first, last = lines[0], lines[-1]
    assert first.place is not None and last.place is not None  # noqa: PT018 - messages of the ledger
    tokens, whole = sum(line.tokens for line in lines), sum(line.full_tokens for line in lines)
    place = f"{dotted(first.place)} to {dotted(last.place)}"
    shown = f"{whole:,}" if whole != tokens else ""
    return f"{tokens:,}", shown, first.state, f"{len(lines):,} messages", place, first.reason, ""
