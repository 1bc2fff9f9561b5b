"""`nexus cache simulate`: a table of what a session costs by how it is trimmed, and clear words for what cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.running import ESCAPE, run
from cli.stored import rows_of
from contracts.modules import ROOT
from contracts.test_docs_examples import blocks

NAMES = ["nexus", "window", "refill", "nothing"]


def test_the_table_has_a_row_for_each_policy_and_nexus_is_the_measure(example: Path) -> None:
    ran = run("cache", "simulate", "main", "--budget", "16000", folder=example)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "'main': 115 calls to claude-sonnet-5-5 (anthropic), budget 16,000 tokens"
    head = next(number for number, line in enumerate(lines) if line.startswith("policy"))
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == NAMES
    assert lines[head + 1].split()[8] == "1.00"
    assert "Cheapest cuts at " in ran.out
    assert ESCAPE not in ran.out


def test_sample_of_the_docs_has_the_words_of_the_output(example: Path) -> None:
    """Figures may differ: they change with every better count."""
    (sample,) = [block.text for block in blocks(ROOT / "docs" / "cache.md") if "$ nexus cache simulate" in block.text]
    ran = run("cache", "simulate", "main", "--budget", "16000", folder=example)
    words, expected = (re.sub(r"[\d.,\s]+", " ", text) for text in (ran.out, sample.partition("\n")[2]))
    assert words == expected


def test_table_and_json_say_the_same(example: Path) -> None:
    options = ("cache", "simulate", "main", "--budget", "16000", "--provider", "openai")
    shown, value = run(*options, folder=example).out, run(*options, "--json", folder=example).json
    assert (value["model"], value["provider"], value["budget"], value["calls"]) == ("gpt-5.5", "openai", 16_000, 115)
    assert value["cache"]["step_tokens"] == 128
    assert [row["policy"] for row in value["policies"]] == NAMES
    for row in value["policies"]:
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{row['policy']}  ")]
        figures = ("calls", "input", "read", "written", "fresh")
        cells = [*(f"{row[name]:,}" for name in figures), f"{row['cached_share']:.1%}", f"{row['input_dollars']:.4f}"]
        assert line.split()[1:] == [
            *cells, f"{row['relative_cost']:.2f}", f"{row['breaks']['count']:,}", f"{row['mean_prompt']:,}",
        ]  # fmt: skip
        assert row["input"] == row["read"] + row["written"] + row["fresh"]
        assert sum(row["outcomes"].values()) == row["calls"]
    assert value["cheapest_marks"]["low"] < value["cheapest_marks"]["high"] <= 16_000


@pytest.mark.parametrize("provider", ["anthropic", "deepseek", "gemini", "groq", "openai"])
def test_every_provider_has_a_model_with_prices(talk: Path, empty: Path, provider: str) -> None:
    assert run("import", talk, "--session", "s", folder=empty).code == 0
    value = run("cache", "simulate", "s", "--provider", provider, "--json", folder=empty).json
    assert value["provider"] == provider
    assert value["cache"]["priced"] is True
    assert value["policies"][0]["input_dollars"] > 0


def test_an_hour_bridges_pauses(talk: Path, empty: Path) -> None:
    (empty / "AGENTS.md").write_text("# Rules\n\n" + "Say what you do not know. " * 400)
    assert run("import", talk, "--session", "main", folder=empty).code == 0
    options = ("cache", "simulate", "--interval", "400", "--json")
    short, hour = (run(*options, "--ttl", ttl, folder=empty).json["policies"][0] for ttl in ("5m", "1h"))
    assert short["outcomes"] == {"first": 1, "expired": 1}
    assert hour["outcomes"] == {"first": 1, "hit": 1}
    assert hour["input_dollars"] < short["input_dollars"]


def test_a_model_without_prices_has_relative_costs_alone(talk: Path, empty: Path) -> None:
    assert run("import", talk, "--session", "main", folder=empty).code == 0
    ran = run("cache", "simulate", "main", "-m", "no-such-model", folder=empty)
    assert ran.code == 0
    assert "Prices unknown" in ran.out
    assert "USD" not in ran.out
    value = run("cache", "simulate", "main", "-m", "no-such-model", "--json", folder=empty).json
    assert {row["input_dollars"] for row in value["policies"]} == {None}
    assert value["policies"][0]["relative_cost"] == 1.0
    assert value["cheapest_marks"]["dollars_per_new_token"] is None


def test_an_empty_session_is_said_to_have_no_calls(empty: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text('[{"role": "user", "content": "Is anybody there?"}]')
    assert run("import", file, "--session", "quiet", folder=empty).code == 0
    ran = run("cache", "simulate", "quiet", folder=empty)
    assert ran.code == 0
    assert "No calls to simulate" in ran.out
    assert "policy" not in ran.out
    value = run("cache", "simulate", "quiet", "--json", folder=empty).json
    assert (value["calls"], value["cheapest_marks"]) == (0, None)


def test_simulation_rejects_all_calls_but_untruncated_when_budget_is_tiny(talk: Path, empty: Path) -> None:
    assert run("import", talk, "--session", "s", folder=empty).code == 0
    ran = run("cache", "simulate", "s", "--budget", "1", folder=empty)
    assert ran.code == 0
    assert "nexus: 2 calls rejected" in ran.out
    value = run("cache", "simulate", "s", "--budget", "1", "--json", folder=empty).json
    assert [row["refused"] for row in value["policies"]] == [2, 2, 2, 0]
    assert value["policies"][0]["relative_cost"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("none",), "session 'none' not found"),
        (("main", "--budget", "0"), "--budget"),
        (("main", "--budget", "-5"), "--budget"),
        (("main", "--interval", "-1"), "--interval"),
        (("main", "--interval", "nan"), "--interval"),
        (("main", "--keep", "-1"), "--keep"),
        (("main", "--ttl", "2h"), "--ttl"),
        (("main", "--provider", "nobody"), "--provider"),
        (("main", "--provider", "openai", "-m", "claude-sonnet-5-5"), "claude-sonnet-5-5 is a model of anthropic"),
        (("main", "--provider", "openai", "--ttl", "1h"), "no choice of cache lifetime"),
    ],
    ids=str,
)
def test_wrong_usage_ends_with_2_and_says_what_was_wrong(example: Path, options: tuple[str, ...], said: str) -> None:
    ran = run("cache", "simulate", *options, folder=example)
    assert ran.code == 2
    assert said in ran.err


def test_a_missing_tools_file_ends_with_4(example: Path) -> None:
    assert run("cache", "simulate", "main", "--tools", "none.json", folder=example).code == 4


def test_tools_are_part_of_the_prompt(talk: Path, empty: Path) -> None:
    assert run("import", talk, "--session", "main", folder=empty).code == 0
    (empty / "tools.json").write_text('[{"name": "search", "description": "Finds.", "parameters": {"type": "object"}}]')
    plain, tools = (
        run("cache", "simulate", "--json", *more, folder=empty).json["policies"][3]["input"]
        for more in ((), ("--tools", "tools.json"))
    )
    assert tools > plain


def test_it_writes_nothing_and_the_same_twice_is_the_same(example: Path) -> None:
    before = rows_of(example)
    first, second = (run("cache", "simulate", "main", "--budget", "8000", folder=example).out for _ in range(2))
    assert first == second
    assert rows_of(example) == before
