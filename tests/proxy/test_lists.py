"""Any list of a client: what fits goes on as it was, all else is valid and has its reason."""

from __future__ import annotations

from collections import Counter

import pytest

from proxy.lists import searched


@pytest.mark.parametrize("first_seed", [1, 2])
def test_any_list_is_sent_as_received_or_with_a_reason(first_seed: int) -> None:
    counts: Counter[str] = Counter()
    searched(200, first_seed, counts)
    assert min(counts[name] for name in ("as_received", "marked", "healed", "fitted")) > 0


@pytest.mark.slow
def test_ten_thousand_lists() -> None:
    searched(10_000, 41, Counter())
