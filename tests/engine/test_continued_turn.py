"""A turn that another program continues sends what the first one would have sent, byte for byte."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus import AgentResult, Event, Text, ToolCall, assistant, hookimpl
from nexus.ledger.sqlite import SqliteLedger

PROFILES = ("layered", "bare", "tagged", "tagged_stable", "turnlog", "repl", "workspace")
AT_MS = 1_760_000_000_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
EVENTS = st.builds(
    Event,
    content=st.text("abc [<]\n", min_size=1, max_size=20).filter(str.strip).map(lambda text: (Text(text),)),
    id=st.sampled_from(["", "e1"]),
    timezone=st.sampled_from(["", "Asia/Shanghai", -480, 330]),
    channel=st.sampled_from(["", "general"]),
    chat_id=st.sampled_from(["", "42"]),
    platform=st.sampled_from(["", "telegram", "discord"]),
    platform_actions=st.sampled_from([(), ("react", "edit")]),
    hook_data=st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    metadata=st.dictionaries(st.text(max_size=4), JSON, max_size=2),
)


class Weather:
    """A plugin whose source shows the metadata of the event in the system prompt."""

    @hookimpl
    def nexus_sources(self) -> dict[str, Any]:
        return {"weather": lambda context: f"Weather for {sorted(context.request.event.metadata)}"}

    @hookimpl
    def nexus_moment(self) -> dict[str, Any]:
        return {"sun": "shines"}

    @hookimpl
    def nexus_profiles(self) -> list[nexus.types.profile.Profile]:
        return [nexus.types.profile.Profile("weather", "for tests", ("weather",), ("moment", "hook_data", "metadata"))]


def bodies(ctx: nexus.AssembledContext) -> list[Any]:
    return [ctx.to_openai(), ctx.to_anthropic(), ctx.to_gemini(), ctx.body_hash]


@given(event=EVENTS, profile=st.sampled_from((*PROFILES, "weather")))
@settings(max_examples=60, deadline=None)
def test_current_turn_assembles_what_begin_assembled(event: Event, profile: str) -> None:
    with closing(SqliteLedger(":memory:")) as store:
        engines = [
            nexus.open(ledger=store, home=Path("/nonexistent"), plugins=[Weather()], clock_ms=lambda at=at: at)
            for at in (AT_MS, AT_MS + 5_000_000)
        ]
        engines[0].record(engines[0].assemble("Before.", session="s"), AgentResult((assistant("Yes."),)))
        turn = engines[0].begin(event, session="s", profile=profile)
        sent = turn.assemble()
        continued = engines[1].current_turn("s", profile=profile)
        assert continued is not None
        assert bodies(continued.assemble()) == bodies(sent)
        turn.record(AgentResult((assistant("", ToolCall("c", "look", "{}")),)))
        turn.result("c", "found")
        again = engines[1].current_turn("s", profile=profile)
        assert again is not None
        assert bodies(again.assemble()) == bodies(turn.assemble())


@pytest.mark.parametrize("profile", PROFILES)
def test_turn_of_a_zone_and_platform_keeps_its_system_prompt_after_a_restart(profile: str, tmp_path: Path) -> None:
    event = Event((Text("Where am I?"),), timezone="Asia/Shanghai", platform="telegram", channel="dm", at_ms=AT_MS)
    with nexus.open(ledger=tmp_path / "l.db", home=tmp_path) as nx:
        sent = bodies(nx.begin(event, session="s", profile=profile).assemble())
    with nexus.open(ledger=tmp_path / "l.db", home=tmp_path) as nx:
        turn = nx.current_turn("s", profile=profile)
        assert turn is not None
        assert bodies(turn.assemble()) == sent
