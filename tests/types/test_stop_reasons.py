"""Stop reasons: one word for all providers, their own beside it."""

from __future__ import annotations

from typing import get_args

import pytest
from anthropic.types import StopReason as AnthropicReason
from google.genai.types import FinishReason
from openai.types.chat.chat_completion import Choice

import nexus
from nexus.types.stop_reasons import StopReason, stop_reason

NEUTRAL = get_args(StopReason)


@pytest.mark.parametrize(
    "word",
    [
        *get_args(AnthropicReason),
        *get_args(Choice.model_fields["finish_reason"].annotation),
        "completed", "incomplete", "failed", "cancelled", "max_output_tokens", "content_filter",
    ],
)  # fmt: skip
def test_every_word_of_a_provider_has_a_neutral_one(word: str) -> None:
    assert stop_reason(word) in NEUTRAL


def test_every_word_of_gemini_has_a_neutral_one() -> None:
    unknown = [reason.value for reason in FinishReason if stop_reason(reason.value) not in NEUTRAL]
    assert unknown == []


def test_neutral_words_are_their_own() -> None:
    assert [stop_reason(word) for word in NEUTRAL] == [*NEUTRAL]


def test_unknown_word_is_returned_unchanged() -> None:
    assert (stop_reason("something_new"), stop_reason("")) == ("something_new", "")


def test_calls_make_the_end_of_a_turn_a_tool_use() -> None:
    assert (stop_reason("STOP", has_calls=True), stop_reason("MAX_TOKENS", has_calls=True)) == (
        "tool_use",
        "max_tokens",
    )


def test_ledger_has_the_neutral_word_and_the_providers_where_it_differs() -> None:
    with nexus.open(ledger=":memory:") as nx:
        for word in ("length", "end_turn"):
            reply = nexus.AgentResult((nexus.assistant("x"),), stop_reason=stop_reason(word), provider_stop_reason=word)
            nx.record(nx.assemble("hi"), reply)
        bodies = [entry.body for entry in nx.ledger.store.entries(1) if entry.kind == "messages"]
    assert [(body["stop_reason"], body.get("provider_stop_reason")) for body in bodies] == [
        ("max_tokens", "length"), ("end_turn", None),
    ]  # fmt: skip


def test_words_of_an_agent_are_stored_as_neutral_ones() -> None:
    with nexus.open(ledger=":memory:") as nx:
        nx.record(nx.assemble("hi"), nexus.AgentResult((nexus.assistant("x"),), stop_reason="stop"))
        (body,) = [entry.body for entry in nx.ledger.store.entries(1) if entry.kind == "messages"]
    assert (body["stop_reason"], body["provider_stop_reason"]) == ("end_turn", "stop")
