"""Tests give the same result in every run: they measure no time and draw no number without a seed."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from contracts.modules import ROOT

CHANCE = re.compile(
    r"\btime\.(?:time|monotonic|perf_counter)\("
    r"|\brandom\.(?:random|choice|choices|randint|randrange|sample|shuffle|uniform)\("
    r"|\bRandom\(\)|\buuid4\(|\bsecrets\.token_|\bSystemRandom\b"
)

EXEMPT = {
    "tests/cli/terminal.py": "gives up on a terminal that lacks a text for half a minute",
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


def drawn_texts() -> list[str]:
    """Return the same texts in every run, as tests with Hypothesis draw them."""
    texts: list[str] = []

    @seed(1)
    @settings(max_examples=300)
    @given(st.text())
    def draw(text: str) -> None:
        texts.append(text)

    draw()
    return texts


def test_examples_do_not_depend_on_imported_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests that ran before in the same process import modules, whose constants Hypothesis would draw."""
    before = drawn_texts()
    path = tmp_path / "constants.py"
    path.write_text(f"NAMES = {[f'name {number}' for number in range(400)]}", "utf-8")
    spec = spec_from_file_location("constants_of_another_test", path)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    assert drawn_texts() == before
