"""docs/benchmarks.md is what the writer makes: it names every benchmark, peer and column, and its tables are whole."""

from __future__ import annotations

import re

import pytest
from benchmarks.conformance import COLUMNS as KIT_COLUMNS
from benchmarks.page import ANCHORS, PAGE, page
from benchmarks.peers.comparing import COLUMNS, SETTING_COLUMNS, TIME_COLUMNS
from benchmarks.peers.registry import PEERS
from benchmarks.report import Outcome, Table, Target
from benchmarks.results import NAMES, Result

Rows = list[list[str]]


def tables(text: str) -> list[Rows]:
    """The cells of each table of a page, escapes undone."""
    found: list[Rows] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            found.extend([] if inside else [[]])
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells])
        inside = line.startswith("|")
    return found


def of_the_page(columns: tuple[str, ...]) -> list[Rows]:
    return [table for table in tables(PAGE.read_text("utf-8")) if table[0] == list(columns)]


def test_every_table_has_a_head_a_rule_rows_and_as_many_cells_in_each() -> None:
    found = tables(PAGE.read_text("utf-8"))
    assert len(found) > len(NAMES)
    for table in found:
        assert len(table) > 2, table[0]
        assert {len(row) for row in table} == {len(table[0])}, table[0]
        assert all(re.fullmatch(":?-{2,}:?", cell) for cell in table[1]), table[1]


def test_the_page_says_how_it_is_made_and_has_a_measured_section_for_each_benchmark() -> None:
    text = PAGE.read_text("utf-8")
    assert "python -m benchmarks.page" in text.split("## ")[0]
    assert len(re.findall("^## ", text, re.MULTILINE)) == len(NAMES)
    assert [name for name in NAMES if f"`python -m benchmarks {name}`, measured on " not in text] == []


@pytest.mark.parametrize("columns", [COLUMNS, SETTING_COLUMNS], ids=["figures", "settings"])
def test_every_peer_has_a_row_under_every_column(columns: tuple[str, ...]) -> None:
    found = of_the_page(columns)
    assert found
    for table in found:
        assert [row[0] for row in table[2:]] == [peer.name for peer in PEERS]


def test_every_peer_that_is_timed_has_a_row_of_times() -> None:
    (table,) = of_the_page(TIME_COLUMNS)
    assert [row[0] for row in table[2:]] == [peer.name for peer in PEERS if peer.is_timed]


def test_the_settings_on_the_page_are_those_of_the_registry() -> None:
    (table,) = of_the_page(SETTING_COLUMNS)
    assert [(row[2], row[3]) for row in table[2:]] == [(peer.settings, peer.counts) for peer in PEERS]
    assert all(re.match(r"\d", row[1]) for row in table[2:]), "a version is missing"


def test_the_conformance_kit_has_its_tables() -> None:
    assert len(of_the_page(KIT_COLUMNS)) == 2


def test_a_benchmark_without_a_result_is_said_to_be_missing() -> None:
    assert page({}).count("Not measured yet") == len(NAMES)


def test_the_writer_escapes_what_would_be_markup_and_joins_notes_that_were_broken() -> None:
    table = Table(
        "A <b> | title", "c", "d_1", ("what", "share %", "ms"), (("a|b*", 12.345, None),), ("one", "  two", "3")
    )
    outcome = Outcome((table,), (Target("t", "w", "m", reached=False),))
    text = page({"start": Result("2026-01-02", {"python": "CPython 3.11", "nexus": "0.1.0"}, outcome)})
    assert "Machine and versions: python CPython 3.11, nexus 0.1.0.\n" in text
    assert "`python -m benchmarks start`, measured on 2026-01-02.\n" in text
    assert "|a\\|b\\*|12.3|-|" in text
    assert "- one two\n- 3\n" in text
    assert tables(text) == [
        [["what", "share %", "ms"], [":--", "--:", "--:"], ["a|b*", "12.3", "-"]],
    ]
    assert "Targets reached: 0 of 1. Missed: t: wanted w, measured m.\n" in text


def test_section_counts_reached_targets_and_names_the_missed() -> None:
    targets = (Target("t_1", "w", "m", reached=False), Target("t_2", "w", "m", reached=True))
    text = page({"start": Result("2026-01-02", {"python": "3.11"}, Outcome((table("a"),), targets))})
    assert "Targets reached: 1 of 2. Missed: t\\_1: wanted w, measured m.\n" in text
    text = page({"start": Result("2026-01-02", {"python": "3.11"}, Outcome((table("a"),), targets[1:]))})
    assert "Targets reached: 1 of 1.\n" in text


def result(*tables: Table, python: str = "CPython 3.11") -> Result:
    return Result("2026-01-02", {"python": python}, Outcome(tables))


def table(title: str, *notes: str, detail: bool = False) -> Table:
    return Table(title, "c", "data", ("what",), (("x",),), notes, detail)


def test_section_names_its_machine_when_machines_differ() -> None:
    text = page({"start": result(table("a")), "frames": result(table("b"), python="CPython 3.12")})
    assert "Machine and versions" not in text
    assert "measured on 2026-01-02: python CPython 3.11." in text
    assert "measured on 2026-01-02: python CPython 3.12." in text


def test_repeated_data_and_notes_appear_once_per_section() -> None:
    text = page({"start": result(table("a", "one"), table("b", "one", "two")), "frames": result(table("c", "one"))})
    assert (text.count("- one\n"), text.count("- two\n"), text.count("Data: data.\n")) == (2, 1, 2)


def test_detail_table_is_named_and_not_shown() -> None:
    text = page({"start": result(table("whole"), table("by session", detail=True))})
    assert "### by session" not in text
    assert "The command also prints: by session.\n" in text


def test_section_keeps_the_anchor_of_its_earlier_title() -> None:
    text = PAGE.read_text("utf-8")
    assert [anchor for anchor in ANCHORS.values() if f'<a id="{anchor}"></a>' not in text] == []
