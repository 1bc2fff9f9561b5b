"""The reserve of `Engine.mirror`: tokens that a caller adds to the request itself."""

from __future__ import annotations

from typing import Any

import pytest

import nexus

USAGE = {"prompt_tokens": 5_000, "completion_tokens": 5, "total_tokens": 5_005}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}


@pytest.mark.parametrize(("reserve", "changes"), [(0, True), (1_000, False)])
def test_usage_with_a_reserve_does_not_calibrate_counts(reserve: int, changes: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "word " * 2_000}]
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        before = nx.mirror(messages, reserve=reserve).token_budget.used.total
        for number in range(5):
            ctx = nx.mirror(messages, scope=f"s{number}", reserve=reserve)
            nx.record(ctx, {"choices": [CHOICE], "usage": USAGE})
        after = nx.mirror(messages, scope="last", reserve=reserve).token_budget.used.total
    assert (after > before) == changes
