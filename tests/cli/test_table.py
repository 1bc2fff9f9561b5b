"""Tables: aligned where they fit, over several lines or as lines of their own where they do not, and never cut."""

from __future__ import annotations

import io
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.cli import _tables
from nexus.cli._tables import cell_width, print_table, wrap_text

NAMES = ("name", "count", "text")
ROWS = [("a", "1", "short"), ("会議", "22", "会議の記録 and more"), ("👍", "333", "x" * 30)]


class Terminal(io.StringIO):
    """A standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    """The lines of the table on a terminal of so many columns."""
    terminal = Terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        print_table(NAMES, ROWS, numbers=("count",), wraps=("text",))
    return terminal.getvalue().splitlines()


def test_columns_stand_below_their_names_also_behind_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NAMES, ROWS, numbers=("count",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name  count  text"
    assert {cell_width(line[: line.index(row[2])]) for line, row in zip(lines[1:], ROWS, strict=True)} == {13}


def test_a_terminal_that_is_too_narrow_breaks_long_texts_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = printed(monkeypatch, 32)
    assert max(map(cell_width, lines)) <= 32
    assert "".join(lines[1:]).count("x") == 30
    assert [line for line in lines if line.endswith(("会議の記録 and more", "short"))] == [lines[1], lines[2]]


def test_table_prints_rows_as_records_on_very_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = printed(monkeypatch, 20)
    assert lines[:4] == ["name   a", "count  1", "text   short", ""]
    assert [value for row in ROWS for value in row if not any(line.endswith(f"  {value}") for line in lines)] == []


def test_where_the_output_is_no_terminal_a_row_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NAMES, [("n", "1", "word " * 500)], wraps=("text",))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_many_rows_are_all_printed_and_read_as_they_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tables, "ROWS_PER_BLOCK", 3)
    wide = [(f"n{at}", str(10**at), "t") for at in range(10)]
    print_table(NAMES, iter(wide), numbers=("count",))
    shown = [tuple(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown == [NAMES, *wide]


def test_a_table_without_rows_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NAMES, [])
    assert capsys.readouterr().out == f"name  count  text{os.linesep}"


def test_a_cell_has_no_power_over_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a",), [("\x1b[31m\n\x9b\u202e",)])
    assert capsys.readouterr().out.splitlines() == ["a", "\\x1b[31m\\n\\x9b\\u202e"]


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "M")), max_size=60), st.integers(2, 20))
def test_a_wrapped_text_is_whole_and_no_line_is_wider_than_it_may_be(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_width(line) <= width for line in lines)
