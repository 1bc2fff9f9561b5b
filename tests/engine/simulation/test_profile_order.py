"""What a profile's order costs: volatile before stable, in tokens and in dollars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import nexus
from nexus.engine.simulation.profile_order import ProfileReport, check_profile_order
from nexus.providers.prompt_cache import price_of_break
from nexus.types.profile import Profile, Share
from nexus.workspace.source_context import SourceContext
from workspace.sources.gathering import write

STABLE = Profile("stable", "", ("rules", "soul"), ("moment", "memory", "attachments"))
CLOCK = Profile("clock", "", ("moment", "rules", "mood", "soul"), ("memory", "attachments"))
LAST = Profile("last", "", ("rules", "soul", "moment"), ("attachments",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "agent", AGENTS="Be exact. " * 300, SOUL="Calm. " * 200, MEMORY="Ann likes tea.")


def looked(root: Path, profile: Profile, **options: Any) -> ProfileReport:
    with nexus.open(root, ledger=":memory:", profiles={profile.name: profile}, **options) as nx:
        for number in range(3):
            ctx = nx.assemble(f"{number} " + "word " * 200, session="main")
            nx.record(ctx, nexus.AgentResult((nexus.assistant("yes " * 100),)))
        return check_profile_order(nx, profile.name, session="main")


def test_stable_profile_order_has_no_finding(root: Path) -> None:
    found = looked(root, STABLE)
    assert found.findings == ()
    assert found.warnings == ()
    assert [(row.slot, row.source, row.changes) for row in found.rows] == [
        ("system", "rules", "files"),
        ("system", "soul", "files"),
        ("current", "moment", "turn"),
        ("current", "memory", "files"),
        ("current", "attachments", "turn"),
    ]
    assert found.rows[0].origins == ("AGENTS.md",)
    assert found.rows[0].tokens > 500


def test_row_and_history_tokens_match_token_breakdown(root: Path) -> None:
    with nexus.open(root, ledger=":memory:", profiles={"stable": STABLE}) as nx:
        found = check_profile_order(nx, "stable")
        ctx = nx.assemble("(your next message)", session="main", profile="stable")
    by_name = {item.source: item.tokens for item in ctx.accounting.token_breakdown}
    for row in found.rows:
        assert row.tokens == sum(by_name[origin] for origin in row.origins)


def test_volatile_system_source_costs_everything_after_it(root: Path) -> None:
    found = looked(root, CLOCK)
    (warning,) = (one for one in found.findings if one.level == "warning")
    sizes = {row.source: row.tokens for row in found.rows}
    assert warning.sources == ("moment", "mood")
    assert warning.before == ("rules", "soul", "the history")
    assert warning.tokens == sizes["rules"] + sizes["soul"] + found.history_tokens
    assert found.history_tokens > 500
    model = nexus.open().resolve(found.model)
    assert warning.dollars == float(price_of_break(warning.tokens, model, prompt_tokens=10_000) or 0)
    assert warning.text.startswith(
        "moment and mood change with each turn and are in the system slot before rules, soul"
    )
    assert warning.text.endswith(f"USD ({found.model}) (list them in `current`)")


def test_frozen_system_slot_warns_of_stale_source_without_cost(root: Path) -> None:
    (warning,) = looked(root, replace(CLOCK, freeze_system_prompt=True)).findings
    assert (warning.level, warning.sources, warning.before, warning.tokens) == ("warning", ("moment", "mood"), (), 0)
    assert warning.text == (
        "moment and mood change with each turn and are in a frozen system slot: a session shows them as its first call "
        "did (list them in `current`)"
    )
    assert looked(root, replace(STABLE, freeze_system_prompt=True)).findings == ()


def test_volatile_last_system_source_costs_the_history(root: Path) -> None:
    (warning,) = looked(root, LAST).findings
    assert (warning.sources, warning.before) == (("moment",), ("the history",))
    assert "moment changes with each turn and is in" in warning.text


def test_finding_agrees_with_prefix_report_of_next_call(root: Path) -> None:
    now = [1_772_807_400_123]
    with nexus.open(root, ledger=":memory:", profiles={"clock": CLOCK}, clock_ms=lambda: now[0]) as nx:
        for number in range(3):
            ctx = nx.assemble(f"{number} " + "word " * 200, session="main", profile="clock")
            nx.record(ctx, nexus.AgentResult((nexus.assistant("yes " * 100),)))
            now[0] += 60_000
        (warning,) = (
            one for one in check_profile_order(nx, "clock", session="main").findings if one.level == "warning"
        )
        prefix = nx.assemble("(your next message)", session="main", profile="clock").accounting.prefix
    assert prefix.state == "broken"
    assert prefix.at == "nexus:moment (moment) in the system slot"
    # The break loses what was sent before: the message before, its reply and the moment's own block are not the same.
    assert abs(prefix.lost_tokens - warning.tokens) < 400
    assert prefix.lost_tokens > 1_000


def test_session_source_costs_only_more_stable_sources(root: Path) -> None:
    mine = Profile("mine", "", ("permissions", "rules", "host"), ("attachments",))
    with nexus.open(root, ledger=":memory:", profiles={"mine": mine}) as nx:
        assert [one.changes for one in check_profile_order(nx, "mine").findings] == ["files"]
    profile = Profile("mine", "", ("surroundings", "nexus_identity", "rules", "host"), ("attachments",))
    (note,) = looked(root, profile).findings
    assert (note.level, note.sources, note.changes, note.before) == ("note", ("rules",), "files", ("host",))
    assert "whenever one of them changes" in note.text


def test_finding_has_no_price_without_model_prices(root: Path) -> None:
    (warning, *_) = looked(root, CLOCK, model="nobody-knows").findings
    assert warning.dollars is None
    assert "USD" not in warning.text
    with nexus.open(
        write(root.parent / "small", AGENTS="Be exact."), ledger=":memory:", profiles={"clock": CLOCK}
    ) as nx:
        assert [one.dollars for one in check_profile_order(nx, "clock").findings] == [0.0]


def test_rewritten_memory_before_stable_blocks_has_a_cost(root: Path) -> None:
    """Document 000: the memory block, whose head counts its entries, stands before the user's; `tagged_stable` mends it."""
    with nexus.open(root, ledger=":memory:") as nx:
        (warning, *_) = check_profile_order(nx, "tagged").findings
        assert warning.text.startswith("shared_memory changes with each turn and is before friends_block: ")
        assert [
            one.changes for one in check_profile_order(nx, "tagged_stable").findings if one.level == "warning"
        ] == []


def ticking(desk: SourceContext) -> str:
    return f"at {desk.at_ms}"


def still(desk: SourceContext) -> str:
    return f"for {desk.request.session}"


def test_plugin_source_is_called_for_two_messages(root: Path) -> None:
    class Clocks:
        @nexus.hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"ticking": ticking, "still": still}

    mine = Profile("mine", "", ("ticking", "still"), ("attachments",))
    found = looked(root, mine, plugins=[Clocks()])
    assert [(row.source, row.changes, row.origins) for row in found.rows[:2]] == [
        ("ticking", "turn", ("hook:Clocks/ticking",)),
        ("still", "", ("hook:Clocks/still",)),
    ]
    assert [one.sources for one in found.findings] == [("ticking",)]


def test_unknown_sources_and_missing_attachments_are_warnings(root: Path) -> None:
    found = looked(root, Profile("mine", "", ("rulez",), ("moment",), (Share("Memory", ceiling=0.1),)))
    assert [one.message for one in found.warnings] == [
        "source 'rulez' not found; omitted (check the profile)",
        "source 'attachments' missing: files that come with a message are not shown",
    ]


def test_check_writes_nothing_and_report_is_json(root: Path) -> None:
    with nexus.open(root, ledger=":memory:") as nx:
        value = msgspec.to_builtins(check_profile_order(nx, "layered"))
        assert nx.sessions() == []
    assert {"name", "origin", "model", "rows", "findings", "history_tokens", "profile", "warned"} <= value.keys()
    assert value["rows"][0].keys() == {"slot", "source", "changes", "tokens", "origins"}


def test_memory_in_history_takes_no_tokens(root: Path) -> None:
    found = looked(root, STABLE)
    assert [(row.tokens, row.origins) for row in found.rows if row.source == "memory"] == [(0, ("MEMORY.md",))]
