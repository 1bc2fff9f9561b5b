"""Tables as the commands print them: aligned, and never cut.

On a terminal that is too narrow, long texts take several lines, or each row becomes a few lines of its own. Where the
output is no terminal, a row is one line. Rows are printed as they come, so memory does not follow their number.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, zip_longest

import click

from nexus.cli.shared import plain_output
from nexus.render.console import printable

BLOCK = 500
"""Rows that are laid out together: columns are as wide as the widest cell so far."""

LEAST_WRAPPED = 16
"""Columns of the terminal that a text over several lines needs to be readable."""

GAP = "  "


def print_table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    wraps: Collection[str] = (),
) -> None:
    """Prints a table: columns of `numbers` on the right; those in `wraps` may take several lines on a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    right = [name in numbers for name in names]
    left = (tuple(map(printable, row)) for row in rows)
    block = [tuple(names), *islice(left, BLOCK)]
    widths, heading = [0] * len(names), True
    while block:
        widths = [max(width, *(cells(row[at]) for row in block)) for at, width in enumerate(widths)]
        fitted = _fitted(widths, [name in wraps for name in names], columns)
        if fitted is None:
            lines = [line for row in block[heading:] for line in _record(names, row)]
        else:
            lines = [line for row in block for line in _lines(row, fitted, right)]
        if fitted is not None and heading and not plain_output():
            lines[0] = click.style(lines[0], bold=True)
        click.echo("\n".join(lines))
        block, heading = list(islice(left, BLOCK)), False


def cells(text: str) -> int:
    """How many columns of a terminal a text takes; Chinese, Japanese, Korean and emoji take two for a character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrapped(text: str, width: int) -> list[str]:
    """A text on lines of at most `width` columns, broken between words where that is possible."""
    lines: list[str] = []
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and cells(joined) <= width:
            lines[-1] = joined
        else:
            lines += _pieces(word, width)
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """A word in pieces of at most `width` columns; a character that is wider is a piece."""
    piece = ""
    for character in word:
        if piece and cells(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def _fitted(widths: list[int], wraps: list[bool], columns: int) -> list[int] | None:
    """The widths for a terminal of so many columns (0: no limit), None if it is too narrow for a table."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - columns
    if not columns or over <= 0:
        return widths
    long = sorted((at for at, wrap in enumerate(wraps) if wrap), key=lambda at: widths[at])
    room = sum(widths[at] for at in long) - over
    if room < sum(min(widths[at], LEAST_WRAPPED) for at in long) or not long:
        return None
    fitted = list(widths)
    for after, at in enumerate(long, 1):
        needed = sum(min(widths[other], LEAST_WRAPPED) for other in long[after:])
        share = max(room // (len(long) - after + 1), min(widths[at], LEAST_WRAPPED))
        fitted[at] = min(widths[at], share, room - needed)
        room -= fitted[at]
    return fitted


def _lines(row: Sequence[str], widths: list[int], right: list[bool]) -> Iterator[str]:
    columns = [
        [cell] if cells(cell) <= width else wrapped(cell, width) for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*columns, fillvalue=""):
        padded = (
            f"{' ' * (width - cells(part))}{part}" if to_right else f"{part}{' ' * (width - cells(part))}"
            for part, width, to_right in zip(parts, widths, right, strict=True)
        )
        yield GAP.join(padded).rstrip(" ")


def _record(names: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """A row as lines of name and value, without those that are empty, and a blank line behind it."""
    width = max(map(cells, names))
    yield from (
        f"{name}{' ' * (width - cells(name))}{GAP}{cell}" for name, cell in zip(names, row, strict=True) if cell
    )
    yield ""
