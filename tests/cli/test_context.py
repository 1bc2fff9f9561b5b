"""`nexus context`: what fills the window, as a picture of letters, a table and an account that adds up."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import nexus
from cli.running import ESCAPE, run
from cli.stored import rows_of
from nexus.assembly.profiles.builtin import PROFILES

GRID = re.compile(r"^[WPSMErf.·]{60}$", re.MULTILINE)


def test_the_picture_names_every_layer_and_every_source(example: Path) -> None:
    ran = run("context", folder=example)
    assert (ran.code, ran.err) == (0, "")
    for word in (
        "Workspace",
        "Persona",
        "Session",
        "Memory",
        "Event",
        "AGENTS.md",
        "memory/MEMORY.md",
        "cache boundary",
        "free",
    ):
        assert word in ran.out


def test_the_grid_has_480_cells_in_the_right_shares(example: Path) -> None:
    ran = run("context", folder=example)
    cells = "".join(GRID.findall(ran.out))
    assert len(cells) == 480
    value = run("context", "--json", folder=example).json
    window = value["tokenBudget"]["modelLimit"]
    assert cells.count("S") == pytest.approx(480 * value["layers"]["Session"] / window, abs=2)
    assert cells.count(".") == pytest.approx(480 * value["free"] / window, abs=2)


@pytest.mark.parametrize(
    "options", [(), ("--budget", "8000"), ("-m", "gpt-4o"), ("--profile", "bare"), ("-m", "gpt-9")], ids=" ".join
)
def test_token_breakdown_adds_up_to_the_used_budget(example: Path, options: tuple[str, ...]) -> None:
    value = run("context", *options, "--json", folder=example).json
    used = value["tokenBudget"]["used"]["total"]
    assert sum(item["tokens"] for item in value["items"]) == used
    assert sum(value["layers"].values()) == used
    assert value["free"] == value["tokenBudget"]["available"] - used
    assert min(item["tokens"] for item in value["items"]) >= 0


def test_table_and_json_say_the_same(example: Path) -> None:
    shown = run("context", folder=example).out
    for item in run("context", "--json", folder=example).json["items"]:
        (line,) = [
            one
            for one in shown.splitlines()
            if item["origin"] in one and one.startswith(item["layer"]) and item["name"] in one
        ]
        assert f"{item['tokens']:,}" in line


def test_the_next_message_can_be_given_to_be_counted(example: Path) -> None:
    short = run("context", "--json", folder=example).json["tokenBudget"]["used"]["event"]
    long = run("context", "--json", "--message", "word " * 1_000, folder=example).json["tokenBudget"]["used"]["event"]
    assert long > short + 900


def test_it_writes_nothing(example: Path) -> None:
    before = rows_of(example)
    run("context", "--budget", "8000", folder=example)
    run("context", "not there", folder=example)
    assert rows_of(example) == before


def test_context_of_unknown_session_is_an_error(example: Path, empty: Path) -> None:
    ran = run("context", "typo", folder=example)
    assert (ran.code, ran.out) == (2, "")
    assert "session 'typo' not found" in ran.err
    assert "no ledger yet" in run("context", "typo", folder=empty).err


def test_context_without_a_session_shows_an_empty_one_before_the_first_call(empty: Path) -> None:
    value = run("context", "--json", folder=empty).json
    assert (value["session"], value["layers"]["Session"]) == ("main", 0)


def test_a_budget_that_is_too_small_ends_with_3_and_names_the_parts(example: Path) -> None:
    ran = run("context", "--budget", "50", folder=example)
    assert (ran.code, ran.out) == (3, "")
    assert "current event" in ran.err


@pytest.mark.parametrize("options", [("--profile", "nope"), ("--budget", "0")], ids=" ".join)
def test_wrong_usage_ends_with_2(example: Path, options: tuple[str, ...]) -> None:
    assert run("context", *options, folder=example).code == 2


def test_a_cut_and_its_size_are_said_below_the_picture(example: Path) -> None:
    ran = run("context", "--budget", "8000", folder=example)
    value = run("context", "--budget", "8000", "--json", folder=example).json
    assert f"omits {value['cut']['left_out_messages']:,} older messages" in ran.out


def test_piped_output_has_no_colours_no_emoji_and_no_line_over_the_width(example: Path) -> None:
    out = run("context", folder=example).out
    assert ESCAPE not in out
    assert max(len(line) for line in out.splitlines()) <= 160
    assert [sign for sign in out if ord(sign) > 0xFFFF] == []


def test_the_svg_is_whole_and_fetches_nothing(example: Path) -> None:
    assert run("context", "--svg", "window.svg", folder=example).code == 0
    text = (example / "window.svg").read_text("utf-8")
    ET.fromstring(text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    assert [found for found in re.findall(r"https?://[^\"' )]+", text) if "w3.org" not in found] == []
    assert "url(http" not in text
    assert "Workspace" in text


def test_an_svg_that_cannot_be_written_is_refused_by_name(example: Path) -> None:
    ran = run("context", "--svg", "no/such/folder/x.svg", folder=example)
    assert ran.code == 4
    assert "no/such/folder/x.svg" in ran.err


@pytest.mark.parametrize(
    "session", ["[/x]", "[red]x", ":smile:", "ünïcode 会議", "a/b", "n" * 5_000], ids=lambda name: name[:12]
)
def test_any_session_name_is_shown_as_it_is(empty: Path, session: str) -> None:
    with nexus.open(workspace=empty) as nx:
        nx.ledger.sessions.create(session)
    ran = run("context", session, folder=empty)
    assert ran.code == 0
    assert session in ran.out.replace("\n", "")


def test_warnings_of_sources_are_shown(example: Path) -> None:
    (example / "MEMORY.md").write_text("a second memory file\n")
    assert "memory/MEMORY.md has precedence" in run("context", folder=example).out.replace("\n", " ")


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_context_shows_every_block_of_each_built_in_profile(example: Path, profile: str) -> None:
    ran = run("context", "--profile", profile, "--budget", "40000", folder=example)
    assert (ran.code, ran.err) == (0, "")
    value = run("context", "--profile", profile, "--budget", "40000", "--json", folder=example).json
    tokens = [f"{line['tokens']:,}" for line in value["items"]]
    assert [figure for figure in tokens if figure not in ran.out.split()] == []


@pytest.mark.parametrize("options", [(), ("--budget", "8000"), ("-m", "gpt-4o"), ("--profile", "tagged")], ids=" ".join)
def test_conversation_is_split_by_content_and_adds_up(example: Path, options: tuple[str, ...]) -> None:
    value = run("context", *options, "--json", folder=example).json
    history = sum(item["tokens"] for item in value["items"] if item["slot"] == "history")
    assert sum(part["tokens"] for part in value["conversation"]) == history
    shown = run("context", *options, folder=example).out
    for part in value["conversation"]:
        assert re.search(rf"^{part['kind']} +{part['name']} .*{part['tokens']:,}", shown, re.MULTILINE)


def test_largest_results_are_listed_with_their_calls(example: Path) -> None:
    value = run("context", "--json", folder=example).json
    largest = value["largestResults"]
    assert len(largest) == 5
    assert [one["tokens"] for one in largest] == sorted((one["tokens"] for one in largest), reverse=True)
    tools = {part["name"]: part["tokens"] for part in value["conversation"] if part["kind"] == "tool"}
    assert all(one["tokens"] <= tools[one["tool"]] for one in largest)
    assert run("history", "main", "--call", largest[0]["call"], folder=example).code == 0
    assert largest[0]["arguments"].startswith("{")
    assert re.search(
        rf"^{largest[0]['tool']} \S.* {largest[0]['call']}", run("context", folder=example).out, re.MULTILINE
    )
