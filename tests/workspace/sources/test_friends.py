"""The user's profile as text, and where it stands in a context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.types.message import assistant
from nexus.types.profile import Profile
from nexus.types.user_profile import FRIEND_HEADING, NOTHING_KNOWN, friend_text

KNOWN = "I prefer concise, direct answers. I'm interested in AI ethics and philosophy."
"""Document 000's example."""

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["friends_profile", "learning", "content", "prompt_overrides", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def test_framed_text_matches_document_000() -> None:
    """Document 000, "User Message: [FRIENDS_INFO]": the content behind the frame's line."""
    assert (FRIEND_HEADING, friend_text({"prompt_overrides": {"friends_profile": KNOWN}})) == (
        "About this friend:",
        KNOWN,
    )


@pytest.mark.parametrize(
    "profile",
    [
        {"friends_profile": "known"},
        {"friends_profile": {"content": "known", "editable": True}},
        {"prompt_overrides": {"friends_profile": "known"}},
        {"prompt_overrides": {"friends_profile": {"content": {"content": " known\n"}}}},
        {"learning": "known"},
        {"friends_profile": {"content": ""}, "learning": {"content": "known"}},
        {"friends_profile": "known", "learning": "older"},
        {"prompt_overrides": {"friends_profile": "known"}, "learning": "older"},
        {"friends_profile": True, "prompt_overrides": {"learning": "known"}},
        {"friends_profile": ["known"]},
    ],
)
def test_profile_text_precedes_learned_text_and_content(profile: Any) -> None:
    """Decided on 000: `friends_profile`, then `learning`, as text or `{"content": …}`."""
    assert friend_text(profile) == "known"


def test_profile_settings_are_not_text(tmp_path: Path) -> None:
    """Document 000, "config.example.yml": `content`, `editable` and `description` of `friends_profile`."""
    printed = {"content": "", "editable": True, "description": "About this friend - preferences, patterns, and context"}
    assert friend_text({"friends_profile": printed}) == NOTHING_KNOWN
    assert friend_text({"friends_profile": {**printed, "content": KNOWN}}) == KNOWN
    mine = Profile("mine", "", ("friends",), ())
    ctx = opened(tmp_path, mine).assemble("hi", profile="mine", user_profile={"friends_profile": printed})
    assert (ctx.provenance.blocks, ctx.warnings) == ((), ())


def test_profile_lists_are_lines_and_numbers_texts() -> None:
    assert friend_text({"friends_profile": ["one", {"content": "two"}, 3, None, ""]}) == "one\ntwo\n3"
    assert friend_text({"friends_profile": 42}) == "42"


@pytest.mark.parametrize(
    "profile", [{}, None, 7, "text", [], {"friends_profile": "  "}, {"friends_profile": False}, {"prompt_overrides": 3}]
)
def test_placeholder_is_used_without_profile(profile: Any) -> None:
    """Decided on 000: none: `(Nothing is known about this friend yet.)`."""
    assert friend_text(profile) == NOTHING_KNOWN == "(Nothing is known about this friend yet.)"


@given(JSON)
def test_any_profile_value_gives_text(profile: Any) -> None:
    assert friend_text(profile).strip()


def test_recursive_profile_terminates() -> None:
    inner: dict[str, Any] = {}
    inner["content"] = inner
    assert friend_text({"friends_profile": inner}) == NOTHING_KNOWN


def opened(tmp_path: Path, profile: Profile) -> nexus.Engine:
    return nexus.open(tmp_path, ledger=":memory:", profiles={"mine": profile})


def test_friends_source_returns_persona_block_in_profile_slot(tmp_path: Path) -> None:
    for profile, slot in (
        (Profile("mine", "", ("friends",), ()), "system"),
        (Profile("mine", "", (), ("moment", "friends")), "current"),
    ):
        ctx = opened(tmp_path, profile).assemble("hi", profile="mine", user_profile={"friends_profile": KNOWN})
        block = next(block for block in ctx.provenance.blocks if block.source == "nexus:user_profile")
        assert (block.layer, block.slot, block.trust) == ("Persona", slot, "user")
        assert block.text == f"About this friend:\n\n{KNOWN}"
        assert sum(item.tokens for item in ctx.accounting.token_breakdown) == ctx.token_budget.used.total


def test_missing_profile_gives_no_block_and_invalid_one_a_warning(tmp_path: Path) -> None:
    nx = opened(tmp_path, Profile("mine", "", ("friends",), ()))
    assert nx.assemble("hi", profile="mine").provenance.blocks == ()
    ctx = nx.assemble("hi", profile="mine", user_profile={"friends_profile": {"likes": "tea"}})
    assert ctx.provenance.blocks == ()
    assert [note.message for note in ctx.warnings] == ["omitted: field 'friends_profile' is not text"]


def test_friends_in_current_slot_are_sent_once_and_replayed(tmp_path: Path) -> None:
    nx = opened(tmp_path, Profile("mine", "", (), ("moment", "friends")))
    bodies: list[dict[str, Any]] = []
    for number in range(3):
        given = {"friends_profile": "tea" if number < 2 else "coffee"}
        ctx = nx.assemble(f"turn {number}", session="s", profile="mine", user_profile=given)
        bodies.append(ctx.to_openai())
        nx.record(ctx, nexus.AgentResult((assistant("ok"),)))
    assert [str(body).count("About this friend") for body in bodies] == [1, 1, 2]
    assert [nx.replay("s", turn).to_openai() for turn in (1, 2, 3)] == bodies
