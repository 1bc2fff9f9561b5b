"""Stable and lost tokens of a prefix report: the last prompt as reported, and the part of it before a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.types.request import TokenUsage

WORDS = "The planner reads the index and the worker writes the report. "
SMALL_CHAT = {"budget": 2_000}


def reply(tokens: int = 0) -> nexus.AgentResult:
    """An answer, with the provider's count of the prompt."""
    return nexus.AgentResult((nexus.assistant("Understood. " * 30),), TokenUsage(tokens, 60))


def opened(root: Path | None = None, model: str = "gpt-4o", **options: Any) -> nexus.Engine:
    return nexus.open(root, ledger=":memory:", model=model, **options)


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "our-own"])
def test_stable_tokens_of_an_extended_prompt_are_the_reported_ones(model: str) -> None:
    with opened(model=model) as nx:
        ctx = nx.assemble(WORDS * 60)
        reported = ctx.token_budget.used.total * 9 // 10
        nx.record(ctx, reply(reported))
        later = nx.assemble("And now?")
    assert (later.accounting.prefix.state, later.accounting.prefix.stable_tokens) == ("extends", reported)


def test_stable_tokens_without_a_report_are_the_last_prompt_as_counted() -> None:
    """The reply is not part of them: no provider has it in its cache."""
    with opened() as nx:
        ctx = nx.assemble(WORDS * 60)
        nx.record(ctx, reply())
        later = nx.assemble("And now?")
    assert abs(later.accounting.prefix.stable_tokens - ctx.token_budget.used.total) <= 4


def test_implausible_report_is_not_a_prediction() -> None:
    with opened() as nx:
        ctx = nx.assemble(WORDS * 60)
        nx.record(ctx, reply(50_000))
        stable = nx.assemble("And now?").accounting.prefix.stable_tokens
    assert stable < 2 * ctx.token_budget.used.total


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "our-own"])
def test_stable_part_after_a_break_has_the_providers_scale(model: str, tmp_path: Path) -> None:
    """A provider that counts a quarter less than expected does so in the part before the difference too."""
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n" + WORDS * 100)
    stable: list[int] = []
    for share in (1.0, 0.75):
        with opened(tmp_path, model) as nx:
            for number in range(40):
                ctx = nx.assemble(f"{number}: {WORDS * 5}", budget=4_000)
                if ctx.cut is not None:
                    break
                nx.record(ctx, reply(int(share * ctx.provenance.manifest.base)))
            prefix = ctx.accounting.prefix
            assert (prefix.state, prefix.at) == ("broken", "message 2 of the history")
            stable.append(prefix.stable_tokens)
    assert stable[1] == pytest.approx(0.75 * stable[0], rel=0.03)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.5, 1.5)), min_size=6, max_size=14))
def test_stable_and_lost_tokens_are_at_most_the_last_prompt(turns: list[tuple[int, float]]) -> None:
    last = 0
    with opened() as nx:
        for number, (length, share) in enumerate(turns):
            ctx = nx.assemble(f"{number}: {WORDS * length}", **SMALL_CHAT)
            prefix = ctx.accounting.prefix
            if number:
                assert 0 <= prefix.stable_tokens <= prefix.stable_tokens + prefix.lost_tokens <= last
            last = int(share * ctx.provenance.manifest.base)
            nx.record(ctx, reply(last))
