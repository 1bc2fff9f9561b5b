"""`nexus models`: windows, limits and prices, one line a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import run


def test_every_known_model_is_one_line_and_the_snapshot_is_dated(tmp_path: Path) -> None:
    value = run("models", "--json", folder=tmp_path).json
    shown = run("models", folder=tmp_path).out
    lines = shown.splitlines()
    assert len(lines) == len(value["models"]) + 2, "a heading, one line a model, the date"
    assert [m["name"] for m in value["models"] if not any(line.startswith(f"{m['name']} ") for line in lines)] == []
    assert value["date"] in lines[-1]
    assert "…" not in shown


def test_one_model_is_shown_with_its_window_and_prices(tmp_path: Path) -> None:
    shown = run("models", "claude-sonnet-4-5", folder=tmp_path).out
    assert "200,000" in shown
    assert "input 3" in shown
    value = run("models", "claude-sonnet-4-5", "--json", folder=tmp_path).json
    assert value["context_tokens"] == 200_000
    assert value["known"] is True


@pytest.mark.parametrize(
    "name", ["openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-20250929", "CLAUDE-SONNET-4-5"]
)
def test_other_spellings_find_the_same_model(tmp_path: Path, name: str) -> None:
    value = run("models", name, "--json", folder=tmp_path).json
    assert (value["known"], value["context_tokens"]) == (True, 200_000)


@pytest.mark.parametrize(
    "name", ["no-such-model", "[/b]", "x" * 5_000, "\udcff", "a\nb"], ids=lambda name: repr(name[:14])
)
def test_an_unknown_model_gets_128000_tokens_and_a_warning(tmp_path: Path, name: str) -> None:
    ran = run("models", name, folder=tmp_path)
    assert ran.code == 0
    assert "128,000" in ran.out
    assert "warning" in ran.out
    value = run("models", name, "--json", folder=tmp_path).json
    assert (value["known"], value["context_tokens"]) == (False, 128_000)


def test_it_needs_no_workspace_and_makes_no_file(tmp_path: Path) -> None:
    assert run("models", folder=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []
