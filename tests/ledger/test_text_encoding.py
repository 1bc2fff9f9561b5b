"""The one text rule: every text can be stored, comes back as it was, and ordinary text is stored as it is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.ledger.codec import decode_parts, encode_parts
from nexus.ledger.text_encoding import decode_text, encode_text, from_json, to_json
from nexus.types.message import Image, Note, Text, Thinking, ToolCall, ToolResult, Unknown

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates included
TRICKY = st.lists(st.sampled_from(["\x1a", "0000", "d800", "\ud800", "\0", "a", "\x1a0000", "é"])).map("".join)
BODY = msgspec.json.Decoder(dict[str, Any])
IMAGES = st.builds(Image, st.just("image/png"), data=st.text("ABC=", min_size=1), width=st.integers(0, 9))
PARTS = st.one_of(
    st.builds(Text, ANY_TEXT),
    IMAGES,
    st.builds(Thinking, ANY_TEXT, ANY_TEXT),
    st.builds(ToolCall, ANY_TEXT, ANY_TEXT, ANY_TEXT),
    st.builds(
        ToolResult,
        ANY_TEXT,
        st.lists(st.one_of(st.builds(Text, ANY_TEXT), IMAGES), max_size=3).map(tuple),
        ANY_TEXT,
        st.booleans(),
    ),
    st.builds(Note, st.sampled_from(["moment", "memory"]), ANY_TEXT, ANY_TEXT),
    st.builds(Unknown, ANY_TEXT, ANY_TEXT),
)


@given(st.one_of(ANY_TEXT, TRICKY))
def test_stored_text_is_utf_8_without_nul_and_round_trips(text: str) -> None:
    stored = encode_text(text)
    assert "\0" not in stored
    stored.encode("utf-8")
    assert decode_text(stored) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\x1a")))
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    assert encode_text(text) == text


@given(st.one_of(ANY_TEXT, TRICKY), st.one_of(ANY_TEXT, TRICKY))
def test_different_texts_are_stored_differently(one: str, two: str) -> None:
    assert (encode_text(one) == encode_text(two)) == (one == two)


@given(
    st.dictionaries(ANY_TEXT, st.one_of(ANY_TEXT, st.integers(-(2**53), 2**53), st.booleans(), st.none()), max_size=4)
)
def test_a_body_comes_back_as_it_was_and_its_text_is_plain_json(body: dict[str, Any]) -> None:
    text = to_json(body)
    text.encode("utf-8")
    assert from_json(text, BODY) == body == json.loads(text)


@settings(max_examples=200)
@given(st.lists(PARTS, max_size=5).map(tuple))
def test_parts_come_back_as_they_were_with_image_data_kept_aside(parts: tuple[Any, ...]) -> None:
    blobs: dict[str, bytes] = {}
    content = encode_parts(parts, blobs)
    content.encode("utf-8")
    assert "\0" not in content
    assert decode_parts(content, blobs.__getitem__) == parts
