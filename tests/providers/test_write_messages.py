"""Messages written in a provider's format: the list that a program had, and lists for other providers."""

from __future__ import annotations

from typing import Any

import pytest

import nexus
from nexus.errors import BadSetting
from providers.received_cases import CASES


@pytest.mark.parametrize("provider", ["openai", "responses"])
def test_list_is_written_as_it_was_read(provider: Any) -> None:
    for name, items in CASES[provider].items():
        assert nexus.write_messages(nexus.read_messages(items, provider), provider) == items, name


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_joined_turns_are_written_as_they_were_read(provider: Any) -> None:
    for name, items in CASES[provider].items():
        written = nexus.write_messages(nexus.read_messages(items, provider), provider)
        assert nexus.write_messages(nexus.read_messages(written, provider), provider) == written, name


def test_thinking_is_only_for_its_model_if_one_is_named() -> None:
    thinking = nexus.Message("assistant", (nexus.Thinking("t", "s"), nexus.Text("x")), model="claude-opus-4-1")
    kinds = {
        model: [block["type"] for block in nexus.write_messages([thinking], "anthropic", model=model)[0]["content"]]
        for model in ("", "claude-opus-4-1", "claude-sonnet-4-5")
    }
    assert kinds == {
        "": ["thinking", "text"],
        "claude-opus-4-1": ["thinking", "text"],
        "claude-sonnet-4-5": ["text"],
    }


def test_history_is_written_for_another_provider() -> None:
    call = nexus.ToolCall("call_1", "look", '{"at": 1}')
    with nexus.open(ledger=":memory:") as nx:
        nx.record(nx.assemble("Look."), nexus.AgentResult((nexus.assistant("", call), nexus.tool("call_1", "A cat."))))
        assert nexus.write_messages(nx.history("main"), "anthropic")[1:] == [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": 1}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "A cat."}]},
        ]


def test_unknown_provider_is_rejected() -> None:
    with pytest.raises(BadSetting, match="'mistral' unknown"):
        nexus.write_messages([], "mistral")  # pyright: ignore[reportArgumentType]
