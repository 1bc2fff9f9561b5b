"""`nexus config profile`, and profiles that other commands are given by name or file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import run, write_json
from nexus.assembly.profiles.builtin import PROFILES
from workspace.sources.gathering import put

MINE = """
what = "layered, with the mood before the rules"
extends = "layered"
without = ["mood"]
before = { rules = "mood" }
"""
PROGRAM = """
from nexus.types.profile import Profile

profile = Profile("", "a program's", ("rules",), ("moment", "attachments"))
"""


@pytest.fixture
def mine(example: Path) -> Path:
    """The example's workspace with a profile of its own."""
    put(example / ".nexus" / "profiles" / "mine.toml", MINE)
    return example


def test_list_shows_ready_profiles_and_files_with_where_they_come_from(mine: Path) -> None:
    put(mine / ".nexus" / "profiles" / "bad.toml", 'system = ["rulez"]')
    put(mine / ".nexus" / "profiles" / "evil.py", "raise SystemExit")
    put(mine / ".nexus" / "profiles" / "layered.toml", MINE)
    ran = run("config", "profile", "list", folder=mine)
    lines = [line.split("  ") for line in ran.out.splitlines()]
    assert [line[0] for line in lines[1:]] == [*sorted(PROFILES), "bad", "evil", "mine"]
    assert ".nexus/profiles/mine.toml  roles" in ran.out
    assert "invalid: system: expected names of sources, not 'rulez'" in ran.out
    assert "invalid: not run: Python files count in your own folder" in ran.out
    assert ran.err == (
        "Warning: .nexus/profiles/layered.toml: not used: a built-in profile has the same name and comes first\n"
    )
    value = run("config", "profile", "list", "--json", folder=mine).json
    row = next(row for row in value["profiles"] if row["name"] == "mine")
    assert (row["kind"], row["from"], row["message_format"]) == ("workspace", ".nexus/profiles/mine.toml", "roles")
    assert row["system"][:3] == ["subagent", "mood", "rules"]
    assert len(value["warnings"]) == 1


def test_show_prints_sources_in_order_with_slot_volatility_and_tokens(mine: Path) -> None:
    out = run("config", "profile", "show", "mine", folder=mine).out.splitlines()
    assert out[0] == "mine (.nexus/profiles/mine.toml), format roles: layered, with the mood before the rules"
    assert out[1].split() == ["slot", "source", "changes", "tokens", "blocks", "from"]
    assert out[3].split() == ["system", "mood", "with", "each", "turn", "0", "(none", "now)"]
    assert out[4].split() == ["system", "rules", "with", "files", "1,151", "AGENTS.md"]
    assert [line.split()[0] for line in out[2:]] == ["system"] * 13 + ["history"] + ["current"] * 6
    rows = run("config", "profile", "show", "mine", "--json", folder=mine).json["rows"]
    assert rows[2] == {
        "slot": "system",
        "source": "rules",
        "changes": "files",
        "tokens": 1_151,
        "origins": ["AGENTS.md"],
    }


def test_profile_check_reports_cost_of_volatile_block_before_stable_ones(mine: Path) -> None:
    ran = run("config", "profile", "check", "mine", folder=mine)
    assert ran.code == 0
    first, warning, *_ = ran.out.splitlines()
    assert first == "mine (.nexus/profiles/mine.toml): 1 warning"
    assert warning.startswith(
        "Warning: mood changes with each turn and is in the system slot before rules, tools_guide, user_identity, "
    )
    assert "tokens cannot be read from the provider's cache in each call, which costs 0." in warning
    (found, *_) = run("config", "profile", "check", "mine", "--json", folder=mine).json["profiles"][0]["findings"]
    assert found["level"] == "warning"
    assert found["tokens"] > 40_000
    assert found["dollars"] > 0.1
    assert "the history" in found["before"]
    dear = run("config", "profile", "check", "mine", "--model", "claude-opus-4-1", "--json", folder=mine).json
    assert dear["profiles"][0]["findings"][0]["dollars"] > found["dollars"]


def test_profile_check_without_name_fails_when_any_file_is_invalid(mine: Path) -> None:
    assert run("config", "profile", "check", folder=mine).code == 0
    put(mine / ".nexus" / "profiles" / "bad.toml", "system = 3")
    ran = run("config", "profile", "check", folder=mine)
    assert ran.code == 4
    assert ran.out.splitlines()[-1] == ".nexus/profiles/bad.toml: invalid: system: expected a list, not a number"
    assert [row["name"] for row in run("config", "profile", "check", "--json", folder=mine).json["broken"]] == ["bad"]
    assert run("config", "profile", "check", "bad", folder=mine).code == 4
    assert run("config", "profile", "check", "nobody", folder=mine).code == 2


def test_check_without_files_says_so(example: Path) -> None:
    assert run("config", "profile", "check", folder=example).out.startswith("No profile files ")


def test_a_file_that_is_named_by_its_path_is_used_wherever_it_stands(example: Path, tmp_path: Path) -> None:
    program = put(tmp_path / "elsewhere" / "mine.py", PROGRAM)
    for words in (
        ("config", "profile", "show"),
        ("config", "profile", "check"),
        ("assemble", "hi", "--profile"),
        ("context", "main", "--profile"),
        ("explain", "main", "--profile"),
        ("compact", "main", "--dry-run", "--profile"),
    ):
        ran = run(*words, program, "-w", example, folder=tmp_path)
        assert (ran.code, ran.err) == (0, ""), words
    here = run("assemble", "hi", "--profile", "mine.py", "-w", example, "--json", folder=program.parent)
    assert here.json["nexus"]["manifest"]["profile"] == "mine"
    assert "Soul" not in here.json["systemPrompt"]


def test_a_name_leads_to_no_file_beside_the_folders_of_profiles(example: Path) -> None:
    put(example / "mine.py", "raise SystemExit(7)")
    assert run("assemble", "hi", "--profile", "mine", folder=example).code == 2
    missing = run("assemble", "hi", "--profile", "./nothing.toml", folder=example)
    assert missing.code == 4
    assert "expected a readable text file" in missing.err
    ready = put(example / "layered.toml", MINE)
    assert "is a built-in profile" in run("assemble", "hi", "--profile", ready, folder=example).err


def test_replay_works_when_profile_file_became_invalid(mine: Path) -> None:
    put(mine / "small.toml", 'system = ["rules"]\ncurrent = ["moment", "attachments"]\n')
    assert run("assemble", "hi", "-s", "new", "--profile", "mine", "--save", "turn.json", folder=mine).code == 0
    write_json(
        mine / "reply.json", {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}]}
    )
    assert run("record", "turn.json", "reply.json", folder=mine).code == 0
    (mine / ".nexus" / "profiles" / "mine.toml").write_text("system = [")
    assert run("replay", "new", "1", folder=mine).code == 0
    ran = run("assemble", "-s", "new", "--turn", "1", "--profile", "small.toml", "--json", folder=mine)
    assert ran.json["systemPrompt"].startswith("# Workspace rules")
    assert "# Soul" not in ran.json["systemPrompt"]


def test_the_cost_of_a_profile_is_simulated(mine: Path) -> None:
    said = [
        {"role": role, "content": f"{turn} " + "word " * 300} for turn in range(9) for role in ("user", "assistant")
    ]
    run("import", write_json(mine / "said.json", said), "--session", "said", folder=mine)
    put(mine / "clock.toml", 'system = ["moment", "rules"]\ncurrent = ["attachments"]\n')
    sums = {
        name: run("cache", "simulate", "said", "--profile", name, "--json", folder=mine).json["policies"][0]
        for name in ("bare", "clock.toml")
    }
    assert sums["clock.toml"]["cached_share"] == 0
    assert sums["bare"]["cached_share"] > 0.5


def test_blocks_of_the_application_are_given_by_name(mine: Path) -> None:
    ran = run("assemble", "hi", "--block", "mood=calm = fine", "--block", "x=1", "--json", folder=mine)
    text = ran.json["nexus"]["current"][0]["parts"]
    assert any(part.get("text") == "[Mood — from the application]\ncalm = fine" for part in text)
    assert any(one["origin"] == "fed:x" for one in ran.json["nexus"]["warnings"])
    assert "is not NAME=TEXT" in run("assemble", "hi", "--block", "mood", folder=mine).err
    assert (
        "--block cannot be combined with --turn" in run("assemble", "--turn", "1", "--block", "mood=x", folder=mine).err
    )


def test_names_and_texts_of_files_have_no_power_over_a_terminal(example: Path) -> None:
    put(example / ".nexus" / "profiles" / "mine.toml", 'what = "\\u001b[31mred\\u202e"\nsystem = []\n')
    for words in (("list",), ("show", "mine"), ("check", "mine")):
        ran = run("config", "profile", *words, folder=example)
        assert "\x1b" not in ran.out
        assert "\u202e" not in ran.out


def test_a_folder_of_profiles_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / ".nexus").mkdir()
    (tmp_path / ".nexus" / "profiles").write_text("no folder")
    done = run("config", "profile", "list", "-w", str(tmp_path), folder=tmp_path)
    assert done.code == 0
    assert "layered" in done.out
    assert "profiles of this folder not usable" in done.err
    assert ".nexus/profiles" in done.err
