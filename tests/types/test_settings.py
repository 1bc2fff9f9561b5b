"""One value with all settings of an engine, an agent and a call, and changes of it by name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus import Settings

NAMES = st.text("abc", max_size=3)
TEXTS = st.dictionaries(NAMES, NAMES, max_size=2)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": NAMES,
    "budget": st.none() | st.integers(1, 9_000),
    "profile": NAMES,
    "system": NAMES,
    "role": st.sampled_from(["unified", "manager", "worker"]),
    "principal": NAMES,
    "user_profile": TEXTS,
    "toolset": NAMES,
    "permissions": st.lists(NAMES, max_size=2).map(tuple),
    "capabilities": st.none() | st.lists(NAMES, max_size=2).map(tuple),
    "skills": st.lists(NAMES, max_size=2).map(tuple),
    "blocks": TEXTS,
    "temperature": st.none() | st.sampled_from([0.0, 0.5]),
    "extra": st.none() | TEXTS,
    "timezone": st.sampled_from(["", "Europe/Lisbon", -480]),
    "strategy": st.sampled_from(["keep_user_turns", "digest"]),
    "pin_first_message": st.booleans(),
    "max_tool_result_tokens": st.none() | st.integers(0, 9),
}
SETTINGS = st.fixed_dictionaries({}, optional=VALUES).map(lambda values: Settings(**values))


@given(SETTINGS, SETTINGS)
def test_law_changes_lead_from_any_settings_to_any_others(old: Settings, new: Settings) -> None:
    changes = json.loads(json.dumps(new.changes_from(old)))
    assert old.with_changes(changes) == new


@given(SETTINGS)
def test_law_settings_are_the_same_behind_json(settings: Settings) -> None:
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_settings_of_the_engine_hold_for_each_call_and_may_be_changed_in_one() -> None:
    own = Settings(
        model="gpt-5.5", budget=9_000, profile="bare", temperature=0.5, system="Be brief.", strategy="digest"
    )
    with nexus.open(ledger=":memory:", settings=own, timezone="Europe/Lisbon") as nx:
        ctx = nx.assemble("Hello")
        assert (ctx.model, ctx.token_budget.available, ctx.model_config["temperature"]) == ("gpt-5.5", 9_000, 0.5)
        assert (ctx.provenance.manifest.profile, ctx.system_prompt) == ("bare", "Be brief.")
        assert nx.settings.timezone == "Europe/Lisbon"
        changed = nx.assemble("Hello", budget=5_000, temperature=None)
        assert changed.token_budget.available == 5_000
        assert "temperature" not in changed.model_config
        other = nx.assemble("Hello", settings=Settings(model="claude-sonnet-5-5"), budget=7_000)
        assert (other.model, other.token_budget.available) == ("claude-sonnet-5-5", 7_000)
        assert nx.mirror([{"role": "user", "content": "Hello"}], model="gpt-4o").token_budget.available == 9_000


def test_lists_of_two_principals_are_two_sessions_however_the_principal_is_passed() -> None:
    messages = [
        {"role": "user", "content": "My code is 4711."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Go on."},
    ]
    with nexus.open(ledger=":memory:", principal="ann") as nx:
        contexts = [
            nx.mirror(messages),
            nx.mirror(messages, principal="bob"),
            nx.mirror(messages, settings=Settings(principal="eve")),
            nx.mirror(messages, principal=None),
        ]
        for ctx in contexts:
            nx.record(ctx, nexus.AgentResult((nexus.assistant("Done."),)))
        assert len({ctx.session_label for ctx in contexts}) == 4
        assert [ctx.provenance.settings.principal for ctx in contexts] == ["ann", "bob", "eve", ""]
        longer = [*messages, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}]
        assert nx.mirror(longer).session_label == contexts[0].session_label


def test_strategy_and_limit_of_results_may_be_those_of_one_call() -> None:
    with nexus.open(ledger=":memory:") as nx:
        views = {
            nx.assemble("Hello", strategy=strategy, max_tool_result_tokens=limit).provenance.manifest.view
            for strategy in ("keep_user_turns", "oldest_first")
            for limit in (None, 500)
        }
        assert len(views) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "newest"},
        {"timezone": 1_440},
        {"max_tool_result_tokens": -1},
        {"run_mode": "cloud"},
        {"calibrate": "yes"},
        {"permissions": 3},
        {"settings": {"model": "gpt-4o"}},
    ],
)
def test_wrong_value_is_refused_by_engine_and_call(changes: dict[str, Any]) -> None:
    with pytest.raises(nexus.errors.BadSetting):
        nexus.open(ledger=":memory:", **changes)
    with nexus.open(ledger=":memory:") as nx, pytest.raises(nexus.errors.BadSetting):
        nx.assemble("Hello", **changes)
