"""Reasoning that a model writes into its text stands before the answer and is taken off; the answer is not touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.summarization.prompt import strip_thinking

ANSWER = "## Task\n> Build it.\n\n## Open\n- Newest request: why does `</think>` stand in the log?"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="none"),
        pytest.param("<think>\nFirst I list.\n</think>\n\n", id="think"),
        pytest.param("<think></think>", id="empty"),
        pytest.param("\n\n<Thinking>hm</Thinking>\n", id="thinking"),
        pytest.param("<reasoning>a ## Task in it\n## Task\n</reasoning>", id="with headings"),
        pytest.param("[THINK]a[/THINK]", id="square"),
        pytest.param("<think>a</think>\n<think>b</think>\n", id="twice"),
        pytest.param("Okay, the user wants notes.\n</think>\n\n", id="opened in the prompt"),
    ],
)
def test_leading_reasoning_is_stripped(before: str) -> None:
    assert strip_thinking(before + ANSWER) == ANSWER


def test_unterminated_reasoning_leaves_empty_text() -> None:
    assert strip_thinking("<think>\nI have to list the task, the rules, the") == ""


@given(st.text())
def test_text_without_tags_is_only_stripped(text: str) -> None:
    text = text.replace("<", "(").replace("[", "(")
    assert strip_thinking(text) == text.strip()


@given(st.text(alphabet="ab \n<>/[]think"))
def test_answer_after_closed_reasoning_is_unchanged(thought: str) -> None:
    thought = thought.replace("</think>", "")
    assert strip_thinking(f"<think>{thought} </think>{ANSWER}") == ANSWER


def test_megabytes_of_tags_are_stripped_in_linear_time() -> None:
    assert strip_thinking("<think>" * 150_000) == ""
    assert strip_thinking("<think></think>" * 150_000 + ANSWER) == ANSWER
