"""The second counter counts a body's wire text, leaves out what no provider bills as text, and adds up exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.bodies import GOOD, PNG, SCHEMA, anthropic_body, gemini_body, openai_body
from support.recount import Recounter, count_text, recount, wire_text
from support.strict import Json

TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet='{}[]",:\\/ \n\t.aZ9é\u0301的😀\ud800', max_size=40),
    st.sampled_from(["", " ", "'s", '"},{"', "<|endoftext|>", "\u2028", "}", "role"]),
)


def test_o200k_counts_known_texts() -> None:
    assert [count_text(text) for text in ("", "hello world", "<|endoftext|>")] == [0, 2, 7]


def test_a_megabyte_of_spaces_is_counted_in_slices() -> None:
    assert 0 < count_text("x" + " " * 1_000_000 + "y") < 20_000


def test_a_long_run_in_slices_counts_at_most_one_more_per_slice() -> None:
    whole = count_text("x" + " " * 99_990 + "y")
    assert 3 * whole - 30 <= count_text("x" + " " * 300_000 + "y") <= 3 * whole + 30


@pytest.mark.parametrize("provider", sorted(GOOD))
def test_wire_text_is_the_json_of_the_body(provider: str) -> None:
    body = GOOD[provider]()
    assert json.loads(wire_text(body)).keys() == body.keys()
    assert '","' in wire_text(body)
    assert "Köln" in wire_text(body)


@pytest.mark.parametrize("provider", sorted(GOOD))
def test_images_are_left_out_of_the_count(provider: str) -> None:
    body = GOOD[provider]()
    assert PNG not in wire_text(body)
    larger = json.loads(json.dumps(body).replace(PNG, PNG * 50))
    assert recount(larger) == recount(body)


def test_an_image_address_is_counted() -> None:
    body = openai_body()
    body["messages"][1]["content"][1]["image_url"]["url"] = "https://example.org/a.png"
    assert "https://example.org/a.png" in wire_text(body)


def test_signatures_and_cache_control_are_not_counted() -> None:
    told = wire_text(anthropic_body())
    assert "Two calls." in told
    assert all(hidden not in told for hidden in ("c2lnbmVk", "b3BhcXVl", "cache_control"))
    assert "c2lnbmVk" not in wire_text(gemini_body())


def test_a_tools_own_json_is_counted_whole_whatever_its_keys_are() -> None:
    own: Json = {"cache_control": {"a": 1}, "thought_signature": "kept", "type": "thinking", "signature": "kept too"}
    anthropic, gemini = anthropic_body(), gemini_body()
    anthropic["messages"][1]["content"][3]["input"] = own
    anthropic["tools"][0]["input_schema"] = {**SCHEMA, "properties": {"cache_control": {"type": "string"}}}
    gemini["contents"][2]["parts"][0]["function_response"]["response"] = own
    sent = json.dumps(own, separators=(",", ":"))
    assert sent in wire_text(anthropic)
    assert '"properties":{"cache_control":' in wire_text(anthropic)
    assert sent in wire_text(gemini)


def test_counting_changes_nothing_in_the_body() -> None:
    for make in GOOD.values():
        body = make()
        recount(body)
        Recounter().count(body)
        assert body == make()


@pytest.mark.parametrize("provider", sorted(GOOD))
def test_the_recounter_agrees_with_the_recount_on_every_prefix(provider: str) -> None:
    recounter = Recounter()
    body = GOOD[provider]()
    listed = next((name for name in ("contents", "input") if name in body), "messages")
    for end in range(len(body[listed]) + 1):
        part = {**body, listed: body[listed][:end]}
        assert recounter.count(part) == recount(part)


@settings(max_examples=300, deadline=None)
@given(
    before=st.dictionaries(st.sampled_from(["model", "system"]), TEXTS),
    messages=st.lists(
        st.one_of(
            st.fixed_dictionaries({"role": TEXTS, "content": TEXTS}),
            st.fixed_dictionaries({"content": TEXTS, "is_error": st.booleans()}),
            st.fixed_dictionaries({"role": st.just("user"), "n": st.integers()}),
            st.dictionaries(TEXTS, TEXTS, max_size=2),
        ),
        max_size=5,
    ),
    after=st.dictionaries(st.sampled_from(["tools", "max_tokens", "config", "9", "é", ""]), TEXTS, max_size=2),
)
def test_the_recounter_is_exact_for_any_texts(before: Json, messages: list[Any], after: Json) -> None:
    body = {**before, "messages": messages, **after}
    assert Recounter().count(body) == recount(body)


def test_recounter_is_exact_for_megabyte_of_spaces() -> None:
    body = openai_body()
    body["messages"][6]["content"] = "a" + " " * 1_000_000
    assert Recounter().count(body) == recount(body)
