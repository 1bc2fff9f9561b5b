"""The token budget of document 002: printed names, printed arithmetic, and refusals that say what to do."""

from __future__ import annotations

import pytest

from nexus.tokens.budget import TokenBudget, TokensUsed, compute_budget
from nexus.tokens.model import resolve


def test_available_is_window_less_reserves() -> None:
    budget = compute_budget(resolve("claude-sonnet-4-20250514"))
    assert (budget.model_limit, budget.reserve_response, budget.reserve_tools) == (200_000, 8_000, 16_000)
    assert budget.available == budget.remaining == 176_000
    assert budget.used == TokensUsed() and budget.used.total == 0


def test_reserves_are_at_most_an_eighth_of_small_window() -> None:
    """Decided on all documents: "response min(8,000, window/8), tools min(16,000, window/8)"."""
    budget = compute_budget(resolve("gpt-4"))
    assert (budget.reserve_response, budget.reserve_tools, budget.available) == (1024, 1024, 8192 - 2048)


def test_budget_is_limited_by_max_input_tokens() -> None:
    budget = compute_budget(resolve("gpt-5"))
    assert budget.model_limit == 400_000
    assert budget.available == 272_000 - 16_000


def test_explicit_reserves_and_available_tokens_are_used() -> None:
    """Decided on all documents: "`--budget` (and `budget=`) sets `available` directly"."""
    model = resolve("gpt-4o")
    assert compute_budget(model, reserve_response=4_000, reserve_tools=0).available == 124_000
    assert compute_budget(model, available_tokens=50_000).available == 50_000
    assert compute_budget(model, available_tokens=50_000, reserve_response=999).reserve_response == 999


def test_used_tokens_add_up_and_remaining_may_be_negative() -> None:
    budget = compute_budget(resolve("gpt-4o"), available_tokens=1_000)
    used = budget.with_used(system_prompt=300, tools=100, history=500, event=50)
    assert (used.used.total, used.remaining) == (950, 50)
    assert used.with_used(history=1_200).remaining == -200
    assert budget.remaining == 1_000


def test_to_json_has_documented_names() -> None:
    budget = compute_budget(resolve("o3")).with_used(system_prompt=1, tools=2, history=3, event=4)
    assert budget.to_json() == {
        "modelLimit": 200_000,
        "reserveResponse": 8_000,
        "reserveTools": 16_000,
        "available": 176_000,
        "used": {"systemPrompt": 1, "tools": 2, "history": 3, "event": 4, "total": 10},
        "remaining": 175_990,
    }


@pytest.mark.parametrize(
    ("given_budget", "words"),
    [
        ({"available_tokens": 0}, "too small"),
        ({"available_tokens": -5}, "too small"),
        ({"reserve_response": -1}, "negative reserve"),
        ({"reserve_tools": -1}, "negative reserve"),
        ({"reserve_response": -1, "available_tokens": 100}, "negative reserve"),
        ({"reserve_response": 128_000}, "for tool results of 128,000 that gpt-4o takes"),
        ({"reserve_response": 100_000, "reserve_tools": 28_000}, "make them smaller"),
    ],
)
def test_impossible_budget_is_rejected_with_reason(given_budget: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compute_budget(resolve("gpt-4o"), **given_budget)


def test_budget_is_frozen() -> None:
    budget = TokenBudget(10, 1, 1, 8)
    with pytest.raises(AttributeError):
        budget.available = 9  # type: ignore[misc]
    assert budget == TokenBudget(10, 1, 1, 8)
