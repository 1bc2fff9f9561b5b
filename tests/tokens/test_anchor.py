"""The anchor: the last report of a view, and what was added since."""

from __future__ import annotations

from typing import Any

import pytest

from nexus.tokens.anchor import Anchor, anchor_of

BEFORE: dict[str, Any] = {
    "model": "gpt-4o", "mark": 0, "cut": 1, "counter": "o200k_base", "base": 1_000, "reported": 1_200,
}  # fmt: skip
NOW = {**BEFORE, "base": 1_500}


def test_what_was_added_is_counted_and_the_rest_is_as_reported() -> None:
    found = anchor_of(BEFORE, NOW, 1.1)
    assert found == Anchor(1_200, 550)
    assert found.tokens == 1_750


def test_anchor_decreases_with_shorter_prompt_but_not_below_zero() -> None:
    assert anchor_of(BEFORE, {**NOW, "base": 900}, 1.0) == Anchor(1_200, -100)
    assert Anchor(100, -300).tokens == 0


def test_other_spellings_of_the_model_are_the_same_model() -> None:
    assert anchor_of(BEFORE, {**NOW, "model": "openai/gpt-4o-2024-08-06"}, 1.0) is not None


@pytest.mark.parametrize(
    "changed",
    [{"model": "gpt-5"}, {"mark": 9}, {"cut": 2}, {"counter": "estimate"}],
    ids=lambda changed: next(iter(changed)),
)
def test_a_report_of_another_prompt_says_nothing(changed: dict[str, Any]) -> None:
    assert anchor_of(BEFORE, {**NOW, **changed}, 1.0) is None


@pytest.mark.parametrize("before", [None, {}, {**BEFORE, "reported": 0}, {**BEFORE, "reported": 9_000}, {"base": 10}])
def test_without_a_plausible_report_there_is_none(before: dict[str, Any] | None) -> None:
    assert anchor_of(before, NOW, 1.0) is None
