"""The built-in tools as a whole: offers, skills, memory, and the policy that is checked when a call runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

import nexus
from nexus.agents.tools import ToolContext, builtin_tools
from nexus.agents.tools.calls import check_call, run_call
from nexus.engine import Engine
from nexus.errors import NexusError, NotAllowed, ToolCallFailed
from nexus.types.message import Text, ToolCall, ToolResult
from nexus.types.settings import Settings, SettingsChanges
from support.errors import has_code

POLICY = """
[toolsets.reader]
categories = ["files", "skills"]
deny = ["search_*"]

[principals."chat:ana"]
toolset = "reader"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "skills" / "log-triage").mkdir(parents=True)
    text = "---\nname: log-triage\ndescription: Read logs. Use for errors.\n---\n# Logs\n\nLook at the end first.\n"
    (tmp_path / "skills" / "log-triage" / "SKILL.md").write_text(text)
    (tmp_path / "skills" / "log-triage" / "hosts.txt").write_text("a")
    (tmp_path / "notes.md").write_text("one")
    return tmp_path


@pytest.fixture
def nx(root: Path) -> Engine:
    return nexus.open(root, ledger=":memory:")


def run(nx: Engine, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
    context = ToolContext(nx, "main", settings=nx.settings.with_changes(cast("SettingsChanges", options)))
    call = ToolCall("c1", name, json.dumps(arguments or {}))
    return asyncio.run(run_call(builtin_tools(context), call, context))


def text_of(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def test_all_tools_are_offered_with_categories_and_valid_definitions(nx: Engine) -> None:
    registry = builtin_tools(ToolContext(nx, "main", request_compaction=lambda _focus: None))
    assert {tool.name: tool.category for tool in registry.tools()} == {
        "add_memory": "memory", "compact": "history", "forget_memory": "memory", "list_files": "files",
        "read_file": "files", "recall": "history", "search_files": "files", "search_memory": "memory",
        "use_skill": "skills",
    }  # fmt: skip
    assert all(tool.description for tool in registry.tools())
    assert all(field.get("description") for tool in registry.tools() for field in tool.schema["properties"].values())
    ctx = nx.assemble("Hello", session="main", tools=registry)
    assert len(ctx.tools) == len(registry)
    assert ctx.warnings == ()


def test_prompt_lists_skills_and_names_the_tool_that_loads_them(nx: Engine) -> None:
    prompt = nx.assemble("Hello", session="main", tools=builtin_tools(ToolContext(nx, "main"))).system_prompt
    assert "Load a skill in full before you use it: `use_skill` with its name." in prompt
    assert "- log-triage: Read logs." in prompt


def test_use_skill_returns_the_guide_with_its_files_and_records_the_use(nx: Engine, root: Path) -> None:
    text = text_of(run(nx, "use_skill", {"name": "log-triage"}))
    assert text.startswith("# Logs\n\nLook at the end first.\n")
    assert text.endswith(f"Files of this skill, in {root / 'skills' / 'log-triage'}: hosts.txt")
    assert "log-triage" in (root / ".nexus" / "used.json").read_text()


def test_use_skill_of_an_unknown_name_lists_the_skills(nx: Engine) -> None:
    result = run(nx, "use_skill", {"name": "../log-triage"})
    assert result.is_error
    assert "available: log-triage, " in text_of(result)


def test_memory_is_added_found_and_forgotten(nx: Engine, root: Path) -> None:
    added = run(nx, "add_memory", {"fact": "Ana prefers short answers.", "section": "People"})
    assert text_of(added) == "Added fact 1 to memory/MEMORY.md."
    found = text_of(run(nx, "search_memory", {"query": "ana answers"}))
    assert found.startswith("fact 1 (People, ")
    assert found.endswith("): Ana prefers short answers.")
    assert text_of(run(nx, "forget_memory", {"fact": "1"})) == "Forgotten: Ana prefers short answers."
    assert text_of(run(nx, "search_memory", {"query": "ana"})).startswith("log entry 1")
    assert "Ana" not in (root / "memory" / "MEMORY.md").read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("add_memory", {"fact": " "}, "not added: text is empty"),
        ("add_memory", {"fact": "x" * 9_000}, "not added: text has 9,000 characters"),
        ("add_memory", {"fact": "The key is sk-ant-api03-" + "a" * 95}, "seems to contain a secret"),
        ("forget_memory", {"fact": "7"}, "no fact has this number or text (search_memory shows"),
        ("search_memory", {"query": "?"}, "the query has no words"),
        ("add_memory", {"text": "x"}, "add_memory was not called"),
    ],
)
def test_memory_error_says_what_to_do_in_terms_of_the_tools(
    nx: Engine, name: str, arguments: dict[str, Any], error: str
) -> None:
    result = run(nx, name, arguments)
    assert result.is_error
    assert error in text_of(result)
    assert "nexus memory" not in text_of(result)
    assert "--force" not in text_of(result)


def test_several_matching_facts_are_not_forgotten(nx: Engine) -> None:
    for section in ("People", "Work"):
        run(nx, "add_memory", {"fact": f"Ana is here ({section}).", "section": section})
    (nx.workspace_context.files.root / "memory" / "MEMORY.md").write_text("# A\n\n- same\n\n# B\n\n- same\n")
    result = run(nx, "forget_memory", {"fact": "same"})
    assert "several facts match: 1, 2; use a number" in text_of(result)


def test_policy_is_checked_when_the_call_runs(nx: Engine, root: Path) -> None:
    """A tool that the context offered is denied once the policy has changed."""
    registry = builtin_tools(ToolContext(nx, "dm:chat:ana"))
    context = ToolContext(nx, "dm:chat:ana", settings=Settings(principal="chat:ana"))
    ctx = nx.assemble("Hello", session="dm:chat:ana", tools=registry, principal="chat:ana")
    call = ToolCall("c1", "search_files", '{"text": "one"}')
    assert not asyncio.run(run_call(registry, call, context, ctx)).is_error
    (root / ".nexus").mkdir(exist_ok=True)
    (root / ".nexus" / "policy.toml").write_text(POLICY)
    denied = asyncio.run(run_call(registry, call, context, ctx))
    assert (denied.call_id, denied.is_error) == ("c1", True)
    assert "tool 'search_files' is not allowed (toolset 'reader', role unified)" in text_of(denied)
    for name, arguments in {"read_file": '{"path": "notes.md"}', "list_files": "{}"}.items():
        assert not asyncio.run(run_call(registry, ToolCall("c2", name, arguments), context, ctx)).is_error
    for name in ("recall", "add_memory"):
        with pytest.raises(NotAllowed, check=has_code("tool_not_allowed")):
            check_call(registry, name, context)


def test_invalid_policy_denies_every_call(nx: Engine, root: Path) -> None:
    (root / ".nexus").mkdir()
    (root / ".nexus" / "policy.toml").write_text("[toolsets")
    result = run(nx, "read_file", {"path": "notes.md"})
    assert result.is_error
    assert "policy.toml" in text_of(result)


def test_session_of_somebody_else_is_denied(nx: Engine, root: Path) -> None:
    (root / ".nexus").mkdir()
    (root / ".nexus" / "policy.toml").write_text(POLICY + '[principals."chat:bo"]\ntoolset = "reader"\n')
    registry = builtin_tools(ToolContext(nx, "dm:chat:bo"))
    with pytest.raises(NexusError, match="not allowed"):
        check_call(registry, "read_file", ToolContext(nx, "dm:chat:bo", settings=Settings(principal="chat:ana")))


def test_tool_that_the_context_did_not_offer_is_denied(nx: Engine) -> None:
    registry = builtin_tools(ToolContext(nx, "main"))
    offered = [tool.offer() for tool in registry.tools() if tool.category == "files"]
    ctx = nx.assemble("Hello", session="main", tools=offered)
    with pytest.raises(NotAllowed, match="not offered with this context", check=has_code("tool_not_allowed")):
        check_call(registry, "recall", ToolContext(nx, "main"), ctx)
    with pytest.raises(
        ToolCallFailed,
        match="there is no tool 'grep'; there are: list_files, read_file, search_files",
        check=has_code("unknown_tool"),
    ):
        check_call(registry, "grep", ToolContext(nx, "main"), ctx)


def test_worker_has_only_the_tools_of_its_managers_principal(nx: Engine, root: Path) -> None:
    (root / ".nexus").mkdir()
    (root / ".nexus" / "policy.toml").write_text(POLICY)
    registry = builtin_tools(ToolContext(nx, "worker:w"))
    ctx = nx.assemble("Hello", session="dm:chat:ana", principal="chat:ana")
    nx.record(ctx, nexus.AgentResult((nexus.assistant("Hi."),)))
    settings = Settings(role="worker", manager="dm:chat:ana", task="Read.", principal="chat:ana")
    context = ToolContext(nx, "worker:w", settings=settings)
    assert check_call(registry, "read_file", context).name == "read_file"
    with pytest.raises(NotAllowed, check=has_code("tool_not_allowed")):
        check_call(registry, "recall", context)


def test_parallel_calls_are_all_answered(nx: Engine) -> None:
    context = ToolContext(nx, "main")
    registry = builtin_tools(context)
    calls = [ToolCall(f"c{number}", "read_file", '{"path": "notes.md"}') for number in range(12)]

    async def run_all() -> list[ToolResult]:
        return await asyncio.gather(*(run_call(registry, call, context) for call in calls))

    results = asyncio.run(run_all())
    assert [(result.call_id, text_of(result)) for result in results] == [(call.id, "one") for call in calls]


def test_engine_without_workspace_has_only_the_history(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db") as nx:
        assert [tool.name for tool in builtin_tools(ToolContext(nx, "main")).tools()] == ["recall"]


def test_tools_use_the_engine_on_the_thread_of_the_async_engine(root: Path) -> None:
    """Two threads must not assemble with one engine, and a plan is an assembly."""
    names: list[str] = []

    async def run_all() -> list[ToolResult]:
        async with nexus.open_async(root, ledger=":memory:") as nx:
            await nx.record(await nx.assemble("Hello", session="main"), nexus.AgentResult((nexus.assistant("Hi."),)))

            async def run_named(function: Any, *arguments: Any, **options: Any) -> Any:
                names.append(function.__name__)
                return await nx.run(function, *arguments, **options)

            context = ToolContext(nx.engine, "main", run=run_named, request_compaction=lambda _focus: None)
            calls = [ToolCall("c1", "compact", "{}"), ToolCall("c2", "use_skill", '{"name": "log-triage"}')]
            return await asyncio.gather(*(run_call(builtin_tools(context), call, context) for call in calls))

    assert not any(result.is_error for result in asyncio.run(run_all()))
    assert sorted(names) == ["_guide", "check_call", "check_call", "plan"]
