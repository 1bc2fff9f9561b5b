"""Stable and lost tokens of a prefix report: the last prompt as reported, and the part of it before a difference."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.assembly.fit.window import Window
from nexus.assembly.manifest_store import parse_stored_manifest
from nexus.assembly.prefix_report import same_pins
from nexus.context import Manifest
from nexus.types.request import TokenUsage

WORDS = "The planner reads the index and the worker writes the report. "
SMALL_CHAT = {"budget": 2_000}


def reply(tokens: int = 0) -> nexus.AgentResult:
    """An answer, with the provider's count of the prompt."""
    return nexus.AgentResult((nexus.assistant("Understood. " * 30),), TokenUsage(tokens, 60))


def opened(root: Path | None = None, model: str = "gpt-4o", **options: Any) -> nexus.Engine:
    return nexus.open(root, ledger=":memory:", model=model, **options)


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "our-own"])
def test_stable_tokens_of_an_extended_prompt_are_the_reported_ones(model: str) -> None:
    with opened(model=model) as nx:
        ctx = nx.assemble(WORDS * 60)
        reported = ctx.token_budget.used.total * 9 // 10
        nx.record(ctx, reply(reported))
        later = nx.assemble("And now?")
    assert (later.accounting.prefix.state, later.accounting.prefix.stable_tokens) == ("extends", reported)


def test_stable_tokens_without_a_report_are_the_last_prompt_as_counted() -> None:
    """The reply is not part of them: no provider has it in its cache."""
    with opened() as nx:
        ctx = nx.assemble(WORDS * 60)
        nx.record(ctx, reply())
        later = nx.assemble("And now?")
    assert abs(later.accounting.prefix.stable_tokens - ctx.token_budget.used.total) <= 4


def test_implausible_report_is_not_a_prediction() -> None:
    with opened() as nx:
        ctx = nx.assemble(WORDS * 60)
        nx.record(ctx, reply(50_000))
        stable = nx.assemble("And now?").accounting.prefix.stable_tokens
    assert stable < 2 * ctx.token_budget.used.total


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "our-own"])
def test_stable_part_after_a_break_has_the_providers_scale(model: str, tmp_path: Path) -> None:
    """A provider that counts a quarter less than expected does so in the part before the difference too."""
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n" + WORDS * 100)
    stable: list[int] = []
    for share in (1.0, 0.75):
        with opened(tmp_path, model) as nx:
            for number in range(40):
                ctx = nx.assemble(f"{number}: {WORDS * 5}", budget=4_000)
                if ctx.cut is not None:
                    break
                nx.record(ctx, reply(int(share * ctx.provenance.manifest.base)))
            prefix = ctx.accounting.prefix
            assert (prefix.state, prefix.at) == ("broken", "message 2 of the history")
            stable.append(prefix.stable_tokens)
    assert stable[1] == pytest.approx(0.75 * stable[0], rel=0.03)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.5, 1.5)), min_size=6, max_size=14))
def test_stable_and_lost_tokens_are_at_most_the_last_prompt(turns: list[tuple[int, float]]) -> None:
    last = 0
    with opened() as nx:
        for number, (length, share) in enumerate(turns):
            ctx = nx.assemble(f"{number}: {WORDS * length}", **SMALL_CHAT)
            prefix = ctx.accounting.prefix
            if number:
                assert 0 <= prefix.stable_tokens <= prefix.stable_tokens + prefix.lost_tokens <= last
            last = int(share * ctx.provenance.manifest.base)
            nx.record(ctx, reply(last))


def manifest_with(**fields: Any) -> Manifest:
    """Return a manifest as a stored one is read."""
    return parse_stored_manifest({"pins": [], **fields})


PLACES = ((1, 0, 0), (7, 0, 1))
KINDS = ("task", "asked")
NOW = manifest_with(opening="hash of both", pins=[[9, 0, 0]])
EARLIER_MANIFESTS = {
    "the same hash": (manifest_with(opening="hash of both", pins=[[9, 0, 0]]), True),
    "another hash": (manifest_with(opening="hash of another", pins=[[9, 0, 0]]), False),
    "another whole message": (manifest_with(opening="hash of both"), False),
    "nothing pinned": (manifest_with(), False),
    "a list": (manifest_with(pins=[[1, 0, 0], [7, 0, 1], [9, 0, 0]], pin_kinds=KINDS), True),
    "a list without reasons": (manifest_with(pins=[[1, 0, 0], [7, 0, 1], [9, 0, 0]]), True),
    "a shorter list": (manifest_with(pins=[[1, 0, 0], [9, 0, 0]], pin_kinds=KINDS[:1]), False),
    "a list with other reasons": (
        manifest_with(pins=[[1, 0, 0], [7, 0, 1], [9, 0, 0]], pin_kinds=("task", "pin")),
        False,
    ),
}


@pytest.mark.parametrize("name", EARLIER_MANIFESTS)
def test_pins_of_an_earlier_manifest_are_compared_whether_it_lists_them_or_not(name: str) -> None:
    before, same = EARLIER_MANIFESTS[name]
    window = cast("Window", SimpleNamespace(opening_pins=lambda: (PLACES, KINDS)))
    assert same_pins(before, NOW, window) is same


def test_manifest_does_not_grow_with_what_a_cut_hides(tmp_path: Path) -> None:
    def say(nx: nexus.Engine, number: int) -> int:
        ctx = nx.assemble(f"Question {number}: {'please answer well ' * 20}")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Yes. " * 40),)))
        row = nx.ledger.store.last_assembly(1, ctx.provenance.manifest.view)
        assert row is not None
        return len(json.dumps({**row.manifest, "made": None}))

    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o", budget=12_000) as nx:
        few = [say(nx, number) for number in range(60)]
        many = [say(nx, number) for number in range(60, 300)]
        assert nx.ledger.store.last_cut(1, nx.assemble("Hi").provenance.manifest.view) is not None
        assert max(many) < max(few) + 200
