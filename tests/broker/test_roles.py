"""Document 002, "MA vs WA Context Differences": each row of its table, and "Worker Agent System Prompt"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import BadSetting
from nexus.policy import Policy, Toolset
from nexus.types.message import Text, assistant
from nexus.types.settings import AgentRole, CallArguments
from support.errors import has_code

NOON = 1_770_379_200_000
HEADING = "# Subagent Context"
MESSAGING = "# Messaging"

OPENING = """\
# Subagent Context

You are a **worker agent** spawned for a specific task.

## Your Task
Count the logs of tenant 117.

## Rules
1. Stay focused — do your assigned task, nothing else
2. Complete the task — your final message reports back to the manager
3. Don't initiate — no proactive actions, no side quests
4. Be ephemeral — you may be terminated after completion

## What You DON'T Do
- NO user conversations (manager's job)
- NO external messages unless explicitly tasked
- NO persistent state changes outside your task scope

# Workspace rules

RULES"""
"""What document 002 prints, with a task in it and the first thing that follows."""

EVENT = nexus.Event((Text("Go."),), at_ms=NOON, platform="Matrix", platform_actions=("reply", "react"))


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "input_schema": {"type": "object"}, **more}


@pytest.fixture
def nx(tmp_path: Path) -> Engine:
    files = {
        "AGENTS.md": "RULES", "SOUL.md": "THE SOUL OF THE ROOT", "IDENTITY.md": "SELF",
        "personas/night/SOUL.md": "THE SOUL OF THE NIGHT", "USER.md": "FRIEND",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return nexus.open(tmp_path)


def worker(nx: Engine, event: Any = EVENT, **more: Any) -> nexus.AssembledContext:
    given = {"session": "worker:count", "role": "worker", "task": "Count the logs of tenant 117.", **more}
    return nx.assemble(event, **given)


def say(nx: Engine, text: str, reply: str, **more: Any) -> nexus.AssembledContext:
    ctx = nx.assemble(text, **more)
    nx.record(ctx, nexus.AgentResult((assistant(reply),)))
    return ctx


def names(ctx: nexus.AssembledContext) -> list[str]:
    return [spec.name for spec in ctx.tools]


def test_worker_prompt_begins_with_documented_text(nx: Engine) -> None:
    """Document 002, "Worker Agent System Prompt": "Workers get a stripped-down system prompt focused on their task"."""
    assert worker(nx).system_prompt.startswith(OPENING)


def test_worker_prompt_ends_with_runtime_information(nx: Engine) -> None:
    """Decided on 002: the worker's prompt is `build_worker_system_prompt`, with the runtime information at its end."""
    prompt = worker(nx).system_prompt
    places = [prompt.index(word) for word in (HEADING, "RULES", "FRIEND", "THE SOUL", "SELF", "# Runtime")]
    assert places == sorted(places)
    assert prompt[prompt.index("# Runtime") :].count("\n\n") == 1
    assert MESSAGING not in prompt


@pytest.mark.parametrize("role", ["manager", "unified"])
def test_manager_and_unified_prompts_have_messaging_rules(nx: Engine, role: AgentRole) -> None:
    """Document 002, "System Prompt Construction": `params.role === 'manager' && renderMessagingRules()`, at the end."""
    prompt = nx.assemble(EVENT, role=role).system_prompt
    assert prompt.index("# Runtime") < prompt.index(MESSAGING)
    assert prompt.endswith("no others.")
    assert HEADING not in prompt


def test_row_workspace_agents_md_full_for_both(nx: Engine) -> None:
    """Document 002, "MA vs WA Context Differences": `Workspace (AGENTS.md) | Full | Full`."""
    rules = "# Workspace rules\n\nRULES\n\n"
    assert rules in nx.assemble(EVENT, role="manager").system_prompt
    assert rules in worker(nx).system_prompt


def test_row_persona_worker_inherits_from_manager(nx: Engine) -> None:
    """`Persona identity | Own identity | Inherits from MA`."""
    say(nx, "Good evening", "Hello", session="dm:ann", role="manager", persona="night")
    assert "THE SOUL OF THE NIGHT" in worker(nx, manager="dm:ann").system_prompt
    assert "THE SOUL OF THE ROOT" in worker(nx).system_prompt
    say(nx, "Good morning", "Hello", session="dm:ann", role="manager")
    assert "THE SOUL OF THE ROOT" in worker(nx, manager="dm:ann").system_prompt


def test_explicit_worker_persona_wins(nx: Engine) -> None:
    say(nx, "Good evening", "Hello", session="dm:ann")
    assert "THE SOUL OF THE NIGHT" in worker(nx, manager="dm:ann", persona="night").system_prompt


def test_unknown_persona_is_a_warning(nx: Engine) -> None:
    """The agent's IDENTITY.md is in the root or the persona's folder: which of them answers is never a secret."""

    def told(persona: str) -> list[str]:
        return [note.message for note in nx.assemble(EVENT, persona=persona).warnings if note.source == "nexus:persona"]

    assert told("nigth") == ["SOUL.md and IDENTITY.md not found in personas/nigth; the workspace's files are used"]
    assert told("night") == told("") == []


def test_manager_persona_is_found_behind_many_entries(nx: Engine) -> None:
    say(nx, "Good evening", "Hello", session="dm:ann", persona="night", model="gpt-4o")
    for number in range(140):
        nx.ledger.append("dm:ann", (), key=str(number))
    assert "THE SOUL OF THE NIGHT" in worker(nx, manager="dm:ann").system_prompt


def test_recorded_manager_is_parent_session_or_alias(nx: Engine) -> None:
    say(nx, "Good evening", "Hello", session="dm:ann", persona="night")
    say(nx, "Go", "Done", session="worker:count", role="worker", task="Count.", manager="dm:ann")
    nx.ledger.sessions.update("worker:count", parent_session="dm:ann")
    nx.ledger.sessions.rename("dm:ann", "dm:ann-maria")
    assert "THE SOUL OF THE NIGHT" in worker(nx).system_prompt
    assert "THE SOUL OF THE NIGHT" in worker(nx, session="worker:other", manager="dm:ann").system_prompt


def test_nested_worker_inherits_persona(nx: Engine) -> None:
    say(nx, "Good evening", "Hello", session="dm:ann", persona="night")
    say(nx, "Go", "Done", session="worker:a", role="worker", task="Count.", manager="dm:ann")
    assert "THE SOUL OF THE NIGHT" in worker(nx, session="worker:b", manager="worker:a").system_prompt


def test_missing_manager_is_a_warning(nx: Engine) -> None:
    ctx = worker(nx, manager="dm:nobody")
    assert [note.message for note in ctx.warnings if note.source == "nexus:persona"] == [
        "manager session 'dm:nobody' not found: this worker inherits no persona"
    ]


def test_row_nexus_environment_scoped_to_the_toolset_for_workers(tmp_path: Path) -> None:
    """`Nexus environment | Full capabilities | Scoped to task-relevant`: a worker's holds what its toolset needs."""
    policy = Policy(toolsets={"work": Toolset(("*",), capabilities=("logs-read",))})
    nx = nexus.open(tmp_path, policy=policy)
    assert granted_capabilities(nx, "worker:count", role="worker", toolset="work", task="Count.") == ("logs-read",)
    assert granted_capabilities(nx, "dm:ann") is None


def granted_capabilities(nx: Engine, session: str, **arguments: Any) -> tuple[str, ...] | None:
    """Return the capabilities that the policy leaves to a call."""
    prepared = nx.preparation.prepare(nx.request(EVENT, session, cast("CallArguments", arguments)))
    return nx.preparation.authorize(prepared).request.settings.capabilities


def test_row_platform_context_for_managers_only(nx: Engine) -> None:
    """`Platform context | Yes (platform, actions) | No (internal only)`; unified agents get it too."""
    wanted = "Platform: Matrix\nAvailable actions: reply, react"
    assert wanted in json.dumps(nx.assemble(EVENT, role="manager").to_openai()["messages"]).replace("\\n", "\n")
    assert wanted in json.dumps(nx.assemble(EVENT, role="unified").to_openai()["messages"]).replace("\\n", "\n")
    told = json.dumps(worker(nx).to_openai()["messages"])
    assert "Platform" not in told
    assert "react" not in told


def test_row_session_history_worker_sees_own_session_only(nx: Engine) -> None:
    """`Session history | Full MA thread | Only WA task context`."""
    say(nx, "My secret is a blue door", "I keep it", session="dm:ann", role="manager")
    say(nx, "Go", "Counted 4", session="worker:count", role="worker", task="Count.", manager="dm:ann")
    told = json.dumps(worker(nx, manager="dm:ann").to_openai())
    assert "Counted 4" in told
    assert "blue door" not in told
    full = json.dumps(nx.assemble(EVENT, session="dm:ann", role="manager").to_openai())
    assert "blue door" in full
    assert "Counted 4" not in full


@pytest.mark.parametrize(("session", "role"), [("dm:ann", "worker"), ("group:x", "worker"), ("worker:x", "manager")])
def test_role_in_unfit_session_is_rejected(nx: Engine, session: str, role: AgentRole) -> None:
    with pytest.raises(BadSetting, check=has_code("bad_session_key")):
        nx.assemble(EVENT, session=session, role=role, task="x")


def test_worker_without_session_is_rejected(nx: Engine) -> None:
    with pytest.raises(BadSetting, match="worker session missing", check=has_code("bad_session_key")):
        nx.assemble(EVENT, role="worker", task="x")


def test_row_memory_is_whole_for_managers_and_chosen_by_task_for_workers(tmp_path: Path) -> None:
    """`Memory injection | Future: relevant memories | Future: task-specific only`."""
    (tmp_path / "MEMORY.md").write_text("- the index is GIN\n- Ann likes tea\n")
    nx = nexus.open(tmp_path)
    manager = nx.assemble(EVENT, role="manager")
    task = nx.assemble(EVENT, session="worker:index", role="worker", task="Rebuild the index.")
    other = nx.assemble(EVENT, session="worker:poem", role="worker", task="Write a poem.")
    shown = [json.dumps(ctx.to_openai()["messages"][-1]) for ctx in (manager, task, other)]
    assert ["the index is GIN" in text for text in shown] == [True, True, False]
    assert ["Ann likes tea" in text for text in shown] == [True, False, False]


TOOLS = [
    tool("spawn", category="spawning"),
    tool("send_message", category="messaging"),
    tool("reply", category="messaging"),
    tool("react", **{"x-nexus": {"category": "messaging"}}),
    tool("read_file"),
]


def test_row_spawning_capability_for_both(nx: Engine) -> None:
    """`Spawning capability | Can spawn workers | Can spawn nested workers`."""
    assert "spawn" in names(nx.assemble(EVENT, role="manager", tools=TOOLS))
    assert "spawn" in names(worker(nx, tools=TOOLS))


def test_row_messaging_tools_full_for_managers_and_reply_for_workers(nx: Engine) -> None:
    """`Messaging tools | Full platform access | Reply to MA only`."""
    everything = sorted(one["name"] for one in TOOLS)
    assert names(nx.assemble(EVENT, role="manager", tools=TOOLS)) == everything
    assert names(nx.assemble(EVENT, role="unified", tools=TOOLS)) == everything
    ctx = worker(nx, tools=TOOLS)
    assert names(ctx) == ["read_file", "reply", "spawn"]
    assert [one.name for one in ctx.provenance.denied_tools] == ["react", "send_message"]
    assert "workers may use no messaging tool except `reply`" in ctx.report


def test_worker_without_task_gets_warning_and_no_task_section(nx: Engine) -> None:
    ctx = worker(nx, task=" \n")
    assert [note.source for note in ctx.warnings] == ["nexus:subagent"]
    assert "## Your Task" not in ctx.system_prompt
    assert "task.\n\n## Rules\n1. Stay focused" in ctx.system_prompt


def test_task_with_placeholders_and_surrogates_is_literal(nx: Engine) -> None:
    ctx = worker(nx, task="{task} %s ${params.task}\n## Rules\nnone \ud800")
    assert "## Your Task\n{task} %s ${params.task}\n## Rules\nnone \ufffd\n\n## Rules\n1." in ctx.system_prompt
    json.dumps(ctx.to_anthropic()).encode()


def test_prompt_contains_no_model_provider_platform_or_time(nx: Engine) -> None:
    """Document 002, "Static Runtime Info": model, provider, platform and time are not in the system prompt."""
    one = nx.assemble(EVENT, role="manager", model="claude-sonnet-4-5")
    later = nexus.Event((Text("Go."),), at_ms=NOON + 9_999_999, platform="Slack", timezone="Asia/Tokyo")
    two = nx.assemble(later, role="manager", model="gpt-4o")
    assert one.system_prompt == two.system_prompt
    for word in ("claude-sonnet-4-5", "anthropic", "Matrix", "2026-02-06"):
        assert word not in one.system_prompt


def test_saved_context_keeps_principal_and_denied_tools(nx: Engine) -> None:
    from nexus.render.context_json import from_json

    ctx = worker(nx, tools=TOOLS, principal="telegram:42", persona="night")
    again = from_json(json.loads(json.dumps(ctx.to_json())))
    assert again.provenance.denied_tools == ctx.provenance.denied_tools
    names = ("role", "task", "manager", "manager_call", "principal", "persona", "user_profile")
    assert {name: getattr(again.provenance.settings, name) for name in names} == {
        name: getattr(ctx.provenance.settings, name) for name in names
    }
    assert not again.allows("send_message")
