"""The application's own system prompt (`system=`), and a prompt that names nothing that the agent does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.assembly.gather import SYSTEM_SOURCE
from nexus.assembly.profiles.builtin import PROFILES
from nexus.engine import Engine
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import BadSetting
from nexus.types.message import assistant
from support.skills import SHELL, write_skill
from support.validity import CHECKS

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
BOT = "You are a weather bot."


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXUS_CREDENTIAL_MAIL", "x")
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Answer in degrees Celsius.")
    write_skill(folder, "mail", category="Communication", provides=["email-read"])
    return folder


def turn(nx: Engine, text: str | nexus.Event = "hi", **options: Any) -> nexus.AssembledContext:
    ctx = nx.assemble(text, **options)
    nx.record(ctx, nexus.AgentResult((assistant(f"answer to {text}"),)))
    return ctx


def test_bot_with_one_tool_gets_its_prompt_and_its_rules_only(root: Path) -> None:
    with nexus.open(root) as nx:
        prompt = nx.assemble("Is it warm in Porto?", system=BOT, tools=[WEATHER]).system_prompt
    assert prompt.startswith(f"{BOT}\n\n# Workspace rules\n\nAnswer in degrees Celsius.\n\n# Runtime\n\nHost: ")
    assert prompt.count("\n\n# ") == 2
    for word in ("nexus", "skill", "credential", "platform", "reaction", "messag", "capabilit"):
        assert word not in prompt.lower().partition("# runtime")[0]
    assert "#" not in prompt.partition("# Runtime")[2]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_system_stands_verbatim_and_first_in_every_profile(root: Path, profile: str) -> None:
    long = "</human_input>\n[THIS_MOMENT] \t" + "Rule: be kind. " * 6_700
    assert len(long) > 100_000
    with nexus.open(root) as nx:
        ctx = turn(nx, system=long, profile=profile, tools=[WEATHER])
        assert ctx.system_prompt.startswith(long)
        assert not [note for note in ctx.warnings if note.source == SYSTEM_SOURCE]
        assert [block.source for block in ctx.provenance.blocks].count(SYSTEM_SOURCE) == 1
        for wire, check in CHECKS.items():
            assert check(getattr(ctx, f"to_{wire}")()) == []
        assert nx.replay("main", 1).to_anthropic() == ctx.to_anthropic()
        later = nx.assemble("more", system=long, profile=profile, tools=[WEATHER])
        if not profile.startswith("tagged"):  # their block of earlier turns changes with the first one
            assert later.accounting.prefix.state == "extends"
        assert later.system_prompt.startswith(long)


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_any_system_text_is_first_and_replays(text: str) -> None:
    with nexus.open(ledger=":memory:") as nx:
        ctx = turn(nx, system=text)
        assert ctx.system_prompt == text
        assert nx.replay("main", 1).to_openai() == ctx.to_openai()


def test_changed_system_shows_at_once_and_is_reported(root: Path) -> None:
    """The profile `repl` freezes its own part of the prompt until a compaction."""
    for profile in ("layered", "repl"):
        with nexus.open(root, ledger=":memory:") as nx:
            turn(nx, system=BOT, profile=profile)
            (root / "AGENTS.md").write_text(f"Answer in Kelvin in {profile}.")
            ctx = nx.assemble("more", system="You are a tide bot.", profile=profile)
            assert ctx.system_prompt.startswith("You are a tide bot.\n\n")
            assert BOT not in ctx.system_prompt
            assert (f"Kelvin in {profile}" in ctx.system_prompt) == (profile == "layered")
            assert ctx.accounting.prefix.state == "broken"
            assert any(SYSTEM_SOURCE in cause for cause in ctx.accounting.prefix.causes)
            without = nx.assemble("more", profile=profile)
            assert BOT not in without.system_prompt
            assert any(SYSTEM_SOURCE in cause for cause in without.accounting.prefix.causes)


def test_system_of_open_is_the_default_of_all_calls(root: Path) -> None:
    with nexus.open(root, system=BOT) as nx:
        assert nx.assemble("hi").system_prompt.startswith(f"{BOT}\n")
        assert nx.assemble("hi", system="Other.").system_prompt.startswith("Other.\n")
        turn(nx)
        got = nexus.call(nx, "more", lambda _ctx: nexus.AgentResult((assistant("ok"),)), system="For one call.")
        assert got.ctx.system_prompt.startswith("For one call.\n")
        assert nx.replay("main", 1).system_prompt.startswith(f"{BOT}\n")
        assert SYSTEM_SOURCE in str(nx.explain("main"))


def test_what_if_keeps_the_recorded_system_prompt(root: Path) -> None:
    with nexus.open(root, system=BOT) as nx:
        turn(nx)
        recorded = nx.replay("main", 1).system_prompt
    with nexus.open(root, system="Tomorrow's default.") as nx:
        for change in (
            ReplayOverrides(profile="bare"),
            ReplayOverrides(tools=(WEATHER,)),
            ReplayOverrides(budget=9_000),
        ):
            prompt = nx.what_if("main", 1, change).system_prompt
            assert prompt.startswith(BOT)
            assert prompt.count(BOT) == 1
            assert "Tomorrow" not in prompt
        assert nx.replay("main", 1).system_prompt == recorded


def test_recorded_call_without_system_gets_no_default_later(root: Path) -> None:
    with nexus.open(root) as nx:
        turn(nx)
    with nexus.open(root, system=BOT) as nx:
        for change in (ReplayOverrides(profile="workspace"), ReplayOverrides(tools=(WEATHER,))):
            assert BOT not in nx.what_if("main", 1, change).system_prompt


@pytest.mark.parametrize("value", [7, ["rules"], None])
def test_system_of_a_wrong_type_is_refused(value: Any) -> None:
    with pytest.raises(BadSetting):
        nexus.open(ledger=":memory:", system=value)
    with nexus.open(ledger=":memory:") as nx, pytest.raises(nexus.NexusError):
        nx.assemble("hi", system=value or 7)


def test_skills_environment_and_messaging_appear_with_what_they_need(root: Path) -> None:
    reader: dict[str, Any] = {"name": "mcp__files__read_file", "input_schema": {"type": "object"}}
    runner: dict[str, Any] = {
        "name": "do",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
    with nexus.open(root, ledger=":memory:") as nx:

        def shown(event: str | nexus.Event = "hi", **options: Any) -> set[str]:
            names = {block.name for block in nx.assemble(event, **options).provenance.blocks}
            return names & {"skills", "environment", "messaging"}

        assert shown() == shown(tools=[WEATHER]) == set()
        assert shown(tools=[reader]) == {"skills"}
        assert shown(tools=[runner]) == shown(tools=SHELL) == {"skills", "environment"}
        assert shown(nexus.Event((nexus.Text("hi"),), channel="telegram")) == {"messaging"}
        assert shown(role="manager") == {"messaging"}


def test_messaging_rules_stay_for_the_session(root: Path) -> None:
    """A call without a channel, such as one with tool results, must not break the prefix."""
    with nexus.open(root, ledger=":memory:") as nx:
        first = turn(nx, nexus.Event((nexus.Text("hi"),), platform="telegram"))
        later = nx.assemble("more")
        assert later.system_prompt == first.system_prompt
        assert later.accounting.prefix.state == "extends"


def current_text(nx: Engine, **options: Any) -> str:
    content = nx.assemble("hi", model="gpt-4o", **options).to_openai()["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("profile", ["layered", "repl"])
@pytest.mark.parametrize(
    ("clock", "system", "shows_time"),
    [("", "", True), ("", BOT, False), ("message", BOT, True), ("off", "", False), ("off", BOT, False)],
)
def test_time_is_not_shown_next_to_an_own_system_prompt(
    root: Path, profile: str, clock: Any, system: str, shows_time: bool
) -> None:
    with nexus.open(root, clock=clock) as nx:
        text = current_text(nx, profile=profile, system=system)
    assert ("Current time: " in text) is shows_time
    assert ("Timezone" in text) is (shows_time and profile == "layered")
    assert text.endswith("hi")


def test_calls_recorded_with_the_time_are_replayed_without_it_today(tmp_path: Path) -> None:
    """The system prompt of an application had the time next to it until it was off by default."""
    with nexus.open(ledger=tmp_path / "l.db", clock="message") as nx:
        before = turn(nx, session="s", system=BOT, model="gpt-4o")
        assert "Current time: " in str(before.to_openai()["messages"][-1]["content"])
    with nexus.open(ledger=tmp_path / "l.db") as nx:
        assert nx.replay("s", 1).body_hash == before.body_hash
        assert "Current time: " not in current_text(nx, session="s", system=BOT).partition("hi")[0]
