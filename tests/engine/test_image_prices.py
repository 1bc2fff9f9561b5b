"""Images in a context count as the model that is called charges for them (document 002: the context fits the window)."""

from __future__ import annotations

from typing import Any

import nexus
from nexus.engine import Engine
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import BudgetTooSmall
from nexus.types.message import Image, Text, assistant
from nexus.types.request import AgentResult, TokenUsage
from support.hostile import PIXEL

SCREEN = Image("image/png", PIXEL, width=1920, height=1080)
DEAR, PLAIN = "gpt-4o-mini", "gpt-4o"
DEAR_TOKENS = 2833 + 6 * 5667
"""What OpenAI's formula says of 1920 x 1080: fitted to 1365 x 768, that is 3 x 2 tiles."""


def turn(nx: Engine, number: int, **options: Any) -> nexus.AssembledContext:
    ctx = nx.assemble(f"Look at number {number}.", images=[SCREEN], profile="bare", **options)
    nx.record(ctx, AgentResult((assistant("A chart."),)))
    return ctx


def test_event_and_history_count_images_at_model_price() -> None:
    with nexus.open(calibrate=False) as nx:
        plain = turn(nx, 1, model=PLAIN)
        assert plain.token_budget.used.total < 2_000
        dear = nx.assemble("And now?", profile="bare", model=DEAR)
        assert DEAR_TOKENS < dear.token_budget.used.total < DEAR_TOKENS + 500
        both = nx.assemble("Again.", images=[SCREEN], profile="bare", model=DEAR)
        assert 2 * DEAR_TOKENS < both.token_budget.used.total < 2 * DEAR_TOKENS + 500
        again = nx.assemble("And now?", profile="bare", model=PLAIN)
        assert again.token_budget.used.total < 2_100


def test_token_breakdown_and_explanation_add_up() -> None:
    with nexus.open(calibrate=False) as nx:
        turn(nx, 1, model=DEAR)
        ctx = nx.assemble("Again.", images=[SCREEN], profile="bare", model=DEAR)
        assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total
        ctx = turn(nx, 2, model=DEAR)
        told = nx.explain("main", 2)
    assert sum(line.tokens for line in told.lines) == ctx.token_budget.used.total


def test_larger_image_price_causes_a_cut_for_that_model_only() -> None:
    with nexus.open(calibrate=False) as nx:
        for number in range(4):
            turn(nx, number, model=PLAIN)
        ctx = nx.assemble("And now?", profile="bare", model=DEAR, budget=100_000)
        assert ctx.cut is not None
        assert ctx.token_budget.used.total <= 100_000
        assert nx.assemble("And now?", profile="bare", model=PLAIN, budget=100_000).cut is None


def test_image_over_budget_is_rejected_with_its_size() -> None:
    with nexus.open(calibrate=False) as nx:
        try:
            nx.assemble("Look.", images=[SCREEN], profile="bare", model=DEAR, budget=20_000)
        except BudgetTooSmall as error:
            assert error.parts["current event"] > DEAR_TOKENS
        else:
            raise AssertionError("36,835 tokens do not fit into 20,000")


def test_new_claude_counts_large_images_at_high_resolution() -> None:
    with nexus.open(calibrate=False, models={"new": {"same_as": "claude-opus-4-7", "token_factor": 1.0}}) as nx:
        old = nx.assemble("Look.", images=[SCREEN], profile="bare", model="claude-opus-4-6").token_budget.used.total
        new = nx.assemble("Look.", images=[SCREEN], profile="bare", model="new").token_budget.used.total
    assert (old < 2_000, 2_691 < new < 2_800) == (True, True)


def test_token_factor_below_one_does_not_reduce_image_tokens() -> None:
    with nexus.open() as nx:
        for number in range(40):
            ctx = nx.assemble("word " * 2_000, session=f"s{number}", profile="bare", model=DEAR)
            usage = TokenUsage(input_tokens=int(ctx.provenance.manifest.base * 0.7))
            nx.record(ctx, AgentResult((assistant("ok"),), usage=usage))
        ctx = nx.assemble("Look.", images=[SCREEN], profile="bare", model=DEAR)
        assert ctx.provenance.manifest.factor < 0.9
        assert ctx.token_budget.used.total > DEAR_TOKENS


def test_replay_counts_images_as_recorded() -> None:
    with nexus.open(calibrate=False) as nx:
        for number in range(2):
            turn(nx, number, model=DEAR, budget=100_000)
        was = turn(nx, 2, model=DEAR, budget=100_000)
        made = nx.replay("main", 3)
        assert made.to_provider("openai") == was.to_provider("openai")
        assert made.token_budget.used.total == was.token_budget.used.total
        cheaper = nx.what_if("main", 3, ReplayOverrides(model=PLAIN))
        assert cheaper.token_budget.used.total < 10_000
        dearer = nx.what_if("main", 3, ReplayOverrides(event=nexus.Event((Text("Only text."),))))
        assert dearer.token_budget.used.total > DEAR_TOKENS
