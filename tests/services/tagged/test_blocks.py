"""The other blocks as text: document 000's characters, and what they were made of read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from nexus.errors import UnreadableFile
from nexus.render.tool_list import capabilities_text
from nexus.services import tagged
from services.tagged.making import HOSTILE, marks
from support.errors import has_code

FRIEND = "[FRIENDS_INFO]\nAbout this friend:\n\nI prefer concise, direct answers. I'm interested in AI ethics and philosophy."
"""Document 000, "User Message: [FRIENDS_INFO]", to the character."""

MOMENT = (
    "[THIS_MOMENT]\n<current_time>2025-12-10 16:00:00+08:00</current_time>\n<human_input>\n"
    "What's the capital of France?\n</human_input>"
)
"""Document 000, "User Message: [THIS_MOMENT]", to the character."""


def test_friends_and_moment_blocks_match_the_document() -> None:
    """Document 000, "User Message: [FRIENDS_INFO]" and "User Message: [THIS_MOMENT]"."""
    known = "I prefer concise, direct answers. I'm interested in AI ethics and philosophy."
    assert tagged.friends_block(known) == FRIEND
    assert tagged.parse_friends(FRIEND) == known
    assert tagged.moment_block("2025-12-10 16:00:00+08:00", "What's the capital of France?") == MOMENT
    assert tagged.parse_moment(MOMENT) == ("2025-12-10 16:00:00+08:00", "What's the capital of France?")


def test_mood_and_constraints_blocks_round_trip() -> None:
    """Document 000, "Extensibility": "Easy to add new blocks (e.g., [MOOD], [CONSTRAINTS])"."""
    assert tagged.mood_block("calm") == "[MOOD]\ncalm"
    assert tagged.constraints_block("at most\n100 words") == "[CONSTRAINTS]\nat most\n100 words"


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (tagged.friends_block, tagged.parse_friends),
        (tagged.mood_block, tagged.parse_mood),
        (tagged.constraints_block, tagged.parse_constraints),
    ],
)
@given(HOSTILE)
def test_block_round_trips_any_text_with_one_tag(
    make: Callable[[str], str], read: Callable[[str], str], text: str
) -> None:
    """Document 000, "Message Structure": one tag a message, whatever the text in it."""
    block = make(text)
    assert read(block) == text
    seen = marks(block)
    assert (seen["heads"], seen["tools"], seen["tags"]) == (1, 0, 0)


@given(HOSTILE)
def test_moment_block_has_one_head_and_four_tags_for_any_text(text: str) -> None:
    block = tagged.moment_block("2025-12-10 16:00:00+08:00", text)
    assert tagged.parse_moment(block) == ("2025-12-10 16:00:00+08:00", text)
    seen = marks(block)
    assert (seen["heads"], seen["tools"], seen["tags"]) == (1, 0, 4)


@given(HOSTILE)
def test_tool_description_cannot_open_another_block(text: str) -> None:
    tools = [{"name": "t", "description": text}]
    block = tagged.capabilities_block(tools)
    assert tagged.parse_capabilities(block) == capabilities_text(tools)
    seen = marks(block)
    assert (seen["heads"], seen["tools"], seen["tags"]) == (1, 0, 0)


@pytest.mark.parametrize(
    "read",
    [
        tagged.parse_capabilities,
        tagged.parse_friends,
        tagged.parse_mood,
        tagged.parse_constraints,
        tagged.parse_moment,
    ],
)
@pytest.mark.parametrize(
    "text", ["", "[SOMETHING]\nx", "[THIS_MOMENT]\n<human_input>\nx\n</human_input>", " [MOOD]\nx"]
)
def test_other_text_is_rejected_by_parsers(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(UnreadableFile, check=has_code("bad_context")):
        read(text)
