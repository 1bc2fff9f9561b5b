"""Sessions by chance in every ready profile, and in all of them by turns: each call is valid, fits, and is made again."""

from __future__ import annotations

import random
from itertools import accumulate, repeat
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nexus
from engine.test_replay import Walk, own, replays
from nexus.assembly.profiles.builtin import PROFILES
from support.validity import CHECKS

START_MS = 1_760_000_000_000
PAUSES_MS = (0, 1_000, 60_000, 400_000)


@pytest.mark.parametrize("profile", [*PROFILES, "by turns"])
@settings(max_examples=4, deadline=None)
@example(seed=3977850275, steps=12)  # a time that is told again in a tool loop
@given(seed=st.integers(0, 1 << 32), steps=st.integers(8, 40))
def test_random_session_is_valid_within_budget_and_replayable(
    tmp_path_factory: pytest.TempPathFactory, profile: str, seed: int, steps: int
) -> None:
    workspace = tmp_path_factory.mktemp("walk")
    (workspace / "AGENTS.md").write_text("Be good.")
    chance = random.Random(seed)
    clock = accumulate((chance.choice(PAUSES_MS) for _ in repeat(None)), initial=START_MS)
    with nexus.open(workspace, ledger=":memory:", clock_ms=lambda: next(clock)) as nx:
        assemble: Any = nx.assemble

        def in_a_form(*args: Any, **options: Any) -> Any:
            return assemble(*args, profile=profile if profile in PROFILES else chance.choice([*PROFILES]), **options)

        nx.assemble = in_a_form
        walk = Walk(nx, workspace, seed)
        for _ in range(steps):
            walk.step()
        for *_, ctx in walk.sent:
            # `temperature` is a field of not every judge's.
            body = {name: value for name, value in own(ctx).items() if name != "temperature"}
            assert CHECKS[ctx.accounting.model_info.provider_format](body) == []
            budget = ctx.token_budget
            assert sum(item.tokens for item in ctx.accounting.token_breakdown) == budget.used.total <= budget.available
        replays(nx, walk)
