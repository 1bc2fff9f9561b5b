"""Every ready profile, over a tool loop, an image and a second turn: what holds for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from nexus.assembly.profiles.builtin import PROFILES
from nexus.types.message import Image, ToolCall, assistant, tool
from support.validity import CHECKS
from workspace.skills.making import READ_FILE, skill
from workspace.sources.gathering import write

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODELS = ("claude-sonnet-4-5", "gpt-4o", "gemini-2.5-pro")


def contexts(nx: nexus.Engine, profile: str, model: str) -> list[nexus.AssembledContext]:
    """A call with an image, its tool loop, and the next turn, all recorded in one session."""
    made: list[nexus.AssembledContext] = []
    call = ToolCall("c1", "read_file", '{"path": "a"}')
    events = (("What is this?", assistant("", call)), ([tool("c1", "text", "read_file")], assistant("A dot.")),
              ("Thanks.", assistant("Gladly.")))  # fmt: skip
    for event, answer in events:
        images = [] if made else [Image("image/png", PIXEL, width=1, height=1)]
        ctx = nx.assemble(event, session=model, profile=profile, model=model, images=images, tools=[READ_FILE])
        nx.record(ctx, nexus.AgentResult((answer,)))
        made.append(ctx)
    return made


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_valid_stable_counted_and_replayed(tmp_path: Path, profile: str, model: str) -> None:
    """Decided: every profile's output validates on all wires; the next call extends the last one.

    Document 000's forms tell of earlier turns in a block, which changes with each turn: that is declared.
    """
    write(tmp_path, AGENTS="rules", SOUL="soul", USER="user", TOOLS="tools", IDENTITY="me", MEMORY="- tea", NEXUS="n")
    skill(tmp_path, "loud", "always: true", body="LOUD")
    now = iter(range(1_772_807_400_000, 1_772_900_000_000, 400_000))
    with nexus.open(tmp_path, ledger=":memory:", clock_ms=lambda: next(now)) as nx:
        made = contexts(nx, profile, model)
        told = [ctx.accounting.prefix.causes for ctx in made[1:]]
        assert told == [(), ()] if not PROFILES[profile].preamble else told[0] == () != told[1]
        assert all("nexus:shared_memory" in cause for causes in told for cause in causes)
        assert len({ctx.system_prompt for ctx in made}) == 1
        for ctx in made:
            bodies = {wire: getattr(ctx, f"to_{wire}")() for wire in CHECKS}
            assert {wire: CHECKS[wire](body) for wire, body in bodies.items()} == {wire: [] for wire in CHECKS}
            assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total
        again = [nx.replay(model, 1, call=1), nx.replay(model, 1), nx.replay(model, 2)]
        assert [ctx.to_openai() for ctx in again] == [ctx.to_openai() for ctx in made]
