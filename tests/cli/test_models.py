"""`nexus config models`: windows, limits and prices, one line a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nexus
from cli.running import run, write_json
from nexus.types.ledger_entries import StoredCalibration
from support.sdk_replies import REPLIES


def test_every_known_model_is_one_line_and_the_snapshot_is_dated(tmp_path: Path) -> None:
    value = run("config", "models", "--json", folder=tmp_path).json
    shown = run("config", "models", folder=tmp_path).out
    lines = shown.splitlines()
    assert len(lines) == len(value["models"]) + 2, "a heading, one line a model, the date"
    assert [m["name"] for m in value["models"] if not any(line.startswith(f"{m['name']} ") for line in lines)] == []
    assert value["date"] in lines[-1]
    assert "…" not in shown


def test_one_model_is_shown_with_its_window_and_prices(tmp_path: Path) -> None:
    shown = run("config", "models", "claude-sonnet-4-5", folder=tmp_path).out
    assert "200,000" in shown
    assert "input 3" in shown
    value = run("config", "models", "claude-sonnet-4-5", "--json", folder=tmp_path).json
    assert value["context_tokens"] == 200_000
    assert value["known"] is True


@pytest.mark.parametrize(
    "name", ["openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5-20250929", "CLAUDE-SONNET-4-5"]
)
def test_other_spellings_find_the_same_model(tmp_path: Path, name: str) -> None:
    value = run("config", "models", name, "--json", folder=tmp_path).json
    assert (value["known"], value["context_tokens"]) == (True, 200_000)


@pytest.mark.parametrize(
    "name", ["no-such-model", "[/b]", "x" * 5_000, "\udcff", "a\nb"], ids=lambda name: repr(name[:14])
)
def test_an_unknown_model_gets_128000_tokens_and_a_warning(tmp_path: Path, name: str) -> None:
    ran = run("config", "models", name, folder=tmp_path)
    assert ran.code == 0
    assert "128,000" in ran.out
    assert "warning" in ran.out
    value = run("config", "models", name, "--json", folder=tmp_path).json
    assert (value["known"], value["context_tokens"]) == (False, 128_000)


def test_it_needs_no_workspace_and_makes_no_file(tmp_path: Path) -> None:
    assert run("config", "models", folder=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


def test_what_was_learned_about_counting_is_listed_by_provider_and_model(empty: Path) -> None:
    assert "No calibrations yet" in run("config", "models", "--calibrated", folder=empty).out
    assert run("config", "models", "--calibrated", "--json", folder=empty).json == []
    with nexus.open(empty) as nx:
        nx.ledger.store.calibrate("openai", "gpt-4o", StoredCalibration(61, 12, 1_760_000_000_000))
        nx.ledger.store.calibrate(
            "openrouter", "claude-sonnet-4-5 by words", StoredCalibration(128, 2, 1_760_000_000_000)
        )
    lines = run("config", "models", "--calibrated", folder=empty).out.splitlines()
    assert [line.split()[:5] for line in lines[1:3]] == [
        ["gpt-4o", "openai", "0.95", "1.00", "12"],
        ["claude-sonnet-4-5", "by", "words", "openrouter", "2.00"],
    ]
    assert "2025-10-09 08:53" in lines[1]
    (one,) = run("config", "models", "--calibrated", "gpt-4o-2024-08-06", "--json", folder=empty).json
    assert one == {
        "provider": "openai", "model": "gpt-4o", "samples": 12, "at_ms": 1_760_000_000_000,
        "factor": 0.953125, "cold_factor": 1.0,
    }  # fmt: skip


def test_recording_a_reply_with_usage_shows_in_what_was_learned(empty: Path) -> None:
    assert run("assemble", "word " * 9_000, "-m", "gpt-5", "--save", "ctx.json", folder=empty).code == 0
    base = json.loads((empty / "ctx.json").read_text())["nexus"]["manifest"]["base"]
    body = REPLIES["openai"]("Yes.").model_dump(mode="json")
    body["usage"]["prompt_tokens"] = int(base * 1.2)
    assert run("record", "ctx.json", write_json(empty / "reply.json", body), folder=empty).code == 0
    (one,) = run("config", "models", "--calibrated", "--json", folder=empty).json
    assert (one["provider"], one["model"], one["factor"], one["samples"]) == ("openai", "gpt-5", 1.234375, 1)


def test_calibration_of_estimate_by_content_starts_from_one(empty: Path) -> None:
    with nexus.open(empty) as nx:
        nx.ledger.store.calibrate("anthropic", "claude-sonnet-4-5", StoredCalibration(128, 2, 1_760_000_000_000))
        nx.ledger.store.calibrate(
            "anthropic", "claude-sonnet-4-5 by content", StoredCalibration(67, 1, 1_760_000_000_000)
        )
    found = run("config", "models", "--calibrated", "claude-sonnet-4-5", "--json", folder=empty).json
    assert [(one["model"], one["factor"], one["cold_factor"]) for one in found] == [
        ("claude-sonnet-4-5", 2.0, 1.1),
        ("claude-sonnet-4-5 by content", 1.046875, 1.0),
    ]
