"""What must hold whatever a caller does with what it was given: counts, copies, snapshots, names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import BadEvent, HeadMoved, LedgerDamaged
from nexus.types.ledger_entries import Compaction
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, assistant, tool, user
from support.recount import recount
from support.replay import append

WIRES = {
    "to_openai": "gpt-4o",
    "to_responses": "gpt-5",
    "to_anthropic": "claude-sonnet-4-5",
    "to_gemini": "gemini-2.5-pro",
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def opened() -> Engine:
    return nexus.open(ledger=":memory:", clock_ms=lambda: 1_760_000_000_000)


def spoil(value: Any) -> None:
    """Changes everything in a body that can be changed in place."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")


@pytest.mark.parametrize("wire", WIRES)
def test_changing_a_returned_body_does_not_change_the_context(wire: str) -> None:
    with opened() as nx:
        call = ToolCall("a", "look", '{"path": {"deep": [1]}}')
        append(nx, "s", user("hi"), assistant("I look", call), tool("a", "seen", "look"))
        append(nx, "s", Message("user", (Text("see"), Image("image/png", PIXEL, width=1, height=1))), assistant("yes"))
        tools = [{"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "object"}}}}]
        before = json.dumps(getattr(nx.assemble("x", session="s", tools=tools, model=WIRES[wire]), wire)())
        spoil(getattr(nx.assemble("x", session="s", tools=tools, model=WIRES[wire]), wire)())
        assert json.dumps(getattr(nx.assemble("x", session="s", tools=tools, model=WIRES[wire]), wire)()) == before


@pytest.mark.parametrize("wire", WIRES)
def test_missing_results_of_an_event_are_counted(wire: str) -> None:
    with opened() as nx:
        calls = [ToolCall(f"call_{number}", "mcp__filesystem__read_text_file_from_disk", "{}") for number in range(60)]
        nx.record(nx.assemble("go", model=WIRES[wire]), nexus.AgentResult((assistant("", *calls),)))
        ctx = nx.assemble([tool("call_0", "ok")], model=WIRES[wire])
        assert recount(getattr(ctx, wire)()) <= ctx.token_budget.used.total
        with pytest.raises(nexus.BudgetTooSmall):
            nx.assemble([tool("call_0", "ok")], model=WIRES[wire], budget=ctx.token_budget.used.total // 2)


@pytest.mark.parametrize("wire", WIRES)
def test_results_without_name_are_counted_with_the_shown_name(wire: str) -> None:
    with opened() as nx:
        event: Any = "go"
        for number in range(30):
            calls = [
                ToolCall(f"c{number}_{one}", "mcp__filesystem_server__read_text_file_v2", "{}") for one in range(3)
            ]
            nx.record(nx.assemble(event, model=WIRES[wire]), nexus.AgentResult((assistant("", *calls),)))
            event = [tool(call.id, "ok") for call in calls]
        ctx = nx.assemble(event, model=WIRES[wire])
        assert recount(getattr(ctx, wire)()) <= ctx.token_budget.used.total


def test_thinking_never_exceeds_the_budget() -> None:
    model = "claude-opus-4-5"
    with opened() as nx:
        append(nx, "s", user("hi"), Message("assistant", (Text("word " * 1_500),), model=model))
        for _ in range(3):
            append(nx, "s", Message("assistant", (Thinking("thought " * 800, "c2ln"),), model=model))
        for budget in (500, 1_500, 2_500, 4_000):
            try:
                ctx = nx.assemble("x", session="s", model=model, budget=budget)
            except nexus.BudgetTooSmall as refusal:
                nx.assemble("x", session="s", model=model, budget=refusal.needed_tokens)
            else:
                assert ctx.token_budget.remaining >= 0


def test_thinking_is_sent_to_every_name_of_its_model_only() -> None:
    thought = Message("assistant", (Thinking("thought " * 500, "c2ln"), Text("ok")), model="claude-sonnet-4-5-20250929")
    with opened() as nx:
        append(nx, "s", user("hi"), thought)
        other = nx.assemble("x", session="s", model="claude-opus-4-5")
        assert other.token_budget.used.history < 100
        for name in ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5", "claude-sonnet-4-5@20250929"):
            own = nx.assemble("x", session="s", model=name)
            assert "c2ln" in json.dumps(own.to_anthropic())
            assert own.token_budget.used.history > 500


@pytest.mark.parametrize("name", ["main", "a b", "o'clock", "ሰላም " * 12, "\x00" * 40, "n" * 200])
def test_omission_notice_fits_for_any_session_name(name: str) -> None:
    with opened() as nx:
        for number in range(12):
            append(nx, name, user(f"question {number}"), assistant("answer " * 20))
        for budget in range(150, 700, 25):
            try:
                ctx = nx.assemble("x", session=name, model="gpt-4o", budget=budget)
            except nexus.BudgetTooSmall:
                continue
            assert ctx.token_budget.remaining >= 0


def test_shown_and_omitted_messages_add_up_to_all() -> None:
    with opened() as nx:
        ctx = nx.assemble("x", session="s", model="gpt-4o", budget=1_500)
        for number in range(30):
            two = (ToolCall(f"c{number}a", "f", "{}"), ToolCall(f"c{number}b", "f", "{}"))
            ctx = nx.assemble(f"u{number} " + "w " * 40, session="s", model="gpt-4o", budget=1_500)
            nx.record(ctx, nexus.AgentResult((assistant("", *two),)))
        ctx = nx.assemble("x", session="s", model="gpt-4o", budget=1_500)
        cut = ctx.cut or nx.ledger.store.last_cut(1, ctx.provenance.manifest.view)
        assert cut is not None
        kept = [message for message in ctx.history if message.role != "tool" and message not in ctx.history.opening]
        stay = [message for message in ctx.history.opening if message in nx.history("s")]
        assert stay[0].text().startswith("u0 ")
        assert cut.omitted_messages + len([*cut.excerpts, *stay, *kept]) == len(nx.history("s"))


def test_images_and_text_sent_with_results_follow_them() -> None:
    with opened() as nx:
        nx.record(nx.assemble("go"), nexus.AgentResult((assistant("", ToolCall("c1", "f", "{}")),)))
        event = nexus.Event(content=(Text("NOTE"),), results=(tool("c1", "one"),))
        assert [m["role"] for m in nx.assemble(event).to_openai()["messages"]][-2:] == ["tool", "user"]
        shown = nx.assemble([tool("c1", "one")], images=[Image("image/png", PIXEL, width=1, height=1)])
        assert PIXEL in json.dumps(shown.to_openai())


def test_assistant_message_is_rejected_as_event() -> None:
    with opened() as nx, pytest.raises(BadEvent, match="record assistant messages"):
        nx.assemble([assistant("hi")])


def test_concurrent_write_is_not_reported_as_damage(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    nexus.open(ledger=ledger).close()
    writer = (
        "import sys, nexus\nfrom nexus.types.message import assistant\nnx = nexus.open(ledger=sys.argv[1])\n"
        "for n in range(150):\n    nx.record(nx.assemble(f'q{n}', session='s'), nexus.AgentResult((assistant('a'),)))\n"
        "    print(n, flush=True)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", writer, str(ledger)], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    with nexus.open(ledger=ledger) as nx, running.stdout as written:
        for number in written:  # it writes on while these are read
            assert len(nx.history("s")) >= 2 * (int(number) + 1)
        assert len(nx.history("s")) == 300
    assert running.wait() == 0


def test_fork_with_replaced_parent_is_damage(tmp_path: Path) -> None:
    import apsw

    ledger = tmp_path / "ledger.db"
    with nexus.open(ledger=ledger) as nx:
        for session in ("one", "other"):
            append(nx, session, user(session))
            append(nx, session, assistant("yes"))
        nx.ledger.store.fork("fork", "one", 1)
        append(nx, "fork", user("own"))
    db = apsw.Connection(str(ledger))
    db.execute("UPDATE thread SET parent=2 WHERE id=3")
    db.close()
    with nexus.open(ledger=ledger) as nx, pytest.raises(LedgerDamaged, match="thread 3"):
        nx.history("fork")


def test_recording_again_with_other_counter_is_idempotent(tmp_path: Path) -> None:
    from nexus.tokens.counter import get_counter

    ledger = tmp_path / "ledger.db"
    with nexus.open(ledger=ledger) as nx:
        ctx = nx.assemble("hi")
        nx.record(ctx, nexus.AgentResult((assistant("yes"),)))
    with nexus.open(ledger=ledger, counter=get_counter("estimate")) as nx:
        assert nx.record(ctx, nexus.AgentResult((assistant("yes"),))).added == 0


def test_record_rejects_context_of_another_history() -> None:
    with opened() as nx, opened() as elsewhere:
        append(nx, "main", user("hi"), assistant("yes"))
        with pytest.raises(HeadMoved, match="assemble again"):
            elsewhere.record(nx.assemble("x"), nexus.AgentResult((assistant("yes"),)))


def test_requested_output_and_thinking_are_reserved() -> None:
    with opened() as nx:
        asked = nx.assemble("x", model="claude-sonnet-4-5", model_config={"max_tokens": 64_000})
        assert asked.token_budget.available == 200_000 - 64_000 - 16_000
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
        body = nx.assemble("x", model="claude-sonnet-4-5", model_config=thinking).to_anthropic()
        assert body["max_tokens"] == 18_000


def test_undo_voids_earlier_cut_and_shows_or_lists_all_messages(tmp_path: Path) -> None:
    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx:
        for number in range(12):
            ctx = nx.assemble(f"question {number} " + "word " * 60, session="main", budget=100_000)
            nx.record(ctx, nexus.AgentResult((assistant(f"answer {number}"),)))
        nx.ledger.compact("main", Compaction(1, 12, 13, "SUMMARY"), after_checkpoint=0)
        ctx = nx.assemble("small", session="main", budget=700)
        assert ctx.cut is not None and "SUMMARY" in str(ctx.to_openai())
        nx.record(ctx, nexus.AgentResult((assistant("yes"),)))
        nx.ledger.undo("main")
        whole = nx.assemble("and now", session="main", budget=100_000)
        assert "question 0 " in str(whole.to_openai()) and "SUMMARY" not in str(whole.to_openai())
        small = nx.assemble("and now", session="main", budget=700)
        shown = sum(isinstance(message["content"], str) for message in small.to_openai()["messages"])
        assert small.cut is not None and small.cut.omitted_messages + len(small.cut.excerpts) + shown >= 26
        nx.ledger.redo("main")
        again = nx.assemble("and now", session="main", budget=100_000)
        assert "SUMMARY" in str(again.to_openai()) and "question 1 " not in str(again.to_openai())
