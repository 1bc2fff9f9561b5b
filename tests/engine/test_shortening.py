"""Large results are shown shortened, older ones more; a head can stay in front; and a window made anew is the same."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Message, ToolCall, assistant, tool, user
from nexus.types.settings import Strategy
from support.openai_body import check_openai
from support.recount import recount

MODEL = "gpt-4o"
SEEN = nexus.AgentResult((assistant("seen"),))
LINE = "2026-01-01 12:00:00 worker finished its part of the work\n"


def opened(**options: Any) -> Engine:
    return nexus.open(ledger=":memory:", model=MODEL, clock_ms=lambda: 1_760_000_000_000, **options)


def reply(nx: Engine, event: Any, *said: Message, budget: int) -> nexus.AssembledContext:
    ctx = nx.assemble(event, budget=budget, profile="bare")
    nx.record(ctx, nexus.AgentResult(said))
    return ctx


def work(nx: Engine, steps: int, lines: int, budget: int, *, ask: str = "fix the bug") -> list[nexus.AssembledContext]:
    """One long turn: the user asks, then calls with results of `lines` lines."""
    event: Any = ask
    made: list[nexus.AssembledContext] = []
    for step in range(steps):
        call = ToolCall(f"call_{step}", "run", json.dumps({"step": step}))
        made.append(reply(nx, event, assistant(f"step {step}", call), budget=budget))
        event = [tool(f"call_{step}", f"result {step}\n" + LINE * lines, "run")]
    return made


def shown(ctx: nexus.AssembledContext, call_id: str) -> str:
    return next(str(r.content) for m in ctx.messages for r in m.results() if r.call_id == call_id)


def test_large_result_is_truncated_once_to_the_same_bytes() -> None:
    with opened(strategy="oldest_first") as nx:
        first = work(nx, 2, 400, 16_000)[1]
        assert "1 tool result truncated to 2,048 tokens" in str(first.warnings)
        assert "`nexus history --call call_0`" in shown(first, "call_0")
        later = nx.assemble([tool("call_1", "done", "run")], budget=16_000, profile="bare")
        assert shown(later, "call_0") == shown(first, "call_0")
        assert later.accounting.prefix.state == "extends"
        stored = next(r for m in nx.history("main") for r in m.results() if r.call_id == "call_0")
        assert str(stored.content).count("worker finished") == 400


def test_large_window_shows_result_in_full() -> None:
    with opened() as nx:
        assert shown(work(nx, 2, 400, 100_000)[1], "call_0").count("worker finished") == 400


def test_max_tool_result_tokens_sets_limit_and_zero_removes_it() -> None:
    with opened(max_tool_result_tokens=100) as nx:
        assert "left out here" in shown(work(nx, 2, 40, 16_000)[1], "call_0")
    with opened(max_tool_result_tokens=0) as nx:
        assert shown(work(nx, 2, 400, 16_000)[1], "call_0").count("worker finished") == 400


def test_older_results_are_truncated_before_messages_are_omitted() -> None:
    with opened(strategy="oldest_first") as nx:
        made = work(nx, 14, 80, 16_000)
        cut = next(ctx for ctx in made if ctx.cut)
        assert cut.cut is not None and cut.cut.omitted_messages == 0 and not cut.cut.omission_notice
        assert cut.accounting.prefix.causes == ("older results of tools were shortened to stay within the budget",)
        assert "left out here" in shown(cut, "call_0")
        newest = max(int(r.call_id[5:]) for m in cut.messages for r in m.results())
        assert shown(cut, f"call_{newest}").count("worker finished") == 80
        assert cut.messages[0] == user("fix the bug", at_ms=cut.messages[0].at_ms, source="human")


def test_truncated_result_is_not_truncated_again() -> None:
    with opened() as nx:
        made = work(nx, 60, 80, 16_000)
        cuts = [index for index, ctx in enumerate(made) if ctx.cut]
        assert len(cuts) > 3
        for begin, end in pairwise(cuts):
            bodies = [json.dumps(ctx.to_openai()["messages"]) for ctx in made[begin:end]]
            assert all(later.startswith(earlier[:-1]) for earlier, later in pairwise(bodies))


def test_user_request_stays_visible_during_its_turn() -> None:
    with opened() as nx:
        work(nx, 3, 10, 4_000, ask="first task")
        nx.record(nx.assemble([tool("call_2", "x", "run")], budget=4_000, profile="bare"), SEEN)
        for ctx in work(nx, 60, 20, 4_000, ask="second request: the tests must stay green"):
            texts = [message.text() for message in ctx.messages]
            assert "first task" in texts and "second request: the tests must stay green" in texts


def test_results_over_budget_are_truncated_before_they_are_rejected() -> None:
    with opened() as nx:
        calls = [ToolCall(f"call_{number}", "run", "{}") for number in range(12)]
        reply(nx, "look at all of it", assistant("", *calls), budget=4_000)
        results = [tool(f"call_{number}", LINE * 200, "run") for number in range(12)]
        ctx = nx.assemble(results, budget=4_000, profile="bare")
        assert ctx.token_budget.remaining >= 0 and recount(ctx.to_openai()) <= 4_000
        assert all("left out here" in shown(ctx, call.id) for call in calls)
        nx.record(ctx, SEEN)
        after = nx.assemble("and now", budget=4_000, profile="bare")
        assert after.accounting.prefix.state == "extends"
        assert shown(after, "call_3") == shown(ctx, "call_3")
        with pytest.raises(nexus.BudgetTooSmall):
            nx.assemble("and now " * 2_000, budget=900, profile="bare")


def test_pinned_result_is_not_truncated() -> None:
    with opened(strategy="oldest_first") as nx:
        work(nx, 4, 150, 8_000)
        before = nx.assemble([tool("call_3", "x", "run")], budget=8_000, profile="bare")
        assert "left out here" in shown(before, "call_1")
        nx.record(before, SEEN)
        place = next(row.ref for e in nx.ledger.entries("main") for row in e.rows if "result 1\\n" in str(row.message))
        nx.ledger.pin("main", place)
        after = nx.assemble("go on", budget=8_000, profile="bare")
        assert shown(after, "call_1").count("worker finished") == 150
        assert "the pinned messages among those left out changed" in after.accounting.prefix.causes


def test_middle_out_keeps_beginning_and_moves_tail_in_steps() -> None:
    with opened(strategy="middle_out", max_tool_result_tokens=0) as nx:
        heads: set[str] = set()
        for number in range(80):
            ctx = reply(nx, f"question {number} " + "w " * 60, assistant(f"answer {number} " + "v " * 60), budget=3_000)
            if nx.ledger.store.last_cut(1, ctx.provenance.manifest.view) and ctx.cut is None:
                texts = [message.text() for message in ctx.history]
                marker = next(index for index, text in enumerate(texts) if text.startswith("[Earlier messages"))
                heads.add("\n".join(texts[:marker]))
                assert texts[0].startswith("question 0 ") and texts[1].startswith("answer 0 ")
                assert texts[marker - 1] not in texts[marker + 1 :]
        assert len(heads) == 1
        cut = nx.ledger.store.last_cut(1, ctx.provenance.manifest.view)
        assert cut is not None and cut.head is not None
        assert cut.omitted_messages + len(ctx.history) - 1 == len(nx.history("main")) - 2


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "call", "calls", "pin", "other budget", "undo"]), st.integers(1, 120)),
    min_size=3,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(
    STEPS,
    st.sampled_from(["keep_user_turns", "oldest_first", "middle_out", "digest"]),
    st.sampled_from([900, 1_500, 4_000]),
)
def test_cached_window_has_same_bytes_as_rebuilt_window(
    steps: list[tuple[str, int]], strategy: Strategy, budget: int
) -> None:
    with opened(strategy=strategy) as nx:
        for number, (kind, size) in enumerate(steps):
            said = LINE * size
            tried = budget * 2 if kind == "other budget" else budget
            try:
                if kind in ("call", "calls"):
                    calls = [ToolCall(f"c{number}_{at}", "run", "{}") for at in range(3 if kind == "calls" else 1)]
                    reply(nx, f"look {number}", assistant("", *calls), budget=tried)
                    ctx = reply(nx, [tool(call.id, said, "run") for call in calls], assistant("seen"), budget=tried)
                else:
                    ctx = reply(nx, f"ask {number} {said[: size * 4]}", assistant(said[:size]), budget=tried)
            except nexus.BudgetTooSmall:
                continue
            if kind == "pin" and size < 40:
                nx.ledger.pin("main", MessageRef(ctx.provenance.manifest.head + 1, 0))
            warm = nx.assemble("next", budget=budget, profile="bare") if _fits(nx, budget) else None
            fresh = Engine(None, nx.ledger.store, model=MODEL, clock_ms=nx.clock_ms, strategy=strategy)
            cold = fresh.assemble("next", budget=budget, profile="bare") if _fits(fresh, budget) else None
            assert (warm is None) == (cold is None)
            if warm is not None and cold is not None:
                assert (
                    warm.to_openai() == cold.to_openai()
                    and warm.accounting.token_breakdown == cold.accounting.token_breakdown
                )
                assert check_openai(warm.to_openai()) == []
                assert recount(warm.to_openai()) <= budget


def _fits(nx: Engine, budget: int) -> bool:
    try:
        nx.assemble("next", budget=budget, profile="bare")
    except nexus.BudgetTooSmall:
        return False
    return True
