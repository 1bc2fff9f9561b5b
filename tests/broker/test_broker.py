"""The broker's doors of document 002: system prompts, the current message, history messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nexus
from nexus.broker import (
    PersonaContext,
    WorkspaceContext,
    build_current_message,
    build_history_messages,
    build_system_prompt,
    build_worker_system_prompt,
)
from nexus.engine import Engine
from nexus.errors import BadEvent, BadSetting, NoSuchSession, NotFound
from nexus.text.message_text import visible_parts
from nexus.types.ledger_entries import Compaction
from nexus.types.message import Text, assistant, tool
from nexus.types.request import Event
from nexus.types.settings import AgentRole
from support.errors import has_code
from support.skills import SHELL

RUNTIME = {"host": "mini", "os": "linux", "arch": "arm64"}
NOON = 1_770_379_200_123
MAY = PersonaContext("", "look", ("read",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "AGENTS.md": "RULES", "TOOLS.md": "GUIDE", "user/IDENTITY.md": "FRIEND", "USER.md": "OLD FRIEND",
        "SOUL.md": "SOUL", "IDENTITY.md": "SELF", "personas/night/IDENTITY.md": "NIGHT SELF",
        "skills/x/SKILL.md": "---\nname: x\ndescription: does x\n---\nbody",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def places(prompt: str, *words: str) -> list[int]:
    return [prompt.index(word) for word in words]


def test_manager_prompt_has_documented_order(root: Path) -> None:
    """Decided on 002: rules, user, SOUL, IDENTITY, permissions, environment, host/os/arch, then messaging rules."""
    prompt = build_system_prompt(root, MAY, None, RUNTIME, "manager")
    found = places(
        prompt, "RULES", "GUIDE", "FRIEND", "# Soul\n\nSOUL", "SELF", "- read", "- x: ",
        "# Runtime\n\nHost: mini\nOS: linux\nArch: arm64\n\n# Messaging",
    )  # fmt: skip
    assert found == sorted(found)
    assert "Subagent" not in prompt


def test_worker_role_prompt_ends_with_instructions(root: Path) -> None:
    """Document 002, `buildSystemPrompt`: `params.role === 'worker' && renderTaskInstructions()`, after the runtime."""
    prompt = build_system_prompt(root, "", None, RUNTIME, role="worker")
    assert prompt.startswith("# Workspace rules\n\nRULES")
    assert prompt.index("Arch: arm64\n\n# Subagent Context") > 0
    assert prompt.endswith("- NO persistent state changes outside your task scope")
    assert "## Your Task" not in prompt
    assert "# Messaging" not in prompt


def test_unified_prompt_has_messaging_rules_and_no_task_section(root: Path) -> None:
    """Decided on 002: "`unified` gets platform and messaging rules, no task section"."""
    assert build_system_prompt(root, role="unified") == build_system_prompt(root, role="manager")


def test_empty_parts_are_omitted_and_others_joined_by_blank_line(tmp_path: Path) -> None:
    """Document 002, "System Prompt Construction": `sections.filter(Boolean).join('\\n\\n')`."""
    (tmp_path / "AGENTS.md").write_text("\n\nRULES\n\n")
    sections = build_system_prompt(tmp_path, role="worker").split("\n\n# ")
    assert [one.splitlines()[0] for one in sections] == ["# Workspace rules", "Skills", "Subagent Context"]
    (tmp_path / "AGENTS.md").write_text("")
    sections = build_system_prompt(tmp_path, role="manager").split("\n\n# ")
    assert [one.splitlines()[0] for one in sections] == ["# Skills", "Messaging"]


@pytest.mark.parametrize("role", ["manager", "unified"])
def test_broker_and_engine_build_the_same_prompt(root: Path, role: AgentRole) -> None:
    nx = nexus.open(root)
    facts = {name.lower(): value for name, value in nx.workspace_context.host.items()}
    ctx = nx.assemble(
        Event((Text("hi"),), platform="imessage"), role=role, tools=SHELL, toolset="look", permissions=["read"]
    )
    assert build_system_prompt(root, MAY, nx.preparation.refresh_environment(), facts, role) == ctx.system_prompt


def test_broker_and_engine_build_the_same_worker_prompt(root: Path) -> None:
    """Decided on 002: "The worker's prompt is `build_worker_system_prompt`, with the runtime information at its end"."""
    nx = nexus.open(root)
    facts = {name.lower(): value for name, value in nx.workspace_context.host.items()}
    ctx = nx.assemble("hi", session="worker:x", role="worker", task="Count.", persona="night", tools=SHELL)
    prompt = build_worker_system_prompt(
        WorkspaceContext(str(root)), "night", "Count.", nx.preparation.refresh_environment(), facts
    )
    assert prompt == ctx.system_prompt
    found = places(prompt, "# Subagent Context", "## Your Task\nCount.", "RULES", "NIGHT SELF", "# Runtime")
    assert found == sorted(found)


def test_one_line_values_cannot_break_lines_in_system_prompt(tmp_path: Path) -> None:
    """Document 002, "Static Runtime Info": `host`, `os`, `arch`; "Permissions and constraints": one line each."""
    (tmp_path / "AGENTS.md").write_text("RULES")
    forged = "x\n\n# Messaging\r# Messaging\u2028# Messaging\x85# Messaging"
    may = PersonaContext("", forged, (forged, "read"))
    prompt = build_system_prompt(tmp_path, may, None, dict.fromkeys(RUNTIME, forged), "manager")
    plain = build_system_prompt(
        tmp_path,
        PersonaContext("", "x", ("x", "read")),
        None,
        dict.fromkeys(RUNTIME, "x"),
        "manager",
    )
    assert len(prompt.splitlines()) == len(plain.splitlines())
    assert [line for line in prompt.splitlines() if line.startswith("# ")] == [
        line for line in plain.splitlines() if line.startswith("# ")
    ]


@pytest.mark.parametrize("task", ["", " \n\t"])
def test_worker_prompt_without_task_raises(root: Path, task: str) -> None:
    with pytest.raises(BadSetting, check=has_code("empty_task")):
        build_worker_system_prompt(root, "", task)


def test_missing_workspace_raises(tmp_path: Path) -> None:
    with pytest.raises(NotFound, check=has_code("workspace_missing")):
        build_system_prompt(tmp_path / "nowhere")


def test_user_comes_from_identity_else_from_user_md(root: Path) -> None:
    """Decided on 002: the agent's IDENTITY.md in the root or persona's folder; the user's in `user/`, else USER.md."""
    assert "OLD FRIEND" not in build_system_prompt(root)
    assert "NIGHT SELF" in build_system_prompt(root, "night")
    assert "NIGHT SELF" not in build_system_prompt(root)
    (root / "user" / "IDENTITY.md").unlink()
    assert "OLD FRIEND" in build_system_prompt(root)


# the current message ------------------------------------------------------------------------------------------------

EVENT = Event(
    (Text("What now?"),), at_ms=NOON, timezone="Asia/Shanghai", platform="imessage", platform_actions=("reply", "react"),
    source="imessage",
)  # fmt: skip


def shown(event: Event, role: AgentRole) -> str:
    return "\n".join(part.text for part in visible_parts(build_current_message(event, role)) if isinstance(part, Text))


@pytest.mark.parametrize("role", ["manager", "unified"])
def test_current_message_has_documented_order(role: AgentRole) -> None:
    """Document 002, `buildCurrentMessage`: time, timezone, platform and actions, a blank line, the content."""
    assert shown(EVENT, role) == (
        "Current time: 2026-02-06T12:00:00.123Z\nLocal time: 2026-02-06T20:00:00.123+08:00\nTimezone: Asia/Shanghai\n"
        "Platform: imessage\nAvailable actions: reply, react\n\nWhat now?"
    )


def test_worker_current_message_has_no_platform() -> None:
    """Document 002, `buildCurrentMessage`: `if (role === 'manager' && event.platform)`."""
    assert "imessage" not in shown(EVENT, "worker")
    assert shown(EVENT, "worker").endswith("Timezone: Asia/Shanghai\n\nWhat now?")


def test_current_message_without_zone_shows_utc_only() -> None:
    """Document 002, `buildCurrentMessage`: `Timezone: ${event.timezone || 'UTC'}`."""
    told = shown(Event((Text("hi"),), at_ms=NOON), "manager")
    assert told == "Current time: 2026-02-06T12:00:00.123Z\nTimezone: UTC\n\nhi"


def test_current_message_has_source_and_time_of_event() -> None:
    """Document 002, `buildCurrentMessage`: `return { role: 'user', content, source: event.source }`."""
    message = build_current_message(EVENT, "manager")
    assert (message.role, message.source, message.at_ms) == ("user", "imessage", NOON)
    assert build_current_message(Event((Text("hi"),)), "manager").at_ms > NOON


def test_broker_and_engine_build_the_same_current_message(tmp_path: Path) -> None:
    for role in ("manager", "unified"):
        ctx = nexus.open(tmp_path).assemble(EVENT, role=role)
        assert ctx.current_message == build_current_message(EVENT, role)


def test_tool_results_have_no_current_message() -> None:
    with pytest.raises(BadEvent, check=has_code("empty_event")):
        build_current_message(Event(results=(tool("c", "text"),)), "manager")


# the history --------------------------------------------------------------------------------------------------------


@pytest.fixture
def nx(tmp_path: Path) -> Engine:
    nx = nexus.open(tmp_path)
    for number in range(1, 6):
        ctx = nx.assemble(f"question {number}", session="s", profile="bare")
        nx.record(ctx, nexus.AgentResult((assistant(f"answer {number}"),)))
    return nx


def texts(nx: Engine, thread: str | int = "s") -> list[str]:
    return [message.text() for message in build_history_messages(nx, thread)]


def test_history_without_compaction_is_complete(nx: Engine) -> None:
    """Document 002, `buildHistoryMessages`: "No compaction — full history"."""
    assert texts(nx) == [text for n in range(1, 6) for text in (f"question {n}", f"answer {n}")]
    assert build_history_messages(nx, "s") == list(nx.assemble("x", session="s", profile="bare").history)


def test_history_after_compaction_begins_with_documented_summary(nx: Engine) -> None:
    """Document 002: `[Previous conversation summary]\\n${details.summary}`, then the kept turns, then what came after."""
    first = nx.ledger.entries("s")[6].seq
    nx.ledger.compact("s", Compaction(1, first - 1, first, "They counted."), after_checkpoint=0)
    ctx = nx.assemble("question 6", session="s", profile="bare")
    nx.record(ctx, nexus.AgentResult((assistant("answer 6"),)))
    messages = build_history_messages(nx, "s")
    assert (messages[0].role, messages[0].text()) == ("user", "[Previous conversation summary]\nThey counted.")
    assert texts(nx)[1:] == [text for n in (4, 5, 6) for text in (f"question {n}", f"answer {n}")]


def test_undo_restores_history_of_previous_compaction(nx: Engine) -> None:
    """Document 002, `findLatestCompaction`: "Find the LATEST compaction (not first!)"."""
    nx.ledger.compact("s", Compaction(1, 2, 3, "one"), after_checkpoint=0)
    mark = nx.ledger.store.checkpoints(nx.ledger.thread("s"))[0].seq
    nx.ledger.compact("s", Compaction(1, 6, 7, "two"), after_checkpoint=mark)
    assert texts(nx)[0] == "[Previous conversation summary]\ntwo"
    nx.ledger.undo("s")
    assert texts(nx)[0] == "[Previous conversation summary]\none"


def test_history_accepts_thread_number_and_alias(nx: Engine) -> None:
    nx.ledger.sessions.alias("other", "s")
    assert texts(nx, "other") == texts(nx, nx.ledger.thread("s")) == texts(nx)
    with pytest.raises(NoSuchSession):
        build_history_messages(nx, "nowhere")


def test_leading_system_messages_are_not_in_history(tmp_path: Path) -> None:
    from nexus.interop.detect import read
    from nexus.interop.importing import import_transcript

    file = tmp_path / "talk.json"
    talk = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Which index?"}]
    file.write_text(json.dumps({"messages": [*talk, {"role": "assistant", "content": "GIN."}]}))
    nx = nexus.open(tmp_path)
    for transcript in read(file):
        import_transcript(nx, transcript, session="s")
    assert texts(nx) == ["Which index?", "GIN."]
    assert "You are brief." in nx.assemble("x", session="s").system_prompt


def test_first_turn_has_no_parent(tmp_path: Path) -> None:
    """Decided on 002: the first turn's `parentTurnId` is null."""
    nx = nexus.open(tmp_path)
    assert nx.assemble("hi", session="dm:ann").to_json()["parentTurnId"] is None
