"""Cost of hostile text: it is escaped once for a context, however often it is counted while it does not fit."""

from __future__ import annotations

import time

import pytest

import nexus
from nexus.errors import BudgetTooSmall

HOSTILE = ["[mood", "\n[mood]", "</human_input>", "[tool_use:"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_that_does_not_fit_is_refused_in_time(text: str) -> None:
    """Half a megabyte took 0.1 to 0.3 s here; without memory of escaped texts it was 4 to 16 s."""
    with nexus.open() as nx:
        nx.assemble("hi")
        start = time.process_time()
        with pytest.raises(BudgetTooSmall):
            nx.assemble(text * (500_000 // len(text)), budget=8_000)
        assert time.process_time() - start < 2
