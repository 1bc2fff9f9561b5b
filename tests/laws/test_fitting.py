"""The law of fitting over random sessions, and the faults that it finds. `python -m torture fitting` runs 200,000 of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from laws.call import Broken
from laws.mutants import MUTANTS, Mutant, broken_by
from laws.running import searched
from laws.scripts import Script
from laws.session import run

EXAMPLES = 1_500
FEW = 100

WANTED = {
    "with two or more cuts": 18,
    "with a compaction after a compaction": 10,
    "with parallel calls": 30,
    "with undo or redo": 5,
    "with forks or rewinds": 10,
    "with refusals": 10,
    "with shortened results": 15,
    "with pins": 20,
    "with middle_out": 12,
    "with excerpts": 15,
    "with old images as notes": 5,
}
"""The least share of examples, in percent, that a run must have had to have tried anything.

Each is at least six standard deviations below what a run has: no seed misses it by chance.
"""


@pytest.mark.slow
def test_the_law_of_fitting_holds_whatever_happens_to_a_session(
    random_seed: int, record_property: Callable[[str, object], None]
) -> None:
    figures: Counter[str] = Counter()
    searched(EXAMPLES, random_seed, figures)
    record_property("figures", {f"law of fitting: {name}": count for name, count in figures.items()})
    shares = {name: 100 * figures[f"examples {name}"] / figures["examples"] for name in WANTED}
    assert {name: share for name, share in shares.items() if share < WANTED[name]} == {}
    assert all(figures[f"model of the {wire} form"] for wire in ("openai", "anthropic", "gemini"))


def test_the_law_of_fitting_holds_in_the_same_few_sessions_each_time() -> None:
    figures: Counter[str] = Counter()
    searched(FEW, 1, figures)
    assert figures["examples"] == FEW


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_in_fitting_is_found_by_its_law(mutant: Mutant) -> None:
    assert isinstance(mutant.example, Script)
    run(mutant.example, Counter())
    with broken_by(mutant), pytest.raises(Broken) as found:
        run(mutant.example, Counter())
    assert found.value.law in mutant.laws
