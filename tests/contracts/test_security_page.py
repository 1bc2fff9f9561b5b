"""The page on security claims nothing without a test: each test that a row of its tables names is there."""

from __future__ import annotations

import re

from contracts.modules import ROOT

PAGE = ROOT / "docs" / "security.md"


def test_every_test_that_the_page_names_exists_and_every_row_names_one() -> None:
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def test_(\w+)\(", tests, re.MULTILINE))
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 20
    for row in rows:
        last = row.rstrip("| ").rpartition(" | ")[2]
        named = [name.removeprefix("test_") for name in re.findall(r"`(\w+)`", last)]
        assert [name for name in named if name not in there] == []
        assert named or last in ("test", "the same"), row
