"""What the layers of a profile may take: ceilings shorten or cut, a floor keeps history."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from nexus.engine import Engine
from nexus.errors import NotFound
from nexus.types.message import assistant
from nexus.types.profile import Profile, Share
from support.errors import has_code

RULES = "# Rules\n\n" + "\n".join(f"- Rule {number}: keep part {number} of the work in order." for number in range(400))


def opened(tmp_path: Path, *shares: Share) -> Engine:
    (tmp_path / "AGENTS.md").write_text(RULES)
    (tmp_path / "memory").mkdir(exist_ok=True)
    (tmp_path / "memory" / "MEMORY.md").write_text("\n".join(f"- fact {number}" for number in range(600)))
    mine = Profile("mine", "for tests", ("rules",), ("moment", "memory"), shares)
    return nexus.open(tmp_path, ledger=":memory:", model="gpt-4o", clock_ms=lambda: 1, profiles={"mine": mine})


def taken(ctx: nexus.AssembledContext, layer: str) -> int:
    return sum(
        item.tokens for item in ctx.accounting.token_breakdown if item.layer == layer and item.source != "nexus:framing"
    )


def test_ceiling_truncates_largest_block_with_warning(tmp_path: Path) -> None:
    with opened(tmp_path) as nx:
        whole = nx.assemble("hi", profile="mine", budget=20_000)
    shares = (Share("Workspace", ceiling=0.1), Share("Memory", ceiling=0.05))
    with opened(tmp_path, *shares) as nx:
        ctx = nx.assemble("hi", profile="mine", budget=20_000)
        assert taken(whole, "Workspace") > 2_000 >= taken(ctx, "Workspace") > 1_500
        assert taken(whole, "Memory") > 1_000 >= taken(ctx, "Memory")
        assert "Rule 0:" in ctx.system_prompt and "Rule 399:" in ctx.system_prompt
        assert "characters left out here; the whole: AGENTS.md" in ctx.system_prompt
        assert "AGENTS.md" in {w.source for w in ctx.warnings if "is limited to 10% of the budget" in w.message}
        assert nx.assemble("hi", profile="mine", budget=20_000).system_prompt == ctx.system_prompt


def test_session_ceiling_limits_history(tmp_path: Path) -> None:
    with opened(tmp_path, Share("Session", ceiling=0.1)) as nx:
        for number in range(60):
            ctx = nx.assemble(f"question {number} " + "w " * 50, profile="mine", budget=30_000)
            assert taken(ctx, "Session") <= 3_000 and ctx.token_budget.remaining > 10_000
            nx.record(ctx, nexus.AgentResult((assistant("answer " * 50),)))
        assert nx.ledger.store.last_cut(1, ctx.provenance.manifest.view) is not None


def test_fixed_parts_take_precedence_over_a_ceiling(tmp_path: Path) -> None:
    with opened(tmp_path, Share("Session", ceiling=0.001)) as nx:
        ctx = nx.assemble("hi", profile="mine", budget=30_000)
        nx.record(ctx, nexus.AgentResult((assistant("long answer " * 500),)))
        assert "long answer" in str(nx.assemble("and", profile="mine", budget=30_000).messages)


def test_session_floor_keeps_more_history_in_small_budget(tmp_path: Path) -> None:
    kept: list[int] = []
    for floor in (0.0, 0.8):
        with opened(tmp_path, Share("Session", floor=floor)) as nx:
            for number in range(60):
                ctx = nx.assemble(f"question {number} " + "w " * 50, profile="mine", budget=16_000)
                if ctx.cut is not None:
                    kept.append(taken(ctx, "Session"))
                    break
                nx.record(ctx, nexus.AgentResult((assistant("answer " * 50),)))
    assert kept[1] > kept[0]


def test_unknown_profile_error_lists_profiles(tmp_path: Path) -> None:
    with (
        opened(tmp_path) as nx,
        pytest.raises(NotFound, match="bare, layered, mine", check=has_code("unknown_profile")),
    ):
        nx.assemble("hi", profile="yours")
