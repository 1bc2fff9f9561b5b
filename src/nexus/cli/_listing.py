"""Listings: the columns, the JSON and the text for no values of a listing command, declared once.

A cell is a function of a value, or the name of its attribute or key: numbers get thousands separators, other values are
printed as text, None and missing keys as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import click
from msgspec import Struct

from nexus.cli._options import CommandOptions
from nexus.cli._output import emit, emit_each, format_time
from nexus.cli._tables import print_table

Cell: TypeAlias = str | Callable[[Any], str]


class Column(Struct, frozen=True):
    """One column: its heading, cell, and layout."""

    name: str
    cell: Cell = ""
    """Without one, the attribute or key with the column's name."""
    is_number: bool = False
    """Right-aligned."""
    wraps: bool = False
    """May take several lines on a terminal."""
    usual: str | None = None
    """Text that values usually have: the column is shown only if one has another. None: always shown."""

    def text(self, value: Any) -> str:
        """Return the cell of a value."""
        if callable(self.cell):
            return self.cell(value)
        name = self.cell or self.name
        if isinstance(value, dict):
            content = cast("dict[str, Any]", value).get(name)
        else:
            content = getattr(value, name)
        if content is None:
            return ""
        if type(content) is int:
            return f"{content:,}"
        return str(content)


def number(name: str, cell: Cell = "", usual: str | None = None) -> Column:
    """Return a right-aligned column."""
    return Column(name, cell, is_number=True, usual=usual)


def wrapped(name: str, cell: Cell = "", usual: str | None = None) -> Column:
    """Return a column whose texts may take several lines."""
    return Column(name, cell, wraps=True, usual=usual)


def time(name: str, attribute: str, *, seconds: bool = False) -> Column:
    """Return a column of times from an attribute or key with milliseconds since 1970."""

    def cell(value: Any) -> str:
        if isinstance(value, dict):
            at_ms = cast("dict[str, int]", value)[attribute]
        else:
            at_ms = getattr(value, attribute)
        return format_time(at_ms, seconds=seconds)

    return Column(name, cell)


class Listing:
    """The columns of a listing command."""

    def __init__(self, *columns: Column, empty: str = "") -> None:
        """Make a listing; `empty` is printed without values, by default the headings."""
        self.columns = columns
        self.empty = empty

    def print(
        self, values: Sequence[Any], options: CommandOptions, *, empty: str = "", document: object | None = None
    ) -> None:
        """Print the values as a JSON list or as rows.

        Args:
            values: A value for each row.
            options: The options of the command line, which choose JSON or rows.
            empty: Text without values, in place of the listing's.
            document: JSON in place of the list, for example an object with more than the rows.
        """
        if options.as_json and document is not None:
            emit(document)
        elif options.as_json:
            emit_each(values)
        elif not values and (empty or self.empty):
            click.echo(empty or self.empty)
        else:
            self.print_rows(values)

    def print_rows(self, values: Sequence[Any]) -> None:
        """Print the values as rows."""
        columns = [column for column in self.columns if _is_shown(column, values)]
        print_table(
            [column.name for column in columns],
            ([column.text(value) for column in columns] for value in values),
            numbers={column.name for column in columns if column.is_number},
            wraps={column.name for column in columns if column.wraps},
        )


def _is_shown(column: Column, values: Sequence[Any]) -> bool:
    if column.usual is None:
        return True
    return any(column.text(value) != column.usual for value in values)
