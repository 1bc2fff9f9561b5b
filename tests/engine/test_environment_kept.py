"""The environment in a session: one survey from its start to its next compaction, so that the prompt's prefix stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from nexus.engine import Engine
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.types.config import Config
from nexus.types.message import Text, assistant
from nexus.types.profile import Profile
from nexus.types.request import AgentResult, Event, Request
from nexus.types.settings import Settings
from support.skills import SHELL, write_skill

CANARY = "canary-7f3a91"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    write_skill(tmp_path / "ws", "video", category="Media", requires={"bins": ["ffmpeg"]})
    return tmp_path


def opened(root: Path) -> Engine:
    return nexus.open(workspace=root / "ws", home=root / "home", config=Config())


def install(root: Path) -> None:
    program = root / "bin" / "ffmpeg"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def turn(nx: Engine, text: str, session: str = "main") -> nexus.AssembledContext:
    ctx = nx.assemble(text, session=session, tools=SHELL)
    nx.record(ctx, AgentResult((assistant(f"Done: {text}. " + "It took a while, and here is how. " * 30),)))
    return ctx


def test_environment_is_between_permissions_and_host(root: Path) -> None:
    """Document 002, "System Prompt Components": environment after persona and permissions, before runtime information."""
    with opened(root) as nx:
        names = [block.name for block in nx.assemble("hi", permissions=("read",), tools=SHELL).provenance.blocks]
    assert names.index("permissions") < names.index("environment") < names.index("host")


def test_installed_program_appears_after_a_compaction(root: Path) -> None:
    """Document 002, "Physical Layer 1": "Identical between turns"; a new prefix is acceptable at a compaction."""
    with opened(root) as nx:
        first = turn(nx, "one")
        assert "Media: video 🔧 (needs ffmpeg)" in first.system_prompt
        install(root)
        for text in ("two", "three", "four", "five", "six"):
            later = turn(nx, text)
            assert later.system_prompt == first.system_prompt
            assert later.accounting.prefix.state == "extends"
        assert nx.compact("main", share=0.001)
        after = nx.assemble("seven", tools=SHELL)
        assert "Media: video ⭐ (ready)" in after.system_prompt
        assert after.accounting.prefix.state == "broken"
        assert any(
            "nexus:environment" in cause for cause in (*after.accounting.prefix.causes, after.accounting.prefix.at)
        )
        nx.ledger.undo("main")
        assert nx.assemble("seven", tools=SHELL).system_prompt == first.system_prompt


def test_explicit_environment_check_updates_next_call(root: Path) -> None:
    with opened(root) as nx:
        turn(nx, "one")
        install(root)
        found = nx.preparation.refresh_environment()
        assert ("video", "ready") in [(one.name, one.state) for one in found.capabilities]
        ctx = nx.assemble("two", tools=SHELL)
        assert "Media: video ⭐ (ready)" in ctx.system_prompt
        assert ctx.accounting.prefix.state == "broken"
        assert any("nexus:environment (environment)" in cause for cause in ctx.accounting.prefix.causes)


def test_other_session_and_process_survey_again(root: Path) -> None:
    with opened(root) as nx:
        turn(nx, "one")
        install(root)
        assert "⭐" in nx.assemble("one", session="other", tools=SHELL).system_prompt
        assert "🔧" in nx.assemble("two", tools=SHELL).system_prompt
    with opened(root) as nx:
        assert "⭐" in nx.assemble("two", tools=SHELL).system_prompt


def test_environment_block_is_the_same_in_another_process(root: Path) -> None:
    with opened(root) as nx:
        first = turn(nx, "one")
    with opened(root) as nx:
        later = nx.assemble("two", tools=SHELL)
        assert (later.system_prompt, later.accounting.prefix.state) == (first.system_prompt, "extends")


def test_environment_section_can_be_limited_to_capabilities(root: Path) -> None:
    write_skill(root / "ws", "notes")
    with opened(root) as nx:
        settings = Settings(role="worker", capabilities=("notes",))
        ctx = nx.assemble_request(Request(Event((Text("hi"),)), settings=settings, tools=SHELL))
    assert "General: notes ⭐ (ready)" in ctx.system_prompt
    assert "Media: video" not in ctx.system_prompt


def test_no_survey_without_workspace_or_environment_block(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "ws" / ".nexus").mkdir()
    (root / "ws" / ".nexus" / "used.json").write_text("[]")
    with opened(root) as nx:
        assert [one.source for one in nx.assemble("hi", tools=SHELL).warnings if "used" in one.source] == [
            ".nexus/used.json"
        ]
        bare = nx.assemble("hi", profile="bare", tools=SHELL)
        assert (bare.system_prompt, bare.warnings) == ("", ())
    monkeypatch.setenv("NEXUS_CREDENTIAL_TWITTER", CANARY)
    with nexus.open() as nx:
        assert nx.assemble("hi", tools=SHELL).system_prompt == ""
        assert nx.preparation.refresh_environment().credentials == 0


def test_replay_uses_recorded_environment(root: Path) -> None:
    with opened(root) as nx:
        first = turn(nx, "one")
        install(root)
        nx.preparation.refresh_environment()
        assert nx.replay("main", 1).system_prompt == first.system_prompt
        changed = nx.what_if("main", 1, ReplayOverrides(profile="layered"))
        assert changed.system_prompt == first.system_prompt


def test_what_if_with_other_profile_uses_current_environment(root: Path) -> None:
    with opened(root) as nx:
        nx.record(nx.assemble("one", profile="bare", tools=SHELL), AgentResult((assistant("yes"),)))
        install(root)
        assert "Media: video ⭐ (ready)" in nx.what_if("main", 1, ReplayOverrides(profile="layered")).system_prompt


def test_variable_values_are_not_in_context_report_or_ledger(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(root / "ws", "social", requires={"credentials": ["twitter"], "env": ["TWITTER_TOKEN"]})
    monkeypatch.setenv("NEXUS_CREDENTIAL_TWITTER", CANARY)
    monkeypatch.setenv("TWITTER_TOKEN", CANARY)
    with opened(root) as nx:
        nx.credentials.check(["twitter"], 5)
        ctx = turn(nx, "one")
        assert "1 configured" in ctx.system_prompt
        texts = [repr(ctx), ctx.report, repr(ctx.to_json()), repr(nx.preparation.refresh_environment()), repr(vars(nx))]
        assert nx.credentials.get("twitter").reveal() == CANARY
    files = [path for path in root.rglob("*") if path.is_file()]
    assert any(path.name == "ledger.db" for path in files)
    assert any(path.name == "credentials.json" for path in files)
    assert all(CANARY not in text for text in texts)
    assert all(CANARY.encode() not in path.read_bytes() for path in files)


def test_custom_profile_can_list_the_environment_block_alone(root: Path) -> None:
    profile = Profile("brief", "the environment alone", system=("environment",), current=())
    with nexus.open(workspace=root / "ws", home=root / "home", profiles={"brief": profile}) as nx:
        assert nx.assemble("hi", profile="brief", tools=SHELL).system_prompt.startswith("## Nexus Environment\n")


def shown(ctx: nexus.AssembledContext) -> tuple[bool, bool]:
    """Whether the environment's block, and the list of skills, say that the skill `video` lacks something."""
    texts = {block.name: block.text for block in ctx.provenance.blocks}
    line = next(line for line in texts["skills"].splitlines() if line.startswith("- video"))
    return "video 🔧" in texts["environment"], "unavailable: needs ffmpeg" in line


def test_skill_list_and_environment_share_one_survey_per_session(root: Path) -> None:
    """Document 002, "Physical Layer 1": environment and skills summary stand in the slot that is identical between turns."""
    with opened(root) as nx:
        first = turn(nx, "one", "early")
        assert shown(first) == (True, True)
        install(root)
        assert shown(turn(nx, "one", "late")) == (False, False)
        later = turn(nx, "two", "early")
        assert (shown(later), later.system_prompt) == ((True, True), first.system_prompt)
        assert nx.compact("early", share=0.001)
        assert shown(nx.assemble("three", session="early", tools=SHELL)) == (False, False)
        nx.ledger.undo("early")
        assert shown(nx.assemble("three", session="early", tools=SHELL)) == (True, True)
        nx.preparation.refresh_environment()
        assert shown(nx.assemble("three", session="early", tools=SHELL)) == (False, False)


def test_later_environment_block_agrees_with_skill_list(root: Path) -> None:
    with opened(root) as nx:
        nx.record(nx.assemble("one", profile="repl", tools=SHELL), AgentResult((assistant("yes"),)))
        install(root)
        assert shown(nx.assemble("two", tools=SHELL)) == (True, True)


def test_invalid_requirement_name_is_missing_in_both_lists(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = root / "bin" / "odd name"
    odd.write_text("#!/bin/sh\n")
    odd.chmod(0o755)
    monkeypatch.setenv("ODD.NAME", "x")
    write_skill(root / "ws", "odd-program", requires={"bins": ["odd name"]})
    write_skill(root / "ws", "odd-variable", requires={"env": ["ODD.NAME"]})
    with opened(root) as nx:
        texts = {block.name: block.text for block in nx.assemble("hi", tools=SHELL).provenance.blocks}
    assert "odd-program 🔧 (needs a program)" in texts["environment"]
    assert "odd-variable 🔧 (needs a variable)" in texts["environment"]
    assert "(unavailable: needs odd name)" in texts["skills"]
    assert "(unavailable: needs ODD.NAME)" in texts["skills"]


def test_custom_profile_can_put_environment_into_the_message(root: Path) -> None:
    own = Profile("own", "", system=(), current=("environment",))
    with nexus.open(root / "ws", home=root / "home", config=Config(), profiles={"own": own}) as nx:
        ctx = nx.assemble("hi", profile="own", tools=SHELL)
    assert ctx.system_prompt == ""
    assert "video 🔧 (needs ffmpeg)" in str(ctx.to_provider("openai"))
