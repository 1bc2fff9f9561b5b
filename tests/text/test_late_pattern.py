"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re

import pytest

from nexus.text.late_pattern import late_pattern


def test_late_pattern_finds_what_the_pattern_finds() -> None:
    late = late_pattern("b+", re.IGNORECASE)
    for _ in range(2):
        assert late.sub("-", "aBbc") == "a-c"
        found = late.search("aBbc")
        assert found is not None
        assert found.span() == (1, 3)
    assert late.pattern == "b+"


def test_form_is_compiled_at_its_first_use() -> None:
    late = late_pattern("(")
    with pytest.raises(re.error):
        late.search("a")
