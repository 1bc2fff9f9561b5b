"""Tests give the same result in every run: they measure no time and draw no number without a seed."""

from __future__ import annotations

import re

from contracts.modules import ROOT

CHANCE = re.compile(
    r"\btime\.(?:time|monotonic|perf_counter)\("
    r"|\brandom\.(?:random|choice|choices|randint|randrange|sample|shuffle|uniform)\("
    r"|\bRandom\(\)|\buuid4\(|\bsecrets\.token_|\bSystemRandom\b"
)

EXEMPT = {
    "tests/cli/test_credential.py": "gives up on a terminal that stays silent for ten minutes",
    "tests/contracts/test_determinism.py": "contains the patterns",
}


def test_no_test_measures_time_or_draws_without_a_seed() -> None:
    found = [
        f"{name}:{number}: {hit[0]}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in [str(path.relative_to(ROOT))]
        if name not in EXEMPT
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for hit in CHANCE.finditer(line)
    ]
    assert found == []
