"""The anchor: the last report of a view, and what was added since."""

from __future__ import annotations

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nexus.tokens.calibration import Anchor, anchor_of


class Recorded(Struct, frozen=True):
    """The fields of a manifest that an anchor depends on."""

    model: str = "gpt-4o"
    mark: int = 0
    cut: int = 1
    counter: str = "o200k_base"
    base: int = 1_000
    reported: int = 1_200


BEFORE = Recorded()
NOW = Recorded(base=1_500)


def test_anchor_adds_counted_tokens_to_reported_ones() -> None:
    found = anchor_of(BEFORE, NOW, 1.1)
    assert found == Anchor(1_200, 550)
    assert found.tokens == 1_750


def test_anchor_decreases_with_shorter_prompt_but_not_below_zero() -> None:
    assert anchor_of(BEFORE, replace(NOW, base=900), 1.0) == Anchor(1_200, -100)
    assert Anchor(100, -300).tokens == 0


def test_anchor_accepts_other_spelling_of_model() -> None:
    assert anchor_of(BEFORE, replace(NOW, model="openai/gpt-4o-2024-08-06"), 1.0) is not None


@pytest.mark.parametrize(
    "now",
    [replace(NOW, model="gpt-5"), replace(NOW, mark=9), replace(NOW, cut=2), replace(NOW, counter="estimate")],
    ids=["model", "mark", "cut", "counter"],
)
def test_no_anchor_from_report_of_another_prompt(now: Recorded) -> None:
    assert anchor_of(BEFORE, now, 1.0) is None


@pytest.mark.parametrize("before", [None, Recorded(base=0), Recorded(reported=0), Recorded(reported=9_000)])
def test_no_anchor_without_plausible_report(before: Recorded | None) -> None:
    assert anchor_of(before, NOW, 1.0) is None
