"""The profile `repl`: document 004's combined prompt, the first message of a session, its summaries, its frozen prompt.

The expected texts are typed from the document's "Combination", "Temporal Context" and "Summary Format".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run
from nexus.engine import Engine
from nexus.engine.analysis.explain import Explanation
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import BadSetting
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import ToolCall, assistant, tool
from nexus.types.request import Event
from nexus.workspace.environment.machine import this_system
from support.skills import SHELL
from support.validity import CHECKS
from workspace.skills.making import skill
from workspace.sources.gathering import put, write

STARTED = "[Session started: 2026-01-13 14:30 (local)]"
SUMMARY = """[CONTEXT SUMMARY]
The following is a summary of our previous conversation. It was automatically
generated when the context window needed compaction. Treat this as established
context - you don't need to re-confirm decisions already made.

---
Generated: 2026-01-13 14:40 (local)
"""


class Clock:
    """Stands still until it is set on, by minutes."""

    def __init__(self) -> None:
        self.now = int(datetime(2026, 1, 13, 13, 30, tzinfo=UTC).timestamp() * 1000)

    def __call__(self) -> int:
        return self.now

    def later(self, minutes: int) -> None:
        self.now += 60_000 * minutes


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = write(tmp_path / "home", NEXUS="Be brief.")
    monkeypatch.setenv("NEXUS_HOME", str(home))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    monkeypatch.setenv("TERM", "xterm-256color")
    this_system.cache_clear()
    yield write(tmp_path / "project", NEXUS="Use tabs.")
    this_system.cache_clear()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(root: Path, now: Clock, **options: Any) -> Engine:
    given: dict[str, Any] = {"timezone": "Europe/Berlin", "run_mode": "repl", "model": "gpt-4o"}
    return nexus.open(root, clock_ms=now, **{**given, **options})


def sent(nx: Engine, event: Any = "hi", **options: Any) -> nexus.AssembledContext:
    """The context of a next call, judged by every provider's rules."""
    ctx = nx.assemble(event, profile="repl", **options)
    for wire, check in CHECKS.items():
        assert check(getattr(ctx, f"to_{wire}")()) == [], wire
    return ctx


def said(nx: Engine, event: Any = "hi", answer: str = "hello", **options: Any) -> nexus.AssembledContext:
    ctx = sent(nx, event, **options)
    nx.record(ctx, nexus.AgentResult((assistant(answer),)))
    return ctx


def messages(ctx: nexus.AssembledContext) -> list[Any]:
    return [one["content"] for one in ctx.to_openai()["messages"][1:]]


# the combined prompt -------------------------------------------------------------------------------------------------


def test_the_prompt_combines_the_layers_under_the_printed_headers(root: Path, clock: Clock) -> None:
    """Document 004, "Combination", but for the time, which comes with the messages; the list of skills is an addition."""
    prompt = sent(opened(root, clock), tools=SHELL).system_prompt
    first, skills, last = (
        prompt.partition("\n\n# Skills\n")[0],
        "\n\n# Skills\n",
        prompt[prompt.index("# Environment") :],
    )
    assert first == "# Personal Configuration\nBe brief.\n\n# Project Configuration\nUse tabs."
    assert prompt.count(skills) == 1
    assert last == (
        "# Environment\n"
        f"Working directory: {root}\n"
        "Operating system: Linux (WSL2 on Windows)\n"
        "Terminal: vscode (xterm-256color)\n"
        "Mode: Interactive REPL"
    )


def test_a_server_is_told_so_and_has_no_terminal(root: Path, clock: Clock) -> None:
    """Document 004, "System Information": terminal in REPL mode only; "HTTP JSON-RPC Server"."""
    prompt = sent(opened(root, clock, run_mode="server")).system_prompt
    assert prompt.endswith("Operating system: Linux (WSL2 on Windows)\nMode: HTTP JSON-RPC Server")


def test_further_files_say_their_layer_and_path(root: Path, clock: Clock) -> None:
    """Document 004, `ContextLoader`: "Global → ancestors → local with labeled sections"."""
    (root / ".git").mkdir()
    write(root, AGENTS="Local agents.", app__NEXUS="Use spaces.")
    put(root.parent / "home" / "AGENTS.md", "My agents.")
    prompt = sent(opened(root / "app", clock)).system_prompt
    home = f"{root.parent / 'home'}/"
    shown = [line for line in prompt.split("\n") if line.endswith(")") and line.startswith("# ")]
    assert [line.replace(home, "HOME/") for line in shown] == [
        "# Global Configuration (HOME/AGENTS.md)",
        "# Ancestor Configuration (../NEXUS.md)",
        "# Ancestor Configuration (../AGENTS.md)",
    ]
    assert "# Project Configuration\nUse spaces." in prompt


def test_the_command_line_prints_it(root: Path, tmp_path: Path) -> None:
    """`nexus assemble … --profile repl --mode repl`."""
    done = run(
        "assemble", "hi", "--profile", "repl", "--mode", "repl", "--at", "2026-01-13T14:30:00+01:00",
        "--timezone", "Europe/Berlin", "--channel", "cli", "--as", "openai", "-w", str(root), folder=tmp_path,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    system, *rest = json.loads(done.out)["messages"]
    assert system["content"].startswith("# Personal Configuration\nBe brief.\n\n# Project Configuration\nUse tabs.\n")
    assert system["content"].endswith("Mode: Interactive REPL")
    assert [one["content"] for one in rest] == [
        STARTED,
        "Current date: 2026-01-13, Current time: 14:30 (local)\nChannel: cli\n\nhi",
    ]


# the session's start -------------------------------------------------------------------------------------------------


def test_the_first_message_says_when_the_session_started_in_every_call(root: Path, clock: Clock) -> None:
    """Document 004, "Combination": "The first message in a new session's history is always: [Session started: …]"."""
    nx = opened(root, clock)
    first = said(nx)
    moment = "Current date: 2026-01-13, Current time: 14:30 (local)"
    assert messages(first) == [STARTED, f"{moment}\n\nhi"]
    clock.later(60)
    second = said(nx, "and?")
    later = moment.replace("14:30", "15:30")
    assert messages(second) == [STARTED, f"{moment}\n\nhi", "hello", f"{later}\n\nand?"]
    assert second.accounting.prefix.state == "extends"
    again = opened(root, clock, timezone="Asia/Shanghai")
    assert messages(sent(again, "more"))[:4] == messages(second), "another program, in another zone, goes on with it"
    assert messages(sent(again, "more", model="claude-sonnet-4-5"))[0] == STARTED, "another model too"


def test_without_a_zone_the_time_is_utc_and_says_so(root: Path, clock: Clock) -> None:
    assert messages(sent(opened(root, clock, timezone="")))[0] == "[Session started: 2026-01-13 13:30 (UTC)]"


def test_a_session_that_another_profile_began_has_no_first_message(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    nx.record(nx.assemble("hi"), nexus.AgentResult((assistant("hello"),)))
    assert "[Session started" not in json.dumps(messages(said(nx)))
    assert "[Session started" not in json.dumps(messages(sent(nx)))
    assert "[Session started" not in json.dumps(nx.assemble("hi", session="new").to_openai())


def test_the_first_message_is_never_cut_nor_summarised(root: Path, clock: Clock) -> None:
    """Decided: "`[Session started: …]` is the first message, never cut, never summarised"."""
    nx = opened(root, clock)
    for number in range(30):
        ctx = said(nx, f"{number} " + "word " * 200, budget=4_000)
        assert messages(ctx)[0] == STARTED
        assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total <= 4_000
    assert sent(nx, budget=4_000).provenance.manifest.cut > 0
    clock.later(10)
    assert nx.compact(budget=4_000, profile="repl")
    ctx = said(nx, "so?", budget=4_000)
    assert messages(ctx)[0] == STARTED
    assert "[Session started" not in json.dumps(messages(ctx)[1:])
    assert all("Session started" not in message.text() for message in nx.history("main")), (
        "it is no message of anybody's"
    )


def test_a_fork_goes_on_with_its_first_message(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    said(nx)
    clock.later(60)
    nx.ledger.fork("other", "main")
    assert messages(sent(nx, "more", session="other"))[0] == STARTED


def test_anthropic_gets_it_in_the_first_users_turn(root: Path, clock: Clock) -> None:
    """Decided: "merged into the first user turn where a wire wants it"."""
    body = sent(opened(root, clock), model="claude-sonnet-4-5").to_anthropic()
    assert [one["role"] for one in body["messages"]] == ["user"]
    assert body["messages"][0]["content"][0]["text"] == STARTED


def test_past_calls_are_made_again_with_it_and_proven(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    bodies = [said(nx, f"{number} " + "word " * 300, budget=3_000).to_openai() for number in range(8)]
    clock.later(10)
    nx.compact(budget=3_000, profile="repl")
    bodies.append(said(nx, "so?", budget=3_000).to_openai())
    write(root, NEXUS="Changed.")
    nx = opened(root, clock)
    for turn, body in enumerate(bodies, 1):
        assert nx.replay("main", turn).to_openai() == body
    other = nx.what_if("main", 3, ReplayOverrides(profile="bare"))
    assert "[Session started" not in json.dumps(other.to_openai())
    assert messages(nx.what_if("main", 3, ReplayOverrides(budget=20_000)))[0] == STARTED


def test_an_explanation_names_it_and_adds_up(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    for number in range(8):
        said(nx, f"{number} " + "word " * 300, budget=3_000)
    told: list[Explanation] = [nx.explain("main", 1), nx.explain("main", 8)]
    nx.compact(budget=3_000, profile="repl")
    said(nx, "so?", budget=3_000)
    for one in [*told, nx.explain("main", 9)]:
        assert [line.text for line in one.lines if line.name == "session start"] == [STARTED]
        assert sum(line.tokens for line in one.lines) == one.used


# summaries -----------------------------------------------------------------------------------------------------------


def test_a_summary_stands_under_the_printed_words_and_its_time(root: Path, clock: Clock) -> None:
    """Document 004, "Summary Format" and "Compaction Timestamp"; decided: then `---`, `Generated: <time>`, the summary."""
    nx = opened(root, clock)
    for number in range(12):
        said(nx, f"Step {number}: never delete src/main.py. " + "word " * 100)
    clock.later(10)
    nx.compact(profile="repl")
    clock.later(10)
    ctx = said(nx, "so?")
    summary = messages(ctx)[1]
    assert summary.startswith(SUMMARY)
    assert len(summary) > len(SUMMARY) + 20
    assert "[Previous conversation summary]" not in json.dumps(messages(ctx))
    again = opened(root, clock, timezone="Asia/Shanghai")
    assert messages(sent(again, "more"))[1] == summary
    assert messages(sent(again, "more", model="claude-sonnet-4-5"))[1] != summary, (
        "another prefix, told in its user's zone"
    )
    layered = nx.assemble("so?", profile="layered")
    assert messages(layered)[0].startswith("[Previous conversation summary]\n")


# the frozen prompt ---------------------------------------------------------------------------------------------------


def test_the_prompt_stays_until_a_compaction_and_what_changed_is_said(root: Path, clock: Clock) -> None:
    """Document 004, "System Prompt Reloading"; decided: "`repl` freezes its prompt until compaction"."""
    nx = opened(root, clock)
    first = said(nx, "Step 0. " + "word " * 200)
    write(root, NEXUS="Use spaces.", AGENTS="Be kind.")
    second = said(nx, "Step 1. " + "word " * 200)
    assert second.system_prompt == first.system_prompt
    assert second.accounting.prefix.state == "extends"
    told = [note.source for note in second.warnings if "changed on disk" in note.message]
    assert told == ["NEXUS.md", "AGENTS.md"]
    assert sent(opened(root, clock), "x").system_prompt == first.system_prompt, "by another program too"
    for number in range(6):
        said(nx, f"Step {number}. " + "word " * 200)
    assert nx.compact(profile="repl")
    after = said(nx, "so?")
    assert "Use spaces." in after.system_prompt and "Be kind." in after.system_prompt
    assert not [note for note in after.warnings if "not the same" in note.message]
    assert sent(nx, "new", session="other").system_prompt == after.system_prompt


def test_a_clear_reads_the_files_again(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    said(nx)
    write(root, NEXUS="Use spaces.")
    nx.ledger.commit("main", Commit((NewEntry("clear"),)))
    ctx = sent(nx)
    assert "Use spaces." in ctx.system_prompt
    assert messages(ctx)[0] == STARTED


def test_a_skill_that_a_request_names_is_added_to_a_frozen_prompt(root: Path, clock: Clock) -> None:
    skill(root, "tally", body="COUNT TWICE")
    nx = opened(root, clock)
    first = said(nx)
    second = said(nx, skills=["tally"])
    assert second.system_prompt.startswith(first.system_prompt)
    assert second.system_prompt.endswith("# Skill: tally\n\nCOUNT TWICE")
    assert not [note for note in second.warnings if "not the same" in note.message]


def test_a_tool_loop_has_the_same_prompt_and_first_message(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    first = sent(nx, Event((nexus.Text("look"),)))
    nx.record(first, nexus.AgentResult((assistant("", ToolCall("c1", "look", "{}")),)))
    write(root, NEXUS="Use spaces.")
    second = sent(nx, [tool("c1", "sun", "look")])
    assert second.system_prompt == first.system_prompt
    assert messages(second)[: len(messages(first))] == messages(first)


# the clock -----------------------------------------------------------------------------------------------------------


def test_the_clock_in_the_system_prompt_is_there_for_who_asks_for_it(root: Path, clock: Clock) -> None:
    """Document 004, "Combination" to the character; decided: "`clock="system"` gives the printed `# Environment` line"."""
    nx = opened(root, clock, clock="system")
    first = said(nx, Event((nexus.Text("hi"),), channel="cli"))
    section = first.system_prompt[first.system_prompt.index("# Environment") :]
    assert section == (
        "# Environment\n"
        "Current date: 2026-01-13, Current time: 14:30 (local)\n"
        f"Working directory: {root}\n"
        "Operating system: Linux (WSL2 on Windows)\n"
        "Terminal: vscode (xterm-256color)\n"
        "Mode: Interactive REPL"
    )
    assert messages(first) == [STARTED, "Channel: cli\n\nhi"]
    write(root, NEXUS="Use spaces.")
    clock.later(2)
    second = said(nx, "and?")
    assert second.system_prompt == first.system_prompt.replace("14:30", "14:32"), "fresh on every call, the rest frozen"
    assert messages(second)[-1] == "and?"
    assert second.accounting.prefix.state == "broken"
    assert any("surroundings" in cause for cause in second.accounting.prefix.causes)
    assert nx.replay("main", 1).to_openai() == first.to_openai()
    assert nx.replay("main", 2).to_openai() == second.to_openai()
    asked = sent(nx, Event((nexus.Text("look"),), channel="cli"))
    nx.record(asked, nexus.AgentResult((assistant("", ToolCall("c1", "look", "{}")),)))
    clock.later(20)
    loop = sent(nx, Event(results=(tool("c1", "sun", "look"),), channel="cli"))
    assert messages(loop)[-1] == "sun", "the time stands in the system prompt alone"
    assert "14:52" in loop.system_prompt


@pytest.mark.parametrize("setting", ["run_mode", "clock"])
def test_a_mode_or_clock_that_there_is_not_is_refused(root: Path, clock: Clock, setting: str) -> None:
    with pytest.raises(BadSetting, match=f"{setting} is one of .*, not 'sundial'"):
        opened(root, clock, **{setting: "sundial"})


def test_the_command_line_puts_the_clock_into_the_system_prompt(root: Path, tmp_path: Path) -> None:
    done = run(
        "assemble", "hi", "--profile", "repl", "--clock", "system", "--at", "2026-01-13T14:30:00+01:00",
        "--timezone", "Europe/Berlin", "--as", "openai", "-w", str(root), folder=tmp_path,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    system, *rest = json.loads(done.out)["messages"]
    assert "# Environment\nCurrent date: 2026-01-13, Current time: 14:30 (local)\nWorking" in system["content"]
    assert [one["content"] for one in rest] == [STARTED, "hi"]


def test_a_long_tool_loop_is_told_the_time_after_its_results(root: Path, clock: Clock) -> None:
    """Decided: "in a tool loop a new stamp is appended after the last result when the last one is over five minutes old;
    nothing is rewritten"."""
    nx = opened(root, clock)
    ctx, bodies = sent(nx, "look"), list[Any]()
    for number in range(1, 7):
        nx.record(ctx, nexus.AgentResult((assistant("", ToolCall(f"c{number}", "look", "{}")),)))
        clock.later(2)
        ctx = sent(nx, [tool(f"c{number}", "sun", "look")])
        bodies.append(messages(ctx))
        assert ctx.accounting.prefix.state == "extends"
        assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total
    lasts = [body[-1] for body in bodies]
    assert lasts == [
        "sun", "sun", "Current date: 2026-01-13, Current time: 14:36 (local)",
        "sun", "sun", "Current date: 2026-01-13, Current time: 14:42 (local)",
    ]  # fmt: skip
    assert bodies[-1][: len(bodies[2])] == bodies[2]
    nx.record(ctx, nexus.AgentResult((assistant("bright"),)))
    again = said(nx, "thanks")
    assert messages(again)[-1].endswith("Current time: 14:42 (local)\n\nthanks")
    for call, body in enumerate(bodies, 2):
        assert messages(nx.replay("main", 1, call=call)) == body
    tagged = nx.assemble("and?", profile="tagged")
    memory = next(m.text() for m in tagged.messages if m.text().startswith("[SHARED_MEMORY"))
    assert memory.count("Human: ") == 2, "a stamp is no word of the user's"


def test_a_stamp_in_a_tool_loop_is_not_the_request_that_is_kept(root: Path, clock: Clock) -> None:
    nx = opened(root, clock)
    said(nx, "First task. " + "word " * 300, budget=4_000)
    ctx = sent(nx, "KEEP THIS REQUEST", budget=4_000)
    for number in range(1, 14):
        nx.record(ctx, nexus.AgentResult((assistant("", ToolCall(f"c{number}", "look", "{}")),)))
        clock.later(6)
        ctx = sent(nx, [tool(f"c{number}", "sun " * 300, "look")], budget=4_000)
    assert ctx.provenance.manifest.cut > 0
    assert "KEEP THIS REQUEST" in json.dumps(messages(ctx))
    assert nx.replay("main", 2, call=13).to_openai()
    nx.record(ctx, nexus.AgentResult((assistant("bright"),)))
    assert nx.replay("main", 2).to_openai() == ctx.to_openai()
