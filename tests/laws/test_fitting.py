"""The law of fitting over random sessions, and the faults that it finds. `python -m torture fitting` runs 200,000 of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from laws.call import Broken
from laws.mutants import MUTANTS, Mutant, broken_by
from laws.running import searched
from laws.session import run

pytestmark = pytest.mark.slow

EXAMPLES = 1_500
SEARCHED_AT_MOST = 600

WANTED = {
    "with two or more cuts": 25,  # fewer than before pictures: sessions with these have eight times the budget
    "with a compaction after a compaction": 10,
    "with parallel calls": 30,
    "with undo or redo": 5,
    "with forks or rewinds": 10,
    "with refusals": 10,
    "with shortened results": 20,
    "with pins": 20,
    "with middle_out": 15,
    "with old images as notes": 5,
}
"""The least share of examples, in percent, that a run must have had to have tried anything."""


def test_the_law_of_fitting_holds_whatever_happens_to_a_session(
    record_property: Callable[[str, object], None],
) -> None:
    figures: Counter[str] = Counter()
    searched(EXAMPLES, 1, figures)
    record_property("figures", {f"law of fitting: {name}": count for name, count in figures.items()})
    shares = {name: 100 * figures[f"examples {name}"] / figures["examples"] for name in WANTED}
    assert {name: share for name, share in shares.items() if share < WANTED[name]} == {}
    assert all(figures[f"model of the {wire} form"] for wire in ("openai", "anthropic", "gemini"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_in_fitting_is_found_by_its_law(mutant: Mutant) -> None:
    with broken_by(mutant), pytest.raises(Broken) as found:
        _meets(mutant)
    assert found.value.law in mutant.laws


def _meets(mutant: Mutant) -> None:
    """Runs the session that finds the fault, or random ones."""
    if mutant.script is not None:
        run(mutant.script, Counter())
    else:
        searched(SEARCHED_AT_MOST, 1, Counter())
