"""The note in the place of an image: what it says, and that it frees as many tokens as was reckoned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.assembly.fit.truncate_results import freed_tokens, images_of, with_image_notes
from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import message_tokens
from nexus.types.ledger_entries import MessageRef
from nexus.types.message import Image, Message, Text, ToolResult, user

COUNTER = get_counter()
PLACE = MessageRef(12, 0)
CHART = Image("image/png", "AAAA", width=640, height=480)


def test_image_placeholder_names_type_size_and_how_to_see_it() -> None:
    told = with_image_notes(Message("user", (Text("see"), CHART), id="m1"), PLACE)
    wanted = "[image/png 640x480 was shown here before; to see it again: `nexus history --images FOLDER`]"
    assert told == Message("user", (Text("see"), Text(wanted)), id="m1")


def test_image_placeholder_in_result_names_call_and_keeps_position() -> None:
    result = ToolResult("toolu_1", (Text("before"), CHART, Text("after")), "look")
    (part,) = with_image_notes(Message("tool", (result,)), PLACE).results()
    assert [item.text for item in part.content if isinstance(item, Text)] == [
        "before",
        "[image/png 640x480 was shown here before; to see it again: `nexus history --call toolu_1 --images FOLDER`]",
        "after",
    ]


@pytest.mark.parametrize("odd", ["x" * 41, "image/png`rm -rf /`", "a\nb", ""])
def test_image_placeholder_omits_unsafe_names(odd: str) -> None:
    (note,) = with_image_notes(Message("user", (Image(odd, "AAAA"),)), PLACE).parts
    assert isinstance(note, Text) and note.text.startswith("[an image was shown here before;")
    (part,) = with_image_notes(Message("tool", (ToolResult(f"{odd}`", (CHART,)),)), PLACE).results()
    assert "--call" not in str(part.content)


def test_message_without_visible_image_is_the_same_object() -> None:
    for message in (user("hello"), Message("user", (Image("image/png"), Text("x")))):
        assert with_image_notes(message, PLACE) is message
        assert freed_tokens(message) == 0


images = st.builds(
    Image, st.sampled_from(["image/png", "image/jpeg", "x" * 60]), st.just("AAAA"),
    width=st.integers(0, 4_000), height=st.integers(0, 4_000),
)  # fmt: skip
ids = st.sampled_from(["c1", "toolu_01AbCdEfGhIjKlMnOpQrStUv", "Zq9" * 26])


@settings(deadline=None, max_examples=50)
@given(st.lists(images, min_size=1, max_size=4), ids)
def test_image_eviction_frees_estimated_tokens_in_every_format(pictures: list[Image], call_id: str) -> None:
    for message in (
        Message("user", (Text("see"), *pictures)),
        Message("tool", (ToolResult(call_id, (Text("seen"), *pictures), "look"),)),
    ):
        before, after = message_tokens(message, COUNTER), message_tokens(with_image_notes(message, PLACE), COUNTER)
        for wire in ("openai", "anthropic", "gemini"):
            assert before.on(wire) - after.on(wire) >= freed_tokens(message) > 0
        assert list(images_of(with_image_notes(message, PLACE))) == []
