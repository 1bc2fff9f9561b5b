"""A what-if is admitted as a new call is: its tools, its profile, its skills, by the policies of now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run
from nexus import hookimpl
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import NotAllowed, NotFound
from nexus.policy import Default, Policy, Principal, Toolset
from nexus.types.message import assistant
from nexus.types.profile import Profile
from nexus.types.request import AgentResult
from nexus.workspace.source_context import SourceContext
from support.errors import has_code
from support.skills import write_skill

OWN = Profile("own", "rules alone", ("rules",), ("moment",))


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "input_schema": {"type": "object", "properties": {}}, **more}


READ, RUN, SEND = tool("read_file"), tool("run_shell"), tool("send_mail")
POLICY = Policy(
    "policy.toml",
    toolsets={"reading": Toolset(tools=("read_*",)), "all": Toolset(tools=("*",))},
    principals={"ann": Principal(person="ann", toolset="reading"), "bob": Principal(person="bob", toolset="all")},
    default=Default("reading"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "AGENTS.md").write_text("Be brief.\n")
    write_skill(ws, "video")
    write_skill(ws, "notes")
    return ws


def opened(root: Path, **options: Any) -> nexus.Engine:
    return nexus.open(root, home=root.parent / "home", **options)


def recorded(nx: nexus.Engine, **options: Any) -> nexus.AssembledContext:
    ctx = nx.assemble("hi", **options)
    nx.record(ctx, AgentResult((assistant("yes"),)))
    return ctx


def names(ctx: nexus.AssembledContext) -> tuple[list[str], list[str]]:
    return [spec.name for spec in ctx.tools], [one.name for one in ctx.provenance.denied_tools]


def test_what_if_filters_other_tools_by_policy_of_speaker(root: Path) -> None:
    """Document 002, "Tool Filtering": the tools that are offered are those that the policy grants."""
    with opened(root, policy=POLICY) as nx:
        recorded(nx, principal="ann", session="dm:ann", tools=[READ])
        changed = nx.what_if("dm:ann", 1, ReplayOverrides(tools=(READ, RUN)))
        assert names(changed) == (["read_file"], ["run_shell"])
        assert changed.provenance.settings.principal == "ann"
        assert "not in toolset 'reading'" in changed.provenance.denied_tools[0].reason
        recorded(nx, principal="bob", session="dm:bob", tools=[READ])
        assert names(nx.what_if("dm:bob", 1, ReplayOverrides(tools=(READ, RUN)))) == (["read_file", "run_shell"], [])


def test_what_if_gives_worker_no_messaging_tools(root: Path) -> None:
    with opened(root) as nx:
        recorded(nx, role="worker", task="count", session="worker:one", tools=[READ])
        changed = nx.what_if("worker:one", 1, ReplayOverrides(tools=(READ, tool("send_mail", category="messaging"))))
        assert names(changed) == (["read_file"], ["send_mail"])


def test_what_if_keeps_unchanged_parts_despite_current_policy(root: Path) -> None:
    with opened(root, policy=POLICY) as nx:
        was = recorded(nx, principal="bob", session="dm:bob", tools=[READ, RUN])
    narrow = Policy("policy.toml", POLICY.toolsets, {"bob": Principal(person="bob", toolset="reading")})
    with opened(root, policy=narrow) as nx:
        assert nx.what_if("dm:bob", 1, ReplayOverrides(budget=50_000)).tools == was.tools
        assert names(nx.what_if("dm:bob", 1, ReplayOverrides(profile="bare"))) == (["read_file"], ["run_shell"])
    other = Policy("policy.toml", {"reading": POLICY.toolsets["reading"]}, narrow.principals)
    with opened(root, policy=other) as nx, pytest.raises(NotAllowed, match="toolset 'all' not found"):
        nx.what_if("dm:bob", 1, ReplayOverrides(tools=(READ,)))


def test_what_if_checks_recorded_tools_with_current_policy(root: Path) -> None:
    with opened(root, policy=POLICY) as nx:
        recorded(nx, principal="ann", session="dm:ann", tools=[READ, RUN])
    wider = Policy("policy.toml", {**POLICY.toolsets, "reading": Toolset(tools=("*",))}, POLICY.principals)
    with opened(root, policy=wider) as nx:
        assert names(nx.replay("dm:ann", 1)) == (["read_file"], ["run_shell"])
        assert names(nx.what_if("dm:ann", 1, ReplayOverrides(profile="bare"))) == (["read_file", "run_shell"], [])


def test_custom_profile_is_found_by_name(root: Path) -> None:
    with opened(root, profiles={"own": OWN}) as nx:
        recorded(nx)
        changed = nx.what_if("main", 1, ReplayOverrides(profile="own"))
        assert changed.system_prompt == "# Workspace rules\n\nBe brief."
        with pytest.raises(NotFound, match="own", check=has_code("unknown_profile")):
            nx.what_if("main", 1, ReplayOverrides(profile="nobody's"))


def test_what_if_accepts_plugin_profile_source_and_tool(root: Path) -> None:
    def tickets(_: SourceContext) -> str:
        return "# Tickets\n\n- 12"

    class Tickets:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": tickets}

        @hookimpl
        def nexus_profiles(self) -> list[Profile]:
            return [Profile("ticketed", "", ("rules", "tickets"), ("moment",))]

        @hookimpl
        def nexus_tools(self) -> list[dict[str, Any]]:
            return [tool("close_ticket")]

    with opened(root) as nx:
        recorded(nx)
    with opened(root, plugins=[Tickets()]) as nx:
        changed = nx.what_if("main", 1, ReplayOverrides(profile="ticketed"))
        assert "# Tickets\n\n- 12" in changed.system_prompt
        assert names(changed)[0] == ["close_ticket"]


def test_what_if_keeps_or_changes_skills_with_other_profile(root: Path) -> None:
    with opened(root) as nx:
        recorded(nx, skills=["video"])
        other = nx.what_if("main", 1, ReplayOverrides(profile="repl"))
        assert "# Skill: video" in other.system_prompt
        changed = nx.what_if("main", 1, ReplayOverrides(skills=("notes",)))
        assert "# Skill: notes" in changed.system_prompt
        assert "# Skill: video" not in changed.system_prompt
        assert "# Skill:" not in nx.what_if("main", 1, ReplayOverrides(skills=())).system_prompt
        unknown = nx.what_if("main", 1, ReplayOverrides(skills=("nothing",)))
        assert any("skill 'nothing' not found" in note.message for note in unknown.warnings)


def test_what_if_with_other_profile_keeps_persona(root: Path) -> None:
    (root / "personas" / "night").mkdir(parents=True)
    (root / "personas" / "night" / "SOUL.md").write_text("I sleep by day.\n")
    with opened(root) as nx:
        recorded(nx, persona="night", profile="bare")
        assert "I sleep by day." in nx.what_if("main", 1, ReplayOverrides(profile="layered")).system_prompt


def test_replay_command_accepts_skills(root: Path) -> None:
    with opened(root) as nx:
        recorded(nx)
    ran = run("assemble", "--turn", "1", "--skill", "video", "--as", "text", folder=root)
    assert "# Skill: video" in ran.out
