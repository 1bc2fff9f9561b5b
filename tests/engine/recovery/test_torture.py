"""Calls get through whatever a provider and a summarizer do. `python -m torture overflow` runs it in full.

Faults at named points, and the broken builds that they find, are in tests/ledger/test_torture.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torture.refusals import ANSWER_FIRST, OTHERS, OVERFLOWS, RATES, raised, refusal

from nexus.providers.errors import classify

ROOT = Path(__file__).parents[3]
ROUNDS = 100


def tortured(folder: Path, rounds: int) -> tuple[int, dict[str, Any]]:
    """Return the exit code and report of a run as a program of its own."""
    command = [sys.executable, "-W", "error", "-m", "torture", "overflow", "--rounds", str(rounds), "--json"]
    command += ["--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_overflow_torture_finishes_without_failures(tmp_path: Path, record_property: Any) -> None:
    code, report = tortured(tmp_path, ROUNDS)
    assert report["failed"] == {} and code == 0
    counts = report["tortures"][0]["counts"]
    assert counts["stuck"] == 0
    for met in (
        "calls that got through after a refusal",
        "calls of one's own recovered",
        "silent overflows",
        "ContextOverflow",
        "BudgetTooSmall",
        "other errors that came through",
        "changes by others meanwhile",
        "compactions by a model",
        "compactions by rule",
        "limits learned from what was told",
    ):
        assert counts[met] > 0, met
    assert len([name for name in counts if name.startswith("summary refused: ")]) >= 6
    record_property("figures", {"rounds of overflow": ROUNDS})


@pytest.mark.parametrize("case", OVERFLOWS, ids=lambda case: f"{case.provider or 'any'}: {case.name}".replace(" ", "-"))
@pytest.mark.parametrize(("window", "tokens", "believed"), [(7_321, 9_876, 8_000), (60_007, 123_456, 128_000)])
def test_torture_overflow_errors_contain_true_numbers(case: Any, window: int, tokens: int, believed: int) -> None:
    tokens = window - 100 if case.part == "output" and case.limit else tokens
    output = window + 9 if case.name == ANSWER_FIRST else 1_234
    found = classify(refusal(case, window, tokens, output, believed), provider=case.provider, window=believed)
    assert (found.kind, found.part) == ("overflow", case.part)
    assert found.limit == (window if case.limit else 0)
    if case.requested and case.limit and case.name != ANSWER_FIRST:
        assert found.requested - (tokens + found.output_tokens) in range(-2, 1), "parts that were told are rounded down"


def test_torture_rate_limits_and_other_errors_are_not_overflows() -> None:
    assert {classify(raised(case)).kind for case in RATES} == {"rate_limit"}
    assert {classify(raised(case)).kind for case in OTHERS} == {"other"}
