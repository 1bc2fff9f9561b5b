"""`nexus config policy`, and who speaks as what in `nexus assemble`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import TRACEBACK, run, write_json

POLICY = """
[toolsets.full]
tools = ["*"]

[toolsets.look]
tools = ["read_*", "reed_*"]

[principals."telegram:42"]
person = "ann"
role = "manager"
toolset = "full"
permissions = ["read"]

[roles.worker]
deny = ["run_*"]

[default]
toolset = "look"
"""
TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object"}} for name in ("read_file", "run_command")
]


@pytest.fixture
def bound(empty: Path) -> Path:
    """A workspace with a policy, and a file of tools."""
    (empty / ".nexus" / "policy.toml").write_text(POLICY)
    write_json(empty / "tools.json", TOOLS)
    return empty


def test_show_says_that_nobody_is_bound_where_there_is_no_policy(empty: Path) -> None:
    ran = run("config", "policy", "show", folder=empty)
    assert ran.out == "No policy: no restrictions apply. Files: ~/.nexus/policy.toml and .nexus/policy.toml.\n"
    assert run("config", "policy", "show", "--json", folder=empty).json == []


def test_show_lists_every_rule(bound: Path) -> None:
    out = run("config", "policy", "show", folder=bound).out
    assert out.splitlines()[0] == ".nexus/policy.toml"
    for word in ("read_*, reed_*", "telegram:42", "person ann", "session dm:ann", "deny run_*", "all others"):
        assert word in out
    assert run("config", "policy", "show", "--json", folder=bound).json[0]["default"]["toolset"] == "look"


def test_policy_check_reports_ok_and_warns_of_unmatched_patterns(bound: Path) -> None:
    ran = run("config", "policy", "check", "--tools", "tools.json", folder=bound)
    assert ran.out.splitlines() == [
        ".nexus/policy.toml: ok (2 toolsets, 1 principals, 1 roles)",
        "Warning: .nexus/policy.toml: pattern 'reed_*' of toolset 'look' matches no tool",
    ]
    assert run("config", "policy", "check", "--json", folder=bound).json == {
        "policies": [".nexus/policy.toml"],
        "warnings": [],
    }


def test_check_judges_a_file_before_it_holds(bound: Path) -> None:
    (bound / "new.toml").write_text("[default]\ntoolset = 'nothing'\n")
    ran = run("config", "policy", "check", "new.toml", folder=bound)
    assert (ran.code, ran.out) == (4, "")
    assert "new.toml: default.toolset: expected a toolset (none is defined)" in ran.err
    (bound / "new.toml").write_text(POLICY)
    assert run("config", "policy", "check", "new.toml", folder=bound).code == 0


def test_invalid_policy_is_reported_with_key_and_prevents_assembly(bound: Path) -> None:
    (bound / ".nexus" / "policy.toml").write_text("[toolsets.full]\ntools = '*'\n")
    for command in (("config", "policy", "check"), ("config", "policy", "show"), ("assemble", "hi"), ("context",)):
        ran = run(*command, folder=bound)
        assert (ran.code, ran.out) == (4, "")
        assert ran.err.startswith("nexus: .nexus/policy.toml: toolsets.full.tools: expected `array`, got `str`")
        assert TRACEBACK not in ran.err
    assert run("sessions", folder=bound).code == 0


def test_policy_test_prints_grant_and_each_tool_with_reason(bound: Path) -> None:
    out = run(
        "config", "policy", "test", "--as", "telegram:42", "--role", "worker", "--tools", "tools.json", folder=bound
    ).out
    rows = [line.split(maxsplit=1) for line in out.splitlines()]
    assert rows[:5] == [
        ["role", "worker"], ["person", "ann"], ["session", "worker:test"], ["toolset", "full"], ["permissions", "read"],
    ]  # fmt: skip
    assert "run_command  denied   role worker is denied 'run_*'" in out
    told = run(
        "config", "policy", "test", "--principal", "telegram:42", "--tools", "tools.json", "--json", folder=bound
    ).json
    assert (told["role"], told["session"], told["tools"]) == ("manager", "dm:ann", ["read_file", "run_command"])


def test_test_of_one_tool_ends_with_1_where_it_is_not_allowed(bound: Path) -> None:
    assert run("config", "policy", "test", "--as", "telegram:42", "--tool", "run_command", folder=bound).code == 0
    ran = run("config", "policy", "test", "--as", "discord:7", "--tool", "run_command", folder=bound)
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "run_command  denied  not in toolset 'look'"


@pytest.mark.parametrize("principal", ["a\nb", "\x1b[31m", "x" * 5_000, "ann", "*", "../..", "\u202ered"])
def test_hostile_principals_are_told_in_one_safe_line(bound: Path, principal: str) -> None:
    ran = run("config", "policy", "test", "--as", principal, folder=bound)
    assert ran.code in (0, 2)
    assert "\x1b" not in ran.out + ran.err
    assert "\u202e" not in ran.out + ran.err
    assert ran.code == 0 or len(ran.err.splitlines()) == 1


def test_promote_renames_and_says_so(bound: Path) -> None:
    run("assemble", "hi", "-s", "dm:telegram:42", "--save", "one.json", folder=bound)
    reply = {"type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}]}
    assert run("record", "one.json", write_json(bound / "reply.json", reply), folder=bound).code == 0
    ran = run("config", "policy", "link", "telegram:42", folder=bound)
    assert ran.out == "Renamed session 'dm:telegram:42' to 'dm:ann'; 'dm:telegram:42' is an alias now.\n"
    assert run("config", "policy", "link", "telegram:42", "--json", folder=bound).json["kind"] == "nothing"
    assert run("config", "policy", "link", "telegram:42", "bob", folder=bound).code == 2


def test_assemble_uses_session_and_tools_of_principal(bound: Path) -> None:
    ctx = run("assemble", "hi", "--principal", "telegram:42", "--tools", "tools.json", "--json", folder=bound).json
    assert (ctx["sessionLabel"], ctx["role"], ctx["toolsetName"]) == ("dm:ann", "manager", "full")
    assert ctx["permissionsGranted"] == ["read"]
    out = run("assemble", "hi", "--principal", "discord:7", "--tools", "tools.json", folder=bound).out
    assert "run_command (tools): not in toolset 'look'" in out


def test_assemble_makes_a_workers_context_with_its_task(bound: Path) -> None:
    asked = ("assemble", "Go.", "--role", "worker", "--task", "Count the logs.")
    ran = run(*asked, folder=bound)
    assert ran.code == 2
    assert "worker session missing" in ran.err
    ctx = run(*asked, "-s", "worker:count", "--json", folder=bound).json
    assert ctx["systemPrompt"].startswith("# Subagent Context")
    assert "## Your Task\nCount the logs.\n" in ctx["systemPrompt"]


def test_assemble_inherits_the_managers_persona(bound: Path) -> None:
    (bound / "personas" / "night").mkdir(parents=True)
    (bound / "personas" / "night" / "SOUL.md").write_text("SOUL OF THE NIGHT")
    run("assemble", "hi", "-s", "dm:ann", "--persona", "night", "--save", "one.json", folder=bound)
    reply = {"type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}]}
    run("record", "one.json", write_json(bound / "reply.json", reply), folder=bound)
    asked = ("assemble", "Go.", "--role", "worker", "--task", "x", "-s", "worker:x", "--json")
    assert "SOUL OF THE NIGHT" in run(*asked, "--manager", "dm:ann", folder=bound).json["systemPrompt"]
    assert "SOUL OF THE NIGHT" not in run(*asked, folder=bound).json["systemPrompt"]


def test_assemble_bounds_by_a_toolset_and_refuses_an_unknown_one(bound: Path) -> None:
    asked = ("assemble", "hi", "--principal", "telegram:42", "--tools", "tools.json")
    ctx = run(*asked, "--toolset", "look", "--json", folder=bound).json
    assert [spec["name"] for spec in ctx["tools"]] == ["read_file"]
    ran = run(*asked, "--toolset", "lok", folder=bound)
    assert ran.code == 2
    assert "toolset 'lok' not found (toolsets of the policy: full, look)" in ran.err


def test_options_of_a_new_call_are_refused_for_a_recorded_one(bound: Path) -> None:
    ran = run("assemble", "--turn", "1", "--role", "worker", folder=bound)
    assert ran.code == 2
    assert "--role cannot be combined with --turn" in ran.err
