"""Compaction through the engine: what it covers and keeps, that nothing vanishes, that it can be undone, and when it is due."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine
from nexus.errors import BadConfig, CompactionSuperseded, HeadMoved
from nexus.ledger.replay import visible_start
from nexus.summarization import SummaryReply, SummaryRequest
from nexus.types.ledger_entries import Compaction, MessageRef
from nexus.types.message import Message, ToolCall, assistant, tool, user
from support.errors import has_code
from support.openai_body import check_openai
from support.recount import recount

LINE = "2026-01-01 12:00:00 worker finished its part of the work\n"


def opened(**options: Any) -> Engine:
    return nexus.open(ledger=":memory:", model="gpt-4o", clock_ms=lambda: 1_760_000_000_000, **options)


def reply(nx: Engine, event: Any, *said: Message, budget: int = 8_000) -> nexus.AssembledContext:
    ctx = nx.assemble(event, budget=budget, profile="bare")
    nx.record(ctx, nexus.AgentResult(said))
    return ctx


def loop(
    nx: Engine, steps: int, lines: int = 20, *, ask: str = "Fix the bug. Never touch legacy.py.", budget: int = 8_000
) -> Any:
    """One turn with calls that are each recorded with the results of the one before; the last call waits."""
    event: Any = ask
    for step in range(steps):
        reply(nx, event, assistant(f"step {step}", ToolCall(f"c{step}", "run", "{}")), budget=budget)
        event = [tool(f"c{step}", f"result {step}\n" + LINE * lines, "run")]
    return event


def texts(ctx: nexus.AssembledContext) -> str:
    return json.dumps(ctx.to_openai()["messages"])


def test_compaction_within_a_turn_keeps_its_request() -> None:
    with opened() as nx:
        event = loop(nx, 20)
        done = nx.compact(budget=8_000, profile="bare")
        assert done and done.method == "extractive" and done.messages > 5
        mark = nx.ledger.live("main").checkpoint
        assert mark is not None and mark.body["kept_ord"] == 1 and mark.body["asked"] == {"seq": 1, "ord": 0}
        ctx = nx.assemble(event, budget=8_000, profile="bare")
        assert ctx.messages[0].text().startswith("[Previous conversation summary]\n## Task")
        assert ctx.messages[1].text() == "Fix the bug. Never touch legacy.py."
        assert check_openai(ctx.to_openai()) == [] and ctx.repairs.clean
        body = texts(ctx)
        shown = [step for step in range(20) if f"result {step}\\n" in body]
        assert shown == list(range(shown[0], 20)) and shown[0] > 0


def test_recorded_call_has_all_figures() -> None:
    with opened() as nx:
        loop(nx, 20, budget=100_000)
        done = nx.compact(budget=8_000, profile="bare", trigger="context_limit")
        body = nx.ledger.live("main").checkpoint
        assert body is not None
        row = body.body
        assert (row["trigger"], row["type"], row["model"], row["call_tokens"]) == ("context_limit", "extractive", "", 0)
        assert (row["tokens_before"], row["tokens_after"]) == (done.tokens_before, done.tokens_after)
        assert done.tokens_after <= 0.6 * 8_000 < done.tokens_before
        assert row["summary_tokens"] == nx.counter.count(row["summary"]) == done.summary_tokens


def test_compaction_reports_the_tokens_of_the_next_prompt() -> None:
    with opened() as nx:
        event = loop(nx, 20, budget=100_000)
        ctx = nx.assemble(event, budget=8_000, profile="bare")
        done = nx.compact(plan=ctx.plan())
        used = nx.assemble(event, budget=8_000, profile="bare").token_budget.used.total
        assert done and done.tokens_after - 10 <= used <= done.tokens_after


def test_open_tool_call_is_never_compacted() -> None:
    with opened() as nx:
        loop(nx, 2, lines=120)
        done = nx.compact(budget=8_000, profile="bare", share=0.05)
        ctx = nx.assemble([tool("c1", "late result", "run")], budget=8_000, profile="bare")
        assert "late result" in texts(ctx) and ctx.repairs.clean
        assert not done or "c1" in texts(ctx)


def test_second_compaction_updates_summary_and_covers_kept_messages() -> None:
    with opened() as nx:
        loop(nx, 20)
        nx.compact(budget=8_000, profile="bare")
        first = nx.ledger.live("main").checkpoint
        nx.record(
            nx.assemble([tool("c19", "x", "run")], budget=8_000, profile="bare"), nexus.AgentResult((assistant("ok"),))
        )
        loop(nx, 20, ask="Now write the docs. Use port 5433.")
        nx.compact(budget=8_000, profile="bare")
        second = nx.ledger.live("main").checkpoint
        assert first is not None and second is not None
        assert second.body["covers_from"] == first.body["first_kept"]
        assert "Never touch legacy.py" in second.body["summary"] and "5433" in second.body["summary"]


def test_undo_restores_messages_and_waits_for_new_ones_to_compact() -> None:
    with opened() as nx:
        event = loop(nx, 20, lines=12, budget=100_000)
        before = texts(nx.assemble(event, budget=100_000, profile="bare"))
        assert nx.compact(budget=8_000, profile="bare")
        assert texts(nx.assemble(event, budget=100_000, profile="bare")) != before
        nx.ledger.undo("main")
        assert texts(nx.assemble(event, budget=100_000, profile="bare")) == before
        ctx = nx.assemble(event, budget=5_000, profile="bare")
        assert ctx.accounting.full_share > 1 and not ctx.compaction_due and ctx.plan() is None
        nx.record(ctx, nexus.AgentResult((assistant("on"),)))
        assert nx.assemble("and", budget=5_000, profile="bare").plan("manual") is not None


def test_compaction_is_due_when_full_and_plans_40_percent() -> None:
    with opened() as nx:
        event = loop(nx, 22, lines=12, budget=100_000)
        full = nx.assemble(event, budget=100_000, profile="bare").token_budget.used.total
        assert not nx.assemble(event, budget=int(full / 0.99), profile="bare").compaction_due
        ctx = nx.assemble(event, budget=int(full / 1.05), profile="bare")
        assert ctx.compaction_due and ctx.cut is not None
        plan = ctx.plan()
        assert plan is not None and plan.draft.trigger == "context_limit"
        assert plan.kept_tokens + plan.summary_tokens <= 0.4 * full / 1.05
        assert nx.compact(plan=plan)
        after = nx.assemble(event, budget=int(full / 1.05), profile="bare")
        assert not after.compaction_due and after.token_budget.used.total <= 0.4 * full / 1.05


def test_profile_sets_thresholds_of_compaction(tmp_path: Path) -> None:
    folder = tmp_path / ".nexus" / "profiles"
    folder.mkdir(parents=True)
    (folder / "early.toml").write_text('extends = "bare"\ncompact_at = 0.85\ncompact_to = 0.6\n')
    with nexus.open(tmp_path, ledger=":memory:", model="gpt-4o") as nx:
        event = loop(nx, 22, lines=12, budget=100_000)
        full = nx.assemble(event, budget=100_000, profile="bare").token_budget.used.total
        assert not nx.assemble(event, budget=int(full / 0.8), profile="early").compaction_due
        ctx = nx.assemble(event, budget=int(full / 0.9), profile="early")
        plan = ctx.plan()
        assert ctx.compaction_due and ctx.cut is None and plan is not None
        assert 0.4 * full / 0.9 < plan.kept_tokens + plan.summary_tokens <= 0.6 * full / 0.9
        (folder / "early.toml").write_text('extends = "bare"\ncompact_at = 0.5\ncompact_to = 0.6\n')
        with pytest.raises(BadConfig, match="compact_to", check=has_code("bad_profile")):
            nx.assemble(event, profile="early")


def test_messages_during_compaction_stay_and_other_checkpoint_voids_it() -> None:
    with opened() as nx:
        loop(nx, 20)
        ctx = nx.assemble([tool("c19", "x", "run")], budget=8_000, profile="bare")
        plan = ctx.plan("manual", 0.6)
        assert plan is not None
        nx.record(ctx, nexus.AgentResult((assistant("said meanwhile"),)))
        assert nx.compact(plan=plan)
        assert "said meanwhile" in texts(nx.assemble("go on", budget=8_000, profile="bare"))
        with pytest.raises(CompactionSuperseded):
            nx.compact(plan=plan)


def test_compaction_plan_of_abandoned_path_is_rejected() -> None:
    with opened() as nx:
        loop(nx, 20)
        plan = nx.plan(budget=8_000, profile="bare")
        assert plan is not None
        nx.ledger.rewind("main", seq=12)
        for step in range(12):
            reply(nx, f"something else {step}", assistant("yes"))
        with pytest.raises(HeadMoved):
            nx.compact(plan=plan)


def test_pins_are_kept_verbatim() -> None:
    with opened() as nx:
        loop(nx, 20)
        nx.ledger.pin("main", MessageRef(4, 0))
        assert nx.compact(budget=8_000, profile="bare")
        body = texts(nx.assemble([tool("c19", "x", "run")], budget=8_000, profile="bare"))
        assert "result 2\\n" in body and "result 3\\n" not in body


def test_short_session_is_not_compacted() -> None:
    with opened() as nx:
        reply(nx, "hi", assistant("hello"))
        done = nx.compact(budget=8_000, profile="bare")
        assert not done and "nothing to summarize" in done.reason
        assert nx.ledger.live("main").checkpoint is None


def test_summarizer_gets_focus_and_its_model_is_recorded() -> None:
    class Model:
        name, call_tokens = "mine", 0

        def summarize(self, request: SummaryRequest) -> SummaryReply:
            assert request.focus == "ports"
            return SummaryReply("## Task\n> Fix the bug.\n\n## Constraints\n- Never touch legacy.py.", "m-1", "p", 9, 1)

    with opened(summarizer=Model()) as nx:
        loop(nx, 20)
        done = nx.compact(focus="ports", budget=8_000, profile="bare")
        mark = nx.ledger.live("main").checkpoint
        assert mark is not None and done.method == "mine"
        assert (mark.body["model"], mark.body["provider"], mark.body["call_tokens"]) == ("m-1", "p", 10)
        assert mark.body["type"] == "summary"


STEP = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 60)),
    st.tuples(st.just("loop"), st.integers(1, 6)),
    st.tuples(st.just("compact"), st.integers(1, 3)),
    st.tuples(st.just("undo"), st.just(0)),
    st.tuples(st.just("fork"), st.just(0)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, min_size=4, max_size=16), st.sampled_from([1_200, 2_500, 6_000]))
def test_every_message_is_visible_or_covered_after_any_number_of_compactions(
    steps: list[tuple[str, int]], budget: int
) -> None:
    with opened() as nx:
        session = "main"
        for number, (kind, size) in enumerate(steps):
            if kind == "ask":
                commit(nx, session, user(f"u{number} " + "w " * size), assistant(f"a{number} " + "v " * size))
            elif kind == "loop":
                commit(nx, session, user(f"u{number}"), assistant("", ToolCall(f"c{number}", "run", "{}")))
                for step in range(size):
                    results = tool(f"c{number}" if not step else f"c{number}_{step}", LINE * size, "run")
                    commit(nx, session, results, assistant("", ToolCall(f"c{number}_{step + 1}", "run", "{}")))
            elif kind == "compact" and nx.ledger.store.thread_of(session):
                nx.compact(session, budget=budget, profile="bare", share=0.2 * size)
            elif kind == "undo" and nx.ledger.store.thread_of(session):
                if nx.ledger.live(session).checkpoint is not None:
                    nx.ledger.undo(session)
            elif kind == "fork" and nx.ledger.store.thread_of(session):
                nx.ledger.fork(f"s{number}", session)
                session = f"s{number}"
            if nx.ledger.store.thread_of(session):
                check(nx, session, budget)


def commit(nx: Engine, session: str, *messages: Message) -> None:
    from nexus.assembly.record import with_sizes

    nx.ledger.append(session, with_sizes(messages, nx.counter), starts_turn=messages[0].role == "user")


def check(nx: Engine, session: str, budget: int) -> None:
    """Nothing is between what summaries cover and what is shown from, and the next call is valid."""
    entries = nx.ledger.entries(session)
    marks = [entry for entry in entries if entry.kind == "compaction"]
    live = nx.ledger.live(session)
    chain = live.checkpoint
    begin = MessageRef(1, 0)
    covered: list[tuple[MessageRef, MessageRef]] = []
    for mark in marks:
        made = Compaction(**{name: value for name, value in mark.body.items() if name != "asked"})
        covered.append((MessageRef(made.covers_from, 0), visible_start(mark)))
        assert made.covers_to + 1 == made.first_kept
    if chain is not None:
        reach = begin
        for start, end in covered:
            if start <= reach or start.seq == reach.seq:
                reach = max(reach, end)
        assert reach >= visible_start(chain), "a gap between summaries"
    try:
        ctx = nx.assemble("next", session=session, budget=budget, profile="bare")
    except nexus.BudgetTooSmall:
        return
    assert check_openai(ctx.to_openai()) == [] and recount(ctx.to_openai()) <= budget
    shown = visible_start(chain)
    rows = [row for entry in entries for row in entry.rows if row.ref >= shown]
    if ctx.cut is None and nx.ledger.store.last_cut(nx.ledger.thread(session), ctx.provenance.manifest.view) is None:
        body = texts(ctx)
        assert all(row.message.text()[:6] in body for row in rows if row.message.role == "user")
