"""The engine learns from what providers report how a model's tokens are counted, and anchors on the last report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.engine import Engine
from nexus.render.context_json import from_json
from nexus.types.ledger_entries import StoredCalibration
from nexus.types.message import Image, Message, Text, ToolCall, ToolResult, assistant, tool
from support.hostile import PIXEL
from support.recount import recount

WINDOW = 12_000
OURS = {"our-model": {"context_tokens": WINDOW, "max_output_tokens": 100, "wire": "openai", "token_factor": 1.0}}
PARAGRAPH = "The index is built over bigrams, because a search for one syllable has to find words in any script. "


class Provider:
    """Serves `our-model` by a tokenizer that needs `ratio` tokens for one of o200k, within a real window."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.reported: list[int] = []

    def answer(self, ctx: nexus.AssembledContext, text: str = "Yes.") -> nexus.AgentResult:
        tokens = int(recount(ctx.to_openai()) * self.ratio)
        self.reported.append(tokens)
        return nexus.AgentResult((assistant(text),), nexus.TokenUsage(tokens, 3), model="our-model")


def opened(**options: Any) -> Engine:
    return nexus.open(ledger=":memory:", models=OURS, model="our-model", clock_ms=lambda: 1_760_000_000_000, **options)


def talk(nx: Engine, provider: Provider, calls: int) -> Iterator[nexus.AssembledContext]:
    for number in range(calls):
        said = f"{number}. {PARAGRAPH * (10 + number % 7 * 3)}"
        ctx = nx.assemble(said, session="s", model_config={"max_tokens": 100})
        nx.record(ctx, provider.answer(ctx, PARAGRAPH * 4))
        yield ctx


def large(nx: Engine, **options: Any) -> nexus.AssembledContext:
    return nx.assemble(PARAGRAPH * 60, session="s", **options)


def reply(tokens: int, *, model: str = "our-model") -> nexus.AgentResult:
    return nexus.AgentResult((assistant("Yes."),), nexus.TokenUsage(tokens, 3), model=model)


def test_calibration_keeps_a_third_larger_tokenizer_within_window() -> None:
    deaf, learning = Provider(1.3), Provider(1.3)
    unlearned = list(talk(opened(calibrate=False), deaf, 60))
    learned = list(talk(opened(), learning, 60))
    assert max(deaf.reported) > WINDOW, "the scenario would show nothing"
    assert max(learning.reported) <= WINDOW
    assert any(ctx.cut for ctx in learned)
    assert {ctx.provenance.manifest.factor for ctx in unlearned} == {1.0}
    for ctx, reported in list(zip(learned, learning.reported, strict=True))[9:]:
        assert reported <= ctx.token_budget.used.total <= reported * 1.12


def test_calibration_factor_decreases_gradually() -> None:
    nx, provider = opened(), Provider(0.8)
    factors = [ctx.provenance.manifest.factor for ctx in talk(nx, provider, 40)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 1.0
    assert 0.8 <= factors[-1] <= 0.92
    assert len(set(factors)) <= 4


def test_smaller_usage_of_one_session_does_not_lower_the_estimate_by_content_of_another() -> None:
    with nexus.open(ledger=":memory:", model="claude-sonnet-4-5") as nx:
        before = large(nx)
        for number in range(24):
            ctx = nx.assemble(f"{number}. {PARAGRAPH * 20}", session="prose")
            usage = nexus.TokenUsage(ctx.token_budget.used.total * 3 // 4, 3)
            nx.record(ctx, nexus.AgentResult((assistant("Yes."),), usage, model="claude-sonnet-4-5"))
        after = large(nx)
    assert after.token_budget.used.total == before.token_budget.used.total


def test_factor_scales_capacity_and_errors_use_provider_tokens() -> None:
    nx = opened()
    nx.ledger.store.calibrate("unknown", "our-model", StoredCalibration(128, 9))
    ctx = large(nx)
    assert ctx.provenance.manifest.factor == 2.0
    assert ctx.token_budget.used.total >= 2 * ctx.provenance.manifest.base - 4
    assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total
    with pytest.raises(nexus.BudgetTooSmall) as refused:
        large(nx, budget=1_500)
    assert refused.value.needed_tokens > 1_500
    assert refused.value.needed_tokens == sum(refused.value.parts.values())
    assert large(nx, budget=refused.value.needed_tokens + 8).token_budget.remaining >= 0


def test_calibration_is_stored_per_provider_and_model_name(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with nexus.open(ledger=file, clock_ms=lambda: 7) as nx:
        ctx = nx.assemble(PARAGRAPH * 400, session="s", model="gpt-4o-2024-08-06")
        nx.record(ctx, reply(int(ctx.provenance.manifest.base * 1.5), model="gpt-4o-2024-08-06"))
        assert nx.ledger.store.calibrations() == [("openai", "gpt-4o", StoredCalibration(80, 1, 7))]
    with nexus.open(ledger=file) as nx:
        assert nx.assemble("x", session="other", model="gpt-4o").provenance.manifest.factor == 1.25
        assert nx.assemble("x", session="other", model="gpt-5").provenance.manifest.factor == 1.0
        assert nx.assemble("x", session="other", model="openrouter/openai/gpt-4o").provenance.manifest.factor == 1.0
    with nexus.open(ledger=file, calibrate=False) as nx:
        assert nx.assemble("x", session="other", model="gpt-4o").provenance.manifest.factor == 1.0


def test_agreeing_reports_keep_factor_and_stop_writes_after_sixteen() -> None:
    nx = opened(calibrate=True)
    for number in range(20):
        ctx = nx.assemble(PARAGRAPH * 60, session=f"s{number}")
        assert ctx.provenance.manifest.factor == 1.0
        nx.record(ctx, reply(int(ctx.provenance.manifest.base * 0.96)))
    assert nx.ledger.store.calibration("unknown", "our-model") == StoredCalibration(64, 16, 1_760_000_000_000)


@pytest.mark.parametrize("usage", [0, 1, 10_000_000, -5, 10**30, 1_500.5])
def test_implausible_usage_does_not_change_calibration(usage: Any) -> None:
    nx = opened()
    nx.record(large(nx), reply(usage))
    assert nx.ledger.store.calibrations() == []
    assert large(nx).accounting.anchor is None


def test_summed_usage_does_not_change_calibration() -> None:
    nx = opened()
    ctx = large(nx)
    steps = (assistant("", ToolCall("c", "look", "{}")), tool("c", "seen", "look"), assistant("Done."))
    nx.record(ctx, nexus.AgentResult(steps, nexus.TokenUsage(3 * ctx.provenance.manifest.base, 9)))
    assert nx.ledger.store.calibrations() == []
    assert large(nx).accounting.anchor is None


def test_answer_of_other_model_calibrates_only_unknown_names() -> None:
    nx = opened()
    ctx = nx.assemble(PARAGRAPH * 60, session="s", model="claude-sonnet-4-5")
    nx.record(ctx, reply(ctx.provenance.manifest.base, model="gpt-5-2025-08-07"))
    assert nx.ledger.store.calibrations() == []
    ctx = nx.assemble(PARAGRAPH * 60, session="d", model="my-deployment")
    nx.record(ctx, reply(ctx.provenance.manifest.base, model="gpt-5-2025-08-07"))
    assert [name for _, name, _ in nx.ledger.store.calibrations()] == ["my-deployment"]


def test_prompt_with_images_does_not_change_calibration() -> None:
    nx = opened()
    picture = Image("image/png", PIXEL, width=500, height=500)
    ctx = large(nx, images=[picture])
    nx.record(ctx, reply(2 * ctx.provenance.manifest.base))
    asks = nexus.AgentResult((assistant("", ToolCall("c", "look", "{}")),))
    nx.record(nx.assemble(PARAGRAPH * 60, session="tools"), asks)
    shown = Message("tool", (ToolResult("c", (Text("see"), picture), "look"),))
    ctx = nx.assemble([shown], session="tools")
    nx.record(ctx, reply(2 * ctx.provenance.manifest.base))
    assert nx.ledger.store.calibrations() == []


def test_recording_the_same_reply_again_counts_it_once() -> None:
    nx = opened()
    ctx = large(nx)
    for _ in range(3):
        nx.record(ctx, reply(int(ctx.provenance.manifest.base * 0.97)))
    assert nx.ledger.store.calibrations() == [("unknown", "our-model", StoredCalibration(64, 1, 1_760_000_000_000))]


def test_calibration_is_separate_per_counter(tmp_path: Path) -> None:
    class Words:
        name = "words"

        def count(self, text: str) -> int:
            return len(text.split())

    file = tmp_path / "ledger.db"
    with nexus.open(ledger=file, counter=Words(), models=OURS, model="our-model") as nx:
        ctx = large(nx)
        nx.record(ctx, reply(2 * ctx.provenance.manifest.base))
        assert [name for _, name, _ in nx.ledger.store.calibrations()] == ["our-model by words"]
    with nexus.open(ledger=file, models=OURS, model="our-model") as nx:
        assert large(nx).provenance.manifest.factor == 1.0


def test_anchor_is_last_report_plus_tokens_since() -> None:
    nx, provider = opened(), Provider(1.3)
    first = large(nx)
    assert first.accounting.anchor is None
    assert first.expected_tokens == first.token_budget.used.total
    nx.record(first, provider.answer(first))
    second = nx.assemble("And now?", session="s")
    assert second.accounting.anchor is not None
    assert second.accounting.anchor.reported_tokens == provider.reported[0]
    assert 0 < second.accounting.anchor.added_tokens < 100
    assert second.expected_tokens == second.accounting.anchor.tokens > second.token_budget.used.total
    assert f"Reported: {provider.reported[0]:,} tokens for the last call" in second.report
    again = from_json(json.loads(json.dumps(second.to_json())))
    assert (again.accounting.anchor, again.expected_tokens) == (second.accounting.anchor, second.expected_tokens)
    sent = provider.answer(second).usage.input_tokens
    assert abs(second.accounting.anchor.tokens - sent) < abs(second.token_budget.used.total - sent)


def test_cut_and_other_model_drop_anchor_and_rewind_restores_it() -> None:
    nx, provider = opened(), Provider(1.0)
    for ctx in talk(nx, provider, 36):
        assert (ctx.accounting.anchor is None) == (ctx.cut is not None or not ctx.history.end)
    assert nx.assemble("x", session="s").accounting.anchor is not None
    assert nx.assemble("x", session="s", model="gpt-4o").accounting.anchor is None
    nx.ledger.rewind("s", turn=3)
    then = nx.assemble("x", session="s").accounting.anchor
    assert then is not None
    assert then.reported_tokens == provider.reported[2]


def test_base_count_covers_the_complete_prompt() -> None:
    nx = opened()
    ctx = nx.assemble("hi", session="s", tools=[{"name": "look"}])
    used = ctx.token_budget.used
    assert ctx.provenance.manifest.base == used.system_prompt + used.tools + used.history + used.event
    nx.record(ctx, nexus.AgentResult((assistant("Yes."),)))
    assert (
        nx.assemble("hi", session="s", tools=[{"name": "look"}]).provenance.manifest.base > ctx.provenance.manifest.base
    )
