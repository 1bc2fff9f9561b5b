from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus import TokenUsage, read_reply
from nexus.providers.errors import detect_silent_overflow, learned_window


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "MODEL_CONTEXT_WINDOW_EXCEEDED", "model_length"])
def test_stop_reason_of_full_window_is_overflow(reason: str) -> None:
    found = detect_silent_overflow(TokenUsage(150_000, 50_000), window=200_000, stop_reason=reason)
    assert found is not None
    assert (found.kind, found.part, found.source) == ("overflow", "input", f"stop:{reason}")
    assert (found.requested, found.input_tokens, found.output_tokens) == (200_000, 150_000, 50_000)
    assert learned_window(found) is None, "nobody told the window"


def test_accepted_prompt_over_window_is_overflow() -> None:
    found = detect_silent_overflow(TokenUsage(131_073, 10), window=131_072, stop_reason="stop")
    assert found is not None and found.source == "usage:over the window"
    assert detect_silent_overflow(TokenUsage(131_000, 900), window=131_072, stop_reason="stop") is None


def test_cache_reads_count_as_input() -> None:
    reply = read_reply(
        {
            "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 200_000, "output_tokens": 3},
        }
    )  # fmt: skip
    found = detect_silent_overflow(reply.usage, window=200_000, stop_reason=reply.stop_reason)
    assert found is not None and found.input_tokens == 200_010


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens"])
def test_empty_answer_at_99_percent_of_window_is_overflow(reason: str) -> None:
    found = detect_silent_overflow(TokenUsage(99_000, 0), window=100_000, stop_reason=reason)
    assert found is not None and found.source == "usage:empty answer at the limit"
    assert detect_silent_overflow(TokenUsage(98_999, 0), window=100_000, stop_reason=reason) is None
    assert detect_silent_overflow(TokenUsage(99_000, 5), window=100_000, stop_reason=reason) is None
    assert (
        detect_silent_overflow(TokenUsage(99_000, 5), window=100_000, stop_reason=reason, text_empty=True) is not None
    )
    assert (
        detect_silent_overflow(TokenUsage(99_000, 5), window=100_000, stop_reason=reason, output_tokens=0) is not None
    )
    assert detect_silent_overflow(TokenUsage(99_000, 0), window=100_000, stop_reason="stop") is None


def test_prompt_of_exactly_window_size_is_overflow() -> None:
    found = detect_silent_overflow(TokenUsage(8_192, 40), window=8_192, stop_reason="stop", sent_tokens=11_000)
    assert found is not None
    assert (found.source, found.requested, learned_window(found)) == ("usage:exactly the window", 11_000, 8_192)


def test_silent_overflow_of_smaller_window_is_detected() -> None:
    found = detect_silent_overflow(TokenUsage(4_096, 40), window=131_072, sent_tokens=6_000)
    assert found is not None
    assert (found.source, learned_window(found)) == ("usage:cut to a full block", 4_096)
    found = detect_silent_overflow(TokenUsage(2_050, 40), window=131_072, sent_tokens=6_000)
    assert found is not None
    assert (found.source, learned_window(found)) == ("usage:less than was sent", None), (
        "a cached prompt counts less too"
    )


@pytest.mark.parametrize("used", [0, 4_000, 4_096, 5_000])
def test_inexact_estimate_is_not_overflow(used: int) -> None:
    assert detect_silent_overflow(TokenUsage(used, 40), window=131_072, stop_reason="stop", sent_tokens=5_000) is None


def test_no_verdict_without_usage_and_window() -> None:
    assert (
        detect_silent_overflow(TokenUsage(), window=0, stop_reason="length", text_empty=True, sent_tokens=9_000) is None
    )


@given(st.builds(TokenUsage, st.integers(0, 10**7), st.integers(0, 10**6)), st.integers(0, 10**7), st.text(max_size=9))
def test_reply_within_window_is_not_overflow(usage: TokenUsage, window: int, reason: str) -> None:
    found = detect_silent_overflow(
        usage, window=window, stop_reason=reason, output_tokens=1, sent_tokens=usage.input_tokens
    )
    assert (found is None) == (window == 0 or usage.input_tokens < window)
    assert found is None or (found.kind, found.part) == ("overflow", "input")
