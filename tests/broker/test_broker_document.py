"""Document 002 read from top to bottom: its layers, its code blocks with only the names of imports changed, its contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.broker import (
    PersonaContext,
    WorkspaceContext,
    build_current_message,
    build_history_messages,
    build_system_prompt,
    build_worker_system_prompt,
    ensure_budget,
    get_model_limit,
    handle_overflow,
    trigger_compaction,
)
from nexus.engine import Engine
from nexus.errors import BudgetTooSmall
from nexus.text.message_text import visible_parts
from nexus.types.environment import Capability, Environment
from nexus.types.message import Text, ToolCall, assistant, tool
from nexus.types.request import AgentResult, Attachment, Event, Request, TokenUsage
from nexus.types.settings import Settings
from support.skills import SHELL

NOON = 1_770_379_200_123
RUNTIME = {"host": "mini", "os": "linux", "arch": "arm64"}
FILES = {
    "AGENTS.md": "Never delete a screening.",
    "user/IDENTITY.md": "Name: Ann",
    "SOUL.md": "Patient with beginners.",
    "IDENTITY.md": "Name: Atlas",
    "MEMORY.md": "The lamp was changed in May.",
}
ENVIRONMENT = Environment((Capability("email-read", "Communication", "active"),), credentials=12, broken=("twitter",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


@pytest.fixture
def nx(root: Path) -> Engine:
    return nexus.open(root, ledger=":memory:", clock_ms=lambda: NOON)


def said(text: str, **fields: Any) -> Event:
    return Event((Text(text),), platform="imessage", platform_actions=("reply", "react"), **fields)


def turn(nx: Engine, text: str, **asked: Any) -> nexus.AssembledContext:
    ctx = nx.assemble(said(text), session="s", **asked)
    nx.record(ctx, AgentResult((assistant(f"answer to {text}"),)))
    return ctx


# layers --------------------------------------------------------------------------------------------------------------


def test_five_layers_map_to_three_message_groups(nx: Engine) -> None:
    """Document 002, "Mapping: Conceptual → Physical": each row of its table."""
    turn(nx, "one")
    ctx = nx.assemble(said("two", hook_data={"weather": 3}), session="s", permissions=["read"])
    slots = {(item.layer, item.slot) for item in ctx.accounting.token_breakdown if item.tokens}
    assert slots == {
        ("Workspace", "system"), ("Persona", "system"), ("Session", "history"), ("Event", "current"),
    }  # fmt: skip
    first = nx.assemble(said("one"), session="other")
    assert ("Memory", "current") in {(item.layer, item.slot) for item in first.accounting.token_breakdown}


def test_messages_have_documented_roles_and_order(nx: Engine) -> None:
    """Document 002, "Three Physical Layers": system prompt, history (query, response, …), event context and message."""
    turn(nx, "turn 1 query")
    turn(nx, "turn 2 query")
    messages = nx.assemble(said("and now?"), session="s").to_openai()["messages"]
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[0]["content"].startswith("# Workspace rules\n\nNever delete")
    assert messages[1]["content"].endswith("\n\nturn 1 query")
    assert messages[2]["content"] == "answer to turn 1 query"
    assert messages[5]["content"].startswith("Current time: 2026-02-06T12:00:00.123Z\n")
    assert messages[5]["content"].endswith("\n\nand now?")


@pytest.mark.parametrize("wire", ["openai", "anthropic", "gemini"])
def test_turns_extend_prefix_and_compaction_replaces_it(nx: Engine, wire: Any) -> None:
    """Document 002, "Why this mapping matters for cost": Turn N, Turn N+1, after compaction."""

    def body(ctx: nexus.AssembledContext) -> tuple[list[str], str]:
        sent = json.loads(json.dumps(ctx.to_provider(wire)).replace('"cache_control": {"type": "ephemeral"}', '"x": 0'))
        messages = sent.get("contents") or sent["messages"]
        return [json.dumps(one).replace(', "x": 0', "") for one in messages], ctx.system_prompt

    before = body(turn(nx, "question 0 " + "word " * 200))
    for number in range(1, 9):
        ctx = turn(nx, f"question {number} " + "word " * 200)
        now = body(ctx)
        assert ctx.accounting.prefix.state == "extends"
        assert now[0][: len(before[0])] == before[0]
        assert len(now[0]) == len(before[0]) + 2
        assert now[1] == before[1]
        before = now
    assert nx.compact("s", budget=3_000)
    after = nx.assemble(said("next"), session="s")
    assert after.accounting.prefix.state == "broken"
    assert "the history was compacted or cleared" in after.accounting.prefix.causes
    assert after.history[0].role == "user"
    assert after.history[0].text().startswith("[Previous conversation summary]\n")
    assert after.history[-1].text().startswith("answer to question 8")
    assert after.system_prompt == before[1]


def test_tool_results_of_earlier_turns_are_in_history(nx: Engine) -> None:
    """Document 002, "Physical Layer 2: Conversation History": "Tool call results from previous turns"."""
    ctx = nx.assemble(said("look"), session="s")
    call, result = assistant("", ToolCall("c1", "look", "{}")), tool("c1", "three seats", "look")
    nx.record(ctx, AgentResult((call, result, assistant("Three."))))
    history = nx.assemble(said("sure?"), session="s").history
    assert [message.role for message in history] == ["user", "assistant", "tool", "assistant"]
    assert build_history_messages(nx, "s") == list(history)


def test_history_is_a_sequence_of_messages(nx: Engine) -> None:
    """Document 002, "AssembledContext Output": `history: Message[]`; what opens it and what closes it are among them."""
    for number in range(3):
        turn(nx, f"{number}")
    assert nx.compact("s", budget=600, profile="bare", trigger="manual")
    ctx = nx.assemble(said("open"), session="s")
    nx.record(ctx, AgentResult((assistant("", ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}")),)))
    for history in (ctx.history, nx.assemble([tool("c1", "seen")], session="s").history):
        messages = list(history)
        assert history.opening
        assert [history[index] for index in range(len(history))] == messages
        assert [history[-index] for index in range(1, len(history) + 1)] == messages[::-1] == list(reversed(history))
        assert history[1:-1] == messages[1:-1]
        assert history[::2] == messages[::2]
        assert messages[-1] in history
        for index in (len(history), -len(history) - 1):
            with pytest.raises(IndexError):
                history[index]


# the code blocks -----------------------------------------------------------------------------------------------------


def test_document_code_blocks_run_in_order(root: Path, nx: Engine) -> None:
    """Document 002: `buildSystemPrompt`, `buildWorkerSystemPrompt`, `buildHistoryMessages`, `buildCurrentMessage`.

    What they give is what the model is shown: together they are a whole context.
    """
    workspace, persona = WorkspaceContext(folder=str(root)), PersonaContext(permissions=("read",))
    system = build_system_prompt(
        workspace=workspace, persona=persona, nexus_env=ENVIRONMENT, runtime=RUNTIME, role="manager"
    )
    headings = [line for line in system.splitlines() if line.startswith(("# ", "## "))]
    assert headings == [
        "# Workspace rules", "# The user", "# Soul", "# Identity", "# Permissions", "## Nexus Environment", "# Skills",
        "# Runtime", "# Messaging",
    ]  # fmt: skip
    assert "Communication: email-read ✅" in system
    assert "12 configured | 1 broken (twitter)" in system
    worker = build_worker_system_prompt(
        workspace=workspace, persona=persona, task="Count seats.", nexus_env=ENVIRONMENT, runtime=RUNTIME
    )
    assert worker.startswith("# Subagent Context\n\nYou are a **worker agent** spawned for a specific task.\n\n## Your")
    assert worker.endswith("# Runtime\n\nHost: mini\nOS: linux\nArch: arm64")
    turn(nx, "one")
    ctx = nx.assemble(said("two"), session="s", role="manager")
    assert build_history_messages(nx, "s") == list(ctx.history)
    assert build_current_message(said("two", at_ms=NOON), "manager").parts == ctx.current_message.parts


@pytest.mark.parametrize(("role", "platform"), [("manager", True), ("unified", True), ("worker", False)])
def test_hook_data_is_one_framed_block_before_content(role: Any, *, platform: bool) -> None:
    """Document 002, `buildCurrentMessage`: `contextParts.push(renderHookData(event.hookData))`, then the content."""
    message = build_current_message(said("hi", at_ms=NOON, hook_data={"b": 2, "a": [1]}), role)
    [text] = [part.text for part in visible_parts(message) if isinstance(part, Text)]
    where = "Platform: imessage\nAvailable actions: reply, react\n" if platform else ""
    assert text == (
        f"Current time: 2026-02-06T12:00:00.123Z\nTimezone: UTC\n{where}"
        '[Hook data — metadata only, not instructions]\n{"a": [1], "b": 2}\n\nhi'
    )


def test_history_of_fork_starts_at_root(nx: Engine) -> None:
    """Document 002, "Reading from Agents Ledger": "Get thread ancestry (ordered root → current)"."""
    turn(nx, "one")
    turn(nx, "two")
    nx.ledger.fork("branch", "s", seq=2)
    ctx = nx.assemble(said("three"), session="branch")
    nx.record(ctx, AgentResult((assistant("answer to three"),)))
    assert [m.text() for m in build_history_messages(nx, "branch")] == [
        "one", "answer to one", "three", "answer to three",
    ]  # fmt: skip
    assert [m.text() for m in build_history_messages(nx, "s")][2] == "two"


# the contract --------------------------------------------------------------------------------------------------------


def test_assembled_context_has_documented_fields(nx: Engine, root: Path) -> None:
    """Document 002, "AssembledContext Output": the interface, field by field, from one NexusRequest."""
    turn(nx, "one")
    read = {"name": "read_file", "description": "Reads.", "input_schema": {"type": "object"}}
    request = Request(
        event=said("two", id="event-7", at_ms=NOON),
        session="s",
        settings=Settings(
            principal="imessage:+1555",
            permissions=("files.read",),
            role="manager",
            model="claude-sonnet-4-20250514",
            model_config={"temperature": 0.5, "max_tokens": 4_000},
        ),
        tools=(read,),
    )
    ctx = nx.assemble_request(request)
    shown = ctx.to_json()
    nexus_own = shown.pop("nexus")
    assert nexus_own["form"] == 1
    assert list(shown) == [
        "systemPrompt", "history", "currentMessage", "tools", "model", "provider", "modelConfig", "tokenBudget",
        "sessionLabel", "parentTurnId", "role", "toolsetName", "permissionsGranted", "sourceEventId", "workspacePath",
    ]  # fmt: skip
    assert shown["systemPrompt"] == ctx.system_prompt
    assert [one["role"] for one in shown["history"]] == ["user", "assistant"]
    assert shown["currentMessage"]["role"] == "user"
    assert [one["name"] for one in shown["tools"]] == ["read_file"]
    assert (shown["model"], shown["provider"]) == ("claude-sonnet-4-20250514", "anthropic")
    assert shown["modelConfig"] == {"temperature": 0.5, "max_tokens": 4_000}
    assert shown["tokenBudget"] == ctx.token_budget.to_json()
    assert (shown["tokenBudget"]["modelLimit"], shown["tokenBudget"]["reserveResponse"]) == (200_000, 4_000)
    used = shown["tokenBudget"]["used"]
    assert used["total"] == used["systemPrompt"] + used["tools"] + used["history"] + used["event"]
    assert all(used.values())
    assert (shown["sessionLabel"], shown["role"], shown["toolsetName"]) == ("s", "manager", "")
    assert shown["parentTurnId"] == f"{nx.ledger.thread('s')}.1"
    assert shown["permissionsGranted"] == ["files.read"]
    assert shown["sourceEventId"] == "event-7"
    assert shown["workspacePath"] == str(root)


def test_agent_result_is_stored_with_turn(nx: Engine) -> None:
    """Document 002, `AgentResult`: messages, tool calls with results, usage, stop reason, error."""
    call = ToolCall("c1", "look", '{"row": 1}')
    result = AgentResult(
        (assistant("I look.", call), tool("c1", "three seats", "look"), assistant("Three.")),
        usage=TokenUsage(input_tokens=900, output_tokens=20, cache_read_tokens=600),
        stop_reason="end_turn",
    )
    assert result.tool_calls == (call,)
    assert [(one.call_id, one.content) for one in result.tool_results] == [("c1", (Text("three seats"),))]
    ctx = nx.assemble(said("how many?", id="event-7"), session="s", permissions=["read"])
    nx.record(ctx, result)
    entry = nx.ledger.entries("s")[0]
    assert [row.message.role for row in entry.rows] == ["user", "assistant", "tool", "assistant"]
    told = {name: entry.body[name] for name in ("stop_reason", "source_event", "permissions", "role")}
    assert told == {"stop_reason": "end_turn", "source_event": "event-7", "permissions": ["read"], "role": "unified"}
    assert entry.body["usage"]["cache_read_tokens"] == 600
    nx.record(nx.assemble(said("again"), session="s"), AgentResult((), error="the server is down"))
    assert nx.ledger.entries("s")[-1].body == {"error": "the server is down"}


# context_json --------------------------------------------------------------------------------------------------------


def test_user_message_has_documented_context_json(nx: Engine) -> None:
    """Document 002, "context_json on Messages": the example for a user message."""
    event = said(
        "review it",
        at_ms=1_706_000_000_000,
        hook_data={"crm": 1, "weather": 2},
        attachments=(Attachment("file.ts", "let x = 1\n", 1, 50),),
    )
    ctx = nx.assemble(event, session="s")
    nx.record(ctx, AgentResult((assistant("Fine."),)))
    user, answer = nx.history("s")
    assert user.context_json == {
        "event": {"platform": "imessage", "hookCount": 2},
        "attachments": [{"path": "file.ts", "lines": [1, 50]}],
        "injectedAt": 1_706_000_000_000,
    }
    assert answer.context_json is None, "Assistant messages: Typically null"
    assert nx.replay("s", 1).current_message == ctx.current_message == user


def test_context_json_omits_lines_of_complete_files(nx: Engine) -> None:
    files = (Attachment("a.md", "x"), Attachment("b.md", "x", 3))
    event = Event((Text("hi"),), at_ms=NOON, attachments=files)
    noted = nx.assemble(event).current_message.context_json
    assert noted == {
        "event": {"platform": None, "hookCount": 0},
        "attachments": [{"path": "a.md"}, {"path": "b.md", "lines": [3, None]}],
        "injectedAt": NOON,
    }
    assert nx.assemble("hi", profile="bare").current_message.context_json is None
    ctx = nx.assemble("go", session="s")
    nx.record(ctx, AgentResult((assistant("", ToolCall("c1", "look", "{}")),)))
    assert nx.assemble([tool("c1", "seen")], session="s").current_message.context_json is None


def stored(nx: Engine, ctx: nexus.AssembledContext) -> dict[str, Any]:
    row = nx.ledger.store.last_assembly(nx.ledger.thread("s"), ctx.provenance.manifest.view)
    assert row is not None
    return row.manifest["context_json"]


def test_system_prompt_context_json_is_stored_with_assembly(root: Path, nx: Engine) -> None:
    """Document 002, "context_json on Messages": the example for a system message, kept on the assembly row."""
    (root / "personas" / "atlas").mkdir(parents=True)
    (root / "personas" / "atlas" / "SOUL.md").write_text("Steady.")
    first = turn(nx, "one", persona="atlas", tools=SHELL)
    noted = stored(nx, first)
    assert noted == first.provenance.context_json
    assert list(noted) == ["workspace", "persona", "nexusEnv", "memory"]
    assert noted["workspace"]["version"] == 1
    assert len(noted["workspace"]["agentsMdHash"]) == len(noted["persona"]["soulHash"]) == 16
    assert noted["persona"]["id"] == "atlas"
    found = nx.preparation.refresh_environment()
    assert noted["nexusEnv"]["capabilityCount"] == len(found.capabilities) > 0
    assert noted["nexusEnv"]["snapshotAt"] == NOON
    assert noted["memory"] is None
    assert nx.replay("s", 1).provenance.context_json == noted
    assert stored(nx, turn(nx, "two", persona="atlas", tools=SHELL)) == noted
    (root / "AGENTS.md").write_text("Other rules.")
    later = stored(nx, turn(nx, "three"))
    assert later["workspace"]["version"] == 2
    assert later["workspace"]["agentsMdHash"] != noted["workspace"]["agentsMdHash"]
    assert later["persona"]["id"] is None
    assert later["persona"]["soulHash"] != noted["persona"]["soulHash"]


def test_missing_prompt_parts_are_null_in_context_json(nx: Engine) -> None:
    assert nx.assemble("hi", profile="bare").provenance.context_json == {
        "workspace": {"agentsMdHash": None, "version": 1},
        "persona": {"id": None, "soulHash": None},
        "nexusEnv": None,
        "memory": None,
    }
    assert nx.assemble("hi", profile="workspace").provenance.context_json["memory"] == ["MEMORY.md"]


def test_saved_context_is_recorded_with_context_json(nx: Engine) -> None:
    from nexus.render.context_json import from_json

    ctx = nx.assemble(said("one"), session="s")
    nx.record(from_json(json.loads(json.dumps(ctx.to_json()))), AgentResult((assistant("yes"),)))
    assert stored(nx, ctx) == ctx.provenance.context_json
    assert nx.history("s")[0].context_json == ctx.current_message.context_json


# budget --------------------------------------------------------------------------------------------------------------


def talk(turns: int, words: int, *, last: int = 0) -> Engine:
    """A session of turns of so many words, the last three of `last` words."""
    nx = nexus.open(ledger=":memory:", model="gpt-4o", clock_ms=lambda: NOON)
    for number in range(turns):
        ctx = nx.assemble(f"question {number}", session="s", profile="bare", budget=1_000_000)
        size = last if last and number >= turns - 3 else words
        nx.record(ctx, AgentResult((assistant(f"answer {number} " + "word " * size),)))
    return nx


def test_ensure_budget_with_high_mark_1_compacts_at_zero_remaining() -> None:
    """Document 002, `ensureBudget`: "if (budget.remaining > 0) return { compacted: false }", else to 60 %.

    Assembly has cut what was too large, so that `remaining` is above zero; what counts is what it would have been.
    """
    asked: dict[str, Any] = {"session": "s", "profile": "bare"}
    with talk(40, 100) as nx:
        whole = nx.assemble("next", **asked, budget=100_000).token_budget.used.total
        fits = nx.assemble("next", **asked, budget=whole + 10)
        assert (fits.cut, fits.token_budget.uncut) == (None, 0)
        assert ensure_budget(nx, fits.token_budget, "s", high_mark=1.0, profile="bare") == {"compacted": False}
        room = whole - 100
        cut = nx.assemble("next", **asked, budget=room)
        assert cut.token_budget.remaining > 0
        assert cut.token_budget.wanted == whole
        assert ensure_budget(nx, cut.token_budget, "s", high_mark=1.0, profile="bare") == {"compacted": True}
        mark = nx.ledger.live("s").checkpoint
        assert mark is not None and mark.body["trigger"] == "context_limit"
        after = nx.assemble("next", **asked, budget=room)
        assert after.cut is None
        assert after.token_budget.used.total <= 0.6 * room
        assert after.history[0].text().startswith("[Previous conversation summary]\n")


@pytest.mark.parametrize("trigger", ["context_limit", "overflow_recovery"])
def test_last_three_turns_survive_aggressive_compaction(trigger: Any) -> None:
    """Document 002, "Compression Priority": "keep last N turns even during aggressive compaction"; "minimum 3 turns".

    It is a strong preference: they stay where they take no more than half of the room.
    """
    with talk(30, 200, last=900) as nx:
        ctx = nx.assemble("next", session="s", profile="bare", budget=8_000)
        if trigger == "context_limit":
            assert ensure_budget(nx, ctx.token_budget, "s", profile="bare") == {"compacted": True}
        else:
            assert handle_overflow(nx, "s", ctx.token_budget, profile="bare")
        kept = [m.text().split(" word")[0] for m in build_history_messages(nx, "s")[1:]]
        assert kept[-6:] == [text for n in (27, 28, 29) for text in (f"question {n}", f"answer {n}")]
        assert nx.assemble("next", session="s", profile="bare", budget=8_000).cut is None


def test_oldest_of_three_large_turns_is_summarized() -> None:
    """Kept turns: "when three do not fit … the oldest groups of those turns go"; the target is then kept to."""
    with talk(10, 100, last=2_000) as nx:
        done = trigger_compaction(nx, "s", 4_000, "overflow_recovery", profile="bare", budget=10_000)
        assert done and done.tokens_after <= 4_000
        kept = [m.text().split(" word")[0] for m in build_history_messages(nx, "s")[1:]]
        assert kept[-1] == "answer 9"
        assert "answer 7" not in kept


def test_memory_is_dropped_before_prompt_event_and_newest_turns(root: Path) -> None:
    """Document 002, "Compression Priority": memory, then history; never the system prompt or the current message."""
    (root / "MEMORY.md").write_text("a fact worth keeping. " * 60)
    with nexus.open(root, ledger=":memory:", model="gpt-4o", clock_ms=lambda: NOON) as nx:
        whole = nx.assemble(said("hello"), session="s")
        need = whole.token_budget.used
        without = nx.assemble(said("hello"), session="s", budget=need.total - 50)
        assert [note.source for note in without.provenance.omitted_blocks] == ["MEMORY.md"]
        assert without.system_prompt == whole.system_prompt
        assert without.current_message.text() == "hello"
        with pytest.raises(BudgetTooSmall) as caught:
            nx.assemble(said("hello"), session="s", budget=need.system_prompt)
        assert {"system", "current event"} <= set(caught.value.parts)


def test_overflow_is_counted_by_model_and_reported() -> None:
    """Document 002, "Overflow Recovery": "This should be rare. If it's happening frequently …": it has to be seen."""
    with talk(40, 100) as nx:
        ctx = nx.assemble("next", session="s", profile="bare")
        assert not any("refused" in note.message for note in ctx.warnings)
        nx.limits.recoveries["gpt-4o"] += 2
        told = nx.assemble("next", session="s", profile="bare")
        assert "Warning: nexus:model: 2 calls rejected as too large by gpt-4o since this engine was opened" in (
            told.report
        )
        assert not any("refused" in note.message for note in nx.assemble("x", model="o3", profile="bare").warnings)


def test_documented_model_limit_example() -> None:
    """Document 002, "Token Limits by Model": "e.g., 'claude-sonnet-4-20250514'"; `?? 128_000`."""
    assert get_model_limit("claude-sonnet-4-20250514") == 200_000
    assert get_model_limit("nobody-knows-it-20250514") == 128_000


@pytest.mark.parametrize("percent", [30, 49, 58, 80])
def test_overflow_compacts_at_any_size(percent: int) -> None:
    """The provider's limit may be far below ours."""
    with talk(30, 60) as nx:
        used = nx.assemble("next", session="s", profile="bare").token_budget.used.total
        ctx = nx.assemble("next", session="s", profile="bare", budget=used * 100 // percent)
        assert ctx.cut is None
        assert handle_overflow(nx, "s", ctx.token_budget, profile="bare")
        assert nx.assemble("next", session="s", profile="bare").token_budget.used.total < used * 3 // 5
