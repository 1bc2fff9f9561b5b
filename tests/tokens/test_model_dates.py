"""The last days of models: the default and every example name models that are served for half a year more."""

from __future__ import annotations

import ast
import re
from datetime import date, timedelta
from pathlib import Path

import click
import pytest

import nexus
from nexus.cli import COMMANDS, cli
from nexus.tokens.model import newest_like, resolve, retirement_date
from nexus.tokens.model_table import DEFAULT_MODEL, model_rows, model_table

ROOT = Path(__file__).parents[2]
SNAPSHOT = date.fromisoformat(model_table().date)
HALF_A_YEAR = str(SNAPSHOT + timedelta(days=183))

PRINTED_BY_DOCUMENTS = frozenset({"claude-sonnet-4-20250514", "claude-sonnet-4", "claude-opus-4", "o1", "o3"})
"""Names that the documents of the context formats print, whose programs expect them."""

RESULTS = ROOT / "docs" / "benchmarks.md"
"""Measured figures, which name the models that they were measured for."""


def ending_names() -> set[str]:
    """Return the names of the table that end within half a year of the snapshot, and their aliases."""
    rows = {row.name for row in model_table().models if row.retires and row.retires < HALF_A_YEAR}
    return rows | {alias for alias, name in model_table().aliases.items() if name in rows}


NAMES = "|".join(re.escape(name) for name in sorted(ending_names() - PRINTED_BY_DOCUMENTS, key=len, reverse=True))
ENDING = re.compile(rf"(?<![\w./:-])(?:{NAMES})(?![\w-]|\.\d)")


def strings_of(module: Path) -> str:
    """Return the texts and docstrings of a module."""
    nodes = ast.walk(ast.parse(module.read_text("utf-8")))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is str)


def outside_tables(page: Path) -> str:
    """Return a page without its tables, whose rows are facts of models and not examples."""
    return "\n".join(line for line in page.read_text("utf-8").splitlines() if not line.startswith("|"))


def test_dates_of_models_are_days() -> None:
    ends = [row.retires for row in model_table().models if row.retires]
    assert len(ends) > 50
    assert [end for end in ends if date.fromisoformat(end).isoformat() != end] == []


def test_default_model_is_served_for_half_a_year_after_the_snapshot() -> None:
    row = model_rows()[DEFAULT_MODEL]
    assert row.price is not None
    assert not row.retires or row.retires >= HALF_A_YEAR
    assert newest_like(resolve(DEFAULT_MODEL)) == ""


def test_date_of_claude_sonnet_4_5_is_the_announced_one() -> None:
    model = resolve("claude-sonnet-4-5")
    assert (retirement_date(model), newest_like(model)) == ("2026-11-30", "claude-sonnet-5-5")
    assert ENDING.search("model='claude-sonnet-4-5'")
    assert not ENDING.search(f"{DEFAULT_MODEL} claude-sonnet-4-6 gpt-5.5 gpt-5.4-mini")


@pytest.mark.parametrize("folder", ["docs", "examples", "src"])
def test_files_name_no_model_that_ends_soon(folder: str) -> None:
    texts = {path: outside_tables(path) for path in (ROOT / folder).rglob("*.md") if path != RESULTS}
    texts |= {path: strings_of(path) for path in (ROOT / folder).rglob("*.py")}
    if folder == "examples":
        texts |= {path: path.read_text("utf-8") for path in (ROOT / folder).rglob("*.toml")}
        texts |= {path: path.read_text("utf-8") for path in (ROOT / folder).rglob("*.json")}
    assert texts
    assert {str(path): found for path, text in texts.items() if (found := ENDING.findall(text))} == {}


def test_front_page_and_help_name_no_model_that_ends_soon() -> None:
    pages = {name: (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md")}
    assert DEFAULT_MODEL in pages["README.md"]
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        pages[name] = command.get_help(click.Context(command, info_name=name))
    assert f"[{DEFAULT_MODEL}]" in pages["assemble"]
    assert {name: found for name, text in pages.items() if (found := ENDING.findall(text))} == {}


def day_ms(day: str) -> int:
    """Return noon of a day, UTC."""
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * 86_400_000 + 43_200_000


@pytest.mark.parametrize(("day", "count"), [("2026-11-30", 0), ("2026-12-01", 1)])
def test_context_for_a_model_past_its_last_day_warns_and_names_a_newer_one(day: str, count: int) -> None:
    with nexus.open(ledger=":memory:", clock_ms=lambda: day_ms(day)) as nx:
        ctx = nx.assemble("hi", model="claude-sonnet-4-5")
        found = [warning for warning in ctx.warnings if "2026-11-30" in warning.message]
        assert len(found) == count
        assert all("claude-sonnet-5-5" in warning.message for warning in found)
        assert nx.assemble("hi", model="bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0").warnings == ()
        assert nx.assemble("hi").warnings == ()


def test_warning_about_a_models_last_day_changes_neither_body_nor_manifest_nor_replay() -> None:
    now = day_ms("2026-11-29")
    with nexus.open(ledger=":memory:", clock_ms=lambda: now) as nx:
        event = nexus.Event(content=(nexus.Text("hi"),), at_ms=now)
        before = nx.assemble(event, model="claude-sonnet-4-5")
        now = day_ms("2027-01-01")
        after = nx.assemble(event, model="claude-sonnet-4-5")
        assert len(after.warnings) == len(before.warnings) + 1
        assert after.to_anthropic() == before.to_anthropic()
        assert after.provenance.manifest == before.provenance.manifest
        nx.record(after, nexus.AgentResult((nexus.assistant("hello"),)))
        assert nx.replay("main", 1).to_anthropic() == before.to_anthropic()
